"""HTTP: what goes out, what comes in, each way to send giving the same."""

from __future__ import annotations

import gzip
import json
import os
import random
import tracemalloc
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from aiio.env.errors import HttpStatusError, ProviderError
from aiio.transports.base import TransportRequest
from aiio.transports.http import HTTPTransport
from tests.serving import (
    EVENT_STREAM,
    Authority,
    Exchange,
    chunk,
    chunk_bytes,
    half_close,
    hang,
    head,
    last_chunk,
    ndjson,
    pause,
    raw,
    reset,
    respond,
    serve,
    sse,
    stall,
    wait_for,
)

from .asking import FakeEnv, ask
from .recordings import recordings

A, B = b'{"a":1}', b'{"b":2}'


async def test_an_answer_comes_in_frames(any_transport: HTTPTransport) -> None:
    async with serve(respond(sse(A, B, b"[DONE]"), headers={"X-Request-ID": "r1"})) as server:
        outcome = await ask(any_transport, server.url + "/v1/x?y=1", body=b"{}", headers={"X-A": "1"})
        await server.wait_idle()
    assert (outcome.frames, outcome.error) == ([A, B, b"[DONE]"], None)
    assert outcome.connection is not None
    assert outcome.connection.status == 200
    assert outcome.connection.headers["x-request-id"] == "r1"
    assert outcome.connection.bytes_received == len(b"data: \n\n") * 3 + len(A + B) + 6
    [request] = server.requests
    assert (request.method, request.target, request.body) == ("POST", "/v1/x?y=1", b"{}")
    assert request.headers["x-a"] == "1"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["connection"] == "close"
    assert request.headers["content-length"] == "2"
    assert request.headers["host"] == f"127.0.0.1:{server.port}"


async def test_a_host_header_of_the_caller_is_the_only_one(any_transport: HTTPTransport) -> None:
    async with serve(respond(sse(A))) as server:
        await ask(any_transport, server.url, headers={"Host": "api.test"})
    assert server.requests[0].headers["host"] == "api.test"


async def test_a_get_has_no_body(any_transport: HTTPTransport) -> None:
    async with serve(respond(sse(A))) as server:
        assert (await ask(any_transport, server.url, method="GET")).frames == [A]
    assert (server.requests[0].method, server.requests[0].body) == ("GET", b"")
    assert "content-length" not in server.requests[0].headers


async def test_the_reader_gets_frames_as_they_come(any_transport: HTTPTransport) -> None:
    more = trio.Event()
    steps = [head(), chunk(b"data: 1\n\n: ping\n\n"), wait_for(more), chunk(b"data: 2\n\n"), last_chunk()]
    async with serve(*steps) as server, trio.open_nursery() as nursery:
        connection = await any_transport.open(TransportRequest(url=server.url, body=b""), nursery)
        frames: list[bytes] = []
        while not frames:
            frames = await connection.receive() or []
        assert (frames, connection.keepalives) == ([b"1"], 1)
        more.set()
        assert await read_all(connection) == [b"2"]
        assert await connection.receive() is None
        await connection.aclose()
        await connection.aclose()


@pytest.mark.parametrize("tls", [False, True])
async def test_what_closes_at_once_waits_for_nothing(tls: bool, authority: Authority) -> None:
    transport = HTTPTransport(FakeEnv(authority.client_context()))
    context = authority.server_context() if tls else None
    async with serve(head(), chunk(b"data: 1\n\n"), stall(), tls=context) as server:
        async with trio.open_nursery() as nursery:
            connection = await transport.open(TransportRequest(url=server.url, body=b""), nursery)
            assert connection.closes_at_once
            with pytest.raises(StopIteration):  # it ran to its end in one go
                connection.aclose().send(None)
        await server.wait_idle()
    await transport.aclose()


async def test_what_goes_through_a_lent_client_closes_in_its_time() -> None:
    async with httpx.AsyncClient(trust_env=False) as client, serve(respond(sse(A))) as server:
        transport = HTTPTransport(FakeEnv(http_client=client))
        async with trio.open_nursery() as nursery:
            connection = await transport.open(TransportRequest(url=server.url, body=b""), nursery)
            assert not connection.closes_at_once
            await connection.aclose()
        await transport.aclose()


