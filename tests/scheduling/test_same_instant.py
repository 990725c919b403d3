"""A read that is ready in the very pass of trio's loop in which a limit fires: the task runs on, cancelled.

Found by the soak, where it happens once in a few thousand writes. Here an instrument makes it happen: after
the wait for I/O it lets the read return and puts the clock behind the deadline, which trio looks at next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import aiio
from aiio.transports.base import TransportRequest
from tests.faults.peer import Seen, write
from tests.io.scripted import WILL_END, Scripted

TEXT = [{"type": "text_delta", "content_index": 0, "text": "Hi"}]
DONE = [{"type": "done", "done_reason": "stop"}]
LIMIT = 5.0


class Coincidence(trio.abc.Instrument):
    """Lets what waits at the gate go on, and the limit fire, in one pass of the loop; once."""

    def __init__(self, clock: MockClock) -> None:
        self._clock = clock
        self.gate: trio.Event | None = None

    def after_io_wait(self, timeout: float) -> None:
        """See `trio.abc.Instrument`."""
        if self.gate is not None:
            self.gate.set()
            self.gate = None
            self._clock.jump(LIMIT)


class Gated:
    """A transport and its one connection: the first frame comes by coincidence, the others at once."""

    status = 200
    headers: Mapping[str, str] = {}
    bytes_received = keepalives = 0

    def __init__(self, coincidence: Coincidence, frames: list[Any]) -> None:
        self._coincidence, self._frames = coincidence, list(frames)
        self._gate = trio.Event()
        self._asked = False
        self.closed = False

    async def open(self, request: TransportRequest, nursery: trio.Nursery) -> Any:
        await trio.lowlevel.checkpoint()
        return self

    async def receive(self) -> list[bytes] | None:
        if not self._asked:
            self._asked = True
            await trio.lowlevel.checkpoint()
            self._coincidence.gate = self._gate
            await self._gate.wait()
        elif not self._frames:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.checkpoint()
        return [msgspec.json.encode(self._frames.pop(0))]

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


CASES: dict[str, tuple[str, list[Any], str]] = {
    "the end signal came": ("timeout", [WILL_END], "done"),
    "the terminal frame came": ("timeout", [[*TEXT, *DONE]], "done"),
    "text came": ("timeout", [TEXT, DONE], "overall"),
    "text came, and it goes on": ("stuck_timeout", [TEXT, DONE], "done"),
    "the end signal came, stuck": ("stuck_timeout", [WILL_END], "done"),
    "nothing new came": ("stuck_timeout", [[], DONE], "stuck"),
}


@pytest.mark.parametrize("case", CASES)
def test_B2_a_limit_that_fires_as_the_answer_comes_is_never_cancellation_from_outside(case: str) -> None:
    option, frames, expected = CASES[case]
    clock = MockClock(autojump_threshold=0)
    coincidence, seen = Coincidence(clock), Seen()

    async def main() -> None:
        async with aiio.Env(environ={}) as env:
            transport = Gated(coincidence, frames)
            env.register_provider(Scripted)
            env.register_transport("gated", transport)
            env.register_endpoint("peer", provider="scripted", url="gated://peer")
            io = aiio.IO(env=env, model="peer/m")
            await write(io, seen=seen, **{option: f"{LIMIT - 1}s"})  # type: ignore[arg-type]
            assert transport.closed

    trio.run(main, clock=clock, instruments=[coincidence])
    terminal = seen.terminal
    # An end signal alone ends an answer, which is then called empty.
    if isinstance(terminal, aiio.Done) or terminal.code == "empty_response":
        assert expected == "done"
    else:
        assert terminal.limit == expected
