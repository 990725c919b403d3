"""A1, A3, A4, A6: the three time limits fire when they should, never when they should not, and once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
from aiio.providers import define_provider
from tests.serving import Step, chunk, half_close, hang, head, pause, raw, respond, serve, sse, stall

from .conftest import TLS
from .peer import (
    CONTEXT,
    DONE,
    GOOD,
    MODEL,
    call,
    chunk_end,
    chunk_json,
    events,
    paced,
    peer,
    stop,
    text,
    thinking,
    usage,
    write,
)

TWO_TEXTS = (text("One. "), text("Two."))


# --- A1: the reply starts, then silence -----------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_A1_silence_after_two_texts_ends_in_one_error_that_keeps_both(
    patient_clock: MockClock, tls: TLS, secure: bool
) -> None:
    async with (
        serve(head(), events(*TWO_TEXTS), stall(), tls=tls.server if secure else None) as server,
        peer(server, settings=tls.settings) as env,
    ):
        io = aiio.IO(env=env, model=MODEL)
        seen = await write(io, stuck_timeout="300ms")

        error = seen.error
        assert error.kind is aiio.ErrorKind.NETWORK
        assert error.limit == "stuck"
        assert error.budget_ms == pytest.approx(300)
        assert error.silence_ms == pytest.approx(300)
        assert "300 ms" in error.error
        assert seen.text == "One. Two."
        assert seen.took == pytest.approx(0.3)
        assert (io.state, list(env.active_io)) == ("idle", [])
        await server.wait_idle()


@pytest.mark.parametrize(
    "signs_of_life",
    [
        [raw(b"5\r\nda")],
        [chunk(b"data: {"), *[step for _ in range(9) for step in (pause(0.1), chunk(b" "))]],
        [step for _ in range(9) for step in (pause(0.1), chunk(b": keep-alive\n\n"))],
        [step for _ in range(9) for step in (pause(0.1), chunk(b"\n"))],
        [step for _ in range(9) for step in (pause(0.1), chunk(b"data:\n\n"))],
        paced([chunk_json({"content": ""})] * 9, 0.1),
        paced([chunk_json({"role": "assistant", "content": None})] * 9, 0.1),
        paced([chunk_json(choices=[])] * 9, 0.1),
        paced([usage()] * 9, 0.1),
    ],
    ids=[
        "half-chunk", "half-frame-dribbling", "comments", "blank-lines", "empty-events",
        "empty-deltas", "role-only", "no-choices", "usage-only",
    ],
)  # fmt: skip
async def test_A1_bytes_that_are_no_message_data_do_not_count(
    patient_clock: MockClock, signs_of_life: list[Step]
) -> None:
    async with serve(head(), events(text("One.")), *signs_of_life, stall()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL), stuck_timeout="300ms")
        assert seen.error.limit == "stuck"
        assert seen.took == pytest.approx(0.3)
        assert seen.text == "One."


async def test_A1_a_peer_that_answers_with_a_head_only_is_noticed_too(patient_clock: MockClock) -> None:
    async with serve(head(), hang()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL), stuck_timeout="300ms")
        assert seen.error.limit == "stuck"
        assert seen.error.message is None
        assert seen.error.safe_to_retry


@pytest.mark.parametrize(("count", "gap"), [(20, 0.1), (100, 0.29)])
async def test_A1_a_slow_reply_that_keeps_coming_is_never_stuck(
    patient_clock: MockClock, count: int, gap: float
) -> None:
    slow = paced([text(".")] * count, gap)
    async with serve(head(), *slow, events(stop(), DONE), chunk_end()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL), stuck_timeout="300ms")
        assert isinstance(seen.terminal, aiio.Done)
        assert seen.text == "." * count


# --- A3: healthy long turns are left alone --------------------------------------------------------


ARGUMENTS = '{"path": "a/b.py", "lines": [1, 2, 3]}'
HEALTHY = {
    "tool-arguments": [call(id="c", name="edit"), *[call(piece) for piece in ARGUMENTS]][:31],
    "reasoning_content": [thinking("hm ")] * 30,
    "reasoning": [chunk_json({"reasoning": "hm "})] * 30,
    "reasoning_details": [
        chunk_json({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "hm "}]})
    ]
    * 30,
    "thinking-parts": [
        chunk_json({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm "}]}]})
    ]
    * 30,
    "refusal": [chunk_json({"refusal": "no "})] * 30,
    "block-starts": [call(index=at, id=f"c{at}", name="go") for at in range(30)],
    "arguments-before-the-name": [call(" ", id="c")] * 30,
    "hidden-reasoning": [
        chunk_json({"reasoning_details": [{"type": "reasoning.encrypted", "index": 0, "data": "x" * 8}]})
    ]
    * 30,
    "spoken": [chunk_json({"audio": {"id": "a", "data": "AAAA"}})] * 30,
}


@pytest.mark.parametrize("kind", list(HEALTHY))
async def test_A3_what_is_no_visible_text_is_progress_too(patient_clock: MockClock, kind: str) -> None:
    gap = 0.29  # so that every single frame has to count
    ending = (text("There."), stop(), DONE)
    async with (
        serve(head(), *paced(HEALTHY[kind], gap), pause(gap), events(*ending), chunk_end()) as server,
        peer(server) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL), stuck_timeout="300ms")
        assert isinstance(seen.terminal, aiio.Done), seen.terminal


async def test_A3_progress_counts_whether_or_not_anybody_listens(patient_clock: MockClock) -> None:
    quiet = [*paced(HEALTHY["tool-arguments"], 0.29), events(stop("tool_calls"), DONE), chunk_end()]
    async with serve(head(), *quiet) as server, peer(server) as env:
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT, stuck_timeout="300ms")
        assert isinstance(terminal, aiio.Done)


PINGS = [step for _ in range(20) for step in (pause(0.1), chunk(b": OPENROUTER PROCESSING\n\n"))]


async def test_A3_pings_are_no_progress_but_the_error_tells_of_them(patient_clock: MockClock) -> None:
    async with serve(head(), events(text("Hm.")), *PINGS, stall()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL), stuck_timeout="950ms")
        assert seen.error.limit == "stuck"
        assert seen.took == pytest.approx(0.95)
        assert seen.error.native == {"keepalives": 9}
        assert "9 keep-alives" in seen.error.error


async def test_A3_one_setting_makes_pings_count(patient_clock: MockClock) -> None:
    async with (
        serve(head(), *PINGS, events(*GOOD), chunk_end()) as server,
        peer(server, pings_are_progress=True) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL), stuck_timeout="300ms")
        assert seen.done.message is not None


# --- A4: a limit that was set is applied ----------------------------------------------------------


@define_provider(name="patient", dialect="chat")
class Patient:
    """Chat Completions with limits of its own."""

    timeout = connect_timeout = stuck_timeout = "4s"


LEVELS = ("write", "io", "settings", "provider")
NOT_SET: tuple[Any, ...] = (None, 0, -1, "soon", "2 fortnights", True, [1], math.nan)


def level_cases() -> list[Any]:
    """(what each level says, the seconds that must hold); None for a provider: the plain one."""
    cases = [
        ({"write": "500ms", "io": "2s", "settings": "3s", "provider": True}, 0.5),
        ({"write": None, "io": "2s", "settings": "3s", "provider": True}, 2.0),
        ({"io": "2s"}, 2.0),
        ({"io": None, "settings": "3s", "provider": True}, 3.0),
        ({"settings": 3000}, 3.0),
        ({"provider": True}, 4.0),
        ({"write": timedelta(seconds=1.5)}, 1.5),
        ({"write": 1500}, 1.5),
        ({"write": "0.025m"}, 1.5),
        ({"write": 1500.0, "io": "never"}, 1.5),
        ({}, None),
    ]
    cases += [({"settings": junk, "provider": True}, 4.0) for junk in NOT_SET]
    cases += [({"settings": junk}, None) for junk in NOT_SET]
    return cases


DEFAULTS = {"timeout": 1048.575, "connect_timeout": 30.0, "stuck_timeout": 120.0}
NAMES = {"timeout": "overall", "connect_timeout": "connect", "stuck_timeout": "stuck"}


@pytest.mark.parametrize("option", list(DEFAULTS))
@pytest.mark.parametrize(("levels", "expected"), level_cases(), ids=repr)
async def test_A4_one_resolution_order_decides_every_limit(
    patient_clock: MockClock, option: str, levels: Mapping[str, Any], expected: float | None
) -> None:
    silent = [hang()] if option == "connect_timeout" else [head(), events(*TWO_TEXTS), hang()]
    policy: dict[str, Any] = {} if levels.get("settings") is None else {option: levels["settings"]}
    unlimited: dict[str, Any] = {other: "never" for other in DEFAULTS if other != option}
    async with serve(*silent) as server:
        url = server.url
        async with aiio.Env(environ={}) as env:
            env.register_provider(Patient)
            name = "patient" if levels.get("provider") else "openai_chat"
            env.register_endpoint("peer", provider=name, url=url, auth="sk-peer-123456", **policy)
            io = aiio.IO(env=env, model=MODEL, **{option: levels.get("io")})
            seen = await write(io, **{option: levels.get("write"), **unlimited})

        seconds = DEFAULTS[option] if expected is None else expected
        if option == "connect_timeout":
            seconds += len(server.requests[0].body) / 1000
        assert seen.error.limit == NAMES[option]
        assert seen.took == pytest.approx(seconds)
        assert seen.error.budget_ms == pytest.approx(seconds * 1000)


@pytest.mark.parametrize("option", list(DEFAULTS))
@pytest.mark.parametrize("bad", [0, -5, "soon", "", "3 parsecs", math.nan])
async def test_A4_a_bad_limit_given_by_hand_is_misuse_and_quoted(option: str, bad: Any) -> None:
    async with serve(hang()) as server, peer(server) as env:
        with pytest.raises(ValueError, match=option) as raised:
            aiio.IO(env=env, model=MODEL, **{option: bad})
        assert repr(bad) in str(raised.value)
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(ValueError, match=option):
            await io.write(CONTEXT, **{option: bad})
        assert io.state == "idle"
        assert server.connections == 0


@pytest.mark.parametrize("word", ["never", math.inf])
@pytest.mark.parametrize("level", ["write", "io", "settings"])
async def test_A4_only_an_explicit_word_turns_a_limit_off(
    patient_clock: MockClock, word: Any, level: str
) -> None:
    policy = {"stuck_timeout": word} if level == "settings" else {}
    own = {"stuck_timeout": word} if level == "io" else {}
    given = {"stuck_timeout": word} if level == "write" else {}
    late = [head(), events(text("One.")), pause(1000), events(stop(), DONE), chunk_end()]
    async with serve(*late) as server, peer(server, **policy) as env:
        seen = await write(aiio.IO(env=env, model=MODEL, **own), **given)
        assert isinstance(seen.terminal, aiio.Done)
        assert seen.took >= 1000


@pytest.mark.parametrize("own_timer", [None, 0.05])
@pytest.mark.parametrize("option", list(DEFAULTS))
async def test_A4_the_timers_of_a_lent_client_neither_replace_ours_nor_fire_first(
    patient_clock: MockClock, option: str, own_timer: float | None
) -> None:
    given: dict[str, Any] = {option: "2s"}
    silent = [hang()] if option == "connect_timeout" else [head(), events(*TWO_TEXTS), hang()]
    async with (
        httpx.AsyncClient(timeout=own_timer, trust_env=False) as client,
        serve(*silent) as server,
        peer(server, http_client=client) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL), **given)
        assert seen.error.limit == NAMES[option]
        assert seen.took == pytest.approx(seen.error.budget_ms / 1000 if seen.error.budget_ms else 0)


# --- A6: one attempt, one clock -------------------------------------------------------------------


@pytest.mark.parametrize("option", ["timeout", "connect_timeout"])
async def test_A6_a_silent_server_costs_one_connection_and_one_limit(
    patient_clock: MockClock, option: str
) -> None:
    given: dict[str, Any] = {option: "2s"}
    async with serve(hang()) as server, peer(server) as env:
        with capture_logs() as logs:
            seen = await write(aiio.IO(env=env, model=MODEL), **given)
        assert seen.error.limit == NAMES[option]
        assert seen.took == pytest.approx((seen.error.budget_ms or 0) / 1000)
        assert seen.error.safe_to_retry
        await trio.sleep(3 * seen.took)
        assert server.connections == 1
        assert [line["attempts"] for line in logs if line["event"] == "request.settled"] == [1]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_A6_a_refusal_is_one_request_and_the_choice_is_the_callers(
    patient_clock: MockClock, status: int
) -> None:
    refusal = respond(
        b'{"error":{"message":"later"}}', status=status, headers={"retry-after": "7", "connection": "close"}
    )
    async with serve(refusal) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        await trio.sleep(30)
        assert (len(server.requests), server.connections) == (1, 1)
        assert seen.error.status == status
        assert seen.error.retryable
        assert seen.error.safe_to_retry
        assert seen.error.retry_after_ms == 7000
        assert len([one for one in seen.events if isinstance(one, aiio.Start)]) == 1


async def test_A6_a_connection_that_ends_without_an_answer_is_not_tried_again(
    patient_clock: MockClock,
) -> None:
    async with serve(half_close()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        await trio.sleep(30)
        assert server.connections == 1
        assert seen.error.kind is aiio.ErrorKind.NETWORK


async def test_A6_the_overall_limit_bounds_the_whole_write(patient_clock: MockClock) -> None:
    endless = paced([text(".")] * 100, 0.1)
    async with serve(pause(1), head(), *endless) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL), timeout="3s")
        assert seen.error.limit == "overall"
        assert seen.took == pytest.approx(3)
        assert len(seen.text) in (19, 20)
        assert seen.error.emitted
        assert not seen.error.safe_to_retry


async def test_A6_a_good_answer_after_a_refusal_is_a_write_of_its_own(patient_clock: MockClock) -> None:
    async with serve(respond(sse(*GOOD))) as server, peer(server) as env:
        server.script_next(respond(b"", status=503))
        io = aiio.IO(env=env, model=MODEL)
        assert (await write(io)).error.status == 503
        assert (await write(io)).text == "Hi"
        assert len(server.requests) == 2