async def read_all(connection: object) -> list[bytes]:
    frames: list[bytes] = []
    while (some := await connection.receive()) is not None:  # type: ignore[attr-defined]
        frames += some
    return frames


@pytest.mark.parametrize(
    ("content_type", "framing", "body", "frames"),
    [
        ("text/event-stream; charset=latin-1", "ndjson", b"data: 1\n\n", [b"1"]),
        ("Text/Event-Stream", "sse", b"data: 1\n\n", [b"1"]),
        ("application/x-ndjson", "sse", b"1\n2\n", [b"1", b"2"]),
        ("application/json", "sse", b'{\n"error": 1\n}', [b'{\n"error": 1\n}']),
        ("application/json; charset=utf-8", "ndjson", b"1\n2\n", [b"1", b"2"]),
        ("text/plain", "sse", b"data: 1\n\n", [b"1"]),
        ("", "ndjson", b"1\n2", [b"1", b"2"]),
    ],
)
async def test_the_content_type_says_how_the_body_is_cut(
    any_transport: HTTPTransport, content_type: str, framing: str, body: bytes, frames: list[bytes]
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    async with serve(respond(body, headers=headers)) as server:
        outcome = await ask(any_transport, server.url, framing=framing)
    assert (outcome.frames, outcome.error) == (frames, None)


async def test_an_empty_answer_is_a_clean_end_without_frames(any_transport: HTTPTransport) -> None:
    for step in (respond(b"", status=204), respond(b"", headers=EVENT_STREAM), respond(sse())):
        async with serve(step) as server:
            outcome = await ask(any_transport, server.url)
        assert (outcome.frames, outcome.error) == ([], None)


async def test_html_under_status_200_is_a_provider_error(any_transport: HTTPTransport) -> None:
    page = (
        b"<html><style>p {x}</style><title>Sign&nbsp;in</title>\n<body><p>to the  caf\xc3\xa9</p>"
        + b"x" * 500
    )
    async with serve(respond(page, headers={"content-type": "text/html; charset=utf-8"})) as server:
        outcome = await ask(any_transport, server.url)
        await server.wait_idle()
    assert (outcome.kind, outcome.error.retryable, outcome.error.status) == ("provider", False, 200)
    assert "answered with an HTML page instead of a stream: Sign in to the café xxx" in outcome.text
    assert len(outcome.text) < 300


# --- D: bytes and characters -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100_000])
async def test_D1_separators_inside_a_payload_arrive_unchanged(
    any_transport: HTTPTransport, size: int
) -> None:
    payload = json.dumps({"t": "\v\f\x85\u2028\u2029"}, ensure_ascii=False).encode() + "\x85\u2028".encode()
    wire = b"data: " + payload + b"\n\n"
    steps = [chunk(wire[i : i + size]) for i in range(0, len(wire), size)]
    async with serve(head(), *steps, last_chunk()) as server:
        assert (await ask(any_transport, server.url)).frames == [payload]


@pytest.mark.parametrize("content_type", ["text/event-stream", "text/event-stream; charset=latin-1"])
async def test_D2_characters_arrive_whole_wherever_the_network_cuts(
    transport: HTTPTransport, content_type: str
) -> None:
    wire = 'data: "a😀漢"\n\n'.encode()
    async with serve() as server:
        for cut in range(len(wire) + 1):
            chunks = [chunk(piece) for piece in (wire[:cut], wire[cut:]) if piece]
            server.script(head(200, {"content-type": content_type}), *chunks, last_chunk())
            assert (await ask(transport, server.url)).frames == ['"a😀漢"'.encode()]


async def test_D5_keepalives_are_counted_and_are_no_frames(any_transport: HTTPTransport) -> None:
    async with serve(head(), chunk(b"id: 1\ndata: 1\n\n: ping\n\n"), chunk(b":\n\n"), last_chunk()) as server:
        outcome = await ask(any_transport, server.url)
    assert outcome.frames == [b"1"]
    assert outcome.connection is not None
    assert outcome.connection.keepalives == 2


@pytest.mark.parametrize("path", recordings(".sse")[:12], ids=lambda path: path.name)
async def test_recordings_survive_chunks_of_any_size(transport: HTTPTransport, path: Path) -> None:
    wire = path.read_bytes()  # noqa: ASYNC240
    shuffled = random.Random(path.name)
    sizes = [shuffled.randint(1, 3000) for _ in range(len(wire))]
    chunks, at = b"", 0
    for size in sizes:
        if at < len(wire):
            chunks += chunk_bytes(wire[at : at + size])
            at += size
    async with serve() as server:
        server.script(respond(wire, headers=EVENT_STREAM))
        whole = await ask(transport, server.url)
        server.script(head(), raw(chunks), last_chunk())
        cut = await ask(transport, server.url)
    assert whole.error is None
    assert whole.frames == cut.frames != []


# --- E3: the ends of a body ------------------------------------------------------------------------


@pytest.mark.parametrize("events", range(4))
async def test_E3_a_body_that_ends_politely_ends_with_none(any_transport: HTTPTransport, events: int) -> None:
    """Whether the message was complete is for the dialect to say; here every proper end is a clean one."""
    body = b"".join(b"data: %d\n\n" % n for n in range(events))
    async with serve() as server:
        for step in (
            respond(sse(*(b"%d" % n for n in range(events)))),
            respond(body, headers=EVENT_STREAM),
            raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + body),
        ):
            server.script(step)
            outcome = await ask(any_transport, server.url)
            assert (outcome.frames, outcome.error) == ([b"%d" % n for n in range(events)], None)


