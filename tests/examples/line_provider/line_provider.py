"""LINE, an invented protocol, speaks in lines: `think "…"`, `say "…"`, `call {…}`, `args "…"`, `end {…}`."""

from typing import Any

from aiio.providers import Events, Provider, ProviderIO, decode_json

KINDS = {b"think": "thinking", b"say": "text", b"call": "tool_call", b"args": "tool_call", b"end": None}


class Line(Provider):
    name, path, framing = "line", "/line", "ndjson"

    def request(self, context: Any, io: ProviderIO) -> tuple[dict[str, str], Any]:
        return {"Authorization": f"Bearer {io.token}"}, {"model": io.current_model, "turns": context}

    def decode(self, frame: bytes) -> tuple[bytes, Any]:
        verb, _, value = frame.partition(b" ")
        return verb, decode_json(value)

    def translate(self, native: tuple[bytes, Any], state: dict[str, Any], io: ProviderIO) -> Events:
        (verb, value), kind, last = native, KINDS[native[0]], state.get("kind")
        if begins := verb == b"call" or kind != last:  # a block ends, another begins
            yield from [{"type": f"{last}_end", "content_index": state["at"]}] if last else []
            state.update(kind=kind, at=state.get("at", -1) + 1)
        place = {"content_index": state["at"]}
        if begins and kind:
            yield {"type": f"{kind}_start", **place, **(value if verb == b"call" else {})}
        if verb != b"call":
            piece = {**place, "arguments" if verb == b"args" else "text": value}
            yield {"type": f"{kind}_delta", **piece} if kind else {"type": "done", **value}
