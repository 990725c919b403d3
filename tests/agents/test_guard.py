"""The context guard: it warns, then a summary takes the place of what was said, or nothing changes."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from aiio.agents import Agent, Budget, ContextGuard, Stopped, history_of
from aiio.agents.compaction import COMPACTED, GO_ON, HEADING, INSTRUCTION
from aiio.agents.guard import Full, Gauge
from aiio.builder import ContextBuilder, define_context_fragments
from aiio.context.store import Context
from aiio.context.types import Message, assistant_message, system_message, text_content, user_message
from aiio.env import sessions
from aiio.env.env import Env
from aiio.env.errors import ErrorKind, ProviderError
from tests.io.scripted import HANG, Fail, Step, finish, say

from .peer import MODEL, Peer, answer, call, calling, peer, shape
from .strict import assert_linked

SUMMARY: Message = {**assistant_message([text_content(f"{HEADING}\n\nThey like birds.")]), "summary": True}


def window(env: Env, tokens: int) -> None:
    env.register_endpoint("peer", context_window=tokens)


def taking(tokens: int, *said: Step) -> list[Step]:
    """An answer of which the provider says that the context takes so many tokens now."""
    return [*(said or [say("Yes.")]), finish(usage={"input_tokens": tokens - 1, "output_tokens": 1})]


def wants_summary(body: dict[str, Any]) -> bool:
    return bool(body["messages"][-1] == user_message(INSTRUCTION))


def requests(found: Peer) -> list[str]:
    return ["summary" if wants_summary(body) else "ask" for body in found.bodies]


async def test_A16_a_summary_takes_the_place_of_what_was_said() -> None:
    context: list[Message] = [system_message("Be brief."), {"type": "note", "n": 1}]
    events: list[Any] = []
    async with peer(taking(900), answer("They like birds."), answer("A wren.")) as (env, found):
        window(env, 1000)
        env.on_event(lambda event: events.append(event) if event.name.startswith("context_") else None)
        agent = Agent(env=env, model=MODEL, context=context)
        assert (await agent.run("I like birds.")).compactions == 0
        before = [*context]
        with structlog.testing.capture_logs() as lines:
            result = await agent.run("Which one?")
    assert requests(found) == ["ask", "summary", "ask"]
    assert context == [
        *before[:2],
        {"type": COMPACTED, "messages": before[2:4]},
        SUMMARY,
        user_message("Which one?"),
        assistant_message([text_content("A wren.")]),
    ]
    assert found.bodies[2]["messages"] == [before[0], SUMMARY, user_message("Which one?")]
    assert (result.text, result.rounds, result.compactions) == ("A wren.", 1, 1)
    assert result.usage is not None
    assert result.usage["input_tokens"] == 20  # the summary's are among them
    [(used, left)] = [(line["used"], line["left"]) for line in lines if line["event"] == "agent.compacted"]
    assert used > 900
    assert left < 30
    names = [line["event"] for line in lines]
    assert names.index("agent.context_full") < names.index("agent.compacted") < names.index("agent.settled")
    assert [(event.name, event.data.get("why"), event.data.get("error")) for event in events] == [
        ("context_full", "overall", None),
        ("context_compacted", None, None),
    ]
    assert history_of(context) == [*before[:1], *before[2:4], *context[-2:]]
    assert_linked(context)


async def test_A16_in_the_middle_of_work_the_model_is_told_to_go_on() -> None:
    def read() -> str:
        return "word " * 500

    scripts = [taking(100, call("read")), answer("They like birds."), answer("Done.")]
    async with peer(*scripts) as (env, found):
        window(env, 1000)
        agent = Agent(env=env, model=MODEL, tools=[read])
        result = await agent.run("Read it.")
    assert (result.ok, result.rounds, result.compactions) == (True, 2, 1)
    assert found.bodies[1]["messages"][:-1] == agent.context[0]["messages"]
    assert found.bodies[2]["messages"] == [SUMMARY, user_message(GO_ON)]
    assert [body["tool_choice"] for body in found.bodies] == [None, "none", None]
    assert [message["type"] for message in history_of(agent.context)] == [2, 3, 4, 3]


FAILURES: dict[str, list[Step]] = {
    "network": [say("They"), Fail(ProviderError(ErrorKind.NETWORK, "gone"))],
    "refused": [Fail(ProviderError(ErrorKind.PROVIDER, "too long", status=400))],
    "cut": [say("They"), finish("length", finish="length")],
    "calls": [say("They"), *calling(call("read", index=1))],
    "blank": [say(" "), finish()],
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_A16_a_summary_that_fails_changes_nothing_and_the_request_is_made(failure: str) -> None:
    async def read() -> str:
        return "read"

    errors: list[str] = []
    scripts = [taking(950), FAILURES[failure], taking(960, *calling(call("read"))[:1]), answer("A wren.")]
    async with peer(*scripts) as (env, found):
        window(env, 1000)
        env.on_event(
            lambda event: errors.append(event.data["error"]) if event.name == "context_compacted" else None
        )
        agent = Agent(env=env, model=MODEL, tools=[read])
        await agent.run("I like birds.")
        with structlog.testing.capture_logs() as lines:
            result = await agent.run("Which one?")
    assert requests(found) == ["ask", "summary", "ask", "ask"]  # tried once a run
    assert found.bodies[2]["messages"] == agent.context[:3]
    assert (result.ok, result.compactions, shape(agent)) == (True, 0, [2, 3, 2, 3, 4, 3])
    assert len(errors) == 1
    assert errors[0]
    events = [line["event"] for line in lines]
    assert (events.count("agent.context_full"), events.count("agent.not_compacted")) == (1, 1)


async def test_A16_a_kill_a_limit_and_a_budget_reach_the_summary_too(autojump_clock: MockClock) -> None:
    async with peer(taking(950), [say("They"), HANG], answer("A wren.")) as (env, found):
        window(env, 1000)
        agent = Agent(env=env, model=MODEL, timeout="7s")
        await agent.run("I like birds.")
        before = [*agent.context]
        assert (await agent.run("Which one?")).ok  # the limit cut the summary, and that alone
        assert trio.current_time() == 7
        other = Agent(env=env, model=MODEL, context=[*before], budget=Budget(time="2s"))
        found.scripts = ([say("They"), HANG],)
        other._gauge.note({"total_tokens": 950, "source": "provider"}, before)
        cut = await other.run("Which one?")
        assert (cut.stopped, cut.rounds, other.context) == (
            Stopped.TIME_BUDGET,
            0,
            [*before, user_message("Which one?")],
        )
        assert trio.current_time() == 9
        async with trio.open_nursery() as nursery:

            async def kill() -> None:
                await trio.sleep(1)
                await other.kill("enough")

            nursery.start_soon(kill)
            with trio.fail_after(60):
                other._budget = None
                killed = await other.run()
        assert (killed.stopped, killed.rounds) == (Stopped.KILLED, 0)
        assert other.context == [*before, user_message("Which one?")]


async def test_A16_cancellation_in_mid_summary_leaves_the_context_as_it_was(
    autojump_clock: MockClock,
) -> None:
    async with peer(taking(950), [say("They"), HANG]) as (env, _):
        window(env, 1000)
        agent = Agent(env=env, model=MODEL)
        await agent.run("I like birds.")
        with trio.move_on_after(1) as scope:
            await agent.run("Which one?")
    assert scope.cancelled_caught
    assert shape(agent) == [2, 3, 2]


async def test_a_session_keeps_what_the_summary_stands_for(tmp_path: Path) -> None:
    async with peer(taking(950), answer("They like birds."), answer("A wren.")) as (env, _):
        window(env, 1000)
        with Context("talk", dir=tmp_path) as context:
            agent = Agent(env=env, model=MODEL, context=context, system="Be brief.")
            await agent.run("I like birds.")
            said = context.messages()
            await agent.run("Which one?")
            now = context.messages()
    with Context.resume("talk", tmp_path) as again:
        assert again.messages() == now
        assert not again.problems
        assert [entry["type"] for entry in now] == [1, COMPACTED, 3, 2, 3]
        assert history_of(again) == [*said, *now[-2:]]


async def test_a_disk_that_refuses_the_summary_has_the_former_context_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = sessions.flush

    async def refuse_summaries(context: Context) -> None:
        if any(entry["type"] == COMPACTED for entry in context.messages()):
            raise OSError(errno.ENOSPC, "No space left on device")
        await flush(context)

    async with peer(taking(950), answer("They like birds."), answer("A wren.")) as (env, _):
        window(env, 1000)
        monkeypatch.setattr(sessions, "flush", refuse_summaries)
        with Context("talk", dir=tmp_path) as context:
            agent = Agent(env=env, model=MODEL, context=context)
            await agent.run("I like birds.")
            assert (await agent.run("Which one?")).ok
            assert [entry["type"] for entry in context.messages()] == [2, 3, 2, 3]
    assert len(Context.resume("talk", tmp_path, save=False)) == 4


async def test_a_second_summary_stands_for_the_first_one_too() -> None:
    scripts = [taking(950), answer("Birds."), taking(950), answer("They like birds."), answer("A wren.")]
    async with peer(*scripts) as (env, found):
        window(env, 1000)
        agent = Agent(env=env, model=MODEL)
        for text in ("1?", "2?", "3?"):
            await agent.run(text)
    assert requests(found) == ["ask", "summary", "ask", "summary", "ask"]
    assert shape(agent) == [COMPACTED, COMPACTED, 3, 2, 3]
    assert found.bodies[4]["messages"] == [SUMMARY, user_message("3?")]
    said = [message["content"][0]["text"] for message in history_of(agent.context)]
    assert said == ["1?", "Yes.", "2?", "Yes.", "3?", "A wren."]


async def test_a_summary_that_makes_no_room_is_not_made_again() -> None:
    def read() -> str:
        return "read"

    long = answer("word " * 900)
    async with peer(taking(950), long, taking(960, call("read")), answer("A wren.")) as (env, found):
        window(env, 1000)
        agent = Agent(env=env, model=MODEL, tools=[read])
        await agent.run("1?")
        assert (await agent.run("2?")).compactions == 1
    assert requests(found) == ["ask", "summary", "ask", "ask"]


@pytest.mark.parametrize("guard", [None, ContextGuard(compact=False), "unknown", "builder"])
async def test_who_does_not_want_a_summary_gets_none(guard: Any) -> None:
    builder: ContextBuilder[Any] = define_context_fragments(
        [
            {
                "id": "said",
                "source_id": "test",
                "trust": "app",
                "lifetime": "turn",
                "role": "user",
                "max_chars": 1000,
                "format": lambda _: "Hello.",
            }
        ],
        max_input_chars=1000,
    )
    async with peer(taking(950)) as (env, found):
        if guard != "unknown":
            window(env, 1000)
        options = {"guard": guard} if not isinstance(guard, str) else {}
        agent = Agent(env=env, model=MODEL, builder=builder if guard == "builder" else None, **options)
        with structlog.testing.capture_logs() as lines:
            await agent.run("1?")
            await agent.run("2?")
    assert requests(found) == ["ask", "ask"]
    warned = any(line["event"] == "agent.context_full" for line in lines)
    assert warned is isinstance(guard, ContextGuard)


async def test_a_context_with_room_left_is_left_alone() -> None:
    async with peer(taking(899)) as (env, found):
        window(env, 1000)
        agent = Agent(env=env, model=MODEL)
        with structlog.testing.capture_logs() as lines:
            await agent.run("1?")
            agent.context.append({"type": "note"})
            await agent.run()
    assert requests(found) == ["ask", "ask"]
    assert not [line for line in lines if line["event"] == "agent.context_full"]


async def test_a_first_question_that_is_too_long_is_sent_as_it_is() -> None:
    async with peer(answer("x")) as (env, found):
        window(env, 100)
        agent = Agent(env=env, model=MODEL)
        assert (await agent.run("word " * 200)).ok
    assert requests(found) == ["ask"]


# -- measuring --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guard", "used", "began", "full"),
    [
        (ContextGuard(), 899, 500, None),
        (ContextGuard(), 900, 900, Full.OVERALL),
        (ContextGuard(), 500, 100, Full.GROWTH),
        (ContextGuard(), 499, 100, None),
        (ContextGuard(overall=50, growth=100), 500, 0, Full.OVERALL),
        (ContextGuard(overall=1, growth=1.5), 15, 0, Full.GROWTH),
        (ContextGuard(overall=1, growth=1), 999, 0, None),
    ],
)
def test_A15_thresholds_are_shares_and_above_1_percent(
    guard: ContextGuard, used: int, began: int, full: Full | None
) -> None:
    assert guard.looks_full(used, began, 1000) is full


@pytest.mark.parametrize("share", [0, -1, 101, float("nan"), True, "90%"])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="share"):
        ContextGuard(overall=share)


def test_the_gauge_trusts_what_was_counted_and_estimates_the_rest() -> None:
    gauge, entries = Gauge(), [user_message("one two three")]
    gauge.begin(entries)
    assert (gauge.tokens(entries), Gauge().began(entries)) == (4, 0)
    gauge.note({"total_tokens": 7, "source": "estimate"}, entries)
    gauge.note(None, entries)
    assert gauge.tokens(entries) == 4
    entries.append(assistant_message([text_content("four")]))
    gauge.note(
        {"input_tokens": 5000, "output_tokens": 9, "total_tokens": 5009, "source": "provider"}, entries
    )
    assert gauge.began(entries) == 5000  # the tools were in it all the time: no growth
    entries.append(user_message("one two three"))
    assert gauge.tokens(entries) == 5013
    gauge.begin(entries)
    gauge.note({"input_tokens": 6000, "total_tokens": 6001, "source": "provider"}, entries)
    entries.append(user_message("five"))
    assert gauge.began(entries) == 5013
    gauge.restart(entries[:1])
    gauge.note({"total_tokens": 7, "source": "estimate"}, entries)
    assert (gauge.began(entries), gauge.began([])) == (4, 4)
    gauge.note({"total_tokens": 7, "source": "provider"}, entries)
    assert gauge.tokens(entries[:1]) == 4  # somebody has edited it
