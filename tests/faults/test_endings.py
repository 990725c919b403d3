"""E1, E3, E8: an answer ends by a positive signal, once; all else is an error that says what it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio
from tests.serving import Step, drop, half_close, head, last_chunk, raw, respond, serve, sse

from .peer import (
    CONTEXT,
    DONE,
    FIXTURES,
    MODEL,
    call,
    chunk_json,
    event,
    events,
    peer,
    stop,
    text,
    thinking,
    usage,
    write,
)

NETWORK, PROVIDER, AUTH = aiio.ErrorKind.NETWORK, aiio.ErrorKind.PROVIDER, aiio.ErrorKind.AUTH

# --- E1: errors inside a stream -------------------------------------------------------------------


def dumped(value: Any) -> bytes:
    return event(json.dumps(value).encode())


IN_BAND: dict[str, tuple[bytes, dict[str, Any]]] = {
    "object": (
        dumped({"error": {"message": "Too busy", "type": "server_error", "code": "overloaded"}}),
        {"code": "overloaded", "retryable": True},
    ),
    "named-event": (
        b"event: error\n" + dumped({"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}),
        {"code": "rate_limit_exceeded", "retryable": True},
    ),
    "named-event-of-plain-text": (b"event: error\ndata: worker died\n\n", {"retryable": False}),
    "in-a-chunk": (
        event(chunk_json({"content": ""}, "error", error={"code": 502, "message": "Upstream fell over"})),
        {"code": "502", "retryable": True, "status": 502},
    ),
    "text": (
        dumped({"code": "overloaded_error", "error": "Overloaded"}),
        {"code": "overloaded_error", "retryable": True},
    ),
    "flat": (
        dumped({"object": "error", "message": "Engine died", "type": "InternalServerError", "code": 500}),
        {"code": "500", "retryable": True},
    ),
    "with-delay": (
        dumped(
            {"error": {"message": "Rate limit. Please try again in 2.5s.", "code": "rate_limit_exceeded"}}
        ),
        {"code": "rate_limit_exceeded", "retryable": True, "retry_after_ms": 2500},
    ),
    "quota": (
        dumped({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        {"code": "insufficient_quota", "retryable": False, "retry_after_ms": None},
    ),
    "bad-request": (
        dumped({"error": {"message": "Bad tool", "type": "invalid_request_error", "code": None}}),
        {"code": "invalid_request_error", "retryable": False},
    ),
    "auth": (
        dumped({"error": {"message": "Key revoked", "code": "invalid_api_key"}}),
        {"code": "invalid_api_key", "retryable": False, "kind": AUTH},
    ),
    "groq": (event(chunk_json(choices=[], x_groq={"id": "req_1", "error": "over capacity"})), {}),
    "finish-reason-error": (event(stop("error")), {"code": "error"}),
    "finish-reason-resources": (
        event(stop("insufficient_system_resource")),
        {"code": "insufficient_system_resource", "retryable": True},
    ),
}


@pytest.mark.parametrize(
    "afterwards", [b"", event(DONE), event(stop()) + event(DONE)], ids=["eof", "done", "finish"]
)
@pytest.mark.parametrize("shape", list(IN_BAND))
async def test_E1_an_error_in_the_stream_is_the_terminal_event(
    patient_clock: MockClock, shape: str, afterwards: bytes
) -> None:
    sent, expected = IN_BAND[shape]
    frames = event(text("One. ")) + event(text("Two.")) + sent + afterwards
    body = b"%x\r\n%b\r\n" % (len(frames), frames)
    async with serve(head(), raw(body), last_chunk()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        error = seen.error
        assert error.kind is expected.get("kind", PROVIDER)
        for name in ("code", "retryable", "retry_after_ms", "status"):
            if name in expected:
                assert getattr(error, name) == expected[name], name
        assert seen.text == "One. Two."
        deltas = "".join(one.text for one in seen.events if isinstance(one, aiio.TextDelta))
        assert deltas == "One. Two."
        assert error.emitted
        assert not error.safe_to_retry


async def test_E1_an_error_after_the_finish_reason_is_still_one(patient_clock: MockClock) -> None:
    late = chunk_json({}, error={"code": 500, "message": "lost the rest"})
    async with serve(head(), events(text("All."), stop(), late), last_chunk()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.error.kind is PROVIDER
        assert seen.text == "All."


async def test_E1_usage_beside_the_error_is_taken(patient_clock: MockClock) -> None:
    frame = chunk_json(
        choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2}, error={"message": "x", "code": 500}
    )
    async with serve(head(), events(text("A"), frame), last_chunk()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert (seen.error.usage or {})["input_tokens"] == 5


async def test_E1_a_json_error_under_status_200_is_an_error(patient_clock: MockClock) -> None:
    body = json.dumps({"error": {"message": "Overloaded", "type": "overloaded_error"}}).encode()
    async with (
        serve(respond(body, headers={"content-type": "application/json"})) as server,
        peer(server) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert (seen.error.kind, seen.error.code) == (PROVIDER, "overloaded_error")
        assert seen.error.safe_to_retry


# --- E3: a polite end is not an end signal --------------------------------------------------------

RECORDING = (
    chunk_json({"role": "assistant", "content": ""}),
    thinking("Let me "),
    thinking("see."),
    text("I will "),
    text("look."),
    call(id="c1", name="look"),
    call('{"at": '),
    call("[1]}"),
    stop("tool_calls"),
    usage(),
    DONE,
)
FINISHED = 9
"""How many frames make the answer whole."""


def recorded() -> tuple[bytes, ...]:
    """The frames of a file in the shape of a real server's."""
    body = (FIXTURES / "chat-llamacpp-reasoning.sse").read_bytes()
    return tuple(part.removeprefix(b"data: ") for part in body.strip().split(b"\n\n"))


