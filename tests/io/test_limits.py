"""Where the limits come from, and when they fire.

Field-faults A1, A3, A4 and A6 on the mock clock; over real sockets they are in tests/test_field_faults_*.py.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error
from aiio.io import limits
from aiio.io.limits import as_words, check_duration, connect_budget, resolve_limit, resolve_timeout
from aiio.io.trace import MOST_GAPS, WriteTrace
from aiio.providers.base import define_provider

from .scripted import CONTEXT, HANG, MODEL, Head, Pause, Ping, Scripted, Step, finish, frames, say, scripted


class Metadata:
    timeout = "7s"
    connect_timeout = "bad"
    stuck_timeout = None


@pytest.mark.parametrize(
    ("option", "explicit", "settings", "expected"),
    [
        ("timeout", (1.0, 2.0), {"timeout": "3s"}, 1.0),
        ("timeout", (None, 2.0), {"timeout": "3s"}, 2.0),
        ("timeout", (None, None), {"timeout": "3s"}, 3.0),
        ("timeout", (None, None), {"timeout": "500ms"}, 0.5),
        ("timeout", (None, None), {"timeout": None}, 7.0),
        ("timeout", (None, None), {"timeout": 0}, 7.0),
        ("timeout", (None, None), {"timeout": "soon"}, 7.0),
        ("timeout", (None, None), {"timeout": True}, 7.0),
        ("timeout", (None, None), {}, 7.0),
        ("timeout", (math.inf, None), {"timeout": "3s"}, math.inf),
        ("timeout", (None, None), {"timeout": "never"}, math.inf),
        ("connect_timeout", (None, None), {}, 30.0),
        ("stuck_timeout", (None, None), {}, 120.0),
    ],
)
def test_A4_five_levels(
    option: str, explicit: tuple[float | None, ...], settings: Any, expected: float
) -> None:
    assert resolve_limit(option, explicit, settings, Metadata) == expected


async def test_resolve_timeout_is_in_milliseconds() -> None:
    async with aiio.open_env() as env:
        env.register_provider(define_provider(type("Slow", (Metadata, Scripted), {}), name="slow"))
        env.register_endpoint("e", provider="slow", url="http://x")
        assert resolve_timeout(env=env, model="e/m") == 7000
        assert resolve_timeout(env=env, model="e/m", timeout="2s") == 2000
        assert resolve_timeout(env=env, model="e/m", timeout="bad") == 7000
        assert resolve_timeout(env=env, model="e/m", settings={"timeout": timedelta(seconds=4)}) == 4000
        env.register_endpoint("plain", provider="openai_chat", url="http://x", timeout="9s")
        assert resolve_timeout(env=env, model="plain/m") == 9000
        env.register_endpoint("default", provider="openai_chat", url="http://x")
        assert resolve_timeout(env=env, model="default/m") == 1_048_575
        with pytest.raises(ValueError, match="nowhere"):
            resolve_timeout(env=env, model="nowhere/m")
    with pytest.raises(TypeError):
        resolve_timeout(env=None, model="e/m")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nbytes", "expected"), [(0, 30_000), (None, 30_000), (1_500, 31_500), (2.9, 30_002), (-5, 30_000)]
)
def test_connect_budget(nbytes: float | None, expected: float) -> None:
    assert connect_budget(30_000, nbytes) == expected


def test_a_small_bare_number_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_warned", set())
    with capture_logs() as lines:
        assert check_duration("timeout", 30) == 0.03
        check_duration("timeout", 40)
        check_duration("stuck_timeout", "30ms")
        check_duration("connect_timeout", 5000)
    assert [line["hint"] for line in lines] == ['30 is 30 ms; for seconds write "30s"']


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.25, "250 ms"), (30.0, "30 s"), (1.25, "1.2 s"), (math.inf, "no limit")]
)
def test_as_words(seconds: float, words: str) -> None:
    assert as_words(seconds) == words


async def run(*script: Step, **options: Any) -> Any:
    async with scripted(*script) as (env, wire):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT, **options)
        assert wire.open == 0
        return terminal


async def test_A1_silence_after_the_first_frames_is_stuck(autojump_clock: MockClock) -> None:
    terminal = await run(say("one "), say("two"), HANG, stuck_timeout="300ms")
    assert isinstance(terminal, Error)
    assert (terminal.limit, terminal.kind) == ("stuck", "network")
    assert trio.current_time() == pytest.approx(0.3)
    assert terminal.message is not None
    assert terminal.message["content"][0]["text"] == "one two"
    assert "300 ms" in terminal.error


async def test_A1_frames_that_keep_coming_never_trip_it(autojump_clock: MockClock) -> None:
    steps = [step for _ in range(20) for step in (Pause(0.1), say("x"))]
    assert isinstance(await run(*steps, finish(), stuck_timeout="300ms"), Done)
    assert trio.current_time() == pytest.approx(2.0)


async def test_stuck_counts_exactly_from_the_last_data(autojump_clock: MockClock) -> None:
    """The scope is not re-armed for every read; the time it fires at is exact all the same."""
    terminal = await run(
        Pause(100), say("a"), Pause(100), say("b"), Pause(70), say("c"), HANG, stuck_timeout="2m"
    )
    assert terminal.limit == "stuck"
    assert trio.current_time() == 270 + 120
    assert terminal.silence_ms == 120_000


@pytest.mark.parametrize(
    "event",
    [
        {"type": "tool_call_delta", "content_index": 0, "arguments": "1"},
        {"type": "thinking_delta", "content_index": 0, "text": "hm"},
        {"type": "text_start", "content_index": 0},
        {"type": "text_end", "content_index": 0},
    ],
)
async def test_A3_all_message_data_is_progress(event: dict[str, Any], autojump_clock: MockClock) -> None:
    steps = [step for _ in range(30) for step in (Pause(0.1), frames([event]))]
    opening = frames([{"type": "tool_call_start", "content_index": 0, "call_id": "c", "name": "f"}])
    assert isinstance(await run(opening, *steps, say("x", 1), finish(), stuck_timeout="300ms"), Done)


@pytest.mark.parametrize(
    "ping", [Ping(), frames([]), frames([{"type": "text_delta", "content_index": 0, "text": ""}])]
)
async def test_A3_keep_alives_are_not_progress_but_are_reported(
    ping: Step, autojump_clock: MockClock
) -> None:
    steps = [step for _ in range(30) for step in (Pause(0.1), ping)]
    terminal = await run(*steps, say("x"), finish(), stuck_timeout="350ms")
    assert isinstance(terminal, Error)
    assert terminal.limit == "stuck"
    if isinstance(ping, Ping):
        assert "3 keep-alives" in terminal.error
        assert terminal.native == {"keepalives": 3}


@pytest.mark.parametrize("ping", [Ping(), frames([])])
async def test_A3_one_setting_makes_pings_count(ping: Step, autojump_clock: MockClock) -> None:
    steps = [step for _ in range(30) for step in (Pause(0.1), ping)]
    terminal = await run(
        *steps, say("x"), finish(), stuck_timeout="350ms", settings={"pings_are_progress": True}
    )
    assert isinstance(terminal, Done)


async def test_the_connect_budget_grows_with_the_body(autojump_clock: MockClock) -> None:
    context = [aiio.user_message("x" * 5000)]
    async with scripted(Head(after=math.inf)) as (env, wire):
        terminal = await aiio.IO(env=env, model=MODEL).write(context, connect_timeout="1s")
        size = len(wire.requests[0].body or b"")
    assert isinstance(terminal, Error)
    assert trio.current_time() == pytest.approx(1 + size / 1000)
    assert terminal.budget_ms == pytest.approx(1000 + size)


async def test_the_overall_limit_ends_a_busy_answer(autojump_clock: MockClock) -> None:
    steps = [step for _ in range(100) for step in (Pause(0.1), say("x"))]
    terminal = await run(*steps, finish(), timeout="2s")
    assert terminal.limit == "overall"
    assert trio.current_time() == pytest.approx(2.0)


async def test_an_unset_value_never_disables_a_limit(autojump_clock: MockClock) -> None:
    terminal = await run(HANG, timeout=None, connect_timeout=None, stuck_timeout=None)
    assert (terminal.limit, trio.current_time()) == ("stuck", 120)


async def test_a_limit_is_turned_off_by_an_explicit_word(autojump_clock: MockClock) -> None:
    terminal = await run(HANG, stuck_timeout="never")
    assert (terminal.limit, trio.current_time()) == ("overall", 1048.575)


async def test_A6_one_write_is_one_attempt(autojump_clock: MockClock) -> None:
    async with scripted(Head(after=math.inf)) as (env, wire):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT, timeout="30s", connect_timeout="never")
        assert isinstance(terminal, Error)
        assert trio.current_time() == 30
        await trio.sleep(90)
        assert len(wire.requests) == 1
        assert terminal.safe_to_retry


async def test_C2_time_in_the_queue_is_charged_to_no_limit(autojump_clock: MockClock) -> None:
    async with scripted(Pause(0.2), say("x"), finish(), max_active=2) as (env, _):
        ios = [aiio.IO(env=env, model=MODEL) for _ in range(10)]
        done: list[Any] = []

        async def write(io: aiio.IO) -> None:
            done.append(
                await io.write(CONTEXT, timeout="300ms", connect_timeout="300ms", stuck_timeout="300ms")
            )

        with capture_logs() as lines:
            async with trio.open_nursery() as nursery:
                for io in ios:
                    nursery.start_soon(write, io)
                await trio.sleep(0.1)
                assert (len(env.active_io), env.queued) == (2, 8)
        assert all(isinstance(terminal, Done) for terminal in done)
        assert trio.current_time() == pytest.approx(1.0)
        settled = [line for line in lines if line["event"] == "request.settled"]
        assert sorted(round(line["queued_ms"]) for line in settled) == [
            0,
            0,
            200,
            200,
            400,
            400,
            600,
            600,
            800,
            800,
        ]


async def test_the_trace_of_a_write(autojump_clock: MockClock) -> None:
    with capture_logs() as lines:
        await run(
            Head(after=1), Pause(2), say("x"), Pause(3), Ping(), Pause(1), say("y"), HANG, stuck_timeout="10s"
        )
    [line] = [line for line in lines if line["event"] == "request.settled"]
    facts = {
        "endpoint": "script",
        "model": "m",
        "outcome": "network",
        "limit": "stuck",
        "limit_budget_ms": 10_000,
        "silence_ms": 10_000,
        "queued_ms": 0,
        "connect_ms": 1000,
        "first_event_ms": 3000,
        "longest_gap_ms": 10_000,
        "total_ms": 17_000,
        "frames": 2,
        "keepalives": 1,
        "attempts": 1,
        "emitted": True,
        "retryable": True,
        "request_id": "req-1",
        "prepare_ms": 0,
        "gaps": [(1000, 2000), (3000, 4000), (7000, 10_000)],
        "stuck_budget_ms": 10_000,
        "overall_budget_ms": 1_048_575,
        "text_chars": 2,
        "thinking_chars": 0,
        "tool_calls": 0,
    }
    assert {key: line[key] for key in facts} == facts
    assert line["connect_budget_ms"] == 30_000 + line["body_bytes"]
    assert line["bytes"] > 0


async def test_the_trace_tells_the_longest_gaps_and_how_much_came(autojump_clock: MockClock) -> None:
    gaps = [Pause(1) if number != 5 else Pause(0.5) for number in range(MOST_GAPS + 1)]
    pieces = [step for gap in gaps for step in (gap, say("x"))]
    blocks = frames(
        [{"type": "thinking_delta", "content_index": 1, "text": "hm"}],
        [{"type": "tool_call_start", "content_index": 2, "call_id": "1", "name": "f"}],
    )
    with capture_logs() as lines:
        await run(*pieces, Pause(0.2), blocks, finish(), stuck_timeout="10s", timeout="never")
    [line] = [line for line in lines if line["event"] == "request.settled"]
    assert [length for _, length in line["gaps"]] == [1000] * MOST_GAPS
    counts = [line[key] for key in ("text_chars", "thinking_chars", "tool_calls")]
    assert counts == [MOST_GAPS + 1, 2, 1]
    assert "overall_budget_ms" not in line


async def test_the_trace_counts_no_blocks_of_other_kinds() -> None:
    drawn = aiio.assistant_message([{"type": "image", "content": "AA=="}])
    with capture_logs() as lines:
        WriteTrace(endpoint="e", model="m").settled(Done(message=drawn))
    assert [lines[0][key] for key in ("text_chars", "thinking_chars", "tool_calls")] == [0, 0, 0]
