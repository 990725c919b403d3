"""PARROT, an invented protocol over a WebSocket: it asks who is there, and answers in words."""

from collections.abc import Iterator
from typing import Any

from aiio.context.events import Done, Send, TextDelta
from aiio.providers import Provider, ProviderIO


class Parrot(Provider):
    name, path = "parrot", "/talk"

    def request(self, context: Any, io: ProviderIO) -> tuple[dict[str, str], Any]:
        said = [block["text"] for message in context for block in message["content"]]
        return {"Authorization": f"Bearer {io.token}"}, {"model": io.current_model, "said": said}

    def translate(self, native: dict[str, Any], state: Any, io: ProviderIO) -> Iterator[Any]:
        if "who" in native:
            yield Send(b'{"name":"aiio"}')
        if "word" in native:
            yield TextDelta(0, native["word"])
        if native.get("end"):
            yield Done(done_reason="end")
