"""How a WebSocket fails: close codes, broken connections, silence, what is no message. Rows I1, I3, B4, J."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trio
import trio.testing
import trio_websocket
import wsproto.utilities
from trio.testing import MockClock

from aiio.env.errors import ErrorKind, ProviderError
from aiio.transports import websocket, ws_connection, ws_errors
from aiio.transports.base import TransportRequest
from aiio.transports.websocket import WebSocketTransport
from aiio.transports.ws_connect import open_stream
from aiio.transports.ws_errors import close_fault, library_fault
from aiio.transports.ws_wire import Wire
from tests.serving import half_close, hang, reset
from tests.ws_serving import Socket, serve_ws, text_frame

from .asking import FakeEnv
from .ws_asking import ask_ws

DELTA = '{"delta":"Half"}'

CODES: dict[int, tuple[str, bool]] = {
    1000: ("network", True),
    1001: ("network", True),
    1002: ("network", False),
    1003: ("provider", False),
    1005: ("network", True),
    1007: ("provider", False),
    1008: ("provider", False),
    1009: ("provider", False),
    1010: ("provider", False),
    1011: ("provider", True),
    1012: ("network", True),
    1013: ("provider", True),
    4000: ("provider", False),
    4429: ("provider", True),
}


@pytest.mark.parametrize("after", ["before the first delta", "after it"])
@pytest.mark.parametrize("code", CODES)
async def test_I1_a_close_is_an_error_with_code_and_reason(code: int, after: str) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        if after == "after it":
            await socket.text(DELTA)
        await socket.close(code, "" if code == 1005 else "because")

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, b"x")
        await server.http.wait_idle()
    kind, retryable = CODES[code]
    partial = after == "after it"
    assert found.frames == ([DELTA.encode()] if partial else [])
    assert (found.kind, found.error.retryable, found.error.status) == (kind, retryable, code)
    assert found.phase == ("body" if partial else "head")
    said = "" if code == 1005 else "because"
    assert found.error.native == {"close_code": code, "close_reason": said}
    assert found.text.endswith(f": {said}" if said else ")")
    assert f"{code} (" in found.text


ABRUPT: dict[str, tuple[Any, str]] = {
    "reset": (reset(), "was reset"),
    "FIN": (half_close(), "1006 (connection lost)"),
}


@pytest.mark.parametrize("after", ["before the first delta", "after it"])
@pytest.mark.parametrize("way", ABRUPT)
async def test_I1_an_end_without_a_close_frame(way: str, after: str, autojump_clock: MockClock) -> None:
    step, words = ABRUPT[way]

    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        if after == "after it":
            await socket.text(DELTA)
            await trio.sleep(1)
        await step(socket.exchange)

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, b"x")
        await server.http.wait_idle()
    assert found.frames == ([DELTA.encode()] if after == "after it" else [])
    assert (found.kind, found.error.status, found.error.retryable) == ("network", 1006, True)
    assert words in found.text


@pytest.mark.parametrize(
    ("code", "reason", "kind", "retryable"),
    [
        (1008, "API key not valid. Please pass a valid API key.", "auth", False),
        (1008, "You exceeded your current quota, please check billing", "provider", False),
        (1008, "Too many requests, try again in 3 s", "provider", True),
        (4401, "", "auth", False),
        (4403, "no", "auth", False),
        (4500, "", "provider", True),
        (4404, "", "provider", False),
        (3000, "unauthorized", "auth", False),
        (1014, "", "network", True),
        (1015, "", "network", True),
    ],
)
def test_I1_other_codes_are_judged_by_their_reason(
    code: int, reason: str, kind: str, retryable: bool
) -> None:
    found = close_fault(code, reason, peer="p:1", phase="body", bytes_received=7)
    assert (found.kind, found.retryable, found.status) == (kind, retryable, code)


def test_a_close_reason_is_printed_without_control_characters() -> None:
    found = close_fault(1011, "a\nb\x1b[0m é", peer="p:1", phase="body", bytes_received=0)
    assert found.message.endswith("1011 (internal error): a?b?[0m é")


# -- silence


async def test_I3_a_peer_that_never_pongs_is_given_up(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        socket.answers_pings = False
        await socket.text(DELTA)
        await socket.until_gone()

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, ws_ping_interval="5s", ws_ping_timeout="7s")
        assert found.frames == [DELTA.encode()]
        assert server.sockets[0].pings == 1
    assert (found.kind, found.error.code, found.error.retryable) == ("network", "ping_timeout", True)
    assert "a ping was not answered for 7 s" in found.text
    assert trio.current_time() == pytest.approx(12, abs=0.1)


async def test_I3_a_silent_peer_that_pongs_is_waited_for(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text("first")
        with trio.move_on_after(17):
            await socket.message()
        await socket.text(DELTA)
        await socket.close(1000)

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, ws_ping_interval="5s", ws_ping_timeout="2s")
    assert found.frames == [b"first", DELTA.encode()]
    assert found.connection is not None
    assert found.connection.keepalives == 3
    assert found.error.status == 1000


async def test_I3_data_is_a_sign_of_life_too(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        for _ in range(20):
            await socket.text(DELTA)
            await trio.sleep(1)
        await socket.close(1000)

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, ws_ping_interval="3s", ws_ping_timeout="2s")
    assert len(found.frames) == 20
    assert found.error.status == 1000


@pytest.mark.parametrize(("interval", "pings"), [("never", 0), ("nonsense", 3)])
async def test_I3_the_interval_is_a_setting(interval: str, pings: int, autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text(DELTA)
        with trio.move_on_after(100):
            await socket.message()
        await socket.close(1000)

    async with serve_ws(script) as server:
        await ask_ws(server.url, ws_ping_interval=interval)
        assert server.sockets[0].pings == pings


async def test_a_ping_of_the_peer_is_a_read_without_frames(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text(DELTA)
        for _ in range(3):
            await trio.sleep(1)
            await socket.ping()
        await socket.until_gone()

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        connection = await WebSocketTransport(FakeEnv()).open(TransportRequest(url=server.url), nursery)
        assert await connection.receive() == [DELTA.encode()]
        while connection.keepalives < 3:
            assert await connection.receive() == []
        assert trio.current_time() == 3
        await connection.aclose()
        assert server.sockets[0].pongs == 3


async def test_a_ping_during_the_end_of_the_socket_is_nobodys_fault(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text(DELTA)
        await trio.sleep(2)
        await socket.close(1000)

    async def closed(*_: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise trio_websocket.ConnectionClosed(None)

    monkeypatch.setattr(trio_websocket.WebSocketConnection, "ping", closed)
    async with serve_ws(script) as server:
        found = await ask_ws(server.url, ws_ping_interval="1s")
    assert (found.frames, found.error.status) == ([DELTA.encode()], 1000)


# -- what is no message, or too much of one


async def test_J_64_MB_in_one_message_pass_and_one_more_byte_does_not() -> None:
    limit = 64 << 20

    async def script(socket: Socket) -> None:
        await socket.accept()
        size = limit + (1 if socket.request.target == "/more" else 0)
        await socket.raw(b"\x81\x7f" + size.to_bytes(8, "big"))
        for at in range(0, size, 1 << 20):
            await socket.raw(b"a" * min(1 << 20, size - at))
        await socket.close(1000)

    async with serve_ws(script) as server:
        found = await ask_ws(server.url)
        assert [len(frame) for frame in found.frames] == [limit]
        found = await ask_ws(f"{server.url}/more")
        await server.http.wait_idle()
    assert (found.kind, found.frames) == ("malformed", [])
    assert f"a message of more than {limit} bytes" in found.text


async def test_a_message_is_measured_in_bytes() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text("ok", "é" * 60, "never seen")
        await socket.until_gone()

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, max_frame_bytes=100)
    assert (found.kind, found.frames) == ("malformed", [b"ok"])
    assert "a message of more than 100 bytes" in found.text


async def test_an_answer_is_bounded_as_a_whole() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text("a" * 60, "b" * 60)
        await socket.until_gone()

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, max_response_bytes=100)
    assert (found.kind, found.frames) == ("malformed", [b"a" * 60])
    assert "an answer of too many bytes" in found.text


@pytest.mark.parametrize(
    "data",
    [b"\x81\x02\xff\xfe", b"\xf1\x01a", b"\x8f\x00", b"\x80\x01a"],
    ids=["no UTF-8", "reserved bits", "unknown opcode", "continuation of nothing"],
)
async def test_what_is_no_message_is_malformed(data: bytes) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.raw(text_frame(DELTA) + data)
        await socket.until_gone()

    async with serve_ws(script) as server:
        found = await ask_ws(server.url)
        await server.http.wait_idle()
    assert (found.kind, found.frames) == ("malformed", [DELTA.encode()])
    assert "sent what is no WebSocket message" in found.text


# -- what the library raises


def test_every_exception_of_the_library_is_in_the_table() -> None:
    raised = {
        name
        for module in (trio_websocket, trio_websocket._impl, wsproto.utilities)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception) and "trio." not in value.__module__
    }
    own = {name for name in raised if name not in ("ParseFailed", "ProtocolError", "BaseExceptionGroup")}
    assert own == set(ws_errors.LIBRARY_FAULTS)


async def test_B4_what_the_library_raises_in_its_reader_is_one_plain_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text(DELTA)
        await socket.ping()
        await socket.until_gone()

    async def crash(*_: Any) -> None:
        await trio.sleep(0.01)
        raise wsproto.utilities.LocalProtocolError("can't be sent in this state")

    monkeypatch.setattr(trio_websocket.WebSocketConnection, "_handle_ping_event", crash)
    async with serve_ws(script) as server:
        found = await ask_ws(server.url)
        await server.http.wait_idle()
    assert (found.kind, found.frames) == ("network", [DELTA.encode()])
    assert type(found.error) is ProviderError
    assert isinstance(found.error.__cause__, wsproto.utilities.LocalProtocolError)


def test_a_bug_is_no_network_fault() -> None:
    found = library_fault(AttributeError("x"), peer="p:1", phase="head", bytes_received=0)
    assert (found.kind, found.detail["phase"]) == (ErrorKind.PROVIDER, "head")
    assert "AttributeError" in found.message


async def test_a_crash_while_we_close_does_not_delay_us(autojump_clock: MockClock) -> None:
    """A ping that comes while we close crashes the library's reader, which its `aclose` waits for."""

    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text(DELTA)
        await socket.exchange.stream.receive_some(100)
        await socket.ping()
        await hang()(socket.exchange)

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        connection = await WebSocketTransport(FakeEnv()).open(TransportRequest(url=server.url), nursery)
        start = trio.current_time()
        await connection.aclose()
        assert trio.current_time() - start < ws_connection.CLOSE_SECONDS
        with pytest.raises(ProviderError, match="on our side"):
            while True:
                await connection.receive()


