"""Recordings of real answers and what each must become: the loader, the driver, the comparison.

The rows come from the folder in AIIO_RECORDINGS, else from `shared/wire/recordings` beside the repository,
else from `tests/fixtures`, which holds the synthetic ones. Every dialect's tests use this module:

    for row in rows("chat"):
        replay(OpenAIChat("http://x", FakeIO()), row.data).check(row)
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from aiio.context.assemble import create_assembler
from aiio.context.events import Done, Error, Placed, ResponseEvent, Working
from aiio.context.types import Block, Message
from aiio.context.usage_data import usage_normalize
from aiio.env.errors import HttpStatusError
from aiio.providers.base import Provider
from aiio.transports.framing import Framer, SSEDecoder

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures"
NO_RECORDINGS = "no recordings: set AIIO_RECORDINGS to the folder that holds them"

BY_ITEM = ("responses", "anthropic")
"""Protocols of which a manifest lists every item or block, also two of a kind in a row."""

NORMAL_USAGE = {
    "in": "input_tokens",
    "out": "output_tokens",
    "cache_read": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}


@dataclass(frozen=True)
class Row:
    """One line of MANIFEST.tsv. Expected values are None where the manifest says nothing."""

    folder: Path
    file: str
    protocol: str
    dialect: str
    case: str
    provenance: str
    http_status: int
    text: Any
    thinking: Any
    tool_calls: list[dict[str, Any]] | None
    blocks: list[str] | None
    finish: str | None
    usage: dict[str, Any] | None
    usage_norm: dict[str, Any] | None
    error: dict[str, Any] | None
    extra: dict[str, Any]
    how: str
    """Where the expected values come from: an SDK and how it was used, or `hand`."""
    note: str

    @property
    def by_hand(self) -> set[str]:
        """The values that no SDK gave, because the SDK is wrong there; `note` has the reason."""
        found = re.match(r"hand(?: \((.*?)\))?", self.how)
        if found is None:
            return set()
        return set(found[1].split(",")) if found[1] else {"text", "tool_calls", "finish", "usage", "error"}

    @property
    def data(self) -> bytes:
        return (self.folder / self.file).read_bytes()

    @property
    def http_error(self) -> HttpStatusError:
        """The HTTP answer of a `*.http.json` row."""
        answer = json.loads(self.data)
        return HttpStatusError(answer["status"], "", answer["body"], answer["headers"])


def recordings_folder() -> Path | None:
    """Return the folder with the recordings, or None where there is none."""
    named = os.environ.get("AIIO_RECORDINGS")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "wire" / "recordings"
    return folder if (folder / "MANIFEST.tsv").is_file() else None


@cache
def all_rows(folder: Path) -> tuple[Row, ...]:
    """Return the rows of the manifest in *folder*."""
    head, *lines = (folder / "MANIFEST.tsv").read_text("utf-8").rstrip("\n").split("\n")
    names = head.split("\t")
    return tuple(_row(folder, dict(zip(names, line.split("\t"), strict=True))) for line in lines)


def rows(protocol: str, *, http: bool = False) -> list[Row]:
    """Return the rows of *protocol*: its streams, or (*http*) its HTTP answers."""
    folder = recordings_folder() or FIXTURES
    found = (row for row in all_rows(folder) if row.protocol == protocol)
    return [row for row in found if row.file.endswith(".http.json") == http]


def recording(file: str) -> Row:
    """Return the row of *file*; skip the test where it isn't there."""
    found = [row for row in all_rows(recordings_folder() or FIXTURES) if row.file == file]
    if not found:
        pytest.skip(NO_RECORDINGS)
    return found[0]


def _row(folder: Path, cells: dict[str, str]) -> Row:
    def value(name: str) -> Any:
        return json.loads(cells[name]) if cells[name] else None

    return Row(
        folder=folder,
        file=cells["file"],
        protocol=cells["protocol"],
        dialect=cells["dialect"],
        case=cells["case"],
        provenance=cells["provenance"],
        http_status=int(cells["http_status"] or 0),
        text=value("exp_text"),
        thinking=value("exp_thinking"),
        tool_calls=value("exp_tool_calls"),
        blocks=value("exp_blocks"),
        finish=cells["exp_finish"] or None,
        usage=value("exp_usage"),
        usage_norm=value("exp_usage_norm"),
        error=value("exp_error"),
        extra=value("exp_extra") or {},
        how=cells["how"],
        note=cells["note"],
    )


def same_text(expected: Any, actual: str) -> bool:
    """Compare with a manifest's string, which may be given as a digest; nothing said means no text."""
    if isinstance(expected, dict):
        data = actual.encode("utf-8", "surrogatepass")
        return bool(hashlib.sha256(data).hexdigest() == expected["sha256"] and len(data) == expected["bytes"])
    return bool((expected or "") == actual)


