"""The sixteen decisions about this room, each shown once through the public door. Other tests go deeper."""

from __future__ import annotations

import datetime
import gzip
import inspect
import json
import math
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
import aiio.io.limits
from aiio.context.events import FinishReason
from tests.faults.peer import CONTEXT as HELLO
from tests.faults.peer import GOOD, KEY, Seen, answer, event, peer, text, text_of, usage, write
from tests.faults.peer import MODEL as PEER
from tests.faults.peer import stop as finished
from tests.serving import chunk, head, last_chunk, respond, serve

from .scripted import (
    CONTEXT,
    HANG,
    MODEL,
    WILL_END,
    Fail,
    Head,
    Pause,
    Ping,
    Step,
    finish,
    frames,
    say,
    scripted,
)


async def settled(*steps: Step, policy: dict[str, Any] | None = None, **limits: Any) -> Any:
    """Write once over *steps* and return the terminal event."""
    async with scripted(*steps, **(policy or {})) as (env, _):
        return await aiio.IO(env=env, model=MODEL).write(CONTEXT, **limits)


async def cancel_after(scope: trio.CancelScope, seconds: float) -> None:
    await trio.sleep(seconds)
    scope.cancel()


# --- 1: one attempt ---


async def test_decision_1_a_refusal_is_one_request_and_says_all_that_is_known() -> None:
    body = json.dumps({"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}).encode()
    refusal = respond(body, status=429, headers={"retry-after": "7", "x-request-id": "req-9"})
    async with serve(refusal) as server, peer(server) as env:
        error = (await write(aiio.IO(env=env, model=PEER))).error
        assert (error.emitted, error.retryable, error.retry_after_ms) == (False, True, 7000)
        assert (error.request_id, error.status, error.code) == ("req-9", 429, "rate_limit_exceeded")
        assert len(server.requests) == 1


async def test_decision_1_a_timeout_says_which_limit_its_budget_and_the_silence(
    autojump_clock: MockClock,
) -> None:
    error = await settled(Pause(3), say("x"), Pause(20), stuck_timeout="15s")
    assert (error.limit, error.budget_ms, error.silence_ms) == ("stuck", 15_000, 15_000)
    assert (error.emitted, error.retryable, error.request_id) == (True, True, "req-1")


async def test_decision_1_the_only_resend_is_for_a_credential_that_changed_and_before_any_content() -> None:
    async with serve(respond(b"{}", status=401)) as server, peer(server) as env:
        env.register_endpoint("other", url=server.url, auth="key-one-0001")

        async def rotate(exchange: Any) -> None:
            await env.auth_set("other", "key-two-0002")

        server.script_next(rotate, respond(b"{}", status=401))
        server.script_next(*answer(*GOOD))
        assert (await write(aiio.IO(env=env, model="other/m"))).text == "Hi"
        assert [one.headers["authorization"][-4:] for one in server.requests] == ["0001", "0002"]
        assert (await write(aiio.IO(env=env, model=PEER))).error.kind is aiio.ErrorKind.AUTH
        assert len(server.requests) == 3


# --- 2: the queue ---


async def test_decision_2_slots_go_round_first_come_first_served_and_cost_no_limit(
    autojump_clock: MockClock,
) -> None:
    order: list[int] = []
    async with scripted(Pause(1), say("x"), finish(), max_active=1) as (env, _):

        async def one(number: int) -> None:
            io = aiio.IO(env=env, model=MODEL)
            free = []
            terminal = await io.write(
                CONTEXT, {"on_done": lambda _: free.append(io not in env.active_io)}, timeout="1500ms"
            )
            assert (terminal.type, free) == ("done", [True])
            order.append(number)

        with capture_logs() as lines:
            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(one, number)
                    await trio.testing.wait_all_tasks_blocked()
                assert (len(env.active_io), env.queued) == (1, 3)
        assert order == [0, 1, 2, 3]
        queued = [line["queued_ms"] for line in lines if line["event"] == "request.settled"]
        assert queued == [0, 1000, 2000, 3000]


async def test_decision_2_the_limit_changes_live_and_a_queued_write_can_be_killed(
    autojump_clock: MockClock,
) -> None:
    async with scripted(Pause(1), say("x"), finish()) as (env, wire):
        assert env.max_active is None
        env.max_active = 1
        ios = [aiio.IO(env=env, model=MODEL) for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for io in ios:
                nursery.start_soon(io.write, CONTEXT)
                await trio.testing.wait_all_tasks_blocked()
            await ios[1].kill()
            assert (ios[1].state, env.queued) == ("closed", 3)
            env.max_active = 3
            await trio.testing.wait_all_tasks_blocked()
            assert (len(env.active_io), env.queued) == (3, 1)
        assert (len(wire.requests), trio.current_time()) == (4, 2)


# --- 3: what a callback raises ---


async def test_decision_3_what_a_callback_raises_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    crash = LookupError("mine")

    def fail(one: Any) -> None:
        raise crash

    async with scripted(say("x"), HANG) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        heard: list[Any] = []
        with pytest.raises(LookupError) as caught:
            await io.write(CONTEXT, {"on_text_delta": fail, "on_error": heard.append})
        assert caught.value is crash
        assert [one.cancelled for one in heard] == [True]
        assert (io.state, wire.open, len(env.active_io)) == ("idle", 0, 0)


# --- 4: cancelled from outside ---


async def test_decision_4_outer_cancellation_tells_the_callbacks_and_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with scripted(say("Half"), HANG, close_takes=2) as (env, wire):
        heard: list[Any] = []
        returned: list[Any] = []
        with trio.move_on_after(10) as scope:
            returned.append(await aiio.IO(env=env, model=MODEL).write(CONTEXT, {"on_error": heard.append}))
        assert (scope.cancelled_caught, returned) == (True, [])
        (error,) = heard
        assert (error.kind, error.cancelled, text_of(error.message)) == ("cancelled", True, "Half")
        assert (wire.open, trio.current_time()) == (0, 12)


async def test_decision_4_clean_up_is_bounded(autojump_clock: MockClock) -> None:
    async with scripted(say("Half"), HANG, close_takes=1e9) as (env, _):
        with trio.move_on_after(10):
            await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert trio.current_time() == 15


async def test_decision_4_kill_makes_write_return_the_terminal(autojump_clock: MockClock) -> None:
    async with scripted(say("Half"), HANG) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        terminal: Any = await io.write(CONTEXT, {"on_text_delta": lambda _: io.kill_nowait("enough")})
        assert (terminal.kind, terminal.error) == ("cancelled", "cancelled: enough")
        assert text_of(terminal.message) == "Half"


# --- 5: progress ---

DATA: dict[str, dict[str, Any]] = {
    "text start": {"type": "text_start"},
    "text": {"type": "text_delta", "text": "x"},
    "text end": {"type": "text_end"},
    "thinking start": {"type": "thinking_start"},
    "thinking": {"type": "thinking_delta", "text": "x"},
    "thinking end": {"type": "thinking_end"},
    "call start": {"type": "tool_call_start", "call_id": "c", "name": "f"},
    "arguments": {"type": "tool_call_delta", "arguments": "{}"},
    "call end": {"type": "tool_call_end"},
}
NO_DATA: dict[str, Step] = {
    "ping": Ping(),
    "empty text": frames([{"type": "text_delta", "content_index": 0, "text": ""}]),
    "empty thinking": frames([{"type": "thinking_delta", "content_index": 0, "text": ""}]),
    "empty arguments": frames([{"type": "tool_call_delta", "content_index": 0, "arguments": ""}]),
    "nothing": frames([]),
}


@pytest.mark.parametrize("name", DATA)
async def test_decision_5_message_data_re_arms_the_stuck_timer(name: str, autojump_clock: MockClock) -> None:
    error = await settled(Pause(4), frames([{"content_index": 0, **DATA[name]}]), HANG, stuck_timeout="5s")
    assert (error.limit, trio.current_time()) == ("stuck", 9)


@pytest.mark.parametrize("name", NO_DATA)
async def test_decision_5_what_carries_no_data_does_not(name: str, autojump_clock: MockClock) -> None:
    error = await settled(Pause(4), NO_DATA[name], HANG, stuck_timeout="5s")
    assert (error.limit, trio.current_time()) == ("stuck", 5)


async def test_decision_5_one_setting_makes_pings_count(autojump_clock: MockClock) -> None:
    policy = {"pings_are_progress": True}
    error = await settled(Pause(4), Ping(), HANG, policy=policy, stuck_timeout="5s")
    assert (error.limit, trio.current_time()) == ("stuck", 9)


# --- 6: the connect budget ---


async def test_decision_6_the_connect_budget_is_base_and_a_millisecond_a_byte_until_the_head(
    autojump_clock: MockClock,
) -> None:
    async with scripted(Head(after=1e6)) as (env, wire):
        with capture_logs() as lines:
            error: Any = await aiio.IO(env=env, model=MODEL).write(
                [aiio.user_message("x" * 5000)], connect_timeout="2s"
            )
        size = len(wire.requests[0].body or b"")
        budget = aiio.io.connect_budget(2000, size)
        assert budget == 2000 + size > 7000
        assert (error.limit, error.budget_ms) == ("connect", budget)
        assert trio.current_time() == pytest.approx(budget / 1000)
        (line,) = [line for line in lines if line["event"] == "request.settled"]
        assert (line["connect_budget_ms"], line["body_bytes"]) == (budget, size)
    done = await settled(Head(after=2), Pause(60), say("x"), finish(), connect_timeout="2s")
    assert done.type == "done"


# --- 7: the end of the stream ---


@pytest.mark.parametrize("end", ["chunked", "content-length", "close"])
async def test_decision_7_a_polite_close_is_not_a_finished_answer(end: str) -> None:
    data = event(text("Half"))
    steps = {
        "chunked": [head(), chunk(data), last_chunk()],
        "content-length": [respond(data, headers={"content-type": "text/event-stream"})],
        "close": [head(chunked=False), lambda exchange: exchange.send(data)],
    }[end]
    async with serve(*steps) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=PEER))
        assert (seen.error.kind, seen.error.retryable, seen.text) == ("network", True, "Half")


@pytest.mark.parametrize(("after", "expected"), [(0.9, 7), (1.1, None)])
async def test_decision_7_a_late_usage_frame_is_waited_for_one_second(
    after: float, expected: int | None, autojump_clock: MockClock
) -> None:
    counts = {"usage": {"input_tokens": 7, "output_tokens": 7}}
    done = await settled(say("x"), frames(WILL_END), Pause(after), frames(counts), HANG)
    assert done.type == "done"
    assert (done.usage["source"] == "provider") == (expected is not None)
    assert expected in (None, done.usage["input_tokens"])
    assert trio.current_time() == 1


# --- 8: connections ---


async def test_decision_8_every_request_has_a_connection_of_its_own_and_one_tls_context() -> None:
    async with serve(*answer(*GOOD)) as server, peer(server) as env:
        io = aiio.IO(env=env, model=PEER)
        for _ in range(3):
            assert (await write(io)).text == "Hi"
        assert (len(server.requests), server.connections) == (3, 3)
        assert {one.headers["accept-encoding"] for one in server.requests} == {"identity"}
        await server.wait_idle()
        assert env.ssl_context is env.ssl_context


async def test_decision_8_redirects_are_not_followed() -> None:
    async with serve(*answer(*GOOD)) as other, serve() as server, peer(server) as env:
        server.script(respond(status=307, headers={"location": other.url}))
        error = (await write(aiio.IO(env=env, model=PEER))).error
        assert (error.status, error.kind, other.connections) == (307, "provider", 0)


@pytest.mark.parametrize("coding", ["gzip", "br"])
async def test_decision_8_gzip_is_read_and_no_other_coding(coding: str) -> None:
    body = gzip.compress(b"".join(map(event, GOOD)))
    headers = {"content-type": "text/event-stream", "content-encoding": coding}
    async with serve(respond(body, headers=headers)) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=PEER))
        if coding == "gzip":
            assert seen.text == "Hi"
        else:
            assert seen.error.kind is aiio.ErrorKind.MALFORMED


