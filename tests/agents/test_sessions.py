"""Agents on a `Context`: what was said is on disk before anybody hears that it was."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from aiio.agents import Agent, AgentState, Stopped, conversation
from aiio.context.session_lock import SessionLockedError
from aiio.context.store import Context
from aiio.context.types import assistant_message, system_message, tool_result_message, user_message
from aiio.env import sessions
from aiio.env.env import Env
from aiio.env.listeners import EnvEvent
from tests.io.scripted import HANG, finish, say

from .peer import MODEL, answer, call, calling, half_call, peer
from .strict import assert_linked
from .test_endings import CUT


def on_disk(folder: Path) -> list[Any]:
    """What a process that starts now would find."""
    return Context.resume("talk", folder, save=False).messages()


def agent_on(env: Env, context: Context, **options: Any) -> Agent:
    return Agent(env=env, model=MODEL, context=context, **options)


def refuse(monkeypatch: pytest.MonkeyPatch, code: int = errno.ENOSPC) -> Callable[[], None]:
    """Let the disk refuse everything from now on; returns what makes room."""

    async def full(context: Context) -> None:
        await trio.lowlevel.checkpoint()
        if context.dirty:
            raise OSError(code, "No space left on device")

    flush = sessions.flush
    monkeypatch.setattr(sessions, "flush", full)
    return lambda: monkeypatch.setattr(sessions, "flush", flush)


async def test_each_turn_is_on_disk_before_anybody_hears_of_it(tmp_path: Path) -> None:
    heard: list[tuple[str, list[Any]]] = []

    def look(name: str) -> Callable[[Any], None]:
        return lambda event: heard.append((name, on_disk(tmp_path)))

    def weather() -> str:
        heard.append(("tool", on_disk(tmp_path)))
        return "Rain."

    def ended(event: EnvEvent) -> None:
        if event.name == "agent_done":
            look("agent_done")(event)

    with Context("talk", dir=tmp_path) as context:
        async with peer(calling(call("weather")), answer("A coat.")) as (env, found):
            env.on_event(ended)
            agent = agent_on(env, context, system="Be brief.", tools=[weather])
            assert agent.context is context
            result = await agent.run("Coat?", {"on_start": look("start"), "on_done": look("done")})
            assert result.ok
            assert on_disk(tmp_path) == list(agent.context)
            assert not context.dirty
    assert [(name, [entry["type"] for entry in entries]) for name, entries in heard] == [
        ("start", [1, 2]),
        ("done", [1, 2, 3]),
        ("tool", [1, 2, 3]),
        ("start", [1, 2, 3, 4]),
        ("done", [1, 2, 3, 4, 3]),
        ("agent_done", [1, 2, 3, 4, 3]),
    ]
    assert found.bodies[1]["messages"] == on_disk(tmp_path)[:4]
    assert_linked(on_disk(tmp_path))


async def test_a_killed_answer_is_on_disk_before_kill_returns(tmp_path: Path) -> None:
    heard: list[Any] = []
    begun = trio.Event()  # a mock clock would jump while a thread writes
    callbacks: dict[str, Callable[[Any], None]] = {
        "on_tool_call_delta": lambda _: begun.set(),
        "on_error": lambda _: heard.extend(on_disk(tmp_path)),
    }
    with Context("talk", dir=tmp_path) as context:
        async with peer([say("Half a"), half_call("f", index=1), HANG]) as (env, _):
            agent = agent_on(env, context, callbacks=callbacks)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(agent.run, "Hello")
                await begun.wait()
                agent.send("One more thing.")
                await agent.kill("enough")
                kept = on_disk(tmp_path)
    assert [entry["type"] for entry in kept] == [2, 3, 4, 2]
    assert kept[1]["content"][0]["text"] == "Half a"
    assert heard == kept[:2]
    assert_linked(kept)


async def test_a_cancelled_answer_is_on_disk_before_cancelled_goes_on(tmp_path: Path) -> None:
    heard: list[Any] = []
    with Context("talk", dir=tmp_path) as context:
        async with peer([say("Half a"), HANG], answer("All.")) as (env, _):
            agent = agent_on(env, context)
            with trio.CancelScope() as scope:
                callbacks = {"on_text_delta": lambda _: scope.cancel(), "on_error": heard.append}
                await agent.run("Hello", callbacks)
            assert scope.cancelled_caught
            assert on_disk(tmp_path)[1]["content"][0]["text"] == "Half a"
            assert [event.cancelled for event in heard] == [True]
            assert (await agent.run("Go on.")).ok
    assert [entry["type"] for entry in on_disk(tmp_path)] == [2, 3, 2, 3]


async def test_a_full_disk_raises_after_the_answer_is_kept_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    with Context("talk", dir=tmp_path) as context:
        async with peer(calling(call("f")), answer("All.")) as (env, _):
            agent = agent_on(env, context, tools=[])
            make_room: list[Callable[[], None]] = []
            with pytest.raises(OSError, match=r"No space left.*kept in memory.*talk\.jsonl") as fault:
                await agent.run(
                    "Hello",
                    {"on_start": lambda _: make_room.append(refuse(monkeypatch)), "on_done": heard.append},
                )
            assert (fault.value.errno, heard) == (errno.ENOSPC, [])
            assert agent.state == AgentState.IDLE
            assert [entry["type"] for entry in agent.context] == [2, 3, 4]
            assert [entry["type"] for entry in on_disk(tmp_path)] == [2]
            make_room[0]()
            assert (await agent.run()).text == "All."
            assert on_disk(tmp_path) == context.messages()
    assert_linked(on_disk(tmp_path))


async def test_nothing_is_sent_that_could_not_be_saved_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Context("talk", dir=tmp_path) as context:
        async with peer(answer("All.")) as (env, found):
            make_room = refuse(monkeypatch, errno.EACCES)
            agent = agent_on(env, context)
            with pytest.raises(PermissionError):
                await agent.run("Hello")
            assert found.bodies == []
            make_room()
            assert (await agent.run()).ok
    assert [entry["type"] for entry in on_disk(tmp_path)] == [2, 3]


@pytest.mark.parametrize("saved", [True, False])
async def test_what_ended_a_run_matters_more_than_that_it_was_not_saved(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []

    def crash(event: Any) -> None:
        if not saved:
            refuse(monkeypatch)
        raise KeyError("mine")

    with Context("talk", dir=tmp_path) as context:
        async with peer([say("Half a"), finish()]) as (env, _):
            agent = agent_on(env, context)
            with structlog.testing.capture_logs() as lines, pytest.raises(KeyError):
                await agent.run("Hello", {"on_text_delta": crash, "on_error": heard.append})
        assert [entry["type"] for entry in agent.context] == [2, 3]
        assert len(on_disk(tmp_path)) == (2 if saved else 1)
        assert len(heard) == saved
        assert [line["event"] for line in lines].count("agent.not_saved") == (0 if saved else 2)
        monkeypatch.undo()


async def test_a_failed_request_is_on_disk_too(tmp_path: Path) -> None:
    with Context("talk", dir=tmp_path) as context:
        async with peer([CUT], [say("Half"), CUT]) as (env, _):
            agent = agent_on(env, context)
            assert (await agent.run("Hello")).outcome == "network"
            assert [entry["type"] for entry in on_disk(tmp_path)] == [2]
            assert (await agent.run()).outcome == "network"
    assert on_disk(tmp_path)[1]["error"]


async def test_a_kill_while_it_is_saved_before_a_request_ends_it_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving, go_on = trio.Event(), trio.Event()
    flush = sessions.flush

    async def slow(context: Context) -> None:
        saving.set()
        await go_on.wait()
        await flush(context)

    def noop() -> str:
        monkeypatch.setattr(sessions, "flush", slow)
        return "ok"

    with Context("talk", dir=tmp_path) as context:
        async with peer(calling(call("noop"))) as (env, found):
            agent = agent_on(env, context, tools=[noop])
            results: list[Any] = []

            async def run() -> None:
                results.append(await agent.run("Hello"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await saving.wait()
                states = [agent.state]
                agent.kill_nowait("enough")
                go_on.set()
            assert [*states, agent.state] == [AgentState.SAVING, AgentState.CLOSED]
    assert (results[0].stopped, results[0].rounds, len(found.bodies)) == (Stopped.KILLED, 1, 1)
    assert [entry["type"] for entry in on_disk(tmp_path)] == [2, 3, 4]


async def test_what_is_sent_while_the_end_is_saved_joins_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = sessions.flush
    flushes = 0

    async def flush_and_send(context: Context) -> None:
        nonlocal flushes
        flushes += 1
        await flush(context)
        if flushes == 3:
            agent.send("Too late.")

    monkeypatch.setattr(sessions, "flush", flush_and_send)
    with Context("talk", dir=tmp_path) as context:
        async with peer(answer("All.")) as (env, _):
            agent = agent_on(env, context)
            await agent.run("Hello")
            assert agent.pending == ()
            assert [entry["type"] for entry in agent.context] == [2, 3, 2]


async def test_a_save_that_gets_no_thread_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def never(context: Context) -> None:
        await trio.sleep_forever()

    with Context("talk", dir=tmp_path) as context:
        monkeypatch.setattr(sessions, "flush", never)
        with pytest.raises(TimeoutError, match="no thread was free"):
            await conversation.save_shielded(conversation.conversation(context))
    assert trio.current_time() == conversation.SAVE_LIMIT


async def test_a_session_in_use_is_told_as_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def locked(context: Context) -> None:
        raise SessionLockedError("talk.jsonl", 7)

    with Context("talk", dir=tmp_path) as context:
        async with peer(answer("All.")) as (env, _):
            monkeypatch.setattr(sessions, "flush", locked)
            with pytest.raises(SessionLockedError, match="process 7"):
                await agent_on(env, context).run("Hello")
            monkeypatch.undo()


async def test_a_stored_history_is_repaired_on_disk_too(tmp_path: Path) -> None:
    broken = [
        user_message("Hi"),
        assistant_message([{"type": "tool_call", "call_id": "a", "name": "f", "arguments": {}}]),
        tool_result_message("gone", "f", "?"),
    ]
    with Context("talk", dir=tmp_path, messages=broken) as context:
        async with peer(answer("All.")) as (env, found):
            assert (await agent_on(env, context).run()).ok
            assert_linked(found.bodies[0]["messages"])
    assert_linked(on_disk(tmp_path))


async def test_a_context_without_a_file_works_as_a_list_does() -> None:
    context = Context(messages=[system_message("Be brief.")])
    async with peer(answer("All.")) as (env, _):
        agent = agent_on(env, context, system="Be brief.")
        agent.send("Hello")
        assert (await agent.run()).ok
        assert [entry["type"] for entry in context] == [1, 2, 3]
        with pytest.raises(ValueError, match="nothing to answer"):
            await agent_on(env, Context()).run()


async def test_a_closed_context_is_refused_before_anything_is_said(tmp_path: Path) -> None:
    context = Context("talk", dir=tmp_path)
    async with peer(answer("All.")) as (env, _):
        agent = agent_on(env, context)
        context.close()
        with pytest.raises(ValueError, match="'talk' is closed; resume it"):
            await agent.run("Hello")
        assert agent.pending == ()
        with pytest.raises(ValueError, match="is closed"):
            agent_on(env, context)
        with pytest.raises(TypeError, match="a context is a list"):
            agent_on(env, (user_message("x"),))  # type: ignore[arg-type]


async def test_many_agents_save_side_by_side(tmp_path: Path) -> None:
    async with peer(answer("All.")) as (env, _):
        contexts = [Context(f"s{n}", dir=tmp_path) for n in range(60)]
        async with trio.open_nursery() as nursery:
            for context in contexts:
                nursery.start_soon(agent_on(env, context).run, "Hello")
        await wait_all_tasks_blocked()
        for context in contexts:
            assert not context.dirty
            context.close()
    assert len(Context.list(tmp_path, limit=None)) == 60
