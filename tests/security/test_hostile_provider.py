"""A provider that means harm: numbers, nesting and names that no honest one sends, and what goes to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
import trio

import aiio
from aiio.context.validate import validate_message
from tests.serving import raw, serve

CONTEXT = [aiio.user_message("Hi")]

VALUES: dict[str, bytes] = {
    "5000 digits": b"1" + b"0" * 5000,
    "20 digits": b"99999999999999999999",
    "infinity": b"1e999",
    "nearly infinity": b"1.7e308",
    "NaN": b"NaN",
    "negative": b"-5",
    "twice": b'1,"prompt_tokens":2,"index":7',
    "text": b'"9"',
    "half a pair": b'"\\ud800"',
    "list": b"[[]]",
    "100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "true": b"true",
}
"""What stands where a number should."""


def _sse(*frames: bytes) -> bytes:
    return b"".join(b"data: " + frame + b"\n\n" for frame in frames)


def chat(value: bytes) -> bytes:
    call = b'[{"index":' + value + b',"id":"a","function":{"name":"f","arguments":"{}"}}]'
    return _sse(
        b'{"choices":[{"index":' + value + b',"delta":{"content":"x","tool_calls":' + call + b"}}]}",
        b'{"choices":[{"index":0,"delta":{"content":"y"}}]}',
        b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":' + value
        + b',"completion_tokens":' + value + b"}}",
        b"[DONE]",
    )  # fmt: skip


def messages(value: bytes) -> bytes:
    return _sse(
        b'{"type":"message_start","message":{"id":"x","usage":{"input_tokens":' + value + b"}}}",
        b'{"type":"content_block_start","index":' + value + b',"content_block":{"type":"text","text":""}}',
        b'{"type":"content_block_delta","index":' + value + b',"delta":{"type":"text_delta","text":"hi"}}',
        b'{"type":"content_block_stop","index":' + value + b"}",
        b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":'
        + value
        + b"}}",
        b'{"type":"message_stop"}',
    )  # fmt: skip


def gemini(value: bytes) -> bytes:
    return _sse(
        b'{"candidates":[{"index":' + value + b',"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],'
        b'"usageMetadata":{"promptTokenCount":' + value + b',"candidatesTokenCount":' + value + b"}}"
    )


def responses(value: bytes) -> bytes:
    at = b'"output_index":' + value
    return _sse(
        b'{"type":"response.output_item.added",' + at + b',"item":{"type":"message","id":"m"}}',
        b'{"type":"response.output_text.delta",' + at + b',"content_index":' + value
        + b',"delta":"x","item_id":"m"}',
        b'{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"usage":'
        b'{"input_tokens":' + value + b',"output_tokens":' + value + b"}}}",
    )  # fmt: skip


def ollama(value: bytes) -> bytes:
    return (
        b'{"message":{"role":"assistant","content":"x"},"done":false,"n":' + value + b"}\n"
        b'{"message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":' + value
        + b',"eval_count":' + value + b',"total_duration":' + value + b"}\n"
    )  # fmt: skip


BODIES: dict[str, Callable[[bytes], bytes]] = {
    "openai_chat": chat,
    "anthropic": messages,
    "gemini": gemini,
    "openai_responses": responses,
    "ollama": ollama,
}
HTTP = list(BODIES)


async def ask(env: aiio.Env, dialect: str, model: str = "m", **settings: Any) -> aiio.Done | aiio.Error:
    """Ask, and check what holds whatever came: one terminal, and all of it fit to be kept and sent again."""
    heard: list[Any] = []
    io = aiio.IO(env=env, model=f"{dialect}/{model}", settings=settings, on_data=heard.append)
    with trio.fail_after(30):
        terminal = await io.write(CONTEXT)
    assert [one for one in heard if isinstance(one, aiio.Done | aiio.Error)] == [terminal]
    json.dumps([terminal.message, terminal.usage, terminal.native], allow_nan=False)
    msgspec.json.encode(terminal)
    assert repr(terminal) + repr(io.plan_usage) + repr(io.context_usage)
    if terminal.message is not None:
        validate_message(terminal.message)
    for count in (terminal.usage or {}).values():
        assert not isinstance(count, int) or 0 <= count < 1 << 53
    return terminal


def _env(url: str) -> aiio.Env:
    env = aiio.Env({}, environ={})
    for dialect in HTTP:
        env.register_endpoint(dialect, provider=dialect, url=url, auth="k" * 20)
    return env


@pytest.mark.parametrize("dialect", HTTP)
async def test_numbers_and_nesting_that_no_honest_server_sends_end_in_one_terminal(dialect: str) -> None:
    kind = b"application/x-ndjson" if dialect == "ollama" else b"text/event-stream"
    async with serve() as server, _env(server.url) as env:
        ended = {}
        for name, value in VALUES.items():
            server.script(
                raw(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n\r\n%b" % (kind, BODIES[dialect](value)))
            )
            ended[name] = await ask(env, dialect)
    for name in ("5000 digits", "100,000 deep"):
        error = ended[name]
        assert isinstance(error, aiio.Error)
        assert error.kind == "malformed"
    assert isinstance(ended["text"], aiio.Done | aiio.Error)


RATE_HEADERS = (
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-reset-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-limit-tokens",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-unified-5h-reset",
    "anthropic-ratelimit-unified-5h-utilization",
    "x-codex-primary-used-percent",
    "x-codex-primary-reset-after-seconds",
    "x-codex-primary-window-minutes",
)
ODD = (
    "9" * 30,
    "1e999",
    "NaN",
    "-1",
    "1" * 5000,
    "Sun, 99 Nov 99999 99:99:99 GMT",
    "\xb2",
    "1_0",
    "0x10",
    ",",
)


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "openai_responses"])
async def test_headers_that_no_honest_server_sends_end_in_one_terminal(dialect: str) -> None:
    async with serve() as server, _env(server.url) as env:
        for value in ODD:
            told = "".join(f"{name}: {value}\r\n" for name in RATE_HEADERS)
            for status in (200, 429):
                head = f"HTTP/1.1 {status} So\r\ncontent-type: application/json\r\n{told}"
                server.script(raw(head.encode("latin-1") + b"content-length: 2\r\n\r\n{}"))
                terminal = await ask(env, dialect)
                assert isinstance(terminal, aiio.Error)
                delay = terminal.retry_after_ms
                assert delay is None or 0 <= delay < float("inf")


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"x-%d: 1\r\n" % number for number in range(20_000)),
        b"x-long: " + b"x" * (1 << 20) + b"\r\n",
        b"set-cookie: a=b\r\n" * 50_000,
    ],
    ids=["20,000 headers", "a header of 1 MB", "50,000 cookies"],
)
async def test_a_head_without_end_is_refused(head: bytes) -> None:
    whole = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + chat(b"0")
    async with serve(raw(whole)) as server, _env(server.url) as env:
        terminal = await ask(env, "openai_chat")
    assert isinstance(terminal, aiio.Error)
    assert len(terminal.error) < 1000


# --- names in paths and headers ---

NAMES = (
    "../../admin",
    "m/../../../v1",
    "..",
    "./m",
    "m?key=1&x=2",
    "m#frag",
    "m\r\nHost: evil.example",
    "m%0d%0aX-Evil: 1",
    "a b",
    "m\x00n",
    "@evil.example/x",
    "//evil.example/x",
    "\\\\evil.example\\x",
    "http://evil.example/x",
    "%2e%2e/%2e%2e/admin",
    "..;/admin",
    "x" * 5000,
)


@pytest.mark.parametrize("dialect", HTTP)
async def test_the_name_of_a_model_leads_nowhere_but_to_its_endpoint(dialect: str) -> None:
    async with serve(raw(b"HTTP/1.1 400 So\r\ncontent-length: 0\r\n\r\n")) as server:
        async with _env(f"{server.url}/base/v1") as env:
            for name in NAMES:
                await ask(env, dialect, name)
        assert server.faults == []  # every request was HTTP
        assert len(server.requests) >= len(NAMES) - 4
        for request in server.requests:
            path = request.target.partition("?")[0]
            assert path.startswith("/base/v1/"), request.target
            assert ".." not in path.split("/")
            assert request.headers["host"] == server.url.removeprefix("http://")
            assert "x-evil" not in request.headers


BREAK = "x\r\nX-Evil: 1"
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"extra_headers": {"X-Note": BREAK}},
    {"extra_headers": {BREAK: "1"}},
    {"extra_headers": {"X-Note": "a\x00b"}},
    {"extra_headers": {"Host ": "evil.example"}},
    {"betas": [BREAK], "anthropic_version": BREAK},
    {"organization": BREAK, "project": BREAK},
    {
        "extra_headers": {
            "Content-Length": "3",
            "Transfer-Encoding": "chunked",
            "TE": "x",
            "Connection": "upgrade",
        }
    },
)


@pytest.mark.parametrize("dialect", HTTP)
async def test_no_setting_makes_a_header_or_a_second_request_of_its_own(dialect: str) -> None:
    async with serve(raw(b"HTTP/1.1 400 So\r\ncontent-length: 0\r\n\r\n")) as server:
        async with _env(server.url) as env:
            for settings in SETTINGS:
                await ask(env, dialect, **settings)
        assert server.faults == []
        for request in server.requests:
            assert "x-evil" not in request.headers
            assert request.headers["content-length"] == str(len(request.body))
            assert "transfer-encoding" not in request.headers
            assert request.headers["connection"] == "close"