@dataclass
class Replay:
    """What one recording became."""

    events: list[ResponseEvent | Placed] = field(default_factory=list)
    fault: ValueError | None = None
    """What the provider or the framing refused."""
    message: Message | None = None
    state: Any = None

    @property
    def terminal(self) -> Done | Error | None:
        """The terminal event; None: the stream was cut, and IO would make one."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Done | Error) else None

    @property
    def content(self) -> list[Block]:
        return self.message["content"] if self.message else []

    def text(self, kind: str = "text") -> str:
        """Return all text of one kind: `text` (refusals and transcripts apart), `thinking`, `refusal`, ..."""
        return "".join(text_of(block) for block in self.content if "text" in block and kind_of(block) == kind)

    def check(self, row: Row) -> None:
        """Assert that this is what the manifest says."""
        self.check_answer(row)
        self.check_terminal(row)

    def check_answer(self, row: Row) -> None:
        """Assert that blocks and usage are what the manifest says."""
        assert same_text(row.text, self.text())
        assert same_text(row.thinking, self.text("thinking"))
        assert self._tool_calls(row.tool_calls or []) == (row.tool_calls or [])
        if row.blocks is not None or row.text is None:  # a cut answer may have text and no word on blocks
            assert self._kinds(merge=row.protocol not in BY_ITEM) == (row.blocks or [])
        self._check_usage(row)

    def check_terminal(self, row: Row) -> None:
        """Assert that the answer ended as the manifest says."""
        terminal = self.terminal
        if row.error is None:
            assert isinstance(terminal, Done)
            assert terminal.done_reason == row.finish
        elif row.error.get("kind") == "blocked":
            assert isinstance(terminal, Error)
            assert terminal.code == row.error["reason"]
        elif "kind" in row.error:
            assert terminal is None  # a stream that was cut: IO reports it
        else:
            assert isinstance(terminal, Error)
            assert terminal.error == row.error["message"]
            assert terminal.code == row.error.get("status", row.error.get("code", row.error.get("type")))
            assert (terminal.native or {}).get("finish_reason") == row.finish

    def _tool_calls(self, expected: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the calls as a manifest has them; an id that was made here is None, as it is there."""
        found = [
            {"id": block["call_id"], "name": block["name"], "arguments": block["arguments"]}
            for block in self.content
            if block["type"] == "tool_call"
        ]
        for call, wanted in zip(found, expected, strict=False):
            if wanted["id"] is None:
                assert call["id"].startswith("call_")
                call["id"] = None
        return found

    def _kinds(self, *, merge: bool) -> list[str]:
        kinds = [kind for block in self.content if (kind := kind_of(block)) != "audio_transcript"]
        mergeable = ("text", "thinking") if merge else ()
        return [kind for before, kind in pairwise(["", *kinds]) if not (kind == before and kind in mergeable)]

    def _check_usage(self, row: Row) -> None:
        terminal = self.terminal
        usage = usage_normalize(terminal.usage if terminal else getattr(self.state, "usage", None))
        expected = dict(row.usage_norm or {})
        total = expected.pop("total", None)
        assert usage.get("details", {}).get("reported_total_tokens", usage.get("total_tokens")) == total
        found = {name: usage[key] for name, key in NORMAL_USAGE.items() if key in usage}
        if row.protocol == "anthropic":  # the manifest has a 0 where the wire says nothing
            expected = {name: count for name, count in expected.items() if count or name in found}
        assert found == expected


def text_of(block: Block) -> str:
    """Return the text of *block* as manifests have it: parts of a summary follow each other without a gap."""
    summary = block.get("summary")
    if isinstance(summary, list) and summary:
        return "".join(part["text"] for part in summary)
    return str(block["text"])


def kind_of(block: Block) -> str:
    """Return what a manifest calls a block."""
    if isinstance(item := block.get("item"), dict):
        if "type" not in item:  # Gemini's parts are told apart by their keys
            return "server:" + re.sub("([A-Z])", r"_\1", next(iter(item))).lower()
        return f"server:{item['type']}"
    for mark in ("refusal", "audio_transcript"):
        if block.get(mark):
            return mark
    if block.get("redacted"):
        return f"{block['type']}_redacted"
    return str(block["type"])


def replay(
    provider: Provider,
    data: bytes,
    cuts: Sequence[int] = (),
    *,
    framer: Callable[[], Framer] = SSEDecoder,
) -> Replay:
    """Push *data*, cut at the offsets *cuts*, through framing, provider and assembler, as IO does."""
    return replay_reads(provider, reads(framer(), data, cuts))


def reads(framer: Framer, data: bytes, cuts: Sequence[int] = ()) -> Iterator[list[bytes]]:
    """Yield the frames that each read of *data*, cut at *cuts*, brings, and those of the end."""
    for start, end in pairwise([0, *cuts, len(data)]):
        yield framer.feed(data[start:end])
    yield framer.flush()


def replay_frames(provider: Provider, frames: Iterable[bytes]) -> Replay:
    """Push *frames*, as one read brought them, through provider and assembler."""
    return replay_reads(provider, [frames])


def replay_reads(provider: Provider, brought: Iterable[Iterable[bytes]]) -> Replay:
    """Push the frames that each read *brought* through provider and assembler."""
    result = Replay(state=provider.new_state())
    io, state = provider.io, result.state
    try:
        for event in chain.from_iterable(provider.translate_all(frames, state, io) for frames in brought):
            if isinstance(event, Working):
                continue
            result.events.append(event)  # type: ignore[arg-type]
            if isinstance(event, Done | Error):
                break
        else:
            result.events.extend(provider.finish(state, io))  # type: ignore[arg-type]
    except ValueError as exc:
        result.fault = exc
    if result.terminal is None:
        result.events.extend(provider.abandon(state, io))  # type: ignore[arg-type]
    assembler = create_assembler()
    for event in result.events:
        assembler.consume(event)
    result.message = assembler.seal(cut=not isinstance(result.terminal, Done))
    return result
