"""Callbacks: their names, a full set of them from a consumer's few, and calling the right one.

A callback is a plain function: events are delivered between two awaits, so that nothing a consumer does
can reorder them. Async consumers iterate `io.stream(...)` instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeAlias

from .events import EVENT_CLASSES, Error, EventType, validate_response_event

Callback: TypeAlias = Callable[[Any], object]
CallbackSet: TypeAlias = dict[str, Callback]
"""One callable per event, under its callback name."""


def callback_name(event_name: str) -> str:
    """Return the callback name of an event: `"text_delta"` gives `"on_text_delta"`.

    TypeError: not a string, or one with an empty part.
    """
    if not isinstance(event_name, str):
        raise TypeError(f"an event name is a string, not {event_name!r}")
    if not all(event_name.split("_")):
        raise TypeError(f"not an event name: {event_name!r}")
    return f"on_{event_name}"


_CLASS_OF: dict[str, type] = {callback_name(name): cls for name, cls in EVENT_CLASSES.items()}
CALLBACK_NAMES: tuple[str, ...] = tuple(_CLASS_OF)
_TERMINAL = (callback_name(EventType.DONE), callback_name(EventType.ERROR))
_ON_ERROR = callback_name(EventType.ERROR)
_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MARKED = "_is_coroutine_marker"  # by inspect.markcoroutinefunction


def ignore_event(event: Any) -> None:
    """Do nothing: the callback of events that nobody wants."""


def normalize_callbacks(
    callbacks: Mapping[str, Callback | bool | None] | None = None,
    binding: Mapping[str, Callable[..., object] | bool | None] | None = None,
) -> CallbackSet:
    """Return the full callback set for a consumer's *callbacks* and the defaults of a *binding*.

    Args:
      callbacks: by callback name. A function is used as it is, None or False means "ignore", a missing
        key means the binding's default.
      binding: `on_data` takes every event without a callback of its own, `on_log` the text of errors
        without one, `on_terminal` is called after the handler of `done` and `error`, whatever that is.

    Raises:
      TypeError: an unknown callback name, a value that is no function, or a coroutine function.
    """
    on_data, chosen = _chosen(callbacks or {}, binding or {})
    return {name: chosen.get(name, on_data) for name in CALLBACK_NAMES}


def dispatch(callbacks: Mapping[str, Callback], event: Any) -> None:
    """Call the entry of a normalized set that *event* belongs to; what it raises propagates.

    TypeError: an invalid event, or a set without a callable for it.
    """
    validate_response_event(event)
    name = callback_name(event["type"] if isinstance(event, dict) else event.type)
    callback = callbacks.get(name)
    if not callable(callback):
        raise TypeError(f"the callback set has no callable {name!r}")
    callback(event)


def handlers_by_class(
    callbacks: Mapping[str, Callback | bool | None],
    binding: Mapping[str, Callable[..., object] | bool | None],
) -> dict[type, Callback]:
    """Return what `normalize_callbacks` returns, by event class and without those that ignore.

    One look-up an event, and a handful of entries for a handful of callbacks: they are made for every write.
    """
    on_data, chosen = _chosen(callbacks, binding)
    handlers = {} if on_data is ignore_event else dict.fromkeys(_CLASS_OF.values(), on_data)
    for name, callback in chosen.items():
        handlers[_CLASS_OF[name]] = callback
    return {cls: callback for cls, callback in handlers.items() if callback is not ignore_event}


def _chosen(
    callbacks: Mapping[str, Callback | bool | None],
    binding: Mapping[str, Callable[..., object] | bool | None],
) -> tuple[Callback, CallbackSet]:
    """Return the callback of all that have none of their own, and those that have one."""
    for name in callbacks:
        if name not in _CLASS_OF:
            raise TypeError(f"unknown callback {name!r}; there are {', '.join(CALLBACK_NAMES)}")
    on_data, on_log, on_terminal = (
        _checked(name, binding.get(name)) for name in ("on_data", "on_log", "on_terminal")
    )
    on_data = on_data or ignore_event
    chosen: CallbackSet = {}
    if on_log is not None:
        chosen[_ON_ERROR] = _logging_errors(on_data, on_log)
    for name, value in callbacks.items():
        chosen[name] = _checked(name, value) or ignore_event
    if on_terminal is not None:
        for name in _TERMINAL:
            chosen[name] = _one_after_the_other(chosen.get(name, on_data), on_terminal)
    return on_data, chosen


def _checked(name: str, value: Callable[..., object] | bool | None) -> Callable[..., object] | None:
    """Return *value* if it is a plain function, None if it means "ignore". TypeError: anything else."""
    if value is None or value is False:
        return None
    if not callable(value):
        raise TypeError(f"callback {name} must be a function, None or False, not {value!r}")
    if _is_plain(value):
        return value
    called = value if inspect.isroutine(value) else type(value).__call__
    if any(map(_is_async, (value, called))):
        raise TypeError(
            f"callback {name} is a coroutine function; callbacks are plain functions: "
            f"use `async with io.stream(...)` for async code"
        )
    return value


def _is_plain(value: object) -> bool:
    """Tell whether *value* is surely a plain function, as nearly all are: in a tenth of the time."""
    function = value.__func__ if isinstance(value, MethodType) else value
    if isinstance(function, FunctionType):
        return not function.__code__.co_flags & _ASYNC and not hasattr(function, _MARKED)
    return isinstance(function, BuiltinFunctionType)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _logging_errors(on_data: Callback, on_log: Callable[[str], object]) -> Callback:
    def report(event: Error | dict[str, Any]) -> None:
        on_data(event)
        error = event.get("error") if isinstance(event, dict) else event.error
        on_log(("" if error is None else str(error)) or "unknown error")

    return report


def _one_after_the_other(first: Callback, second: Callback) -> Callback:
    def both(event: Any) -> None:
        first(event)
        second(event)

    return both
