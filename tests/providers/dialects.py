"""The five dialects, each with what a test of all of them needs: provider, framing, judge, endpoint.

for dialect in DIALECTS.values():
    replay(dialect.provider(), data, framer=dialect.framer)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from aiio.context.events import Error, ErrorKind
from aiio.context.types import Message
from aiio.env.endpoints import KNOWN_ENDPOINTS
from aiio.providers.base import Provider, dialect_class
from aiio.transports.framing import Framer, NDJSONDecoder, SSEDecoder, WholeBody

from .conformance import check_events
from .fakes import FakeIO
from .manifest import Replay, Row, reads, replay, replay_frames, replay_reads
from .strict_anthropic import check_anthropic_body
from .strict_chat import check_chat_body
from .strict_gemini import check_gemini_body
from .strict_ollama import check_ollama_body
from .strict_responses import check_responses_body

SMALL = 4096
"""Bytes; a recording below that is cut at every byte."""
CUTS, PLACES = 20, 12
"""How often a larger recording is cut, and at how many places each time."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One protocol."""

    name: str
    """As manifests and `define_provider` call it."""
    model: str
    """A model id that settings of this dialect are made for."""
    framer: Callable[[], Framer]
    end: str
    """Pattern of the first frame after which an answer may be over."""
    code: tuple[str, ...]
    """Where a manifest has the code of an HTTP error: the first of these that is there."""
    judge: Callable[[dict[str, Any]], None]
    """Asserts that a request body is one that the service takes."""

    @property
    def provider_class(self) -> type[Provider]:
        return dialect_class(self.name)

    def provider(self, row: Row | None = None, **settings: Any) -> Provider:
        """Return a provider, with the quirks of the endpoint that *row* comes from, if it is known."""
        known = KNOWN_ENDPOINTS.get(row.dialect) if row else None
        ours = known is not None and known.provider == self.provider_class.name
        quirks: Mapping[str, Any] = known.quirks if known is not None and ours else {}
        return self.provider_class("http://x", FakeIO(quirks=quirks, model=self.model, **settings))

    def replay(self, row: Row, cuts: Sequence[int] = ()) -> Replay:
        """Push a recording through framing, provider and assembler."""
        return replay(self.provider(row), row.data, cuts, framer=self.framer)

    def body(self, context: Sequence[Message], io: FakeIO | None = None) -> dict[str, Any]:
        """Return the request for *context*, after the judge saw it."""
        io = io or FakeIO(model=self.model)
        _, body = self.provider_class("http://x", io).request(context, io)
        assert isinstance(body, dict)
        self.judge(body)
        return body


DIALECTS: dict[str, Dialect] = {
    one.name: one
    for one in (
        Dialect(
            name="chat",
            model="gpt-5.2",
            framer=SSEDecoder,
            end=r'"finish_reason": ?"|"error"|\[DONE\]',
            code=("code",),
            judge=check_chat_body,
        ),
        Dialect(
            name="responses",
            model="gpt-5.2",
            framer=SSEDecoder,
            end=r'"type": ?"(response\.(completed|incomplete|failed)|error)"',
            code=("code", "type"),
            judge=check_responses_body,
        ),
        Dialect(
            name="anthropic",
            model="claude-sonnet-5",
            framer=SSEDecoder,
            end=r'"stop_reason": ?"|"type": ?"error"',
            code=("type",),
            judge=check_anthropic_body,
        ),
        Dialect(
            name="gemini",
            model="gemini-3-pro",
            framer=SSEDecoder,
            end='"finishReason"|"blockReason"|"error"',
            code=("status",),
            judge=check_gemini_body,
        ),
        Dialect(
            name="ollama",
            model="qwen3",
            framer=NDJSONDecoder,
            end='"done": ?true|"error"',
            code=(),
            judge=check_ollama_body,
        ),
    )
}

AIIO_IS_RIGHT = {
    "gemini-malformed-call.sse": "a call that the model could not write is an error (FORMATS 7.4)"
}
"""Recordings whose expected end is the SDK's, which takes them for an answer with nothing in it."""


# -- a row of the manifest, passed or not


