"""Laws of channels, whatever is sent, received and cancelled, in whatever order trio runs the tasks."""

from __future__ import annotations

import random
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
def test_races_between_delivery_and_cancellation_never_lose_or_double_an_item(
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
        random.seed(seed)
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


def test_a_queue_is_what_its_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio.lowlevel, "reschedule", lambda task: None)
    run_state_machine_as_test(QueueAgainstAModel, settings=settings(max_examples=60, deadline=None))
