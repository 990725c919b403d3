"""The HTTP defaults: an author's own exchange over a real socket, whatever the answer looks like."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from trio.testing import MockClock

import aiio
from aiio.env.errors import ErrorKind, HttpStatusError, ProviderError
from aiio.io import (
    DefaultConnection,
    default_close,
    default_connect,
    default_read,
    default_send,
    default_send_body,
    default_send_headers,
)
from tests.serving import Body, Server, chunk, drop, head, last_chunk, ndjson, respond, serve, sse, stall

from .scripted import Fail, Scripted, ScriptedTransport, say

KEY = "sk-canary-0123456789"
PLAIN = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}


@asynccontextmanager
async def io_of(**policy: Any) -> AsyncIterator[aiio.IO]:
    """An IO for connections to wherever; its own endpoint is never asked."""
    async with aiio.Env(environ={}, http_client=policy.pop("http_client", None)) as env:
        env.register_endpoint("mine", provider="openai_chat", url="http://unused", auth=KEY, **policy)
        env.credential("mine")
        yield aiio.IO(env=env, model="mine/m")


async def all_of(connection: DefaultConnection) -> list[Any]:
    found = []
    while (message := await default_read(connection)) is not None:
        found.append(message)
    assert await default_read(connection) is None
    return found


async def answers(server: Server, io: aiio.IO, msg: Any = None, **options: Any) -> list[Any]:
    """Send *msg*, and return all that was answered."""
    connection = default_connect(server.url, io, **options)
    await default_send(connection, msg)
    try:
        return await all_of(connection)
    finally:
        await default_close(connection)
        assert connection.closed


# --- sending ---


async def test_one_exchange_from_connect_to_close() -> None:
    async with serve(respond(sse(b'{"a":1}', b'{"b":2}', b"[DONE]"))) as server, io_of() as io:
        connection = default_connect(server.url + "/login", io)
        assert (connection.url, connection.aiio, connection.closed) == (server.url + "/login", io, False)
        with trio.testing.assert_checkpoints():
            await default_send_headers(connection, {"X-A": 1, "X-None": None, "X-Call": print})
        with trio.testing.assert_checkpoints():
            await default_send_body(connection, {"text": "é"})
        assert connection.response is not None
        assert connection.response.status == 200
        with trio.testing.assert_checkpoints():
            assert await default_read(connection) == {"a": 1}
        assert await all_of(connection) == [{"b": 2}]
        assert len(io.env.active_io) == 0
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                await default_close(connection)
        await server.wait_idle()
        (request,) = server.requests
        assert (request.method, request.target, request.json()) == ("POST", "/login", {"text": "é"})
        assert request.headers["x-a"] == "1"
        assert request.headers["content-type"] == "application/json"
        assert not {"x-none", "x-call"} & set(request.headers)


@pytest.mark.parametrize(
    ("msg", "header", "body"),
    [
        ([{"X-A": "b"}, {"c": 1}], "b", b'{"c":1}'),
        (({"X-A": "b"},), "b", b""),
        ({"c": 1}, None, b'{"c":1}'),
        (None, None, b""),
    ],
)
async def test_a_message_is_headers_and_body_or_the_body(msg: Any, header: str | None, body: bytes) -> None:
    async with serve(respond(b"{}", headers=JSON)) as server, io_of() as io:
        assert await answers(server, io, msg) == [{}]
        (request,) = server.requests
        assert (request.headers.get("x-a"), request.body) == (header, body)
        assert ("content-type" in request.headers) == bool(body)


async def test_another_method_and_a_content_type_of_ones_own() -> None:
    async with serve(respond(b"{}", headers=JSON)) as server, io_of() as io:
        await answers(server, io, method="GET")
        await answers(server, io, [{"content-type": "application/x-mine"}, 1])
        assert [one.method for one in server.requests] == ["GET", "POST"]
        assert server.requests[1].headers["content-type"] == "application/x-mine"


async def test_misuse_is_an_exception_at_once() -> None:
    async with serve(respond(b"{}", headers=JSON)) as server, io_of() as io:
        with pytest.raises(TypeError, match=r"needs an aiio\.IO"):
            default_connect(server.url, object())  # type: ignore[arg-type]
        connection = default_connect(server.url, io)
        with pytest.raises(RuntimeError, match="default_send comes before"):
            await default_read(connection)
        with pytest.raises(ProviderError, match="headers must be a mapping"):
            await default_send_headers(connection, 3)  # type: ignore[arg-type]
        with pytest.raises(ProviderError, match="not JSON data") as caught:
            await default_send_body(connection, {"x": object()})
        assert caught.value.kind is ErrorKind.MALFORMED
        assert server.connections == 0
        await default_send(connection, None)
        with pytest.raises(trio.BusyResourceError, match="one exchange"):
            await default_send_body(connection, None)
        assert "open" in repr(connection)
        await connection.aclose()
        assert "closed" in repr(connection)
        for call in (
            default_read(connection),
            default_send(connection, None),
            default_send_body(connection, 1),
        ):
            with pytest.raises(trio.ClosedResourceError):
                await call
        assert len(server.requests) == 1


async def test_an_env_that_is_not_entered_sends_nothing() -> None:
    env = aiio.Env(environ={})
    env.register_endpoint("mine", url="http://127.0.0.1:9", auth=KEY)
    connection = default_connect("http://127.0.0.1:9", aiio.IO(env=env, model="mine/m"))
    with pytest.raises(RuntimeError, match="enter it"):
        await default_send_body(connection, None)


async def test_a_url_with_a_password_is_not_shown() -> None:
    async with io_of() as io:
        shown = repr(default_connect(f"https://h/x?key={KEY}", io))
        assert KEY not in shown
        assert "new" in shown


# --- reading ---

LINES = (
    b'\n  \ndata: {"a":1}\nevent: x\nid: 7\nretry: 10\n: hello\ndata:\ndata:{"b":2}\nnull\n{"c":"\xc3\xa9"}\n'
)
WANTED = [{"a": 1}, {"b": 2}, {"c": "é"}]


@pytest.mark.parametrize("content_type", ["application/x-ndjson", "application/json"])
async def test_a_line_is_a_message_and_the_rules_of_lines_hold(content_type: str) -> None:
    body = Body(tuple(LINES[at : at + 1] for at in range(len(LINES))), {"content-type": content_type})
    async with serve(respond(body)) as server, io_of() as io:
        assert await answers(server, io) == WANTED


@pytest.mark.parametrize("framing", ["sse", "ndjson"])
@pytest.mark.parametrize("end", [b"\n\n", b"\n", b""])
async def test_the_unterminated_last_message_counts(framing: Any, end: bytes) -> None:
    start = b'data: {"a":1}\n\ndata: {"b":2}' if framing == "sse" else b'{"a":1}\n{"b":2}'
    async with serve(respond(start + end, headers=PLAIN)) as server, io_of() as io:
        assert await answers(server, io, framing=framing) == [{"a": 1}, {"b": 2}]


async def test_a_body_over_many_lines_is_one_message() -> None:
    page = b'{\n  "data": [\n    {"id": "m"}\n  ]\n}'
    async with serve(respond(page, headers=JSON)) as server, io_of() as io:
        assert await answers(server, io, method="GET") == [{"data": [{"id": "m"}]}]


async def test_the_dialect_says_how_an_unnamed_body_is_cut() -> None:
    async with serve(respond(b'{"a":1}\n{"b":2}\n', headers=PLAIN)) as server, io_of() as io:
        io.env.register_endpoint("lines", provider="ollama", url="http://unused")
        lines = aiio.IO(env=io.env, model="lines/m")
        assert await answers(server, lines) == [{"a": 1}, {"b": 2}]


async def test_done_is_the_end_whatever_follows() -> None:
    async with serve(respond(ndjson(b"1", b"[DONE]", b"2"))) as server, io_of() as io:
        assert await answers(server, io) == [1]
    async with serve(head(), chunk(b"data: 1\n\ndata: [DONE]\n\n"), stall()) as server, io_of() as io:
        assert await answers(server, io) == [1]
        await server.wait_idle()


@pytest.mark.parametrize("answer", [respond(), respond(sse()), respond(Body((b": ping\n\n",)))])
async def test_an_answer_without_a_message_is_at_its_end(answer: Any) -> None:
    async with serve(answer) as server, io_of() as io:
        assert await answers(server, io) == []


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        (respond(ndjson(b'{"a":1}', b"nonsense", b'{"b":2}')), [{"a": 1}]),
        (respond(sse(b'{"a":1}', b"nonsense")), [{"a": 1}]),
        (respond(sse(b'{"a":1}', b"data: nonsense")), [{"a": 1}]),
        (respond(b"nonsense", headers=JSON), []),
        (respond(b"nonsense", headers=PLAIN), []),
        (respond(ndjson(b'{"a":1}', b"\xff")), [{"a": 1}]),
    ],
)
async def test_what_is_no_json_is_malformed_after_what_was(answer: Any, good: list[Any]) -> None:
    async with serve(answer) as server, io_of() as io:
        connection = default_connect(server.url, io)
        await default_send(connection, {})
        for wanted in good:
            assert await default_read(connection) == wanted
        with pytest.raises(ProviderError, match="the answer of mine") as caught:
            await default_read(connection)
        assert caught.value.kind is ErrorKind.MALFORMED
        await default_close(connection)


# --- trouble ---


async def test_a_refusal_is_an_http_status_error_that_quotes_no_credential() -> None:
    body = f"no such key {KEY} ".encode() + b"x" * 300
    refusal = respond(body, status=401, headers={"x-echo": KEY, "x-request-id": "r1"})
    async with serve(refusal) as server, io_of() as io:
        connection = default_connect(server.url, io)
        with pytest.raises(HttpStatusError) as caught:
            await default_send(connection, [{"Authorization": f"Bearer {KEY}"}, {}])
        error = caught.value
        assert (error.status, error.headers["x-request-id"]) == (401, "r1")
        assert str(error).startswith("HTTP 401 Unauthorized: no such key *** xxx")
        assert len(str(error)) == len("HTTP 401 Unauthorized: ") + 200
        assert KEY not in f"{error} {error.body} {error.headers}"
        assert error.__suppress_context__
        assert connection.response is None
        await default_close(connection)


async def test_a_credential_only_the_author_knows_is_masked_too() -> None:
    own = "own-token-9876543210"
    async with serve(respond(f"bad {own}".encode(), status=403)) as server, io_of() as io:
        with pytest.raises(HttpStatusError) as caught:
            await answers(server, io, [{"X-Api-Key": own}, None])
        assert own not in str(caught.value)


async def test_network_faults_are_provider_errors() -> None:
    async with serve(head(), chunk(b"data: 1\n\n"), drop()) as server, io_of() as io:
        connection = default_connect(server.url, io)
        await default_send(connection, None)
        assert await default_read(connection) == 1
        with pytest.raises(ProviderError) as caught:
            await default_read(connection)
        assert caught.value.kind is ErrorKind.NETWORK
        assert caught.value.detail["phase"] == "body"
        await default_close(connection)
        server.script(drop())
        with pytest.raises(ProviderError) as caught:
            await answers(server, io)
        assert caught.value.kind is ErrorKind.NETWORK


async def test_cancelling_a_send_closes_its_socket_and_the_connection_may_be_used_again() -> None:
    async with serve(stall()) as server, io_of() as io:
        connection = default_connect(server.url, io)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(default_send, connection, {})
            await server.wait_open(1)
            nursery.cancel_scope.cancel()
        await server.wait_idle()
        server.script(respond(b"[1]", headers=JSON))
        await default_send(connection, {})
        assert await all_of(connection) == [[1]]
        await default_close(connection)


async def test_cancelling_a_read_loses_no_message() -> None:
    more = trio.Event()

    async def rest(exchange: Any) -> None:
        await more.wait()
        await chunk(b'":1}\n\n')(exchange)

    async with serve(head(), chunk(b'data: {"a'), rest, last_chunk()) as server, io_of() as io:
        connection = default_connect(server.url, io)
        await default_send(connection, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(default_read, connection)
            await trio.testing.wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
        more.set()
        assert await all_of(connection) == [{"a": 1}]
        await default_close(connection)


async def test_closing_wakes_a_reader() -> None:
    async with serve(head(), stall()) as server, io_of() as io:
        connection = default_connect(server.url, io)
        await default_send(connection, None)

        async def read() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await default_read(connection)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.001)
            await default_close(connection)
        await server.wait_idle()


async def test_closing_works_under_cancellation_and_is_bounded(autojump_clock: MockClock) -> None:
    for takes, error in ((60.0, None), (0.0, RuntimeError("close"))):
        transport = ScriptedTransport(
            (say("x"), Fail(ProviderError("network", f"gone {KEY}"))), close_takes=takes
        )
        async with io_of() as io:
            io.env.register_provider(Scripted)
            io.env.register_transport("scripted", transport)
            connection = default_connect("scripted://peer", io)
            await default_send(connection, None)
            assert await default_read(connection) == [{"type": "text_delta", "content_index": 0, "text": "x"}]
            with pytest.raises(ProviderError, match=r"gone \*\*\*"):
                await default_read(connection)
            assert connection.response is not None
            if error is not None:
                connection.response.aclose = crash  # type: ignore[method-assign]
            began = trio.current_time()
            with trio.CancelScope() as scope:
                scope.cancel()
                await default_close(connection)
            assert (scope.cancelled_caught, connection.closed) == (True, True)
            assert trio.current_time() - began == (5 if takes else 0)


async def crash() -> None:
    raise RuntimeError("close")


async def test_a_lent_client_reads_in_the_background_of_the_env() -> None:
    async with (
        serve(respond(sse(b"1", b"2"))) as server,
        httpx.AsyncClient(trust_env=False) as client,
        io_of(http_client=client) as io,
    ):
        assert await answers(server, io, {}) == [1, 2]
        await server.wait_idle()
        server.script(stall())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(default_send, default_connect(server.url, io), {})
            await server.wait_open(1)
            nursery.cancel_scope.cancel()
        await server.wait_idle()


async def test_settings_of_the_endpoint_hold_for_the_exchange() -> None:
    async with serve(respond(sse(b'"' + b"x" * 100 + b'"'))) as server, io_of(max_frame_bytes=50) as io:
        with pytest.raises(ProviderError, match="longer than 50 bytes") as caught:
            await answers(server, io)
        assert caught.value.kind is ErrorKind.MALFORMED