async def test_E3_the_last_event_may_lack_its_blank_line(any_transport: HTTPTransport) -> None:
    async with serve(head(), chunk(b'data: 1\n\ndata: {"a":1}'), last_chunk()) as server:
        assert (await ask(any_transport, server.url)).frames == [b"1", b'{"a":1}']


# --- the head --------------------------------------------------------------------------------------


async def test_interim_answers_are_skipped(transport: HTTPTransport) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    async with serve(raw(interim), pause(0), respond(sse(A))) as server:
        assert (await ask(transport, server.url)).frames == [A]


async def test_a_keep_alive_promise_is_not_relied_on(any_transport: HTTPTransport) -> None:
    async with serve(respond(sse(A), headers={"keep-alive": "timeout=5"})) as server:
        for _ in range(3):
            assert (await ask(any_transport, server.url)).frames == [A]
    assert server.connections == 3


async def test_a_head_one_byte_at_a_time(transport: HTTPTransport) -> None:
    wire = b"HTTP/1.1 200 OK\r\nX-Twice: a\r\nX-Twice: b\r\nContent-Length: 9\r\n\r\ndata: 1\n\n"
    async with serve(*(raw(wire[i : i + 1]) for i in range(len(wire)))) as server:
        outcome = await ask(transport, server.url)
    assert outcome.frames == [b"1"]
    assert outcome.connection is not None
    assert outcome.connection.headers["x-twice"] == "a, b"


async def test_cookies_are_not_carried_to_the_next_request(transport: HTTPTransport) -> None:
    async with serve(respond(sse(A), headers={"set-cookie": "a=1; Path=/"})) as server:
        await ask(transport, server.url)
        await ask(transport, server.url)
    assert "cookie" not in server.requests[1].headers


# --- large requests, early answers -----------------------------------------------------------------


async def test_a_large_request_body_arrives_whole(any_transport: HTTPTransport) -> None:
    body = os.urandom(1 << 20) * 8
    async with serve(respond(sse(A))) as server:
        assert (await ask(any_transport, server.url, body=body)).frames == [A]
    assert server.requests[0].body == body


async def test_an_early_good_answer_waits_for_the_body_to_be_sent(transport: HTTPTransport) -> None:
    body = bytes(16 << 20)
    got = 0

    async def read_the_rest(exchange: Exchange) -> None:
        nonlocal got
        while more := await exchange.stream.receive_some(1 << 20):
            got += len(more)

    async with serve(respond(sse(A)), read_the_rest, read="head") as server:
        assert (await ask(transport, server.url, body=body)).frames == [A]
        await server.wait_idle()
    assert got >= len(body) - (1 << 16)


