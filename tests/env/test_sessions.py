"""Session files from async code: in a thread, and whole or not at all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import assert_checkpoints

from aiio.context.session_flush import FlushPlan, OnDisk, carry_out
from aiio.context.session_lock import SessionLockedError
from aiio.context.store import Context
from aiio.context.types import user_message
from aiio.env import sessions


class SlowDisk:
    """Holds the next flush in its thread until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = trio.Event()
        self.go_on = threading.Event()
        self.threads: list[int] = []
        self._token = trio.lowlevel.current_trio_token()
        monkeypatch.setattr("aiio.context.session_log.carry_out", self._carry_out)

    def _carry_out(self, plan: FlushPlan) -> OnDisk:
        self.threads.append(threading.get_ident())
        self._token.run_sync_soon(self.entered.set)
        self.go_on.wait()
        return carry_out(plan)


@pytest.fixture
async def slow_disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


def on_disk(context: Context, folder: Path) -> list[Any]:
    return Context.resume(context.id, folder, save=False).messages()


async def test_a_session_from_open_to_delete(tmp_path: Path) -> None:
    context = await sessions.open_context("work", dir=tmp_path)
    context.append(user_message("hello"))
    await sessions.flush(context)
    assert on_disk(context, tmp_path) == [user_message("hello")]
    with pytest.raises(SessionLockedError):
        await sessions.resume("work", tmp_path)
    await sessions.rename(context, "play")
    fork = await sessions.fork(context, 0, "branch")
    await sessions.aclose(fork)
    context.append({"type": "note"})
    await sessions.aclose(context)
    assert context.closed
    assert [info.id for info in await sessions.list_sessions(tmp_path)] == ["play", "branch"]
    latest = await sessions.latest(tmp_path)
    assert latest is not None
    assert latest.file == context.file == await sessions.file_of("play", tmp_path)
    await sessions.rename_by_id("play", "work", tmp_path)
    recovery = await sessions.recover("work", tmp_path)
    await sessions.aclose(recovery.context)
    assert await sessions.delete_by_id("work", tmp_path)
    assert len(await sessions.delete_all(tmp_path)) == 2


async def test_each_is_a_checkpoint(tmp_path: Path) -> None:
    with assert_checkpoints():
        context = await sessions.open_context(dir=tmp_path)
    with assert_checkpoints():
        await sessions.flush(context)
    context.append(user_message("hello"))
    with assert_checkpoints():
        await sessions.flush(context)
    with assert_checkpoints():
        await sessions.aclose(context)


async def test_a_flush_does_not_hold_up_other_tasks(tmp_path: Path, slow_disk: SlowDisk) -> None:
    context = Context("work", dir=tmp_path, messages=[user_message("one")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.flush, context)
        await slow_disk.entered.wait()
        context.append({"type": "note"})  # waits for the next flush
        assert slow_disk.threads != [threading.get_ident()]
        slow_disk.go_on.set()
    assert on_disk(context, tmp_path) == [user_message("one")]
    assert context.dirty
    await sessions.aclose(context)
    assert len(on_disk(context, tmp_path)) == 2


async def test_a_flush_cancelled_before_it_began_writes_nothing(tmp_path: Path) -> None:
    context = Context("work", dir=tmp_path, messages=[user_message("one")])
    with trio.CancelScope() as scope:
        scope.cancel()
        await sessions.flush(context)
    assert scope.cancelled_caught
    assert context.dirty
    assert Context.list(tmp_path) == []
    with trio.CancelScope() as scope:
        scope.cancel()
        await sessions.aclose(context)
    assert not context.closed
    await sessions.aclose(context)


async def test_a_flush_cancelled_on_its_way_ends_whole(tmp_path: Path, slow_disk: SlowDisk) -> None:
    context = Context("work", dir=tmp_path, messages=[user_message("one")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.flush, context)
        await slow_disk.entered.wait()
        nursery.cancel_scope.cancel()
        slow_disk.go_on.set()
    assert not context.dirty
    assert on_disk(context, tmp_path) == [user_message("one")]
    context.close()


async def test_a_cancelled_resume_locks_nothing(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=[user_message("one")]):
        pass
    with trio.CancelScope() as scope:
        scope.cancel()
        await sessions.resume("work", tmp_path)
    assert scope.cancelled_caught
    await sessions.aclose(await sessions.resume("work", tmp_path))


async def test_flushes_at_the_same_time_lose_nothing(tmp_path: Path, slow_disk: SlowDisk) -> None:
    context = Context("work", dir=tmp_path, messages=[user_message("one")])
    async with trio.open_nursery() as nursery:
        for number in range(5):
            context.append(user_message(str(number)), merge=False)
            nursery.start_soon(sessions.flush, context)
        await slow_disk.entered.wait()
        slow_disk.go_on.set()
    assert not context.dirty
    assert on_disk(context, tmp_path) == context.messages()
    await sessions.aclose(context)


async def test_a_flush_overtaken_by_another_takes_a_new_snapshot(tmp_path: Path, slow_disk: SlowDisk) -> None:
    context = Context("work", dir=tmp_path, messages=[user_message("one")])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.flush, context)
        await slow_disk.entered.wait()
        context.append({"type": "note"})
        nursery.start_soon(sessions.flush, context)
        await trio.testing.wait_all_tasks_blocked()
        slow_disk.go_on.set()
    assert not context.dirty
    assert on_disk(context, tmp_path) == context.messages()
    await sessions.aclose(context)


async def test_what_the_disk_refuses_comes_out_as_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context("work", dir=tmp_path, messages=[user_message("one")])

    def full(plan: FlushPlan) -> OnDisk:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aiio.context.session_log.carry_out", full)
    for attempt in (sessions.flush, sessions.aclose):
        with pytest.raises(OSError, match="No space left"):
            await attempt(context)
    monkeypatch.undo()
    assert not context.closed
    await sessions.aclose(context)
    assert on_disk(context, tmp_path) == [user_message("one")]
