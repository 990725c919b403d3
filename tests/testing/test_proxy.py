"""The fault proxy: each fault at its exact byte, both ways, seen by a plain TCP client and an IO."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import aiio
from aiio.context.types import Message
from aiio.testing import (
    Fault,
    FaultProxy,
    MockServer,
    eof,
    fault_proxy,
    finish,
    half_close,
    latency,
    mock_server,
    parse_fault,
    refuse,
    reset,
    say,
    slow_close,
    stall,
    throttle,
)
from aiio.testing.faults import FaultKind
from aiio.testing.loopback import abort, listening, wait_gone

CONTEXT: list[Message] = [aiio.user_message("Hello")]
SENT = bytes(range(256)) * 8


@dataclass
class Bytes:
    """A server that sends `SENT` at once, and notes what it gets and how that ends."""

    url: str = ""
    got: bytearray = field(default_factory=bytearray)
    ended: str = ""

    async def handle(self, stream: trio.SocketStream) -> None:
        await stream.send_all(SENT)
        await stream.send_eof()
        try:
            while data := await stream.receive_some():
                self.got += data
            self.ended = "eof"
        except trio.BrokenResourceError:
            self.ended = "reset"


@asynccontextmanager
async def bytes_behind(*faults: Fault) -> AsyncIterator[tuple[Bytes, FaultProxy]]:
    server = Bytes()
    async with listening(server.handle) as loopback:
        async with fault_proxy(f"http://127.0.0.1:{loopback.port}", *faults) as proxy:
            yield server, proxy
        await loopback.wait_idle()


@dataclass
class Seen:
    """What a client saw: bytes, when the last of them came, how it ended, and when."""

    data: bytearray = field(default_factory=bytearray)
    last_at: float = 0.0
    ended: str = "open"
    ended_at: float = 0.0


async def read_all(proxy: FaultProxy, patience: float = 1000) -> Seen:
    start, seen = trio.current_time(), Seen()
    async with await trio.open_tcp_stream("127.0.0.1", proxy.port) as stream:
        with trio.move_on_after(patience):
            try:
                while data := await stream.receive_some():
                    seen.data += data
                    seen.last_at = trio.current_time() - start
                seen.ended = "eof"
            except trio.BrokenResourceError:
                seen.ended = "reset"
        seen.ended_at = trio.current_time() - start
    return seen


async def test_without_faults_every_byte_passes_both_ways() -> None:
    async with bytes_behind() as (server, proxy):
        async with await trio.open_tcp_stream("127.0.0.1", proxy.port) as stream:
            await stream.send_all(SENT * 100)
            await stream.send_eof()
            got = b"".join([bytes(data) async for data in stream])
        await proxy.loopback.wait_idle()
    assert got == SENT
    assert (bytes(server.got), server.ended) == (SENT * 100, "eof")


@pytest.mark.parametrize("after", [0, 1, 255, 256, 1000, len(SENT)])
@pytest.mark.parametrize(
    ("make", "ended"), [(reset, "reset"), (eof, "eof"), (half_close, "eof"), (stall, "open")]
)
async def test_faults_come_at_their_exact_byte(
    after: int, make: object, ended: str, aiio_clock: MockClock
) -> None:
    async with bytes_behind(make(after=after)) as (_, proxy):  # type: ignore[operator]  # one of four
        seen = await read_all(proxy)
    assert bytes(seen.data) == SENT[:after]
    assert seen.ended == ended


async def test_a_stall_may_be_a_gap(aiio_clock: MockClock) -> None:
    async with bytes_behind(stall("30s", after=100), stall("20s", after=700)) as (_, proxy):
        seen = await read_all(proxy)
    assert bytes(seen.data) == SENT
    assert seen.last_at == pytest.approx(50, abs=1)


async def test_latency_delays_all_alike(aiio_clock: MockClock) -> None:
    async with bytes_behind(latency("40s"), stall("1s", after=100)) as (_, proxy):
        seen = await read_all(proxy)
    assert bytes(seen.data) == SENT
    assert seen.last_at == pytest.approx(41, abs=1)
    assert seen.ended_at == pytest.approx(41, abs=1)


async def test_a_throttle_keeps_its_rate_from_its_byte_on(aiio_clock: MockClock) -> None:
    async with bytes_behind(throttle(100, after=1848)) as (_, proxy):
        seen = await read_all(proxy)
    assert bytes(seen.data) == SENT
    assert seen.ended_at == pytest.approx(2, abs=1)


async def test_a_slow_close_has_all_bytes_and_a_late_end(aiio_clock: MockClock) -> None:
    async with bytes_behind(slow_close("60s")) as (_, proxy):
        seen = await read_all(proxy)
    assert (bytes(seen.data), seen.ended) == (SENT, "eof")
    assert seen.last_at == pytest.approx(0, abs=1)
    assert seen.ended_at == pytest.approx(60, abs=1)


@pytest.mark.parametrize(("make", "ended"), [(reset, "reset"), (eof, "eof"), (half_close, "eof")])
async def test_faults_of_the_upward_direction_meet_the_server(make: object, ended: str) -> None:
    async with bytes_behind(make(after=5, direction="up")) as (server, proxy):  # type: ignore[operator]
        async with await trio.open_tcp_stream("127.0.0.1", proxy.port) as stream:
            assert len(await stream.receive_some()) > 0
            await stream.send_all(b"123456789")
            await wait_gone(stream)
        await proxy.loopback.wait_idle()
        while not server.ended:
            await trio.testing.wait_all_tasks_blocked(0.001)
    assert (bytes(server.got), server.ended) == (b"12345", ended)


async def test_an_upward_stall_ends_when_the_server_leaves(aiio_clock: MockClock) -> None:
    async def handle(stream: trio.SocketStream) -> None:
        await trio.sleep(10)

    async with (
        listening(handle) as loopback,
        fault_proxy(f"http://127.0.0.1:{loopback.port}", stall(direction="up")) as proxy,
    ):
        start = trio.current_time()
        seen = await read_all(proxy)
        assert seen.ended == "eof"
        assert trio.current_time() - start == pytest.approx(10, abs=1)


async def test_a_reset_on_one_side_is_a_reset_on_the_other() -> None:
    async with bytes_behind() as (server, proxy):
        stream = await trio.open_tcp_stream("127.0.0.1", proxy.port)
        assert b"".join([bytes(data) async for data in stream]) == SENT  # nothing else is on its way
        abort(stream)
        await proxy.loopback.wait_idle()
    assert server.ended == "reset"


async def test_the_receiver_may_leave_while_it_is_served(aiio_clock: MockClock) -> None:
    async with bytes_behind(throttle(1)) as (_, proxy):
        await read_all(proxy, patience=30)
        await proxy.loopback.wait_idle()
    assert proxy.loopback.open == 0


async def test_connections_are_refused_until_told_otherwise(
    aiio_env: aiio.Env, aiio_faults: FaultProxy
) -> None:
    io = aiio.IO(env=aiio_env, model=aiio_faults.model())
    for faults, kind in (
        ((refuse(),), "network"),
        ((refuse(),), "network"),
        ((), None),
        ((refuse(),), "network"),
    ):
        aiio_faults.play(*faults)
        terminal = await io.write(CONTEXT)
        assert (terminal.kind.value if isinstance(terminal, aiio.Error) else None) == kind


async def test_a_connection_that_came_just_before_the_port_was_closed_is_reset() -> None:
    async with bytes_behind() as (_, proxy):
        proxy._faults.queue((refuse(),))
        assert (await read_all(proxy)).ended == "reset"


async def test_a_target_that_is_not_there_resets_the_client() -> None:
    async with mock_server() as server:
        server.loopback.refuse()
        async with fault_proxy(server) as proxy:
            assert (await read_all(proxy)).ended == "reset"
            await proxy.loopback.wait_idle()
            assert len(proxy.loopback.faults) == 1


async def test_one_connection_has_a_fault_and_the_next_has_none(
    aiio_env: aiio.Env, aiio_server: MockServer, aiio_faults: FaultProxy, aiio_clock: MockClock
) -> None:
    aiio_server.play(say("Hello, "), say("all of you."), finish())
    aiio_faults.play_next(stall(after=400))
    io = aiio.IO(env=aiio_env, model=aiio_faults.model("anthropic"), stuck_timeout="30s")
    stuck, done = [await io.write(CONTEXT) for _ in range(2)]
    assert isinstance(stuck, aiio.Error)
    assert stuck.limit == "stuck"
    assert isinstance(done, aiio.Done)
    await aiio_faults.loopback.wait_idle()
    await aiio_server.loopback.wait_idle()


async def test_the_end_of_the_block_closes_what_is_open(aiio_server: MockServer) -> None:
    async with fault_proxy(aiio_server, stall()) as proxy:
        stream = await trio.open_tcp_stream("127.0.0.1", proxy.port)
        while not proxy.loopback.open:
            await trio.testing.wait_all_tasks_blocked(0.001)
    with stream.socket:
        await wait_gone(stream)


async def test_a_target_needs_a_host() -> None:
    with pytest.raises(ValueError, match="not a URL with a host"):
        async with fault_proxy("here"):
            pass


@pytest.mark.parametrize(("url", "port"), [("https://127.0.0.1/v1", 443), ("http://127.0.0.1", 80)])
async def test_a_target_without_a_port_has_that_of_its_scheme(url: str, port: int) -> None:
    async with fault_proxy(url) as proxy:
        assert proxy._target == ("127.0.0.1", port)
        with pytest.raises(ValueError, match="use play"):
            proxy.play_next(refuse())


# --- as text --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("stall", stall()),
        ("stall@300", stall(after=300)),
        (" stall=2s@300:up", stall("2s", after=300, direction="up")),
        ("reset@10:up", reset(after=10, direction="up")),
        ("latency=80ms", latency("80ms")),
        ("throttle=2000@5:down", throttle(2000, after=5)),
        ("slow_close=3s", slow_close("3s")),
        ("half_close@0", half_close()),
        ("eof:up", eof(direction="up")),
        ("refuse", refuse()),
    ],
)
def test_a_fault_is_read_from_text(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("burn", "not a fault: 'burn'"),
        ("stall@x", "not a fault"),
        ("stall=soon", "not a duration"),
        ("throttle=fast", "fast"),
        ("throttle=0", "more than 0 bytes"),
        ("throttle", "throttle=1000"),
        ("latency@5", "latency=50ms"),
        ("reset=2s", "takes no value"),
    ],
)
def test_text_that_is_no_fault_is_quoted(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_fault(text)


def test_a_fault_has_a_place() -> None:
    with pytest.raises(ValueError, match="0 bytes or more"):
        stall(after=-1)
    with pytest.raises(ValueError, match="'up' or 'down'"):
        Fault(kind=FaultKind.EOF, direction="left")  # type: ignore[arg-type]  # that is the point