async def test_decision_8_decoded_bytes_are_capped_those_of_errors_too() -> None:
    bomb = gzip.compress(event(text("x" * 200_000)) + event(text("y" * 200_000)))
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    limits: dict[str, Any] = {"max_response_bytes": 100_000, "max_error_bytes": 1000}
    async with serve(respond(bomb, headers=headers)) as server, peer(server, **limits) as env:
        error = (await write(aiio.IO(env=env, model=PEER))).error
        assert (error.kind, "100000 bytes" in error.error) == (aiio.ErrorKind.MALFORMED, True)
        server.script(
            respond(gzip.compress(b"z" * 200_000), status=500, headers={"content-encoding": "gzip"})
        )
        error = (await write(aiio.IO(env=env, model=PEER))).error
        assert error.status == 500
        assert len(error.error) < 1000


# --- 9: durations ---


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (2000, 2),
        (1500.0, 1.5),
        ("30s", 30),
        ("17m", 1020),
        ("1.5h", 5400),
        ("250ms", 0.25),
        (datetime.timedelta(seconds=7), 7),
        (None, 40),
    ],
)
async def test_decision_9_a_bare_number_is_milliseconds_and_a_string_has_a_unit(
    given: Any, seconds: float, autojump_clock: MockClock
) -> None:
    error = await settled(HANG, policy={"timeout": "40s", "stuck_timeout": "never"}, timeout=given)
    assert (error.limit, error.budget_ms) == ("overall", seconds * 1000)
    assert trio.current_time() == seconds


