"""Events of an Env: who is in flight, who came and went."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class EnvEvent:
    """Something that happened: `io_start` {io, context, url}, `io_done` {io, terminal, trace}, ..."""

    name: str
    data: Mapping[str, Any]


Listener: TypeAlias = Callable[[EnvEvent], object]

witness: ContextVar[Listener | None] = ContextVar("aiio.witness", default=None)
"""Hears what happens in this context, on whatever Env: for who runs code whose Envs he does not know."""


class ListenerHandle:
    """What `off_event` wants to have back."""

    __slots__ = ("fn",)

    def __init__(self, fn: Listener) -> None:
        self.fn: Listener = fn


class Listeners:
    """Plain functions that hear of every event, in order of registration.

    Args:
      report: told of a listener that raised; nobody else is.
    """

    def __init__(self, report: Callable[[str, Exception], None]) -> None:
        self._report = report
        self._handles: dict[ListenerHandle, None] = {}

    def add(self, fn: Listener) -> ListenerHandle:
        """Add *fn*. TypeError: not callable, or a coroutine function (nobody would await it)."""
        if inspect.iscoroutinefunction(fn) or not callable(fn):
            raise TypeError(f"a listener is a plain function of one EnvEvent, not {fn!r}")
        handle = ListenerHandle(fn)
        self._handles[handle] = None
        return handle

    def remove(self, handle: object) -> bool:
        """Remove a listener; False when it is not there (any more)."""
        if not isinstance(handle, ListenerHandle) or handle not in self._handles:
            return False
        del self._handles[handle]
        return True

    def emit(self, name: str, data: Mapping[str, Any]) -> None:
        """Tell everybody. What a listener raises is reported and harms neither the others nor the caller."""
        beside = witness.get()
        if not self._handles and beside is None:
            return
        event = EnvEvent(name, data)
        fns = [handle.fn for handle in self._handles]
        for fn in fns if beside is None else (*fns, beside):
            try:
                fn(event)
            except Exception as exc:  # noqa: BLE001  # an observer's bug is not the request's
                self._report(getattr(fn, "__qualname__", None) or repr(fn), exc)