async def test_300_sockets_half_of_them_cancelled(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        for _ in range(10):
            await socket.text(DELTA)
            await trio.sleep(1)
        await socket.close(1000)

    done: list[int] = []
    context = ssl.create_default_context()

    async def one(url: str, scope: trio.CancelScope) -> None:
        with scope:
            done.append(len((await ask_ws(url, b"x", context=context)).frames))

    async with serve_ws(script) as server:
        scopes = [trio.CancelScope() for _ in range(300)]
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(one, server.url, scope)
            await server.http.wait_open(300)
            await trio.sleep(3)
            for scope in scopes[::2]:
                scope.cancel()
            start = trio.current_time()
            while server.http.open > 150:
                await trio.sleep(0.1)
            assert trio.current_time() - start <= 2
        await server.http.wait_idle()
    assert done == [10] * 150


# -- the stream between us and the library


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_send_that_breaks_tears_the_wire(accepted: bool) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    changes: list[int] = []
    wire = Wire(ours, "p:1", lambda: changes.append(1))
    wire._accepted = accepted
    await wire.wait_send_all_might_not_block()
    await theirs.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await wire.send_all(b"\x81\x01a")
    assert wire.torn
    assert isinstance(wire.broken, trio.BrokenResourceError)
    assert (wire.failure is not None, len(changes)) == (not accepted, not accepted)  # it was the handshake
    await wire.aclose()
    assert (wire.closed, len(changes)) == (True, 1 + (not accepted))


async def test_B4_a_connection_reset_before_the_handshake_is_sent_is_a_fault_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that is killed resets what waits in its backlog. Found by the soak: it hung until a limit."""
    listener = trio.socket.socket()
    await listener.bind(("127.0.0.1", 0))
    listener.listen(1)

    async def opened_and_reset(*where: Any) -> trio.abc.Stream:
        stream = await open_stream(*where)
        listener.close()
        return stream

    monkeypatch.setattr(websocket, "open_stream", opened_and_reset)
    with trio.fail_after(5):
        found = await ask_ws(f"ws://127.0.0.1:{listener.getsockname()[1]}", b"x")
    assert isinstance(found.error, ProviderError)
    assert (found.error.kind, found.error.retryable) == (ErrorKind.NETWORK, True)
    assert found.error.detail["phase"] == "send"