@pytest.mark.parametrize("word", [math.inf, "never"])
async def test_decision_9_an_explicit_word_turns_a_limit_off(word: Any, autojump_clock: MockClock) -> None:
    limits = dict.fromkeys(("timeout", "connect_timeout", "stuck_timeout"), word)
    done = await settled(Head(after=1e6), Pause(1e7), say("x"), finish(), **limits)
    assert done.type == "done"


async def test_decision_9_a_small_bare_number_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(aiio.io.limits, "_warned", set())
    with capture_logs() as lines:
        for _ in range(2):
            await settled(HANG, timeout=30)
        await settled(HANG, timeout="30ms")
    assert [line["hint"] for line in lines if line["event"] == "limit.small"] == [
        '30 is 30 ms; for seconds write "30s"'
    ]


# --- 10: credentials ---


async def test_decision_10_a_credential_is_trimmed_when_it_is_read() -> None:
    async with serve(*answer(*GOOD)) as server, peer(server, auth=f" {KEY}\r\n") as env:
        await write(aiio.IO(env=env, model=PEER))
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("bad", ["", " ", f"{KEY}\nX: 1", f"{KEY}\rx", f"{KEY}\0", f"{KEY}é"])
async def test_decision_10_one_that_cannot_be_sent_is_an_auth_error_before_any_connection(bad: str) -> None:
    async with serve(*answer(*GOOD)) as server, peer(server, auth=None) as env:
        seen = Seen()
        with capture_logs() as lines:
            io = aiio.IO(env=env, model=PEER, settings={"auth": {"token": bad}})
            await write(io, seen=seen)
        assert seen.error.kind is aiio.ErrorKind.AUTH
        assert server.connections == 0
        assert KEY not in f"{lines} {seen.error!r} {io!r} {io.settings!r}"


