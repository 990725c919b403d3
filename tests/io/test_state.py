"""The state table: every pair is either a move or misuse."""

from __future__ import annotations

import pytest
import trio

from aiio.io.state import MOVES, OUTCOMES, Cause, IOState, Step, move


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("state", list(IOState))
def test_every_pair_moves_or_is_misuse(state: IOState, step: Step) -> None:
    if (state, step) in MOVES:
        assert move(state, step) is MOVES[state, step]
        return
    expected: type[Exception] = RuntimeError
    if state is IOState.CLOSED:
        expected = trio.ClosedResourceError
    elif step is Step.WRITE:
        expected = trio.BusyResourceError
    with pytest.raises(expected):
        move(state, step)


def test_a_closed_io_stays_closed() -> None:
    assert {after for (before, _), after in MOVES.items() if before is IOState.CLOSED} == {IOState.CLOSED}


def test_every_cause_that_is_not_the_providers_word_has_an_outcome() -> None:
    assert set(OUTCOMES) == set(Cause) - {Cause.ANSWERED, Cause.FAULT}
