"""Every WebSocket recording, through IO and the real transport, gives what the manifest says."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error
from aiio.context.types import Block
from tests.providers.manifest import (
    NO_RECORDINGS,
    NORMAL_USAGE,
    Row,
    kind_of,
    recordings_folder,
    rows,
    same_text,
)
from tests.ws_serving import Socket, serve_ws

from .ws_replay import Turn, play, records_of, turns_of

CONTEXT = [aiio.user_message("What is 2+2?")]
ROWS = {protocol: rows(protocol) for protocol in ("responses_ws", "realtime", "gemini_live")}


def test_the_recordings_are_there() -> None:
    if recordings_folder() is None:
        pytest.skip(NO_RECORDINGS)
    assert {protocol: len(found) for protocol, found in ROWS.items()} == {
        "responses_ws": 8,
        "realtime": 7,
        "gemini_live": 2,
    }


async def written(
    turns: list[Turn],
    prelude: Callable[[Socket], Awaitable[None]],
    provider: str,
    **settings: Any,
) -> list[Done | Error]:
    """Write once a turn, each on a socket of its own, and return the terminals."""
    left = list(turns)

    async def script(socket: Socket) -> None:
        await socket.accept()
        await prelude(socket)
        await play(socket, left.pop(0))

    found: list[Done | Error] = []
    async with serve_ws(script) as server, aiio.open_env() as env:
        env.register_endpoint("peer", provider=provider, url=server.url, auth="key-1", **settings)
        for _ in turns:
            found.append(await aiio.IO(env=env, model="peer/m-1").write(CONTEXT))
        await server.http.wait_idle()
    assert not left
    return found


def check(row: Row, turns: list[Turn], found: list[Done | Error]) -> None:
    """Assert what the manifest says of a whole session, taken together, and of each turn."""
    content: list[Block] = [block for one in found for block in (one.message or {}).get("content", [])]
    said = [block["text"] for block in content if kind_of(block) == "text"]
    assert same_text(row.text, "".join(said))
    assert same_text(row.thinking, "".join(b["text"] for b in content if kind_of(b) == "thinking"))
    calls = [block for block in content if block["type"] == "tool_call"]
    assert [
        {"id": call["call_id"], "name": call["name"], "arguments": call["arguments"]} for call in calls
    ] == (row.tool_calls or [])
    expected = [turn for turn in row.extra["turns"] if not turn.keys() & {"steer"}]
    if row.blocks is not None and all("audio_chunks" in turn for turn in expected if "transcript" in turn):
        assert [kind for block in content if (kind := kind_of(block)) != "audio_transcript"] == row.blocks
    transcripts = [turn["transcript"] for turn in expected if "transcript" in turn]
    heard = [block["text"] for block in content if kind_of(block) == "audio_transcript"]
    assert heard == transcripts
    wholes = [one for one in found if isinstance(one, Done)]
    finishes = [turn["finish"] for turn in expected if turn.get("finish")]
    empty = sum(isinstance(one, Error) and one.error.startswith("empty response") for one in found)
    assert [one.done_reason for one in wholes] == finishes[empty:]
    if row.usage_norm is not None:
        usage = dict(wholes[-1].usage or {})
        total = {**row.usage_norm}.pop("total")
        assert usage["total_tokens"] == total
        for name, key in NORMAL_USAGE.items():
            assert usage.get(key) == row.usage_norm.get(name), name


# -- Responses


def creates(data: Any) -> bool:
    return bool(data["type"] == "response.create")


def is_terminal(data: Any) -> bool:
    return data["type"] in ("response.completed", "response.incomplete", "response.failed", "error")


async def one_request(socket: Socket) -> None:
    """Take the request."""
    request = json.loads(await socket.message())
    assert request["type"] == "response.create"
    assert "stream" not in request
    assert request["store"] is False


@pytest.mark.parametrize("row", ROWS["responses_ws"], ids=lambda row: row.file)
async def test_responses_recording(row: Row, autojump_clock: MockClock) -> None:
    turns = turns_of(records_of(row), creates, is_terminal)
    found = await written(turns, one_request, "openai_responses_ws")
    check(row, turns, found)


async def outcomes(file: str) -> list[Done | Error]:
    found = {row.file: row for row in ROWS["responses_ws"]}
    if file not in found:
        pytest.skip(NO_RECORDINGS)
    turns = turns_of(records_of(found[file]), creates, is_terminal)
    return await written(turns, one_request, "openai_responses_ws")


async def test_an_error_with_headers(autojump_clock: MockClock) -> None:
    [error] = await outcomes("responses-ws-429-headers.jsonl")
    assert isinstance(error, Error)
    assert (error.status, error.code, error.retryable) == (429, "usage_limit_reached", False)
    assert error.error == "The usage limit has been reached"


async def test_I1_a_reset_in_the_middle(autojump_clock: MockClock) -> None:
    [error] = await outcomes("responses-ws-close-midway-1006.jsonl")
    assert isinstance(error, Error)
    assert (error.kind, error.status, error.emitted, error.safe_to_retry) == ("network", 1006, True, False)
    assert error.message is not None
    assert error.message["content"] == [{"type": "text", "text": "The capital of"}]


async def test_the_connection_limit_can_be_retried(autojump_clock: MockClock) -> None:
    [error, done] = await outcomes("responses-ws-connection-limit.jsonl")
    assert isinstance(error, Error)
    assert (error.code, error.safe_to_retry) == ("websocket_connection_limit_reached", True)
    assert isinstance(done, Done)


# -- Realtime


async def a_session(socket: Socket) -> None:
    """Set a session up, as the servers do, and take the conversation."""
    await socket.text('{"type":"session.created","session":{}}')
    update = json.loads(await socket.message())
    assert update["type"] == "session.update"
    await socket.text(json.dumps({"type": "session.updated", "session": update["session"]}))
    while (said := json.loads(await socket.message()))["type"] != "response.create":
        assert said["type"] == "conversation.item.create"


def is_done(data: Any) -> bool:
    return data["type"] in ("response.done", "error")


@pytest.mark.parametrize("row", ROWS["realtime"], ids=lambda row: row.file)
async def test_realtime_recording(row: Row, autojump_clock: MockClock) -> None:
    turns = turns_of(records_of(row), creates, is_done)
    found = await written(turns, a_session, "openai_realtime")
    check(row, turns, found)


# -- Live


async def a_setup(socket: Socket) -> None:
    """Take a setup, and the turn after it was accepted."""
    assert "setup" in json.loads(await socket.message())
    await socket.binary(b'{"setupComplete":{}}\n')
    turn = json.loads(await socket.message())
    assert turn["clientContent"]["turnComplete"] is True


def speaks(data: Any) -> bool:
    return bool(data.keys() & {"client_content", "tool_response"})


def is_over(data: Any) -> bool:
    return "toolCall" in data or "turnComplete" in data.get("serverContent", {})


@pytest.mark.parametrize("row", ROWS["gemini_live"], ids=lambda row: row.file)
async def test_live_recording(row: Row, autojump_clock: MockClock) -> None:
    turns = turns_of(records_of(row), speaks, is_over)
    found = await written(turns, a_setup, "gemini_live", modalities=["AUDIO"])
    check(row, turns, found)
