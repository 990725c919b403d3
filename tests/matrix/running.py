"""One cell, from an open socket to its verdict.

    lab = real_lab()                        # one for many cells
    problems = trio.run(run_cell, cell, lab)

Needs a trio run of its own: the server finds out that the client has read everything by waiting until all
tasks of the run are blocked. Works on a real clock and on a mock clock that jumps when all is quiet.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import trio
import trio.testing

import aiio
from tests.faults.peer import Seen, blocks_of, check_events, open_files, text_of, write
from tests.serving import Authority, Exchange, Server, serve

from .answers import CALL, Said, cut_at, frames_of, said_in
from .cells import Action, Cell, Fault, Place
from .http_peer import MAX_FRAME, HandshakePeer, HTTPPeer
from .oracle import Expected, expected
from .replaying import refusals
from .ws_peer import WSPeer

PROVIDERS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "responses_ws": "openai_responses_ws",
    "realtime": "openai_realtime",
}
"""Where the registry's name of a dialect is another."""

CONTEXT = [aiio.user_message("What do you see?")]
KEY = "sk-matrix-0123456789"
_QUIET = 0.002  # seconds without anything to do, after which what was sent has been read


@dataclass(frozen=True, kw_only=True)
class Lab:
    """What cells have in common."""

    limit: float
    """Seconds of the limit that a cell wants to fire."""
    slow: float
    """Seconds that a slow close takes; well below every other limit."""
    patience: float
    """Seconds after which a cell that has not ended is given up."""
    server_tls: ssl.SSLContext
    client_tls: ssl.SSLContext


def virtual_lab() -> Lab:
    """Return a lab for a mock clock that jumps: its seconds cost nothing."""
    return _lab(limit=10, slow=20, patience=1000)


def real_lab(scale: float = 1) -> Lab:
    """Return a lab for the real clock, with limits as small as a busy machine allows; *scale* them up."""
    return _lab(limit=0.25 * scale, slow=0.1 * scale, patience=20 * scale)


def _lab(**seconds: float) -> Lab:
    authority = Authority()
    return Lab(server_tls=authority.server_context(), client_tls=authority.client_context(), **seconds)


class LabEnv(aiio.Env):
    """An Env that knows nothing of this machine, and trusts the lab: making a TLS context takes too long."""

    def __init__(self, lab: Lab, client: httpx.AsyncClient | None) -> None:
        super().__init__(environ={}, http_client=client)
        self._lab = lab

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The lab's, for all cells."""
        return self._lab.client_tls


@dataclass
class Trial:
    """What came of one cell."""

    seen: Seen = field(default_factory=Seen)
    outer_caught: bool = False
    stopped_late: bool = False
    """When its action came, the write had returned."""
    state: str = ""
    problems: list[str] = field(default_factory=list)


async def run_cell(cell: Cell, lab: Lab) -> list[str]:
    """Run *cell*, and return what is wrong; nothing is, if the list is empty."""
    trial = Trial()
    files = open_files()
    with trio.move_on_after(lab.patience) as patience:
        try:
            await _try(cell, lab, trial)
        except AssertionError as exc:
            trial.problems.append(str(exc).splitlines()[0] if str(exc) else "a law of every write is broken")
        except Exception as exc:  # noqa: BLE001  # nothing may raise out of a write, whatever it is
            trial.problems.append(f"raised {type(exc).__name__}: {exc}")
    if patience.cancelled_caught:
        return [f"not ended after {lab.patience:g} s", *trial.problems]
    if open_files() > files:
        trial.problems.append(f"{open_files() - files} file descriptors left open")
    return trial.problems or verdict(cell, trial)


async def _try(cell: Cell, lab: Lab, trial: Trial) -> None:
    outer = trio.CancelScope()
    io: aiio.IO

    async def act(until_gone: Callable[[], Awaitable[None]]) -> None:
        await trio.testing.wait_all_tasks_blocked(_QUIET)
        trial.stopped_late = trial.seen.returned is not None
        match cell.action:
            case Action.KILL:
                io.kill_nowait("enough")
            case Action.OUTER:
                outer.cancel()
            case Action.OVERALL | Action.STUCK:
                with trio.move_on_after(lab.limit):  # the fault comes at the same instant
                    await until_gone()
            case Action.CONNECT:  # whose budget depends on a body that may not have come
                await until_gone()

    async with _served(cell, lab, act) as server, _env(cell, lab, server) as env:
        io = aiio.IO(env=env, model="peer/m")
        await trio.testing.wait_all_tasks_blocked(_QUIET)  # the server listens
        tasks = trio.lowlevel.current_statistics().tasks_living
        with outer:
            await write(io, CONTEXT, seen=trial.seen, **_limits(cell, lab))
        trial.outer_caught = outer.cancelled_caught
        await _settled(server)
        await io.kill()
        trial.state = io.state.value
        trial.problems += _left_behind(server, env, tasks)


async def _settled(server: Server) -> None:
    """Wait until the server has seen the client leave, and nothing moves any more."""
    await server.wait_idle()
    await trio.testing.wait_all_tasks_blocked(_QUIET)


def _left_behind(server: Server, env: aiio.Env, tasks: int) -> list[str]:
    found: list[str] = []
    if (now := trio.lowlevel.current_statistics().tasks_living) != tasks:
        found.append(f"{now - tasks} tasks left running")
    if env.active_io or env.queued:
        found.append("the ledger is not empty")
    if server.connections != 1:
        found.append(f"{server.connections} connections for one write")
    return found