@pytest.mark.parametrize("ending", [half_close, reset, hang])
async def test_E6_a_413_before_the_body_was_read_is_the_answer(
    transport: HTTPTransport, ending: object
) -> None:
    refusal = respond(b"too large", status=413)
    async with serve(refusal, pause(0.05), ending(), read="head") as server:  # type: ignore[operator]
        outcome = await ask(transport, server.url, body=bytes(32 << 20))
    assert isinstance(outcome.error, HttpStatusError)
    assert (outcome.error.status, outcome.error.body) == (413, "too large")


async def test_a_body_that_cannot_be_sent_is_a_fault_of_sending(transport: HTTPTransport) -> None:
    async with serve(reset(), read="head") as server:
        outcome = await ask(transport, server.url, body=bytes(64 << 20))
    assert outcome.kind == "network"
    assert outcome.phase in ("send", "head")  # the kernel may tell the reader first


# --- E6: error answers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b'{"error":{"message":"bad"}}', {"content-type": "application/json"}),
        (429, b"slow down", {"retry-after": "7", "x-request-id": "r"}),
        (500, b"<html>oops</html>", {"content-type": "text/html"}),
        (502, b"", {}),
        (404, b"\xff\xfe", {}),
    ],
)
async def test_E6_an_error_answer_keeps_status_body_and_headers(
    any_transport: HTTPTransport, status: int, body: bytes, headers: dict[str, str]
) -> None:
    async with serve(respond(body, status=status, headers=headers)) as server:
        outcome = await ask(any_transport, server.url)
        await server.wait_idle()
    assert isinstance(outcome.error, HttpStatusError)
    assert (outcome.error.status, outcome.error.body) == (status, body.decode("utf-8", "replace"))
    assert {name: outcome.error.headers[name] for name in headers} == headers
    assert outcome.text.startswith(f"HTTP {status} ")


@pytest.mark.parametrize("recorded", recordings(".http.json"), ids=lambda path: path.name)
async def test_E6_recorded_answers_keep_status_body_and_headers(
    any_transport: HTTPTransport, recorded: Path
) -> None:
    case = json.loads(recorded.read_text())  # noqa: ASYNC240
    body = case["body"].encode()
    headers = {
        k: v for k, v in case["headers"].items() if k.lower() not in ("content-length", "transfer-encoding")
    }
    async with serve(respond(body, status=case["status"], headers=headers)) as server:
        outcome = await ask(any_transport, server.url)
    if case["status"] == 200:
        assert outcome.error is None
    else:
        assert (outcome.error.status, outcome.error.body) == (case["status"], case["body"])
        assert outcome.error.headers.items() >= {k.lower(): v for k, v in headers.items()}.items()


async def test_E6_a_stalled_error_body_still_yields_the_status(
    any_transport: HTTPTransport, autojump_clock: MockClock
) -> None:
    start = trio.current_time()
    async with serve(head(503, {"content-type": "text/plain"}), chunk(b"over"), stall()) as server:
        outcome = await ask(any_transport, server.url)
        await server.wait_idle()
    assert (outcome.error.status, outcome.error.body) == (503, "over")
    assert trio.current_time() - start == pytest.approx(5, abs=0.5)


async def test_E6_a_broken_error_body_still_yields_the_status(any_transport: HTTPTransport) -> None:
    wire = b"HTTP/1.1 500 Oops\r\ncontent-length: 50\r\n\r\nhalf of it"
    async with serve(raw(wire)) as server:
        outcome = await ask(any_transport, server.url)
        assert (outcome.error.status, outcome.error.status_text, outcome.error.body) == (
            500,
            "Oops",
            "half of it",
        )
        server.script(respond(b"not gzip", status=500, headers={"content-encoding": "gzip"}))
        assert (await ask(any_transport, server.url)).error.status == 500


# --- H5: redirects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/elsewhere?key=SECRET", "/elsewhere"),
        ("https://user:SECRET@other.example/x?token=SECRET#SECRET", "https://other.example/x"),
        ("http://127.0.0.1:{port}/same", "http://127.0.0.1:{port}/same"),
    ],
)
async def test_H5_a_redirect_is_shown_and_not_followed(
    any_transport: HTTPTransport, status: int, location: str, shown: str
) -> None:
    async with serve() as server:
        server.script(respond(b"", status=status, headers={"location": location.format(port=server.port)}))
        outcome = await ask(any_transport, server.url, headers={"x-api-key": "SECRET"})
    assert isinstance(outcome.error, HttpStatusError)
    assert outcome.error.status == status
    assert outcome.error.headers["location"] == shown.format(port=server.port)
    assert f"redirect to {shown.format(port=server.port)} (not followed)" in outcome.text
    assert "SECRET" not in outcome.text + repr(outcome.error.headers)
    assert server.connections == 1