async def test_decision_10_a_credential_that_a_provider_echoes_is_masked() -> None:
    async with serve(respond(f"bad key {KEY}".encode(), status=401)) as server, peer(server) as env:
        with capture_logs() as lines:
            error = (await write(aiio.IO(env=env, model=PEER))).error
        assert "bad key ***" in error.error
        assert KEY not in f"{lines} {error!r}"


# --- 11: the history ---


async def test_decision_11_history_is_made_valid_on_a_copy() -> None:
    call = {"type": "tool_call", "call_id": "c1", "name": "f", "arguments": {}}
    context = [
        aiio.user_message("Go"),
        aiio.assistant_message([call]),  # nobody answered
        aiio.user_message([]),
        aiio.tool_result_message("c9", "f", "late"),  # nobody asked
        aiio.user_message("Well?"),
    ]
    before = json.dumps(context)
    async with serve(*answer(*GOOD)) as server, peer(server) as env:
        with capture_logs() as lines:
            await write(aiio.IO(env=env, model=PEER), context)
        sent = server.requests[0].json()["messages"]
        calls = [made["id"] for one in sent for made in one.get("tool_calls", ())]
        results = [one["tool_call_id"] for one in sent if one["role"] == "tool"]
        assert calls == results
        assert all(one.get("content") or one.get("tool_calls") for one in sent)
        assert [line for line in lines if line["event"] == "context.repaired"]
        assert json.dumps(context) == before


# --- 12: kill ---


@pytest.mark.parametrize("when", ["before", "queued", "sending", "reading", "in a callback", "after"])
async def test_decision_12_kill_works_at_any_time_and_twice(when: str, autojump_clock: MockClock) -> None:
    async with scripted(Head(after=2), Pause(2), say("x"), finish(), max_active=1) as (env, _):
        io, other = (aiio.IO(env=env, model=MODEL) for _ in range(2))
        terminals: list[Any] = []

        async def request() -> None:
            callbacks = {"on_text_delta": lambda _: io.kill_nowait()} if when == "in a callback" else {}
            terminals.append(await io.write(CONTEXT, callbacks))

        async with trio.open_nursery() as nursery:
            if when == "queued":
                nursery.start_soon(other.write, CONTEXT)
                await trio.testing.wait_all_tasks_blocked()
            if when != "before":
                nursery.start_soon(request)
            await trio.sleep({"sending": 1, "reading": 3, "in a callback": 5, "after": 5}.get(when, 0.5))
            for _ in range(2):
                await io.kill()
        assert io.state == "closed"
        expected = {"before": [], "after": ["done"]}.get(when, ["error"])
        assert [terminal.type for terminal in terminals] == expected
        assert all(terminal.cancelled for terminal in terminals if terminal.type == "error")
        with pytest.raises(trio.ClosedResourceError):
            await io.write(CONTEXT)


