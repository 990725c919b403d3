"""Laws of channels, whatever is sent, received and cancelled, in whatever order trio runs the tasks."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, cast

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from trio.testing import MockClock

from aiio.runs.channels import Channel, ChannelMode, ChannelState, Wait
from aiio.runs.errors import RunError
from aiio.runs.harness import Harness

SCHEDULER: Any = trio._core._run._r  # decides about the order of tasks

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["send", "recv", "try_recv"]),
        st.integers(0, 3),  # when it begins
        st.one_of(st.none(), st.integers(0, 3)),  # when it is cancelled
        st.booleans(),  # whether the cancel comes before the others of its moment
    ),
    max_size=24,
)


@settings(max_examples=120, deadline=None)
@given(actions=ACTIONS, capacity=st.integers(0, 3), seed=st.integers(0, 1 << 16))
def test_B3_races_between_delivery_and_cancellation_never_lose_or_double_an_item(
    actions: list[tuple[str, int, int | None, bool]], capacity: int, seed: int
) -> None:
    channel: Channel[int] = Channel("c", capacity=capacity)
    sent: list[int] = []
    received: list[int] = []

    async def act(context: Any, number: int, name: str, begin: int, cancel: int | None, early: bool) -> None:
        await trio.sleep(begin)
        for _ in range(number % 3):
            await trio.lowlevel.checkpoint()
        with trio.CancelScope() as scope:
            if cancel is not None:
                scope.deadline = trio.current_time() + cancel * (0 if early else 1)
            try:
                match name:
                    case "send":
                        await context.send(channel, number)
                        sent.append(number)
                    case "recv":
                        received.append(await context.recv(channel, timeout=4000))
                    case _:
                        value = context.try_recv(channel)
                        if value is not None:
                            received.append(value)
            except RunError:
                pass  # it took too long: neither sent nor received

    async def main() -> None:
        SCHEDULER.seed(seed)
        context = Harness().create_context()
        async with trio.open_nursery() as nursery:
            for number, (name, begin, cancel, early) in enumerate(actions):
                nursery.start_soon(act, context, number + 1, name, begin, cancel, early)
        left = context.harness.channels.state(channel)
        assert not left.receivers
        assert not left.parked
        assert len(left.items) <= capacity
        assert Counter(received) + Counter(left.items) == Counter(sent)

    trio.run(main, clock=MockClock(autojump_threshold=0))


class QueueAgainstAModel(RuleBasedStateMachine):
    """The synchronous core of a queue, against two lists and what order they allow."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity = 2
        self.state = ChannelState(ChannelMode.QUEUE, self.capacity)
        self.items: deque[int] = deque()
        self.parked: deque[tuple[int, Wait]] = deque()
        self.next = 0

    @rule()
    def send(self) -> None:
        self.next += 1
        parked = self.state.send(self.next)
        if len(self.items) < self.capacity:
            assert parked is None
            self.items.append(self.next)
        else:
            assert parked is not None
            parked._task = cast(Any, _FakeTask())
            self.parked.append((self.next, parked))

    @rule()
    def force(self) -> None:
        self.next += 1
        kept = self.state.force(self.next)
        assert kept is (len(self.items) < self.capacity)
        if not kept:
            self.items.popleft()
        self.items.append(self.next)

    @rule()
    def take(self) -> None:
        found, value = self.state.take()
        assert found is bool(self.items)
        if found:
            assert value == self.items.popleft()
            if self.parked:
                promoted, _ = self.parked.popleft()
                self.items.append(promoted)

    @precondition(lambda self: self.parked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.parked) - 1))
        _, wait = self.parked[at]
        del self.parked[at]
        wait._abort(None)

    @invariant()
    def the_same_is_inside(self) -> None:
        assert self.state.items == self.items
        assert [wait.value for wait in self.state.parked] == [value for value, _ in self.parked]


class _FakeTask:
    """Stands in for a task that waits; being rescheduled is all it can do."""


def test_B3_a_queue_is_what_its_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.lowlevel, "reschedule", lambda task: None)
    run_state_machine_as_test(QueueAgainstAModel, settings=settings(max_examples=60, deadline=None))


# -- a cancellation at every checkpoint -------------------------------------------------------------


class Cut(trio.abc.Instrument):
    """Cancels *scope* at the *number*-th checkpoint of the task `victim`; counts its checkpoints."""

    def __init__(self, scope: trio.CancelScope, number: int | None) -> None:
        self.scope, self.number = scope, number
        self.seen = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name == "victim":
            self.seen += 1
            if self.seen == self.number:
                self.scope.cancel()


MODES = st.one_of(
    st.tuples(st.just(ChannelMode.QUEUE), st.integers(0, 2)),
    st.tuples(st.sampled_from([ChannelMode.VALUE, ChannelMode.TOPIC]), st.just(1)),
)
MOVES = st.lists(st.sampled_from(["send", "recv"]), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(mode=MODES, victim=MOVES, others=st.lists(MOVES, min_size=1, max_size=2), seed=st.integers(0, 1 << 16))
def test_B3_a_cancellation_at_any_checkpoint_neither_loses_nor_doubles(
    mode: tuple[ChannelMode, int], victim: list[str], others: list[list[str]], seed: int
) -> None:
    channel: Channel[int] = Channel("c", mode=mode[0], capacity=mode[1])

    def play(cut: int | None) -> int:
        """Let all of them move, the victim cancelled at its *cut*-th checkpoint; return its checkpoints."""
        sent: list[int] = []
        received: list[int] = []
        scope = trio.CancelScope()

        async def move(context: Any, moves: list[str], base: int) -> None:
            for number, name in enumerate(moves, base):
                try:
                    if name == "send":
                        await context.send(channel, number)
                        sent.append(number)
                    else:
                        received.append(await context.recv(channel, timeout=1000))
                except RunError:
                    pass  # it took too long: neither sent nor received

        async def be_cut(context: Any) -> None:
            with scope:
                await move(context, victim, 100)

        async def main() -> None:
            SCHEDULER.seed(seed)
            context = Harness().create_context()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(be_cut, context, name="victim")
                for number, moves in enumerate(others, 2):
                    nursery.start_soon(move, context, moves, 100 * number)
            left = context.harness.channels.state(channel)
            assert not left.receivers
            assert not left.parked
            assert not context._waits
            if channel.mode is ChannelMode.QUEUE:
                assert Counter(received) + Counter(left.items) == Counter(sent)
            else:
                assert set(received) <= set(sent)
                assert not left.has_value or left.value in sent

        instrument = Cut(scope, cut)
        trio.run(main, clock=MockClock(autojump_threshold=0), instruments=[instrument])
        return instrument.seen

    for cut in range(1, min(play(None), 12) + 1):
        play(cut)
