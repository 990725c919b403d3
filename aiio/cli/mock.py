"""`aiio mock`: the loopback server of aiio.testing, from the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from aiio.testing.dialects import DIALECTS
from aiio.testing.faults import Fault, parse_fault
from aiio.testing.peers import Peer
from aiio.testing.proxy import fault_proxy
from aiio.testing.script_files import load_scripts
from aiio.testing.server import MockServer, mock_server
from aiio.testing.steps import Step, finish, pause, say

from .exits import DONE, CliFault
from .output import Output
from .output import say as tell
from .session import Session

GREETING = "Hello! This is aiio mock, and there is no model behind it. "


@dataclass(frozen=True, slots=True, kw_only=True)
class MockOptions:
    """The command's options, as given."""

    script: str | None = None
    recordings: tuple[str, ...] = ()
    speed: float = 1.0
    faults: tuple[str, ...] = ()
    port: int = 0


async def mock(session: Session, out: Output, options: MockOptions) -> int:
    """Serve until Ctrl-C. CliFault: a file, a fault or the port can't be used."""
    if options.script is not None and options.recordings:
        raise CliFault("--script and --recording can't be used together")
    with trio.CancelScope() as scope:
        session.on_stop = scope.cancel
        try:
            faults = [parse_fault(text) for text in options.faults]
            async with _peers(options, faults) as peer:
                await out.text(_usage(peer))
                await trio.sleep_forever()
        except (OSError, ValueError) as exc:
            raise CliFault(_sentence(exc)) from exc
    tell("the mock server was stopped")
    return DONE


@asynccontextmanager
async def _peers(options: MockOptions, faults: list[Fault]) -> AsyncIterator[Peer]:
    """Run the server, with a proxy in front if there are *faults*; give the one to talk to."""
    async with mock_server(port=0 if faults else options.port) as server:
        _load(server, options)
        if faults:
            async with fault_proxy(server, *faults, port=options.port) as proxy:
                yield proxy
        else:
            yield server


def _load(server: MockServer, options: MockOptions) -> None:
    if options.recordings:
        server.replay(*options.recordings, speed=options.speed)
        return
    if options.script is None:
        server.play(*_greeting())
        return
    scripts = load_scripts(options.script)
    server.play(*scripts[-1])
    for script in scripts[:-1]:
        server.play_next(*script)


def _greeting() -> list[Step]:
    steps: list[Step] = []
    for word in GREETING.split():
        steps += (say(f"{word} "), pause("40ms"))
    return [*steps, finish()]


def _usage(peer: Peer) -> str:
    width = max(map(len, DIALECTS))
    bases = [f"  {found.name:<{width}}  {peer.url}{found.base}\n" for found in DIALECTS.values()]
    lines = [
        f"{peer.url}\n",
        "base URLs, any model and any key:\n",
        *bases,
        f'try: aiio ask "Hello" -m vllm/mock --set url={peer.url}/v1\n',
        "Ctrl-C ends it\n",
    ]
    return "".join(lines)


def _sentence(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else f"can't listen: {error.strerror}"
    return str(error)