async def test_H5_a_redirect_to_nonsense_is_still_a_status(transport: HTTPTransport) -> None:
    async with serve(respond(b"", status=302, headers={"location": "http://[::bad/?SECRET"})) as server:
        outcome = await ask(transport, server.url)
        assert (outcome.error.status, outcome.error.headers["location"]) == (302, "http://[::bad/")
        server.script(respond(b"multiple", status=300))
        assert (await ask(transport, server.url)).error.body == "multiple"


# --- J2: compression -------------------------------------------------------------------------------


async def test_J2_gzip_is_read_piece_by_piece(any_transport: HTTPTransport) -> None:
    wire = gzip.compress(b"data: 1\n\ndata: 2\n\n")
    async with serve(respond(wire, headers={**EVENT_STREAM, "content-encoding": "gzip"})) as server:
        outcome = await ask(any_transport, server.url)
    assert (outcome.frames, outcome.error) == ([b"1", b"2"], None)
    assert outcome.connection is not None
    assert outcome.connection.bytes_received == len(wire)


async def test_J2_cut_or_damaged_gzip_keeps_what_came(any_transport: HTTPTransport) -> None:
    wire = gzip.compress(b"data: 1\n\n" + os.urandom(100) + b"\n\n")
    headers = {**EVENT_STREAM, "content-encoding": "gzip"}
    async with serve(respond(wire[:-12], headers=headers)) as server:
        outcome = await ask(any_transport, server.url)
        assert (outcome.frames, outcome.kind) == ([b"1"], "network")
        assert "ended the compressed answer in the middle" in outcome.text
        wire = gzip.compress(b"data: 1\n\n" + os.urandom(100_000))
        server.script(respond(wire[:-8] + bytes(8), headers=headers))
        outcome = await ask(any_transport, server.url)
        assert (outcome.frames, outcome.kind) == ([b"1"], "malformed")
        assert "does not decompress" in outcome.text


async def test_J2_a_bomb_in_one_data_line_is_stopped_near_the_cap(any_transport: HTTPTransport) -> None:
    bomb = gzip.compress(b"data: 1\n\ndata: " + bytes(10 << 20))
    assert len(bomb) < 12_000
    headers = {**EVENT_STREAM, "content-encoding": "gzip"}
    async with serve(respond(bomb, headers=headers)) as server:
        for caps in ({"max_response_bytes": 1 << 20}, {"max_frame_bytes": 1 << 20}):
            await ask(any_transport, server.url, **caps)  # what is loaded once does not count
            tracemalloc.start()
            outcome = await ask(any_transport, server.url, **caps)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert (outcome.frames, outcome.kind, outcome.error.retryable) == ([b"1"], "malformed", False)
            assert str(1 << 20) in outcome.text
            assert peak < 4 << 20


async def test_J2_a_bomb_in_an_error_body_is_stopped_near_the_cap(any_transport: HTTPTransport) -> None:
    bomb = gzip.compress(bytes(10 << 20))
    async with serve(respond(bomb, status=500, headers={"content-encoding": "gzip"})) as server:
        await ask(any_transport, server.url)
        tracemalloc.start()
        outcome = await ask(any_transport, server.url, max_error_bytes=1 << 16)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (outcome.error.status, len(outcome.error.body)) == (500, 1 << 16)
    assert peak < 2 << 20


