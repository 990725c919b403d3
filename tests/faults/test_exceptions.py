"""B4: one fault is one plain exception, or one event; never a group."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio
from tests.serving import Step, chunk, drop, head, reset, respond, serve, stall

from .peer import GOOD, MODEL, Seen, answer, event, events, peer, read_by_client, text, write

LONG = [head(), events(text("One. "), text("Two.")), stall()]


# --- B4: one fault, one plain exception -----------------------------------------------------------


MINE = [ValueError("mine"), KeyboardInterrupt(), SystemExit(3), ExceptionGroup("mine", [ValueError()])]
FAILING_TOO: dict[str, list[Step]] = {
    "garbage-in-the-same-read": [head(), chunk(event(text("Hi")) + event(b"{nonsense"))],
    "reset": [head(), events(text("Hi")), read_by_client(), reset()],
    "cut": [head(), events(text("Hi")), drop()],
    "end": answer(*GOOD),
    "silence": [head(), events(text("Hi")), stall()],
}


@pytest.mark.parametrize("mine", MINE, ids=lambda exc: type(exc).__name__)
@pytest.mark.parametrize("peer_does", list(FAILING_TOO))
async def test_B4_what_a_callback_raises_comes_out_as_itself(
    patient_clock: MockClock, mine: BaseException, peer_does: str
) -> None:
    async with serve(*FAILING_TOO[peer_does]) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        seen = Seen()

        def fail(one: Any) -> None:
            raise mine

        with pytest.raises(type(mine)) as raised:
            await write(io, callbacks={"on_text_delta": fail}, seen=seen)
        assert raised.value is mine
        assert isinstance(seen.terminal, aiio.Error)
        assert seen.text == "Hi"
        assert io.state == "idle"
        await server.wait_idle()
        server.script(*answer(*GOOD))
        assert (await write(io)).text == "Hi"


@pytest.mark.parametrize("name", ["on_start", "on_text_start", "on_text_end", "on_done"])
async def test_B4_a_callback_may_fail_at_any_event(patient_clock: MockClock, name: str) -> None:
    async with serve(*answer(*GOOD)) as server, peer(server) as env:
        mine = ValueError("mine")
        seen = Seen()

        def fail(one: Any) -> None:
            raise mine

        with pytest.raises(ValueError, match="mine") as raised:
            await write(aiio.IO(env=env, model=MODEL), callbacks={name: fail}, seen=seen)
        assert raised.value is mine
        assert seen.terminal is seen.events[-1]


async def test_B4_a_callback_that_fails_at_the_error_event_comes_out_too(patient_clock: MockClock) -> None:
    async with serve(respond(b"", status=500)) as server, peer(server) as env:
        mine = ValueError("mine")

        def fail(one: Any) -> None:
            raise mine

        with pytest.raises(ValueError, match="mine") as raised:
            await write(aiio.IO(env=env, model=MODEL), callbacks={"on_error": fail})
        assert raised.value is mine
        await server.wait_idle()


async def test_B4_a_failing_callback_and_outer_cancellation_in_one_tick_hide_neither(
    patient_clock: MockClock,
) -> None:
    async with serve(head(), events(text("Hi")), stall()) as server, peer(server) as env:
        seen = Seen()
        with trio.CancelScope() as scope:

            def fail(one: Any) -> None:
                scope.cancel()
                raise ValueError("mine")

            with pytest.raises(ValueError, match="mine"):
                await write(aiio.IO(env=env, model=MODEL), callbacks={"on_text_delta": fail}, seen=seen)
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert seen.text == "Hi"
        await server.wait_idle()


async def test_B4_outer_cancellation_leaves_write_as_bare_cancelled(patient_clock: MockClock) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        caught: list[type[BaseException]] = []
        with trio.move_on_after(1):
            try:
                await write(aiio.IO(env=env, model=MODEL), seen=Seen())
            except BaseException as exc:
                caught.append(type(exc))
                raise
        assert caught == [trio.Cancelled]


async def test_B4_a_refused_connection_is_an_event(patient_clock: MockClock) -> None:
    async with serve() as server:
        closed = server.url
    async with peer(closed) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.error.kind is aiio.ErrorKind.NETWORK
        assert "refused" in seen.error.error
        assert seen.error.safe_to_retry


async def test_B4_a_scheme_that_nobody_serves_is_an_event(patient_clock: MockClock) -> None:
    async with peer("gopher://127.0.0.1:70") as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert isinstance(seen.terminal, aiio.Error)
        assert "gopher" in seen.error.error


async def test_B4_kill_lets_no_fault_of_the_request_out(patient_clock: MockClock) -> None:
    async with serve(*LONG) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)

        def fail(one: Any) -> None:
            raise ValueError("mine")

        async def killed_write() -> None:
            with pytest.raises(ValueError, match="mine"):
                await write(io, callbacks={"on_error": fail})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(killed_write)
            await trio.sleep(1)
            assert await io.kill() is None  # type: ignore[func-returns-value]  # that it raises nothing counts
        assert io.state == "closed"
        await server.wait_idle()
