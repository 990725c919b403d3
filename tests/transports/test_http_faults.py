"""What peers and networks do wrong: always one `ProviderError`, after the frames that were whole."""

from __future__ import annotations

import gc
import random
import socket
import sys

import h11
import httpx
import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from aiio.env.errors import HttpStatusError, ProviderError
from aiio.transports.base import TransportRequest
from aiio.transports.http import HTTPTransport
from aiio.transports.http_direct import DirectAnswer, exchange
from aiio.transports.http_socket import READ_SIZE, PlainStream
from tests.faults.peer import open_files
from tests.serving import (
    EVENT_STREAM,
    Exchange,
    chunk,
    drop,
    half_close,
    head,
    last_chunk,
    pause,
    raw,
    reset,
    respond,
    serve,
    sse,
    stall,
)

from .asking import FakeEnv, ask

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


async def test_C4_a_connection_closed_unanswered_is_network_and_retryable(
    any_transport: HTTPTransport,
) -> None:
    async with serve() as server:
        server.script_next(respond(sse(b"1")))
        server.script_next(drop())
        assert (await ask(any_transport, server.url)).frames == [b"1"]
        outcome = await ask(any_transport, server.url)
    assert (outcome.kind, outcome.error.retryable, outcome.frames) == ("network", True, [])
    assert outcome.phase in ("head", "connect")
    assert outcome.error.detail["bytes_received"] == 0
    assert server.connections == 2


async def test_C4_the_sentence_says_who_closed(transport: HTTPTransport) -> None:
    async with serve(half_close()) as server:
        outcome = await ask(transport, server.url)
        assert (outcome.text, outcome.phase) == (
            f"127.0.0.1:{server.port} closed the connection without answering",
            "head",
        )
        server.script(raw(b"HTTP/1.1 200 OK\r\nconte"))
        outcome = await ask(transport, server.url)
        assert "closed the connection in the middle of the response head" in outcome.text


