"""The same bytes through the official SDKs, each with the HTTP client and the loop that its users have.

The criterion is weaker than aiio's own, and the same for all. A call passes when

- it ends in time (the SDK's own timeout is set, see `Pace`);
- where the answer is whole it ends normally; where it is not, the call raises an error of the SDK's own.
  Where the end marker or the reason for finishing had come and the connection failed behind it, either will
  do: that is a matter of policy. A cancelled call is cancelled;
- what the caller had been given by then is all the text that had come, and no more;
- no socket is left open once the client is closed.

`Failure.RAW`, an error of the library below the SDK, is counted by itself: whoever takes it for good enough
can add those cells. Not asked for: kinds, flags, retry advice, tool calls, usage, a message to send again.

Nothing here may be held against an SDK that is our doing: it is warm before it is timed, the fault waits
until it has handed over what was sent, and `scripts/faults` tries a cell that failed once more, alone and
with more time, as it does with aiio's.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import trio

from tests.serving import serve

from .answers import WORDS, cut_at
from .cells import COMPLETE, Action, Cell, Fault, Place
from .http_peer import HTTPPeer
from .oracle import expected


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds."""

    timeout: float = 2.0
    """What each SDK is given as its timeout."""
    patience: float = 10.0
    """After which a call has not ended in time."""
    reading: float = 1.0
    """At most, for the SDK to hand over the text that was sent."""
    closing: float = 2.0
    """At most, for the server to see that the client has left."""


FIRST, AGAIN = Pace(), Pace(timeout=5, patience=25, reading=4, closing=5)
_SLOW = 0.3
_TICK = 0.02
_PART = 0.05  # for bytes that make no whole frame, which nobody is seen to read

PACKAGES = {
    "chat": "openai",
    "responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google.genai",
    "ollama": "ollama",
}
"""Dialects that an SDK speaks over HTTP, and the module it is imported as."""


class Failure(StrEnum):
    """How a call failed; the first that holds is the one counted."""

    NOT_ENDED = "did not end in time"
    CUT_IS_WHOLE = "took a cut answer for a whole one"
    WHOLE_IS_FAULT = "failed on a whole answer"
    RAW = "raised an error of the library below it"
    NOT_CANCELLED = "was not cancelled"
    TEXT = "text that had come was lost, or changed"
    SOCKET = "left a socket open"


@dataclass
class Call:
    """One call of an SDK, as its user sees it."""

    text: list[str] = field(default_factory=list)
    raised: BaseException | None = None
    ended: bool = False
    socket_left: bool = False


def is_for_sdks(cell: Cell) -> bool:
    """Tell whether *cell* can be tried on an SDK: plain HTTP, and no limit, which SDKs have no three of."""
    return cell.transport == "http" and cell.action in (Action.NONE, Action.KILL)


def try_sdk(cell: Cell, pace: Pace) -> tuple[Cell, Failure | None, str]:
    """Run *cell* on the SDK of its dialect; return how it failed, and what the SDK raised."""
    if cell.dialect not in _warm:
        _warm.add(cell.dialect)
        trio.run(
            _served, Cell(cell.dialect, "http", Place.BEFORE_HEAD, Fault.INFORMATIONAL, Action.NONE), AGAIN
        )
    call = trio.run(_served, cell, pace)
    return cell, failure(cell, call), type(call.raised).__name__ if call.raised else ""


_warm: set[str] = set()
"""Dialects whose SDK this process has used: the first call imports a second's worth of modules."""


async def _served(cell: Cell, pace: Pace) -> Call:
    call = Call()
    stop: list[Callable[[], object]] = []
    said = cut_at(cell.dialect, cell.place).said.text

    async def act(until_gone: Callable[[], Awaitable[None]]) -> None:
        with trio.move_on_after(pace.reading):
            while "".join(call.text) != said:
                await trio.sleep(_TICK)
        await trio.sleep(_PART)
        if cell.action is Action.KILL:
            stop[0]()

    async with serve(HTTPPeer(cell, act, _SLOW)) as server:
        await trio.to_thread.run_sync(asyncio.run, _cancellable(cell, server.url, call, stop, pace))
        with trio.move_on_after(pace.closing) as closing:
            await server.wait_idle()
        call.socket_left = closing.cancelled_caught
    return call