# --- 13: two faces ---


async def test_decision_13_callbacks_and_stream_tell_the_same_story() -> None:
    async with serve(*answer(*GOOD)) as server, peer(server) as env:
        io = aiio.IO(env=env, model=PEER)
        told = (await write(io)).events
        async with io.stream(HELLO) as events:
            streamed = [one async for one in events]
        assert [one.type for one in streamed] == [one.type for one in told]
        assert events.terminal is streamed[-1]


def test_decision_13_nothing_public_is_an_async_generator() -> None:
    faces: list[Any] = [aiio, aiio.io, *(found for found in vars(aiio).values() if inspect.isclass(found))]
    offenders = [
        f"{face.__name__}.{name}"
        for face in faces
        for name, found in inspect.getmembers(face)
        if not name.startswith("_") and inspect.isasyncgenfunction(inspect.unwrap(found))
    ]
    assert offenders == []


# --- 14: what the Env shows ---


async def test_decision_14_ledger_readouts_and_events_are_to_be_seen_from_the_env() -> None:
    headers = {"x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "99"}
    steps = [head(200, {"content-type": "text/event-stream", **headers}), chunk(b"".join(map(event, GOOD)))]
    async with serve(*steps, last_chunk()) as server, peer(server) as env:
        io = aiio.IO(env=env, model=PEER)
        heard: list[tuple[str, bool]] = []
        env.on_event(lambda one: heard.append((one.name, io in env.active_io)))
        seen = await write(io)
        assert seen.text == "Hi"
        assert heard == [("io_start", True), ("io_done", False)]
        assert io.context_usage == {"used": 18}
        quota = (io.plan_usage or {})["quotas"]["requests"]
        assert (quota["total"], quota["remaining"]) == (100, 99)


# --- 15: misuse ---


async def test_decision_15_misuse_is_an_exception_at_once_and_disturbs_nothing(
    autojump_clock: MockClock,
) -> None:
    async with scripted(Pause(5), say("x"), finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        terminals: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(io.write, CONTEXT, {"on_done": terminals.append})
            await trio.sleep(1)
            with pytest.raises(trio.BusyResourceError):
                await io.write(CONTEXT)
            assert (trio.current_time(), io.state) == (1, "reading")
        assert len(terminals) == 1
        with pytest.raises(TypeError, match=r"context\[1\]"):
            await io.write([*CONTEXT, {"type": 99}])
        with pytest.raises(ValueError, match="'soon'"):
            await io.write(CONTEXT, timeout="soon")
        with pytest.raises(ValueError, match="'nowhere'"):
            aiio.IO(env=env, model="nowhere/m")
        await io.kill()
        with pytest.raises(trio.ClosedResourceError):
            await io.write(CONTEXT)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (Fail(aiio.ProviderError("network", "gone")), "network"),
        (Fail(OSError("gone")), "malformed"),
        (frames(b"{nonsense"), "malformed"),
        (frames([{"type": "error", "error": "overloaded"}]), "provider"),
        (HANG, "network"),
    ],
)
async def test_decision_15_what_the_other_side_does_is_a_terminal_event(
    trouble: Step, kind: str, autojump_clock: MockClock
) -> None:
    error = await settled(trouble)
    assert (error.type, error.kind) == ("error", kind)


# --- 16: empty answers ---


async def test_decision_16_an_empty_answer_is_an_error_with_the_reason_given() -> None:
    async with serve(*answer(finished("length"), usage())) as server, peer(server) as env:
        error = (await write(aiio.IO(env=env, model=PEER))).error
        assert (error.kind, error.error, error.message) == ("provider", "empty response (length)", None)


@pytest.mark.parametrize("silence", [FinishReason.REFUSAL, FinishReason.PAUSED])
async def test_decision_16_an_intended_silence_is_an_answer(
    silence: FinishReason, autojump_clock: MockClock
) -> None:
    done = await settled(finish("its own word", finish=silence.value))
    assert (done.type, done.finish, done.message) == ("done", silence, None)
