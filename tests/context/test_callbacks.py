"""Callback names, sets and dispatch."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from typing import Any

import pytest

from aiio.context.callbacks import (
    CALLBACK_NAMES,
    callback_name,
    dispatch,
    handlers_by_class,
    normalize_callbacks,
)
from aiio.context.events import EVENT_CLASSES, Done, Error, EventType, Start, TextDelta


def test_names_follow_the_events() -> None:
    assert callback_name("text_delta") == "on_text_delta"
    assert callback_name(EventType.TOOL_CALL_START) == "on_tool_call_start"
    assert len(CALLBACK_NAMES) == 12


@pytest.mark.parametrize("name", [None, 5, "", "text__delta", "_"])
def test_what_names_no_event_is_refused(name: Any) -> None:
    with pytest.raises(TypeError):
        callback_name(name)


def test_a_missing_callback_is_the_default_and_none_means_ignore() -> None:
    data: list[Any] = []
    deltas: list[Any] = []
    chosen = normalize_callbacks(
        {"on_text_delta": deltas.append, "on_start": None, "on_done": False}, {"on_data": data.append}
    )
    assert set(chosen) == set(CALLBACK_NAMES)
    delta, error = TextDelta(0, "x"), Error("no")
    for event in (Start(), delta, Done(), error):
        dispatch(chosen, event)
    assert deltas == [delta]
    assert data == [error]


def test_without_callbacks_and_binding_nothing_happens() -> None:
    dispatch(normalize_callbacks(), Start())
    dispatch(normalize_callbacks(None, {"on_data": None, "on_log": None, "on_terminal": False}), Error("x"))


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Error("no luck"), "no luck"),
        (Error(""), "unknown error"),
        (Error(None), "unknown error"),  # type: ignore[arg-type]
        ({"type": "error", "error": "no luck"}, "no luck"),
    ],
)
def test_errors_nobody_handles_are_logged(event: Any, line: str) -> None:
    seen: list[Any] = []
    chosen = normalize_callbacks({}, {"on_data": seen.append, "on_log": seen.append})
    dispatch(chosen, event)
    assert seen == [event, line]
    dispatch(normalize_callbacks({"on_error": None}, {"on_log": seen.append}), event)
    assert len(seen) == 2
    dispatch(normalize_callbacks({}, {"on_log": seen.append}), event)
    assert seen[2:] == [line]


def test_the_terminal_hook_runs_after_whatever_handler_was_chosen() -> None:
    seen: list[Any] = []
    callbacks = {"on_done": lambda event: seen.append("mine"), "on_error": None}
    chosen = normalize_callbacks(callbacks, {"on_terminal": lambda event: seen.append(event.type)})
    for event in (Start(), Done(), Error("x")):
        dispatch(chosen, event)
    assert seen == ["mine", "done", "error"]


def test_what_a_callback_raises_propagates_and_skips_the_terminal_hook() -> None:
    def fail(event: Any) -> None:
        raise LookupError("mine")

    seen: list[Any] = []
    chosen = normalize_callbacks({"on_done": fail}, {"on_terminal": seen.append})
    with pytest.raises(LookupError, match="mine"):
        dispatch(chosen, Done())
    assert not seen


async def _coroutine(event: Any) -> None: ...


async def _generator(event: Any) -> Any:
    yield event


class _AsyncCallable:
    async def __call__(self, event: Any) -> None: ...


@pytest.mark.parametrize("value", [_coroutine, _generator, _AsyncCallable(), partial(_coroutine)])
def test_a_coroutine_function_is_no_callback(value: Any) -> None:
    with pytest.raises(TypeError, match=r"on_done is a coroutine function.*io\.stream"):
        normalize_callbacks({"on_done": value})
    with pytest.raises(TypeError, match="on_data is a coroutine function"):
        normalize_callbacks({}, {"on_data": value})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="inspect.markcoroutinefunction is of Python 3.12")
def test_a_function_that_is_marked_as_one_is_no_callback() -> None:
    mark = inspect.markcoroutinefunction  # type: ignore[attr-defined,unused-ignore]
    with pytest.raises(TypeError, match="on_done is a coroutine function"):
        normalize_callbacks({"on_done": mark(lambda event: None)})


def test_a_callable_object_is_a_callback() -> None:
    class Callable:
        def __call__(self, event: Any) -> None: ...

    callback = Callable()
    assert normalize_callbacks({"on_done": callback})["on_done"] is callback
    assert normalize_callbacks({"on_done": partial(print)})


def test_an_unknown_or_uncallable_callback_is_named() -> None:
    with pytest.raises(TypeError, match=r"unknown callback 'onDone'; there are on_start"):
        normalize_callbacks({"onDone": print})
    with pytest.raises(TypeError, match="callback on_done must be a function, None or False, not True"):
        normalize_callbacks({"on_done": True})


def test_dispatch_refuses_invalid_events_and_incomplete_sets() -> None:
    with pytest.raises(TypeError, match="invalid response event"):
        dispatch(normalize_callbacks(), {"type": "nothing"})
    with pytest.raises(TypeError, match="no callable 'on_done'"):
        dispatch({}, Done())


def test_handlers_by_class_have_none_for_what_is_ignored() -> None:
    assert handlers_by_class({"on_done": print, "on_start": None}, {}) == {Done: print}
    assert set(handlers_by_class({}, {"on_terminal": print})) == {Done, Error}
    assert handlers_by_class(normalize_callbacks({"on_done": print}), {}) == {Done: print}
    everything = handlers_by_class({"on_start": False}, {"on_data": print})
    assert everything == dict.fromkeys(set(EVENT_CLASSES.values()) - {Start}, print)