async def _cancellable(
    cell: Cell, url: str, call: Call, stop: list[Callable[[], object]], pace: Pace
) -> None:
    """Run the call in a task, which `stop` cancels from another thread."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(_called(cell.dialect, url, call, pace.timeout))
    stop.append(lambda: loop.call_soon_threadsafe(task.cancel))
    done, _ = await asyncio.wait([task], timeout=pace.patience)
    call.ended = bool(done)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait([task], timeout=1)


async def _called(dialect: str, url: str, call: Call, timeout: float) -> None:
    try:
        async with contextlib.aclosing(_READERS[dialect](url, timeout)) as pieces:
            async for piece in pieces:
                call.text.append(piece)
    except BaseException as exc:  # noqa: BLE001  # it is what is looked at
        call.raised = exc


def failure(cell: Cell, call: Call) -> Failure | None:
    """Return how *call* failed, by the criterion above; None: it passed."""
    want = expected(cell)
    cancelled = isinstance(call.raised, asyncio.CancelledError)
    raw = call.raised is not None and not cancelled and not isinstance(call.raised, _own_errors(cell.dialect))
    whole = want.kind is None
    said = WORDS if want.whole else cut_at(cell.dialect, cell.place).said.text
    findings = {
        Failure.NOT_ENDED: not call.ended,
        Failure.NOT_CANCELLED: want.cancelled and not cancelled and cell.place not in COMPLETE,
        Failure.CUT_IS_WHOLE: not whole and call.raised is None and cell.place not in COMPLETE,
        Failure.WHOLE_IS_FAULT: whole and call.raised is not None and cell.place not in COMPLETE,
        Failure.TEXT: "".join(call.text) != said,
        Failure.SOCKET: call.socket_left,
        Failure.RAW: raw,  # last: it passes but for that
    }
    return next((one for one, holds in findings.items() if holds), None)


def _own_errors(dialect: str) -> tuple[type[BaseException], ...]:
    """Return what an SDK's documents name as its errors."""
    sdk: Any = importlib.import_module(PACKAGES[dialect])
    match dialect:
        case "chat" | "responses":
            return (sdk.OpenAIError,)
        case "anthropic":
            return (sdk.AnthropicError,)
        case "gemini":
            return (importlib.import_module("google.genai.errors").APIError,)
        case _:
            return (sdk.ResponseError, ConnectionError)


# -- how each is used: the loop of its README


async def _chat(url: str, timeout: float) -> AsyncIterator[str]:
    openai: Any = importlib.import_module("openai")
    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=timeout) as client:
        asked = [{"role": "user", "content": "What do you see?"}]
        async for chunk in await client.chat.completions.create(model="m", messages=asked, stream=True):
            for choice in chunk.choices:
                if choice.delta.content:
                    yield choice.delta.content


async def _responses(url: str, timeout: float) -> AsyncIterator[str]:
    openai: Any = importlib.import_module("openai")
    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=timeout) as client:
        async for event in await client.responses.create(model="m", input="What do you see?", stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta


async def _anthropic(url: str, timeout: float) -> AsyncIterator[str]:
    anthropic: Any = importlib.import_module("anthropic")
    async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0, timeout=timeout) as client:
        asked = [{"role": "user", "content": "What do you see?"}]
        async with client.messages.stream(model="m", max_tokens=99, messages=asked) as stream:
            async for text in stream.text_stream:
                yield text


async def _gemini(url: str, timeout: float) -> AsyncIterator[str]:
    genai: Any = importlib.import_module("google.genai")
    client = genai.Client(api_key="k", http_options={"base_url": url, "timeout": int(timeout * 1000)})
    try:
        asked = {"model": "m", "contents": "What do you see?"}
        async for chunk in await client.aio.models.generate_content_stream(**asked):
            for candidate in chunk.candidates or ():
                for part in (candidate.content and candidate.content.parts) or ():
                    if part.text and not part.thought:
                        yield part.text
    finally:
        await client.aio.aclose()


async def _ollama(url: str, timeout: float) -> AsyncIterator[str]:
    ollama: Any = importlib.import_module("ollama")
    client = ollama.AsyncClient(host=url, timeout=timeout)
    try:
        asked = [{"role": "user", "content": "What do you see?"}]
        async for chunk in await client.chat(model="m", messages=asked, stream=True):
            if chunk.message.content:
                yield chunk.message.content
    finally:
        await client._client.aclose()


_READERS: dict[str, Callable[[str, float], Any]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}