@asynccontextmanager
async def _served(
    cell: Cell, lab: Lab, act: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
) -> AsyncIterator[Server]:
    tls = lab.server_tls if cell.tls else None
    peer: Callable[[Exchange], Awaitable[None]] = (
        WSPeer(cell, act, lab.slow) if cell.websocket else HTTPPeer(cell, act, lab.slow)
    )
    if cell.fault is Fault.TLS_ALERT and cell.place is Place.BEFORE_HEAD:
        async with serve(HandshakePeer(act), read="nothing") as server:
            server.url = server.url.replace("http", "https", 1)
            yield server
    else:
        async with serve(peer, tls=tls, read="head" if cell.websocket else "request") as server:
            yield server


@asynccontextmanager
async def _env(cell: Cell, lab: Lab, server: Server) -> AsyncIterator[aiio.Env]:
    url = server.url.replace("http", "ws", 1) if cell.websocket else server.url
    async with contextlib.AsyncExitStack() as stack:
        lent: httpx.AsyncClient | None = None
        if cell.transport == "lent":
            lent = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, verify=lab.client_tls))
        env = await stack.enter_async_context(LabEnv(lab, lent))
        provider = PROVIDERS.get(cell.dialect, cell.dialect)
        env.register_endpoint("peer", provider=provider, url=url, auth=KEY, max_frame_bytes=MAX_FRAME)
        yield env


def _limits(cell: Cell, lab: Lab) -> dict[str, Any]:
    options = {
        Action.OVERALL: "timeout",
        Action.CONNECT: "connect_timeout",
        Action.STUCK: "stuck_timeout",
    }
    return {options[cell.action]: f"{lab.limit}s"} if cell.action in options else {}


# -- the verdict


def verdict(cell: Cell, trial: Trial) -> list[str]:
    """Return in what *trial* differs from what the oracle says of *cell*."""
    want = expected(cell)
    try:
        check_events(trial.seen.events)
    except AssertionError as exc:
        return [f"the events break a law: {str(exc).splitlines()[0]}"]
    said = said_in(cell.dialect, frames_of(cell.dialect)) if want.whole else _said_at(cell)
    terminal = trial.seen.terminal
    problems = [*_of_the_end(cell, trial), *_of_the_terminal(terminal, want, said)]
    problems += _of_the_message(terminal.message, said, want)
    if terminal.message is not None:
        problems += refusals(terminal.message["content"])
    if KEY in repr(trial.seen.events):
        problems.append("the key is in an event")
    return problems


def _said_at(cell: Cell) -> Said:
    return cut_at(cell.dialect, cell.place).said


def _of_the_end(cell: Cell, trial: Trial) -> list[str]:
    """Check how `write` came back, and what became of the IO."""
    found: list[str] = []
    outer = cell.action is Action.OUTER and not trial.stopped_late  # also in the middle of its clean-up
    if outer != (trial.seen.returned is None):
        found.append("outer cancellation did not go on" if outer else "write did not return")
    if outer != trial.outer_caught:
        found.append("the scope outside " + ("was not heard" if outer else "caught what was not its own"))
    if trial.state != "closed":
        found.append(f"killed, and {trial.state}")
    return found


def _of_the_terminal(terminal: aiio.Done | aiio.Error, want: Expected, said: Said) -> list[str]:
    """Check kind and flags."""
    if isinstance(terminal, aiio.Done) or want.kind is None:
        if isinstance(terminal, aiio.Done) and want.kind is None:
            return [] if terminal.done_reason else ["done without a reason"]
        got = "done" if isinstance(terminal, aiio.Done) else f"{terminal.kind.value}: {terminal.error}"
        return [f"{want.kind or 'done'} was expected, not {got}"]
    pairs: dict[str, tuple[Any, Any]] = {
        "kind": (terminal.kind.value, want.kind),
        "limit": (terminal.limit, want.limit),
        "cancelled": (terminal.cancelled, want.cancelled),
        "emitted": (terminal.emitted, said.anything),
        "retryable": (terminal.retryable, want.retryable),
        "safe_to_retry": (terminal.safe_to_retry, want.retryable and not said.anything),
        "a budget": (terminal.budget_ms is not None, want.limit is not None),
        "a silence": (terminal.silence_ms is not None, want.limit is not None),
        "a sentence": (bool(terminal.error.strip()), True),
    }
    if want.status is not None:
        pairs["status"] = (terminal.status, want.status)
    return [
        f"{name}: {got!r}, not {wanted!r} ({terminal.error})"
        for name, (got, wanted) in pairs.items()
        if got != wanted
    ]


def _of_the_message(message: Any, said: Said, want: Expected) -> list[str]:
    """Check that all that was said is in the message, and nothing else is."""
    if message is None:
        return ["what had been said is lost"] if said.anything else []
    thinking = "".join(block["text"] for block in blocks_of(message, "thinking"))
    calls = blocks_of(message, "tool_call")
    pairs: dict[str, tuple[Any, Any]] = {
        "text": (text_of(message), said.text),
        "thinking": (thinking, said.thinking),
        "calls": (len(calls), int(said.called)),
        "a note of the error": ("error" in message, want.kind is not None and not want.cancelled),
    }
    for call in calls:
        pairs["the call"] = ((call["call_id"], call["name"]), (CALL.call_id, CALL.name))
        pairs["its arguments"] = (_raw(call["arguments"]), _raw(said.arguments))
        pairs["callable"] = (not call.get("partial"), said.call_ended)
    return [f"{name}: {got!r}, not {wanted!r}" for name, (got, wanted) in pairs.items() if got != wanted]


def _raw(arguments: Any) -> Any:
    """Return *arguments* parsed where they can be: what is cut stays the text that came."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