def cut_bodies() -> list[Any]:
    cases = []
    for name, frames in (("made", RECORDING), ("llamacpp", recorded())):
        finish = next(
            at for at, one in enumerate(frames) if b'"finish_reason":null' not in one.replace(b" ", b"")
        )
        cases += [
            pytest.param(frames, count, finish + 1, how, id=f"{name}-{count}-{how}")
            for count in range(len(frames) + 1)
            for how in ("chunked", "content-length", "until-close", "half-close")
        ]
    return cases


@pytest.mark.parametrize(("frames", "count", "whole_after", "how"), cut_bodies())
async def test_E3_the_end_of_the_body_is_not_the_end_of_the_message(
    patient_clock: MockClock, frames: tuple[bytes, ...], count: int, whole_after: int, how: str
) -> None:
    body = b"".join(map(event, frames[:count]))
    types = {"content-type": "text/event-stream"}
    steps: list[Step] = {
        "chunked": [head(), events(*frames[:count]), last_chunk()],
        "content-length": [respond(body, headers=types)],
        "until-close": [head(chunked=False), raw(body)],
        "half-close": [head(chunked=False), raw(body), half_close()],
    }[how]
    async with serve(*steps) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        if count >= whole_after:
            assert isinstance(seen.terminal, aiio.Done)
            return
        error = seen.error
        assert error.kind is NETWORK
        assert error.limit is None
        deltas = [one for one in seen.events if isinstance(one, aiio.TextDelta)]
        assert seen.text == "".join(one.text for one in deltas)
        assert all(one["partial"] for one in seen.calls())
        assert error.safe_to_retry == (not error.emitted)


async def test_E3_done_without_a_finish_reason_after_an_open_call_runs_nothing(
    patient_clock: MockClock,
) -> None:
    async with (
        serve(head(), events(call('{"a": ', id="c", name="go"), DONE), last_chunk()) as server,
        peer(server) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert all(one["partial"] for one in seen.calls())


# --- E8: never twice ------------------------------------------------------------------------------


async def test_E8_a_cut_after_one_frame_is_one_request_and_says_so(patient_clock: MockClock) -> None:
    cut: list[Step] = [head(), events(text("Once. ")), drop()]
    async with (
        serve(respond(sse(text("Once. "), text("More."), stop(), DONE))) as server,
        peer(server) as env,
    ):
        server.script_next(*cut)
        io = aiio.IO(env=env, model=MODEL)
        context = list(CONTEXT)
        seen = await write(io, context)
        await trio.sleep(60)
        assert (len(server.requests), server.connections) == (1, 1)
        assert (seen.error.emitted, seen.error.retryable, seen.error.safe_to_retry) == (True, True, False)

        again = await write(io, context)
        assert again.text == "Once. More."
        assert [one.text for one in again.events if isinstance(one, aiio.TextDelta)] == ["Once. ", "More."]
        assert context == CONTEXT
        assert "Once" not in json.dumps(server.requests[-1].json())


@pytest.mark.parametrize("before", ["nothing", "head", "comment", "role"])
async def test_E8_a_cut_before_any_content_is_safe_to_retry(patient_clock: MockClock, before: str) -> None:
    begun: list[Step] = {
        "nothing": [],
        "head": [head()],
        "comment": [head(), raw(b"8\r\n: ping\n\n\r\n")],
        "role": [head(), events(chunk_json({"role": "assistant", "content": ""}))],
    }[before]
    async with serve(*begun, drop()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        await trio.sleep(60)
        assert server.connections == 1
        assert (seen.error.emitted, seen.error.safe_to_retry) == (False, True)
        assert seen.error.message is None


async def test_E8_two_halves_of_a_call_are_never_glued(patient_clock: MockClock) -> None:
    half, other = call('{"cmd": "rm -r ', id="c", name="sh"), call('/tmp/x"}', id="c", name="sh")
    async with (
        serve(head(), events(other, stop("tool_calls"), DONE), last_chunk()) as server,
        peer(server) as env,
    ):
        server.script_next(head(), events(half), drop())
        io = aiio.IO(env=env, model=MODEL)
        first, second = await write(io), await write(io)
        assert [one["arguments"] for one in first.calls()] == ['{"cmd": "rm -r ']
        assert [one["arguments"] for one in second.calls()] == ['/tmp/x"}']
        assert all(one["partial"] for one in first.calls() + second.calls())
