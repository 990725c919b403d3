"""The WebSocket transport against a loopback server: the handshake, messages both ways, closing."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.env.errors import HttpStatusError, ProviderError
from aiio.transports.base import Duplex, Frame, TransportRequest
from aiio.transports.target import target_of
from aiio.transports.websocket import WebSocketTransport
from tests.serving import Authority, hang, reset, serve
from tests.ws_serving import Socket, SocketServer, serve_ws, text_frame

from .asking import FakeEnv
from .proxying import run_proxy
from .ws_asking import ask_ws


async def talk(socket: Socket) -> None:
    """Answer the first message with two, and close."""
    await socket.accept({"x-request-id": "r1", "X-Twice": "a"})
    await socket.message()
    await socket.text('{"a":1}', '{"b":2}')
    await socket.close(1000, "bye")


async def test_a_request_is_a_handshake_and_a_first_message() -> None:
    async with serve_ws(talk) as server:
        found = await ask_ws(
            f"{server.url}/v1/responses?model=m",
            b'{"hello":1}',
            headers={"Authorization": "Bearer key-1", "Sec-WebSocket-Protocol": "chat, v2", "Host": "other"},
        )
    assert found.frames == [b'{"a":1}', b'{"b":2}']
    [socket] = server.sockets
    assert socket.messages == ['{"hello":1}']
    assert socket.request.target == "/v1/responses?model=m"
    assert socket.request.headers["authorization"] == "Bearer key-1"
    assert socket.request.headers["user-agent"] == "aiio"
    assert socket.request.headers["host"] == server.url.removeprefix("ws://")
    assert socket.request.headers["sec-websocket-protocol"] == "chat, v2"
    assert "accept-encoding" not in socket.request.headers
    assert found.connection is not None
    assert (found.connection.status, found.connection.headers["x-request-id"]) == (101, "r1")
    assert found.connection.bytes_received == 2 * len(text_frame('{"a":1}')) + len(b"\x88\x05\x03\xe8bye")
    assert (found.error.status, found.kind, found.phase) == (1000, "network", "body")


async def test_a_binary_message_says_so_and_more_messages_can_be_sent() -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text("ready")
        await socket.binary(f"{await socket.message()}-{await socket.message()}".encode())
        await socket.close(1000)

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, b"one", b"two")
        assert found.frames == [b"ready", b"one-two"]
        assert type(found.frames[0]) is bytes
        assert isinstance(found.frames[1], Frame)
        assert found.frames[1].name == "binary"


async def test_frames_of_one_read_come_in_one_batch() -> None:
    batches: list[list[bytes]] = []

    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text(*map(str, range(50)))
        await socket.message()
        await socket.text("last")
        await socket.until_gone()

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        connection = await WebSocketTransport(FakeEnv()).open(TransportRequest(url=server.url), nursery)
        assert isinstance(connection, Duplex)
        while sum(map(len, batches)) < 50:
            batches.append(await connection.receive() or [])
        assert len(batches) <= 3
        await connection.send(b"more")
        while [b"last"] not in batches:
            batches.append(await connection.receive() or [])
        await connection.aclose()
        await connection.aclose()
        assert server.sockets[0].close_code == 1000
        with pytest.raises(ProviderError, match="on our side"):
            while True:
                await connection.receive()
        await connection.send(b"nobody hears it")
    assert server.http.open == 0


async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        for number in range(20):
            await socket.text(str(number))
            await trio.sleep(1)
        await socket.close(1000)

    frames: list[bytes] = []
    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        connection = await WebSocketTransport(FakeEnv()).open(TransportRequest(url=server.url), nursery)
        with pytest.raises(ProviderError):
            while True:
                with trio.move_on_after(0.3):
                    frames += await connection.receive() or []
        await connection.aclose()
    assert frames == [str(number).encode() for number in range(20)]


async def test_messages_are_put_together_from_any_cut(autojump_clock: MockClock) -> None:
    whole = "aé😀" * 30
    first, rest = whole[:40].encode(), whole[40:].encode()
    wire = b"\x01" + bytes([len(first)]) + first + b"\x89\x00" + b"\x80" + bytes([len(rest)]) + rest

    async def script(socket: Socket) -> None:
        await socket.accept()
        for at in range(len(wire)):
            await socket.raw(wire[at : at + 1])
            await trio.sleep(0.01)
        await socket.close(1000)

    assert len(rest) < 126 or len(first) < 126
    async with serve_ws(script) as server:
        found = await ask_ws(server.url)
        assert found.frames == [whole.encode()]
        assert server.sockets[0].pongs == 1
        assert found.connection is not None
        assert found.connection.keepalives == 1


# -- the handshake


async def test_a_refused_handshake_is_an_http_answer() -> None:
    heads: list[str] = []

    async def script(socket: Socket) -> None:
        await socket.refuse(429, b'{"error":{"message":"slow down"}}', {"retry-after": "3"})
        await socket.exchange.wait_client_gone()

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, b"x", head_came=lambda: heads.append("came"))
        await server.http.wait_idle()
    assert isinstance(found.error, HttpStatusError)
    assert (found.error.status, found.error.headers["retry-after"]) == (429, "3")
    assert found.error.body == '{"error":{"message":"slow down"}}'
    assert heads == ["came"]


@pytest.mark.parametrize("way", ["stalls", "breaks", "ends", "is endless"])
async def test_the_body_of_a_refusal_is_bounded(way: str, autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        length = 10**9 if way == "is endless" else 100
        await socket.raw(b"HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\nsorry" % length)
        match way:
            case "stalls":
                await hang()(socket.exchange)
            case "breaks":
                await trio.sleep(1)
                await reset()(socket.exchange)
            case "is endless":
                await trio.sleep(1)
                while True:
                    await socket.raw(b"x" * 65536)

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, max_error_bytes=1000)
        await server.http.wait_idle() if way != "stalls" else None
    assert isinstance(found.error, HttpStatusError)
    assert (found.error.status, found.error.body[:5]) == (503, "sorry")
    assert len(found.error.body) == (1000 if way == "is endless" else 5)
    assert trio.current_time() < 7


async def test_a_status_200_is_no_socket() -> None:
    async def script(socket: Socket) -> None:
        await socket.refuse(200, b"{}", {"content-type": "application/json"})

    async with serve_ws(script) as server:
        found = await ask_ws(server.url)
    assert (found.kind, found.phase, found.error.status) == ("provider", "head", 200)
    assert "instead of opening a WebSocket" in found.text


HANDSHAKES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "closed the connection without answering"),
    "half a head": (b"HTTP/1.1 101 Swi", "in the middle of the response head"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not speak proper HTTP"),
    "a wrong proof": (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: AAAA\r\n\r\n",
        "its handshake is wrong",
    ),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_a_broken_handshake_is_a_network_fault(name: str) -> None:
    data, words = HANDSHAKES[name]

    async def script(socket: Socket) -> None:
        await socket.raw(data)

    async with serve_ws(script) as server:
        found = await ask_ws(server.url, b"x")
        await server.http.wait_idle()
    assert (found.kind, found.phase) == ("network", "head")
    assert words in found.text


async def test_a_reset_handshake_is_a_network_fault() -> None:
    async with serve_ws(lambda socket: reset()(socket.exchange)) as server:
        found = await ask_ws(server.url, b"x")
    assert (found.kind, found.phase, found.error.retryable) == ("network", "head", True)
    assert "was reset" in found.text


async def test_an_interim_answer_comes_before_the_acceptance() -> None:
    async def script(socket: Socket) -> None:
        hints = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
        await socket.raw(hints + socket.acceptance() + text_frame("at once"))
        await socket.close(1000)

    async with serve_ws(script) as server:
        assert (await ask_ws(server.url)).frames == [b"at once"]


async def test_a_cancelled_tls_handshake_leaves_no_socket(
    authority: Authority, autojump_clock: MockClock
) -> None:
    async with serve(hang(), read="nothing") as server, trio.open_nursery() as nursery:
        with trio.move_on_after(3) as scope:
            request = TransportRequest(url=server.url.replace("http", "wss"))
            await WebSocketTransport(FakeEnv(authority.client_context())).open(request, nursery)
        assert scope.cancelled_caught


@pytest.mark.parametrize("phase", ["handshake", "first message", "sending"])
async def test_a_cancelled_open_leaves_no_socket(phase: str, autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        if phase != "handshake":
            await socket.accept()
        if phase == "sending":
            await hang()(socket.exchange)
        await socket.until_gone()

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        body = b"x" * (64 << 20 if phase == "sending" else 10)
        with trio.move_on_after(3) as scope:
            await WebSocketTransport(FakeEnv()).open(TransportRequest(url=server.url, body=body), nursery)
        assert scope.cancelled_caught
        assert trio.current_time() <= 3.5
        if phase != "sending":
            await server.http.wait_idle()
            assert server.sockets[0].close_code == (1000 if phase == "first message" else None)


# -- closing


async def left(server: SocketServer, frames: int = 1) -> float:
    """Open, take something, close; return how long closing took."""
    async with trio.open_nursery() as nursery:
        connection = await WebSocketTransport(FakeEnv()).open(TransportRequest(url=server.url), nursery)
        await connection.receive()
        start = trio.current_time()
        await connection.aclose()
        return trio.current_time() - start


@pytest.mark.parametrize("manner", ["mute", "talks on", "pings", "resets"])
async def test_a_peer_is_left_within_a_second(manner: str, autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.text("hello")
        match manner:
            case "mute":
                await hang()(socket.exchange)
            case "talks on":
                while True:
                    await socket.text("more")
                    await trio.sleep(0.05)
            case _:
                await socket.exchange.stream.receive_some(100)  # the close
                if manner == "resets":
                    await reset()(socket.exchange)
                await socket.ping()
                await socket.exchange.wait_client_gone()

    async with serve_ws(script) as server:
        assert await left(server) <= 0.5
        if manner != "mute":
            await server.http.wait_idle()


async def test_a_slow_consumer_holds_the_peer_back_and_keeps_it_alive(autojump_clock: MockClock) -> None:
    sent = 0

    async def script(socket: Socket) -> None:
        nonlocal sent
        await socket.accept()
        for _ in range(5000):
            await socket.text("x" * 2000)
            sent += 1
        await socket.close(1000)

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        request = TransportRequest(url=server.url, ws_ping_interval="1s", ws_ping_timeout="1s")
        connection = await WebSocketTransport(FakeEnv()).open(request, nursery)
        await trio.sleep(60)
        assert sent < 4500
        count = 0
        with pytest.raises(ProviderError) as caught:
            while True:
                count += len(await connection.receive() or [])
        assert caught.value.status == 1000
        await connection.aclose()
    assert count == 5000


async def test_a_full_buffer_does_not_delay_closing(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        for _ in range(75):  # half a megabyte more than may wait; the kernel has room for that
            await socket.text(*["x" * 2000] * 10)
        await socket.until_gone()

    async with serve_ws(script) as server, trio.open_nursery() as nursery:
        connection = await WebSocketTransport(FakeEnv()).open(TransportRequest(url=server.url), nursery)
        await trio.sleep(5)
        start = trio.current_time()
        await connection.aclose()
        assert trio.current_time() - start < 0.5
        assert server.sockets[0].close_code == 1000


# -- TLS and proxies


async def test_wss_uses_the_context_of_the_env(authority: Authority) -> None:
    async with serve_ws(talk, tls=authority.server_context()) as server:
        found = await ask_ws(server.url, b"x", context=authority.client_context())
        assert found.frames == [b'{"a":1}', b'{"b":2}']
        assert server.url.startswith("wss://")


async def test_an_untrusted_certificate_is_a_network_fault(authority: Authority) -> None:
    async with serve_ws(talk, tls=authority.server_context()) as server:
        found = await ask_ws(server.url, b"x")
        await server.http.wait_idle()
    assert (found.kind, found.phase, found.error.retryable) == ("network", "tls", False)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_proxy_makes_a_tunnel(tls: bool, authority: Authority) -> None:
    context = authority.server_context() if tls else None
    async with serve_ws(talk, tls=context) as server, run_proxy() as proxy:
        url = proxy.url.replace("://", "://user:secret@")
        found = await ask_ws(server.url, b"x", proxy=url, context=authority.client_context())
        assert found.frames == [b'{"a":1}', b'{"b":2}']
    [head] = proxy.heads
    assert head.startswith(b"CONNECT " + server.url.partition("://")[2].encode())
    assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in head


async def test_a_proxy_may_itself_speak_tls(authority: Authority) -> None:
    async def tunnel(exchange: Any) -> None:
        await exchange.send(b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n")

    async with serve(tunnel, tls=authority.server_context(), read="head") as proxy:
        context = authority.client_context()
        found = await ask_ws("ws://a.invalid:1/", b"x", proxy=proxy.url, context=context)
    assert (found.kind, found.phase, found.error.retryable) == ("network", "proxy", False)
    assert found.text == "the proxy refused to connect to a.invalid:1: 407 Who are you"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 502 \r\ncontent-length: 0\r\n\r\n",
            "refused to connect to a.invalid:80: 502",
        ),
        (b"", "closed the connection without answering"),
        (b"garbage\r\n\r\n", "does not speak proper HTTP"),
    ],
)
async def test_a_proxy_that_fails(answer: bytes, words: str) -> None:
    async with run_proxy() as proxy:
        proxy.refusal = answer
        found = await ask_ws("ws://a.invalid/", b"x", proxy=proxy.url)
    assert found.phase == "proxy"
    assert words in found.text


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://x", "http://x:port"])
async def test_an_unusable_proxy(proxy: str) -> None:
    found = await ask_ws("ws://a.invalid/", b"x", proxy=proxy)
    assert (found.kind, found.phase) == ("malformed", "proxy")


async def test_a_proxy_that_is_not_there() -> None:
    found = await ask_ws("ws://a.invalid/", b"x", proxy="http://127.0.0.1:1")
    assert (found.kind, found.phase) == ("network", "proxy")
    assert "the proxy 127.0.0.1:1" in found.text


@pytest.mark.parametrize(
    ("url", "kind", "phase"),
    [
        ("http://x/", "malformed", "connect"),
        ("ws://", "malformed", "connect"),
        ("ws://x:99999/", "malformed", "connect"),
        ("ws://127.0.0.1:1/?key=secret", "network", "connect"),
    ],
)
async def test_a_url_that_leads_nowhere(url: str, kind: str, phase: str) -> None:
    found = await ask_ws(url)
    assert (found.kind, found.phase) == (kind, phase)
    assert "secret" not in found.text


async def test_a_standard_port_is_not_named_in_the_request() -> None:
    assert target_of("wss://api.test/v1", "ws").host_header == "api.test"
    assert target_of("ws://api.test:443/", "ws").host_header == "api.test:443"
    assert target_of("ws://[::1]:8000", "ws").host_header == "[::1]:8000"
    assert target_of("ws://[::1]:8000", "ws").resource == "/"


async def test_a_credential_that_cannot_be_sent_never_connects() -> None:
    found = await ask_ws("ws://127.0.0.1:1/", headers={"Authorization": "Bearer a\nb"})
    assert (found.kind, found.phase) == ("auth", "send")
