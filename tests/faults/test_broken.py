"""E5, E6: connections that break and answers that refuse are errors with all that is known of them."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio
from tests.serving import Exchange, Step, drop, half_close, hang, head, raw, reset, respond, serve, sse, stall

from .conftest import TLS
from .peer import GOOD, MODEL, event, events, peer, read_by_client, text, write

NETWORK, PROVIDER = aiio.ErrorKind.NETWORK, aiio.ErrorKind.PROVIDER

# --- E5: the connection breaks --------------------------------------------------------------------

SAID = event(text("Kept."))
KEPT = b"%x\r\n%b\r\n" % (len(SAID), SAID)
LENGTH = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n"
BREAKS: dict[str, tuple[list[Step], str, bool]] = {
    "chunk-cut": ([head(), raw(KEPT + b"40\r\ndata: {"), drop()], "body", True),
    "no-last-chunk": ([head(), raw(KEPT), drop()], "body", True),
    "between-chunk-and-crlf": ([head(), raw(KEPT[:-2]), drop()], "body", True),
    "chunk-size-nonsense": ([head(), raw(KEPT + b"banana\r\n")], "body", True),
    "short-content-length": ([raw(LENGTH + SAID), drop()], "body", True),
    "reset-in-body": ([head(), raw(KEPT), read_by_client(), reset()], "body", True),
    "reset-in-body-until-close": ([head(chunked=False), raw(SAID), read_by_client(), reset()], "body", True),
    "reset-before-head": ([reset()], "head", False),
    "close-before-head": ([drop()], "head", False),
    "half-a-head": ([raw(b"HTTP/1.1 200 OK\r\ncontent-ty"), drop()], "head", False),
    "reset-in-head": ([raw(b"HTTP/1.1 200 OK\r\nco"), read_by_client(), reset()], "head", False),
    "garbage-status-line": ([raw(b"\x16\x03\x01\x02 what is this\r\n\r\n")], "head", False),
    "not-http": ([raw(b"SSH-2.0-OpenSSH_9.6\r\n"), drop()], "head", False),
    "over-long-header": ([raw(b"HTTP/1.1 200 OK\r\nx-long: " + b"y" * 300_000 + b"\r\n\r\n")], "head", False),
    "endless-header": ([raw(b"HTTP/1.1 200 OK\r\nx-long: " + b"y" * 300_000), stall()], "head", False),
    "bad-header": ([raw(b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n")], "head", False),
    "bad-content-length": ([raw(b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n")], "head", False),
}


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("case", list(BREAKS))
async def test_E5_a_broken_connection_is_a_network_error_with_its_phase(
    patient_clock: MockClock, tls: TLS, case: str, secure: bool
) -> None:
    steps, phase, emitted = BREAKS[case]
    async with (
        serve(*steps, tls=tls.server if secure else None) as server,
        peer(server, settings=tls.settings) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL))
        error = seen.error
        assert error.kind is NETWORK
        assert (error.native or {})["phase"] == phase
        assert (error.native or {})["bytes_received"] >= (len(SAID) if emitted else 0)
        assert (error.emitted, seen.text) == (emitted, "Kept." if emitted else "")
        assert error.limit is None
        for word in ("httpx", "h11", "httpcore", "trio", "Traceback", "Errno", "_ssl.c"):
            assert word not in error.error
        assert server.connections == 1


async def test_E5_a_peer_that_speaks_no_tls_is_a_network_error(patient_clock: MockClock, tls: TLS) -> None:
    async with serve(read="nothing") as server:
        server.script(raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        async with peer(server.url.replace("http:", "https:"), settings=tls.settings) as env:
            seen = await write(aiio.IO(env=env, model=MODEL))
            assert seen.error.kind is NETWORK
            assert (seen.error.native or {})["phase"] == "tls"


async def test_E5_a_certificate_nobody_vouches_for_is_not_worth_a_retry(
    patient_clock: MockClock, tls: TLS
) -> None:
    async with serve(respond(sse(*GOOD)), tls=tls.server) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.error.kind is NETWORK
        assert not seen.error.retryable
        assert len(server.requests) == 0


async def test_E5_a_fault_on_close_does_not_spoil_an_answer_that_is_whole(patient_clock: MockClock) -> None:
    async with serve(head(), events(*GOOD), read_by_client(), reset()) as server, peer(server) as env:
        assert (await write(aiio.IO(env=env, model=MODEL))).text == "Hi"
    async with serve(head(), events(*GOOD[:2]), read_by_client(), reset()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))  # after the finish reason, before usage
        assert isinstance(seen.terminal, aiio.Done)


# --- E6: what a refusal says ----------------------------------------------------------------------

BAD_REQUEST = (
    b'{"error":{"message":"No such tool: \xc3\xa9","type":"invalid_request_error","code":"bad_tool"}}'
)
JSON = {"content-type": "application/json"}


async def test_E6_a_400_says_what_the_provider_said(patient_clock: MockClock) -> None:
    headers = {**JSON, "x-request-id": "req_7"}
    async with serve(respond(BAD_REQUEST, status=400, headers=headers)) as server, peer(server) as env:
        error = (await write(aiio.IO(env=env, model=MODEL))).error
        assert (error.status, error.code, error.kind) == (400, "bad_tool", PROVIDER)
        assert "No such tool: é" in error.error
        assert (error.request_id, error.retryable, error.emitted) == ("req_7", False, False)


@pytest.mark.parametrize(
    ("headers", "delay_ms"),
    [
        ({"retry-after": "20"}, 20_000),
        ({"retry-after-ms": "1500", "retry-after": "20"}, 1500),
        ({"retry-after": "1.5"}, 1500),
        ({}, None),
        ({"retry-after": "soon"}, None),
    ],
)
async def test_E6_a_429_says_when_to_come_back(
    patient_clock: MockClock, headers: dict[str, str], delay_ms: float | None
) -> None:
    body = b'{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}'
    given = {**JSON, **headers, "x-request-id": "req_8"}
    async with serve(respond(body, status=429, headers=given)) as server, peer(server) as env:
        error = (await write(aiio.IO(env=env, model=MODEL))).error
        assert (error.status, error.code, error.request_id) == (429, "rate_limit_exceeded", "req_8")
        assert error.safe_to_retry
        assert error.retry_after_ms == delay_ms


async def test_E6_a_500_page_is_shown_as_a_short_text(patient_clock: MockClock) -> None:
    page = b"<html><head><style>p {}</style></head><body><h1>Oops</h1><p>nginx &amp; co</p></body></html>"
    async with (
        serve(respond(page, status=500, headers={"content-type": "text/html"})) as server,
        peer(server) as env,
    ):
        error = (await write(aiio.IO(env=env, model=MODEL))).error
        assert (error.status, error.kind, error.retryable) == (500, PROVIDER, True)
        assert "Oops" in error.error
        assert "<" not in error.error


async def test_E6_an_empty_502_is_its_status(patient_clock: MockClock) -> None:
    async with serve(respond(b"", status=502)) as server, peer(server) as env:
        error = (await write(aiio.IO(env=env, model=MODEL))).error
        assert (error.status, error.kind, error.retryable) == (502, PROVIDER, True)
        assert "502" in error.error


@pytest.mark.parametrize("limits", [{}, {"connect_timeout": "2s"}, {"stuck_timeout": "1s"}], ids=str)
@pytest.mark.parametrize("sent", [b"", b'{"error":{"message":"Loading model"'])
async def test_E6_a_503_whose_body_stalls_is_its_status_in_bounded_time(
    patient_clock: MockClock, sent: bytes, limits: dict[str, Any]
) -> None:
    begin = raw(b"HTTP/1.1 503 Busy\r\ncontent-length: 500\r\nretry-after: 3\r\n\r\n" + sent)
    async with serve(begin, stall()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL), **limits)
        assert (seen.error.status, seen.error.kind, seen.error.limit) == (503, PROVIDER, None)
        assert seen.error.retry_after_ms == 3000
        assert seen.took <= 10
        await server.wait_idle()


@pytest.mark.parametrize("how", ["close", "reset", "bad-chunk", "bad-gzip", "unknown-coding"])
async def test_E6_a_body_that_breaks_is_its_status_all_the_same(patient_clock: MockClock, how: str) -> None:
    begin = b"HTTP/1.1 503 Busy\r\ncontent-length: 500\r\n\r\nsorry"
    steps: list[Step] = {
        "close": [raw(begin), drop()],
        "reset": [raw(begin), read_by_client(), reset()],
        "bad-chunk": [raw(b"HTTP/1.1 503 Busy\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")],
        "bad-gzip": [respond(b"sorry", status=503, headers={"content-encoding": "gzip"})],
        "unknown-coding": [respond(b"sorry", status=503, headers={"content-encoding": "zstd"})],
    }[how]
    async with serve(*steps) as server, peer(server) as env:
        error = (await write(aiio.IO(env=env, model=MODEL))).error
        assert (error.status, error.kind, error.retryable) == (503, PROVIDER, True)


async def test_E6_a_gzipped_refusal_is_read(patient_clock: MockClock) -> None:
    packed = {**JSON, "content-encoding": "gzip"}
    async with (
        serve(respond(gzip.compress(BAD_REQUEST), status=400, headers=packed)) as server,
        peer(server) as env,
    ):
        error = (await write(aiio.IO(env=env, model=MODEL))).error
        assert (error.status, error.code) == (400, "bad_tool")


@pytest.mark.parametrize("then", ["close", "stay", "reset"])
async def test_E6_a_413_sent_before_the_body_was_read_is_heard(patient_clock: MockClock, then: str) -> None:
    refusal = b'{"error":{"message":"Too large","code":"too_large"}}'

    async def drain_some(exchange: Exchange) -> None:
        await trio.sleep(0.1)

    ending: list[Step] = {"close": [half_close()], "stay": [hang()], "reset": [drain_some, reset()]}[then]
    async with (
        serve(respond(refusal, status=413, headers=JSON), *ending, read="head") as server,
        peer(server) as env,
    ):
        context = [aiio.user_message("x" * 20_000_000)]
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(context, connect_timeout="60s")
        assert isinstance(terminal, aiio.Error)
        assert (terminal.status, terminal.code) == (413, "too_large")
        assert "Too large" in terminal.error


async def test_E6_an_endless_error_body_is_bounded(patient_clock: MockClock) -> None:
    async def flood(exchange: Exchange) -> None:
        while True:
            await exchange.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    async with serve(head(500, {}), flood) as server, peer(server) as env:
        error = (await write(aiio.IO(env=env, model=MODEL))).error
        assert error.status == 500
        assert len(error.error) < 2000
        await server.wait_idle()