CUTS = {
    "chunked, no last chunk": raw(HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"),
    "chunked, inside a chunk": raw(HEAD + b"transfer-encoding: chunked\r\n\r\n50\r\ndata: 1\n\ndata: 2"),
    "chunked, no trailer end": raw(HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n"),
    "short content-length": raw(HEAD + b"content-length: 500\r\n\r\ndata: 1\n\n"),
    "bad chunk head": raw(HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\nzz\r\n"),
    "chunk too long": raw(HEAD + b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\nX"),
}


@pytest.mark.parametrize("cut", CUTS)
async def test_E5_a_body_that_ends_badly_is_network_after_its_frames(
    any_transport: HTTPTransport, cut: str
) -> None:
    async with serve(CUTS[cut]) as server:
        outcome = await ask(any_transport, server.url)
    assert (outcome.frames[:1], outcome.kind, outcome.phase) == ([b"1"], "network", "body")
    assert outcome.error.retryable
    assert outcome.error.detail["bytes_received"] >= 9
    assert "127.0.0.1" in outcome.text


async def test_E5_the_last_event_of_a_cut_body_counts_if_it_is_whole(any_transport: HTTPTransport) -> None:
    async with serve(head(), chunk(b'data: 1\n\ndata: {"a":1}')) as server:
        outcome = await ask(any_transport, server.url)
        assert (outcome.frames, outcome.kind) == ([b"1", b'{"a":1}'], "network")
        server.script(head(), chunk(b'data: 1\n\ndata: {"a":'))
        outcome = await ask(any_transport, server.url)
        assert (outcome.frames, outcome.kind) == ([b"1"], "network")


async def test_E5_half_a_json_body_is_a_network_fault_not_a_frame(any_transport: HTTPTransport) -> None:
    wire = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"a":'
    async with serve(raw(wire)) as server:
        outcome = await ask(any_transport, server.url)
    assert (outcome.frames, outcome.kind) == ([], "network")


async def test_E5_a_reset_in_mid_body_comes_after_the_frames(any_transport: HTTPTransport) -> None:
    seen = trio.Event()

    async def until_seen(exchange: Exchange) -> None:
        await seen.wait()

    frames: list[bytes] = []
    steps = [head(), chunk(b"data: 1\n\n"), until_seen, reset()]
    async with serve(*steps) as server, trio.open_nursery() as nursery:
        connection = await any_transport.open(TransportRequest(url=server.url), nursery)
        with pytest.raises(ProviderError) as caught:
            await read_into(frames, connection, seen)
        assert frames == [b"1"]
        assert (caught.value.kind, caught.value.detail["phase"]) == ("network", "body")
        assert caught.value.__cause__ is not None  # what the socket, or the library that reads it, raised
        with pytest.raises(ProviderError):  # and stays that way
            await connection.receive()
        await connection.aclose()


async def test_M1_an_error_body_that_breaks_leaves_no_circle(transport: HTTPTransport) -> None:
    wire = b"HTTP/1.1 500 Oops\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    gc.collect()
    gc.disable()
    try:
        async with serve(raw(wire), reset()) as server, trio.open_nursery() as nursery:
            with pytest.raises(HttpStatusError, match="500"):
                await transport.open(TransportRequest(url=server.url), nursery)
        assert not [True for kept in gc.get_objects() if isinstance(kept, DirectAnswer)]
    finally:
        gc.enable()


async def read_into(frames: list[bytes], connection: object, seen: trio.Event) -> None:
    while (some := await connection.receive()) is not None:  # type: ignore[attr-defined]
        frames += some
        if frames:
            seen.set()


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 40_000 + b"\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
    ],
    ids=["ssh", "tls", "status", "header", "lengths", "coding", "long", "many", "switch"],
)
async def test_E5_a_head_that_is_none_is_network_in_phase_head(transport: HTTPTransport, wire: bytes) -> None:
    async with serve(raw(wire)) as server:
        outcome = await ask(transport, server.url)
        await server.wait_idle()
    assert (outcome.kind, outcome.phase, outcome.frames) == ("network", "head", [])
    assert len(outcome.text) < 300


async def test_E5_a_reset_before_the_head_is_network(any_transport: HTTPTransport) -> None:
    async with serve(reset()) as server:
        outcome = await ask(any_transport, server.url)
    assert (outcome.kind, outcome.error.retryable) == ("network", True)
    assert f"127.0.0.1:{server.port}" in outcome.text


async def test_E5_a_refused_connection_says_by_whom(any_transport: HTTPTransport) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outcome = await ask(any_transport, f"http://127.0.0.1:{port}/v1?key=SECRET")
    assert (outcome.kind, outcome.phase, outcome.error.retryable) == ("network", "connect", True)
    assert outcome.text == f"connection refused by 127.0.0.1:{port}"


async def test_E5_an_unknown_host_is_named(
    any_transport: HTTPTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_such_name(*args: object, **kwargs: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(trio.socket, "getaddrinfo", no_such_name)
    outcome = await ask(any_transport, "http://nowhere.invalid/")
    assert (outcome.kind, outcome.phase, outcome.text) == (
        "network",
        "resolve",
        "no such host: nowhere.invalid",
    )


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/x?SECRET",
        "nonsense?SECRET",
        "http:///x",
        "http://[::bad/?SECRET",
        "http://h:99999999/?SECRET",
        "http://user:SECRET@h:x/",
        "http://a..b/",
        "http://\ud800/",
        "http://h/\ud800",
        "",
        "http://h\0/",
    ],
)
async def test_E5_a_url_that_is_none_is_malformed(any_transport: HTTPTransport, url: str) -> None:
    outcome = await ask(any_transport, url)
    assert isinstance(outcome.error, ProviderError)
    assert outcome.kind == "malformed"
    assert "SECRET" not in outcome.text
    outcome.text.encode("ascii")


async def test_an_ipv6_address_is_a_host(transport: HTTPTransport) -> None:
    with socket.socket(socket.AF_INET6) as free:
        try:
            free.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        port = free.getsockname()[1]
    outcome = await ask(transport, f"http://[::1]:{port}/")
    assert outcome.text == f"connection refused by [::1]:{port}"


# --- A4, C1: time and cancellation -----------------------------------------------------------------


async def test_A4_no_timer_of_a_library_runs(any_transport: HTTPTransport, autojump_clock: MockClock) -> None:
    hours = 4 * 3600
    async with serve(pause(hours), head(), chunk(b"data: 1\n\n"), pause(hours), last_chunk()) as server:
        outcome = await ask(any_transport, server.url)
    assert (outcome.frames, outcome.error) == ([b"1"], None)
    assert trio.current_time() >= 2 * hours


async def test_A4_the_callers_scope_ends_a_stall_and_closes(
    any_transport: HTTPTransport, autojump_clock: MockClock
) -> None:
    async with serve(head(), chunk(b"data: 1\n\n"), stall()) as server:
        start = trio.current_time()
        with trio.move_on_after(7) as scope:
            await ask(any_transport, server.url)
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(7, abs=0.01)
        await server.wait_idle()
        server.script(stall())  # no head at all
        with trio.move_on_after(7) as scope:
            await ask(any_transport, server.url)
        assert scope.cancelled_caught
        await server.wait_idle()


async def test_a_cancelled_receive_loses_nothing(any_transport: HTTPTransport) -> None:
    payloads = [b"%d" % n for n in range(200)]
    steps = [step for payload in payloads for step in (chunk(b"data: " + payload + b"\n\n"), pause(0))]
    frames: list[bytes] = []
    async with serve(head(), *steps, last_chunk()) as server, trio.open_nursery() as nursery:
        connection = await any_transport.open(TransportRequest(url=server.url), nursery)
        calls = 0
        while True:
            calls += 1
            some: list[bytes] | None = []
            with trio.CancelScope() as scope:
                if calls % 2:
                    scope.cancel()
                some = await connection.receive()
            if some is None:
                break
            frames += some
        await connection.aclose()
    assert frames == payloads


async def test_receive_is_always_a_checkpoint(any_transport: HTTPTransport) -> None:
    wire = sse(*[b"x" * 1000] * 100)
    async with serve(respond(wire)) as server, trio.open_nursery() as nursery:
        connection = await any_transport.open(TransportRequest(url=server.url), nursery)
        more: list[bytes] | None = []
        while more is not None:
            with assert_checkpoints():
                more = await connection.receive()
        with assert_checkpoints():
            assert await connection.receive() is None
        await connection.aclose()


async def test_a_wake_up_without_data_is_a_read_of_nothing(
    transport: HTTPTransport, monkeypatch: pytest.MonkeyPatch, patient_clock: MockClock
) -> None:
    read, asked = PlainStream.receive_now, list[int]()

    def nothing_every_other_time(stream: PlainStream) -> bytes:
        asked.append(1)
        if len(asked) % 2:
            raise BlockingIOError
        return read(stream)

    monkeypatch.setattr(PlainStream, "receive_now", nothing_every_other_time)
    async with serve(head(), pause(1), chunk(b"data: 1\n\n"), last_chunk()) as server:
        outcome = await ask(transport, server.url)
    assert (outcome.frames, outcome.error) == ([b"1"], None)
    assert len(asked) >= 4  # for the head, and for what came a second later


async def test_closing_wakes_a_reader_in_another_task(transport: HTTPTransport) -> None:
    async with serve(head(), stall()) as server, trio.open_nursery() as nursery:
        connection = await transport.open(TransportRequest(url=server.url), nursery)

        async def read() -> None:
            with pytest.raises(ProviderError) as caught:
                await connection.receive()
            assert caught.value.detail["phase"] == "body"

        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        await connection.aclose()
        await wait_all_tasks_blocked()
        with pytest.raises(ProviderError):
            await connection.receive()


async def test_reading_after_closing_is_a_fault(any_transport: HTTPTransport) -> None:
    async with serve(head(), stall()) as server, trio.open_nursery() as nursery:
        connection = await any_transport.open(TransportRequest(url=server.url), nursery)
        await connection.aclose()
        with pytest.raises(ProviderError, match="closed on our side"):
            await connection.receive()


@pytest.mark.skipif(sys.platform != "linux", reason="counts files in /proc")
async def test_C1_cancels_at_random_points_leave_nothing_behind(any_transport: HTTPTransport) -> None:
    chance = random.Random(7)
    steps = [head(), *[chunk(b"data: 1\n\n")] * 5, pause(0), last_chunk()]
    async with serve(*steps) as server:

        async def one() -> None:
            with trio.CancelScope() as scope:

                async def cancel_soon() -> None:
                    for _ in range(chance.randrange(60)):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_soon)
                    await ask(any_transport, server.url, body=b"{}")

        before = 0
        for round_number in range(40):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(one)
            await server.wait_idle()
            if round_number == 3:
                before = open_files()
        assert open_files() <= before
        assert (await ask(any_transport, server.url)).frames == [b"1"] * 5


async def test_A6_one_open_is_one_request_on_the_wire(any_transport: HTTPTransport) -> None:
    async with serve() as server:
        for step in (respond(b"", status=429), respond(b"", status=503), drop(), reset()):
            server.script(step)
            before = server.connections
            assert (await ask(any_transport, server.url)).error is not None
            assert server.connections == before + 1


async def test_M1_a_busy_stream_lets_other_tasks_run(transport: HTTPTransport) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    body = b"data: 1\n\n" * 200_000
    async with serve(respond(body, headers=EVENT_STREAM)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(other)
        outcome = await ask(transport, server.url)
        nursery.cancel_scope.cancel()
    assert len(outcome.frames) == 200_000
    assert turns >= len(body) // READ_SIZE  # at least one for every read


async def test_a_closed_transport_refuses(transport: HTTPTransport) -> None:
    await transport.aclose()
    async with trio.open_nursery() as nursery:
        with pytest.raises(trio.ClosedResourceError):
            await transport.open(TransportRequest(url="http://127.0.0.1:9/"), nursery)


async def test_a_closed_lent_client_is_a_fault_not_a_crash(transport: HTTPTransport) -> None:
    client = httpx.AsyncClient(trust_env=False)
    await client.aclose()
    outcome = await ask(HTTPTransport(FakeEnv(http_client=client)), "http://127.0.0.1:9/")
    assert (outcome.kind, outcome.frames) == ("network", [])
    assert "it is closed" in outcome.text


async def test_a_method_that_is_none_is_malformed(transport: HTTPTransport) -> None:
    async with serve(respond(sse(b"1"))) as server:
        outcome = await ask(transport, server.url, method="NO WAY")
    assert (outcome.kind, outcome.phase, server.connections) == ("malformed", "send", 0)


# --- the connection by itself ----------------------------------------------------------------------


def stream_pair() -> tuple[PlainStream, socket.socket]:
    ours, theirs = socket.socketpair()
    return PlainStream(ours), theirs


async def test_a_full_read_is_followed_by_one_without_waiting() -> None:
    stream, theirs = stream_pair()
    theirs.sendall(bytes(READ_SIZE))
    assert await stream.receive() == bytes(READ_SIZE)
    got: list[bytes] = []

    async def read() -> None:
        got.append(await stream.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()  # nothing more is there: now it does wait
        theirs.sendall(b"x")
    assert got == [b"x"]
    theirs.close()
    with pytest.raises(EOFError):
        await stream.receive()
    stream.close()
    stream.close()


async def test_what_was_sent_is_not_kept() -> None:
    stream, theirs = stream_pair()
    request = bytes(100)
    before = sys.getrefcount(request)
    assert stream.send_now(request)
    assert sys.getrefcount(request) == before
    theirs.close()
    stream.close()


@pytest.mark.parametrize("answered", [True, False])
async def test_E6_an_answer_that_beat_a_broken_send_is_read(answered: bool) -> None:
    """The peer answered and closed before the first byte went out, so that sending fails at once."""
    stream, theirs = stream_pair()
    if answered:
        theirs.sendall(b"HTTP/1.1 429 Slow Down\r\ncontent-length: 0\r\n\r\n")
    theirs.close()
    writer = h11.Connection(h11.CLIENT)
    data = writer.send(h11.Request(method="GET", target="/", headers=[("host", "h")])) or b""
    writer.send(h11.EndOfMessage())
    if answered:
        assert (await exchange(stream, writer, data, "h:1")).status_code == 429
    else:
        with pytest.raises(ProviderError) as caught:
            await exchange(stream, writer, data, "h:1")
        assert (caught.value.kind, caught.value.detail["phase"]) == ("network", "send")
        assert caught.value.message == "h:1 closed the connection while the request was being sent"
    stream.close()


class Scripted(PlainStream):
    """A connection on which each read brings what the test says."""

    def __init__(self, *reads: bytes) -> None:
        self._reads = list(reads)

    def send_now(self, data: bytes) -> bool:
        return True

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._reads.pop(0)


async def test_half_a_tls_record_is_not_the_end_of_a_head() -> None:
    """Such a read brings no bytes, which h11 would take for the end of the connection."""
    writer = h11.Connection(h11.CLIENT)
    writer.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
    writer.send(h11.EndOfMessage())
    stream = Scripted(b"", b"HTTP/1.1 200 OK\r\n", b"", b"\r\n")
    assert (await exchange(stream, writer, b"", "h:1")).status_code == 200