def check_whole(dialect: Dialect, row: Row) -> None:
    """Assert that the recording in one piece gives what the manifest says, by the laws of all dialects."""
    result = dialect.replay(row)
    check_events(result.events, result.content, cut=result.terminal is None)
    result.check_answer(row)
    if row.file not in AIIO_IS_RIGHT:
        result.check_terminal(row)
        return
    assert isinstance(result.terminal, Error)
    assert (result.terminal.code, result.terminal.retryable) == (row.finish, True)


def check_random_cuts(dialect: Dialect, row: Row) -> None:
    """Assert that the recording in pieces of any size gives the same events as in one."""
    chance = random.Random(row.file)
    size = len(row.data)
    cuts = (tuple(sorted(chance.sample(range(1, size), min(PLACES, size - 1)))) for _ in range(CUTS))
    _check_cuts(dialect, row, cuts)


def check_every_cut(dialect: Dialect, row: Row) -> None:
    """Assert the same for a cut at every byte, and for all of them at once."""
    size = len(row.data)
    _check_cuts(dialect, row, [*((at,) for at in range(1, size)), tuple(range(1, size))])


def _check_cuts(dialect: Dialect, row: Row, cuts: Iterable[tuple[int, ...]]) -> None:
    """Assert that no cut changes a frame, and no way in which reads share the frames out changes an event.

    Framing alone sees bytes; of a cut, a provider sees only how many frames each read brings. So each such
    sharing-out is pushed through the provider once, not once for every cut that leads to it.
    """
    provider, data = dialect.provider(row), row.data
    frames = list(chain.from_iterable(reads(dialect.framer(), data)))
    whole = without_ids(replay_frames(provider, frames).events)
    pushed: set[tuple[int, ...]] = set()
    for cut in cuts:
        brought = list(reads(dialect.framer(), data, cut))
        assert list(chain.from_iterable(brought)) == frames, cut
        shares = tuple(len(read) for read in brought if read)
        if shares not in pushed:
            pushed.add(shares)
            assert without_ids(replay_reads(provider, brought).events) == whole, cut


def without_ids(events: list[Any]) -> list[Any]:
    """Return *events* with the ids that were made here alike, so that two readings can be compared."""
    return [
        _without_id(event) if getattr(event, "call_id", "").startswith("call_") else event for event in events
    ]


def _without_id(event: Any) -> Any:
    """Return a copy of *event* whose call id says nothing."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return type(event)(**{**fields, "call_id": "made"})


def check_http(dialect: Dialect, row: Row) -> None:
    """Assert that an HTTP answer is classified as the manifest says, and its headers are read."""
    answer, provider = row.http_error, dialect.provider(row)
    io = provider.io
    assert isinstance(io, FakeIO)
    if row.http_status != 200:
        _check_verdict(row, dialect, provider)
    elif row.error is not None:
        terminal = replay(provider, answer.body.encode(), framer=WholeBody).terminal
        assert isinstance(terminal, Error)
        assert terminal.error == row.error["message"]
    provider.report_plan_usage(answer.headers, io)
    reported = {name for quotas in io.plan_usage for name in quotas}
    for quota in row.extra.get("quotas", ()):
        assert reported & {quota["name"], quota["name"].replace("-", "_")}


def _check_verdict(row: Row, dialect: Dialect, provider: Provider) -> None:
    assert row.error is not None
    verdict = provider.classify_error(row.http_error)
    assert verdict.status == row.http_status
    message = row.error["message"]
    assert verdict.message.endswith(" [fake]")
    assert verdict.message.startswith(message) or message == f"Error code: {row.http_status}"
    assert verdict.code == next((row.error[key] for key in dialect.code if key in row.error), None)
    denied = row.http_status in (401, 403) or "key" in row.file
    assert verdict.kind == (ErrorKind.AUTH if denied else ErrorKind.PROVIDER)
    if "html" not in row.file:  # its date is years away, so the SDK gives up; here the wait is shown instead
        assert verdict.retryable == row.error.get("sdk_would_retry", row.http_status == 503)
    if "request_id" in row.error:
        assert verdict.request_id == row.error["request_id"]
    if "retry_after_s" in row.error:
        assert verdict.retry_after_ms == row.error["retry_after_s"] * 1000
