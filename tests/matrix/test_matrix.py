"""The matrix itself: what it covers, and that a fault of aiio makes its cells fail."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.context.assemble import Assembler
from aiio.context.events import Done
from aiio.env.errors import ProviderError
from aiio.io import state
from aiio.io.answer import Answer
from aiio.io.state import Cause
from aiio.transports.framing import SSEDecoder
from aiio.transports.http_direct import DirectClient
from aiio.transports.http_socket import PlainStream
from aiio.transports.ws_connection import WebSocketConnection

from .answers import WORDS, cut_at, frames_of, said_in
from .cells import RULES, TRANSPORTS, Action, Cell, Fault, Place, all_cells, counted_out, pairs_of, sample
from .oracle import expected
from .replaying import refusals
from .running import Lab, run_cell


def test_the_sample_holds_every_pair_of_values_that_any_cell_has() -> None:
    cells = all_cells()
    chosen = sample()
    assert {pair for cell in chosen for pair in pairs_of(cell)} == {
        pair for cell in cells for pair in pairs_of(cell)
    }
    assert chosen == sample()
    assert len(chosen) == len(set(chosen)) == 150
    assert len(set(map(str, cells))) == len(cells)


def test_every_cell_is_tried_or_left_out_for_a_reason_that_is_needed() -> None:
    every = math.prod(map(len, (Place, Fault, Action))) * sum(map(len, TRANSPORTS.values()))
    assert len(all_cells()) + counted_out().total() == every
    assert set(counted_out()) == {reason for reason, _ in RULES}


def test_the_oracle_has_a_word_on_every_cell() -> None:
    verdicts = {expected(cell) for cell in all_cells()}
    assert {one.kind for one in verdicts} == {None, "network", "provider", "malformed", "cancelled"}
    assert {one.limit for one in verdicts} == {None, "overall", "connect", "stuck"}


@pytest.mark.parametrize("dialect", TRANSPORTS)
def test_an_answer_is_cut_where_the_place_says(dialect: str) -> None:
    def cut(place: Place) -> Any:
        return cut_at(dialect, place)

    assert said_in(dialect, frames_of(dialect)).text == WORDS
    assert not cut(Place.AFTER_HEAD).said.anything
    assert cut(Place.BETWEEN_FRAMES).part == b""
    assert cut(Place.IN_FRAME).part
    with pytest.raises(UnicodeDecodeError, match="unexpected end of data"):
        cut(Place.IN_CHARACTER).part.decode()
    assert cut(Place.IN_ARGUMENTS).said.text == WORDS
    assert not cut(Place.IN_ARGUMENTS).said.call_ended
    assert cut(Place.AFTER_TERMINAL).said.call_ended


# -- each of these is a fault that aiio could have


@contextlib.contextmanager
def _patched(where: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, value)
        yield


@contextlib.contextmanager
def an_end_of_stream_counts_as_the_end() -> Iterator[None]:
    def finish(self: Answer) -> None:
        self.terminal = Done(done_reason="stop")

    with _patched(Answer, "finish", finish):
        yield


@contextlib.contextmanager
def a_frame_is_lost() -> Iterator[None]:
    feed = SSEDecoder.feed
    with _patched(SSEDecoder, "feed", lambda self, chunk: feed(self, chunk)[:-1]):
        yield


@contextlib.contextmanager
def a_socket_stays_open() -> Iterator[None]:
    kept: list[Any] = []

    def close(self: PlainStream) -> None:
        trio.lowlevel.notify_closing(self._sock)
        kept.append(self._sock)

    with _patched(PlainStream, "close", close):
        yield
    for sock in kept:
        sock.close()


@contextlib.contextmanager
def a_refused_request_is_sent_again() -> Iterator[None]:
    once = DirectClient.open

    async def twice(self: DirectClient, *request: Any) -> Any:
        try:
            return await once(self, *request)
        except ProviderError:
            return await once(self, *request)

    with _patched(DirectClient, "open", twice):
        yield


@contextlib.contextmanager
def a_task_stays_behind() -> Iterator[None]:
    close = WebSocketConnection.aclose

    async def aclose(self: WebSocketConnection) -> None:
        await close(self)
        trio.lowlevel.spawn_system_task(trio.sleep, 1e6)

    with _patched(WebSocketConnection, "aclose", aclose):
        yield


@contextlib.contextmanager
def one_limit_passes_for_another() -> Iterator[None]:
    before = state.OUTCOMES[Cause.STUCK]
    state.OUTCOMES[Cause.STUCK] = state.OUTCOMES[Cause.OVERALL]
    yield
    state.OUTCOMES[Cause.STUCK] = before


@contextlib.contextmanager
def a_cut_call_can_be_called() -> Iterator[None]:
    seal = Assembler.seal

    def unmarked(self: Assembler, *, cut: bool) -> Any:
        message = seal(self, cut=cut)
        for block in message["content"] if message else ():
            block.pop("partial", None)
        return message

    with _patched(Assembler, "seal", unmarked):
        yield


@contextlib.contextmanager
def what_was_cancelled_may_be_retried() -> Iterator[None]:
    before = state.OUTCOMES[Cause.KILL]
    state.OUTCOMES[Cause.KILL] = dataclasses.replace(before, retryable=True)
    yield
    state.OUTCOMES[Cause.KILL] = before


def _cell(place: Place, fault: Fault, action: Action = Action.NONE) -> Cell:
    return Cell("chat", "http", place, fault, action)


MUTANTS: list[tuple[Callable[[], contextlib.AbstractContextManager[None]], Cell, str]] = [
    (
        an_end_of_stream_counts_as_the_end,
        _cell(Place.BETWEEN_FRAMES, Fault.WRONG_LENGTH),
        "network was expected",
    ),
    (a_frame_is_lost, _cell(Place.BETWEEN_FRAMES, Fault.EOF), "text: "),
    (a_socket_stays_open, _cell(Place.IN_FRAME, Fault.RESET), "descriptors left open"),
    (a_refused_request_is_sent_again, _cell(Place.BEFORE_HEAD, Fault.RESET), "2 connections for one write"),
    (
        a_task_stays_behind,
        Cell("gemini_live", "ws", Place.IN_FRAME, Fault.EOF, Action.NONE),
        "1 tasks left running",
    ),
    (one_limit_passes_for_another, _cell(Place.AFTER_HEAD, Fault.STALL, Action.STUCK), "limit: "),
    (a_cut_call_can_be_called, _cell(Place.IN_ARGUMENTS, Fault.RESET), "callable: "),
    (what_was_cancelled_may_be_retried, _cell(Place.IN_CHARACTER, Fault.STALL, Action.KILL), "retryable: "),
]


@pytest.mark.parametrize(("mutant", "cell", "complaint"), MUTANTS, ids=[one[0].__name__ for one in MUTANTS])
async def test_a_cell_fails_when(
    mutant: Callable[[], contextlib.AbstractContextManager[None]],
    cell: Cell,
    complaint: str,
    lab: Lab,
    patient_clock: MockClock,
) -> None:
    assert await run_cell(cell, lab) == []
    with mutant():
        problems = await run_cell(cell, lab)
    assert any(complaint in problem for problem in problems), problems


def test_what_can_not_be_sent_again_is_a_problem() -> None:
    assert refusals([{"type": "text", "text": "Hi."}]) == []
    call = {"type": "tool_call", "call_id": "c", "name": "look", "arguments": {"at": 1j}}
    assert any("does not replay to responses" in one for one in refusals([call]))