async def test_J2_a_plain_body_is_capped_too(any_transport: HTTPTransport) -> None:
    async with serve(respond(sse(*[b"x" * 100] * 50))) as server:
        outcome = await ask(any_transport, server.url, max_response_bytes=1000)
        assert (len(outcome.frames), outcome.kind) == (9, "malformed")
        assert "longer than 1000 bytes" in outcome.text
        outcome = await ask(any_transport, server.url, max_frame_bytes=99)
        assert (outcome.frames, outcome.kind) == ([], "malformed")
        server.script(respond(sse(b"1", b"x" * 100)))
        outcome = await ask(any_transport, server.url, max_frame_bytes=99)
        assert (outcome.frames, outcome.kind) == ([b"1"], "malformed")
        # That a last event without its line end is too long is seen when the body ends.
        server.script(respond(b'data: {"a":1}\n\ndata:' + b"1" * 18))
        outcome = await ask(any_transport, server.url, max_frame_bytes=10)
        assert (outcome.frames, outcome.kind) == ([b'{"a":1}'], "malformed")
        assert "longer than 10 bytes" in outcome.text
        server.script(respond(b"x" * 5000, status=500))
        assert len((await ask(any_transport, server.url, max_error_bytes=100)).error.body) == 100


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "zstd"])
async def test_J2_stacked_and_unknown_codings_are_refused_by_name(
    transport: HTTPTransport, coding: str
) -> None:
    wire = gzip.compress(gzip.compress(b"data: 1\n\n"))
    async with serve(respond(wire, headers={"content-encoding": coding})) as server:
        outcome = await ask(transport, server.url)
        assert (outcome.kind, outcome.frames) == ("malformed", [])
        assert repr(coding) in outcome.text
        server.script(respond(wire, status=500, headers={"content-encoding": coding}))
        error = (await ask(transport, server.url)).error
        assert (error.status, repr(coding) in error.body) == (500, True)


# --- H1: header values -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["Authorization", "x-api-key", "api-key", "X-Goog-Api-Key", "cookie", "x-note"]
)
@pytest.mark.parametrize(
    "value", ["SECRET\n", "SECRET\r\n", "SECRET\nx: y", "SECRET\0", "SECRET\ud800", "SECRET漢", "SECRET\x7f"]
)
async def test_H1_a_value_that_cannot_be_sent_is_refused_unseen(
    any_transport: HTTPTransport, name: str, value: str
) -> None:
    async with serve(respond(sse(A))) as server:
        outcome = await ask(any_transport, server.url, headers={name: value})
    assert isinstance(outcome.error, ProviderError)
    assert outcome.kind == ("malformed" if name == "x-note" else "auth")
    assert name in outcome.text
    assert not outcome.error.retryable
    shown = outcome.text + repr(outcome.error) + repr(outcome.error.detail) + repr(outcome.error.__cause__)
    assert "SECRET" not in shown
    assert server.connections == 0


@pytest.mark.parametrize("value", ["", "  ", "Bearer", "Bearer  "])
async def test_H1_an_empty_credential_is_an_auth_error(transport: HTTPTransport, value: str) -> None:
    async with serve(respond(sse(A))) as server:
        outcome = await ask(transport, server.url, headers={"authorization": value})
    assert (outcome.kind, server.connections) == ("auth", 0)
    assert "authorization holds no credential" in outcome.text


async def test_H1_surrounding_blanks_are_trimmed_and_latin_1_is_sent(any_transport: HTTPTransport) -> None:
    async with serve(respond(sse(A))) as server:
        outcome = await ask(
            any_transport, server.url, headers={"x-api-key": " k ", "x-title": "caf\u00e9", "x-empty": ""}
        )
    assert outcome.frames == [A]
    sent = server.requests[0].headers
    assert (sent["x-api-key"], sent["x-title"], sent["x-empty"]) == ("k", "caf\u00e9", "")


async def test_a_header_name_must_be_one_and_framing_headers_are_ours(transport: HTTPTransport) -> None:
    async with serve(respond(sse(A))) as server:
        assert (await ask(transport, server.url, headers={"x y": "1"})).kind == "malformed"
        assert server.connections == 0
        given = {
            "Content-Length": "99",
            "Transfer-Encoding": "chunked",
            "Connection": "keep-alive",
            "User-Agent": "me",
        }
        assert (await ask(transport, server.url, body=b"abc", headers=given)).frames == [A]
    sent = server.requests[0].headers
    assert (sent["content-length"], sent["connection"], sent["user-agent"]) == ("3", "close", "me")
    assert "transfer-encoding" not in sent


async def test_ndjson_over_http(any_transport: HTTPTransport) -> None:
    async with serve(respond(ndjson(A, B))) as server:
        assert (await ask(any_transport, server.url, framing="ndjson")).frames == [A, B]
