"""TLS: what is trusted, what is not, and how a connection ends."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import pytest
import trio

from aiio.transports.http import HTTPTransport
from aiio.transports.http_socket import PlainStream, TLSStream
from tests.serving import (
    Authority,
    Exchange,
    chunk,
    drop,
    head,
    last_chunk,
    raw,
    reset,
    respond,
    serve,
    sse,
    stall,
)

from .asking import FakeEnv, ask

CLIENTS: dict[str, Any] = {
    "direct": lambda context: None,
    "httpx": lambda context: httpx.AsyncClient(trust_env=False, verify=context),
    "httpx2": lambda context: httpx2.AsyncClient(trust_env=False, verify=context),
}


@pytest.fixture
async def transport(authority: Authority) -> AsyncIterator[HTTPTransport]:
    made = HTTPTransport(FakeEnv(authority.client_context()))
    yield made
    await made.aclose()


@pytest.fixture(params=list(CLIENTS))
async def any_transport(request: pytest.FixtureRequest, authority: Authority) -> AsyncIterator[HTTPTransport]:
    context = authority.client_context()
    client = CLIENTS[request.param](context)
    made = HTTPTransport(FakeEnv(context, client))
    yield made
    await made.aclose()
    if client is not None:
        await client.aclose()


async def test_an_answer_over_tls(any_transport: HTTPTransport, authority: Authority) -> None:
    seen: list[object] = []

    async def look(exchange: Exchange) -> None:
        assert isinstance(exchange.stream, trio.SSLStream)
        seen.append(exchange.stream.selected_alpn_protocol())

    async with serve(look, respond(sse(b"1", b"2")), tls=authority.server_context()) as server:
        outcome = await ask(any_transport, server.url, body=b"{}")
        await server.wait_idle()
    assert (outcome.frames, outcome.error) == ([b"1", b"2"], None)
    assert seen == ["http/1.1"]
    assert server.requests[0].body == b"{}"


async def test_a_name_is_sent_and_checked(any_transport: HTTPTransport, authority: Authority) -> None:
    async with serve(respond(sse(b"1")), tls=authority.server_context(), host="localhost") as server:
        assert (await ask(any_transport, server.url)).frames == [b"1"]


async def test_large_bodies_pass_both_ways(any_transport: HTTPTransport, authority: Authority) -> None:
    body = os.urandom(1 << 20) * 4
    payload = b"x" * (3 << 20)
    async with serve(respond(sse(payload, b"end")), tls=authority.server_context()) as server:
        outcome = await ask(any_transport, server.url, body=body)
    assert outcome.frames == [payload, b"end"]
    assert server.requests[0].body == body


@pytest.mark.parametrize("case", ["wrong name", "expired", "untrusted"])
async def test_E5_a_certificate_that_is_not_good_is_refused(
    any_transport: HTTPTransport, authority: Authority, case: str
) -> None:
    context = {
        "wrong name": lambda: authority.server_context("other.example"),
        "expired": lambda: authority.server_context(expired=True),
        "untrusted": lambda: Authority().server_context(),
    }[case]()
    async with serve(respond(sse(b"1")), tls=context) as server:
        outcome = await ask(any_transport, server.url, headers={"authorization": "Bearer SECRET"})
        await server.wait_idle()
    assert (outcome.kind, outcome.phase, outcome.error.retryable) == ("network", "tls", False)
    assert outcome.text.startswith(f"the TLS certificate of 127.0.0.1:{server.port} can't be trusted: ")
    assert server.requests == []
    assert server.faults  # the server was told


async def test_E5_a_server_without_tls_is_a_tls_fault(any_transport: HTTPTransport) -> None:
    async with serve(raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), read="nothing") as server:
        outcome = await ask(any_transport, server.url.replace("http:", "https:"))
    assert (outcome.kind, outcome.phase) == ("network", "tls")


@pytest.mark.parametrize("ending", [drop, reset])
async def test_E5_a_handshake_cut_off_is_network(any_transport: HTTPTransport, ending: Any) -> None:
    async with serve(ending(), read="nothing") as server:
        outcome = await ask(any_transport, server.url.replace("http:", "https:"))
    assert (outcome.kind, outcome.error.retryable) == ("network", True)
    assert outcome.phase in ("tls", "connect")  # the libraries do not say which it was


async def test_E5_an_end_without_a_closing_message_is_no_clean_end(
    transport: HTTPTransport, authority: Authority
) -> None:
    """Without it, whoever sits on the wire could cut an answer short unseen."""
    until_close = raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n")
    async with serve(until_close, drop(), tls=authority.server_context()) as server:
        outcome = await ask(transport, server.url)
        assert (outcome.frames, outcome.kind, outcome.phase) == ([b"1"], "network", "body")
        assert "broke off the TLS connection without a closing message" in outcome.text
        server.script(until_close)  # with one
        outcome = await ask(transport, server.url)
        assert (outcome.frames, outcome.error) == ([b"1"], None)


async def test_a_complete_body_needs_no_closing_message(
    transport: HTTPTransport, authority: Authority
) -> None:
    async with serve(respond(sse(b"1")), drop(), tls=authority.server_context()) as server:
        outcome = await ask(transport, server.url)
    assert (outcome.frames, outcome.error) == ([b"1"], None)


async def test_a_stream_over_tls_event_by_event(transport: HTTPTransport, authority: Authority) -> None:
    payloads = [b"%d" % n for n in range(300)]
    chunks = [chunk(b"data: " + payload + b"\n\n") for payload in payloads]
    async with serve(head(), *chunks, last_chunk(), tls=authority.server_context()) as server:
        assert (await ask(transport, server.url)).frames == payloads


async def test_cancelling_in_the_handshake_closes_the_socket(transport: HTTPTransport) -> None:
    async with serve(stall(), read="nothing") as server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, transport, server.url.replace("http:", "https:"))
            await server.wait_open(1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await server.wait_idle()


async def test_a_broken_tls_context_closes_the_socket() -> None:
    class Broken:
        http_client = None
        nursery: Any = None

        @property
        def ssl_context(self) -> ssl.SSLContext:
            raise FileNotFoundError(2, "No such file", "ca.pem")

    transport = HTTPTransport(Broken())
    async with serve(stall(), read="nothing") as server:
        outcome = await ask(transport, server.url.replace("http:", "https:"))
        await server.wait_idle()
    assert (outcome.kind, outcome.phase) == ("network", "tls")
    await transport.aclose()


# --- the stream by itself --------------------------------------------------------------------------


async def tls_pair(authority: Authority) -> tuple[TLSStream, trio.SSLStream[trio.SocketStream]]:
    ours, theirs = trio.socket.socketpair()
    client = TLSStream(
        PlainStream(socket.socket(fileno=ours.detach())), authority.client_context(), "localhost"
    )
    server = trio.SSLStream(trio.SocketStream(theirs), authority.server_context(), server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.do_handshake)
        await client.handshake()
    return client, server


async def test_records_before_a_cut_are_handed_over_first(authority: Authority) -> None:
    client, server = await tls_pair(authority)
    await server.send_all(b"whole")
    server.transport_stream.socket.close()
    got = b""
    while not got:
        got = await client.receive()
    assert got == b"whole"
    for _ in range(2):
        with pytest.raises(ssl.SSLEOFError):
            await client.receive()
    client.close()
    client.close()


async def test_what_is_there_is_received_at_once(authority: Authority) -> None:
    client, server = await tls_pair(authority)
    with pytest.raises(BlockingIOError):
        while True:  # tickets may have come
            assert client.receive_now() == b""
    assert client.at_rest()
    await server.send_all(b"whole")
    assert not client.at_rest()
    assert client.receive_now() == b"whole"
    assert client.at_rest()
    await server.aclose()
    for _ in range(2):
        with pytest.raises(EOFError):
            client.receive_now()
        assert not client.at_rest()
    client.close()


async def test_records_before_a_clean_end_are_handed_over_first(authority: Authority) -> None:
    client, server = await tls_pair(authority)
    server_end = trio.Event()

    async def end() -> None:
        await server.send_all(b"whole")
        plain, _ = await server.unwrap()
        await plain.aclose()
        server_end.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        await trio.testing.wait_all_tasks_blocked()
        got = b""
        while not got:
            got = await client.receive()
        with pytest.raises(EOFError):
            await client.receive()
        client.close()  # tells the peer, which waits for it
        await server_end.wait()
    assert got == b"whole"


async def test_a_record_that_was_tampered_with_is_an_error_after_the_good_ones(authority: Authority) -> None:
    client, server = await tls_pair(authority)
    await server.send_all(b"whole")
    await server.transport_stream.send_all(b"\x17\x03\x03\x00\x05hello")
    got = b""
    while not got:
        got = await client.receive()  # one read brings both records
    assert got == b"whole"
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            await client.receive()
    client.close()
    server.transport_stream.socket.close()


async def test_sending_and_receiving_at_once_keeps_the_records_in_order(authority: Authority) -> None:
    client, server = await tls_pair(authority)
    sent, back = os.urandom(3 << 20), os.urandom(1 << 20)
    got_there, got_back = bytearray(), bytearray()

    async def echo() -> None:
        while len(got_there) < len(sent):
            got_there.extend(await server.receive_some(1 << 16))

    async with trio.open_nursery() as nursery:
        assert not client.send_now(sent)
        nursery.start_soon(client.drain)
        nursery.start_soon(server.send_all, back)
        nursery.start_soon(echo)
        while len(got_back) < len(back):
            got_back += await client.receive()
    assert (bytes(got_there), bytes(got_back)) == (sent, back)
    client.close()
    server.transport_stream.socket.close()


async def test_what_tls_has_to_say_while_reading_goes_out(authority: Authority) -> None:
    """As for new keys: here the server asks for a certificate in the middle of the stream."""
    ours, theirs = trio.socket.socketpair()
    context = authority.client_context()
    context.post_handshake_auth = True
    client = TLSStream(PlainStream(socket.socket(fileno=ours.detach())), context, "localhost")
    server_context = authority.server_context()
    server_context.post_handshake_auth = True
    server_context.verify_mode = ssl.CERT_OPTIONAL
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(incoming, outgoing, server_side=True)

    async def shake_hands() -> None:
        done = False
        while not done:
            try:
                server.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            if outgoing.pending:
                await theirs.send(outgoing.read())
            if not done:
                incoming.write(await theirs.recv(65536))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shake_hands)
        await client.handshake()
    server.verify_client_post_handshake()
    server.write(b"x")
    await theirs.send(outgoing.read())
    got = b""
    while not got:
        got = await client.receive()
    assert got == b"x"
    assert len(await theirs.recv(65536)) > 50  # the certificate message, unasked for by any send
    client.close()
    theirs.close()
