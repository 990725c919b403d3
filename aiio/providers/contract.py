"""The hooks of a provider as a plug-in may get them wrong: checked when it is registered, by name."""

from __future__ import annotations

import inspect
from typing import Any

from aiio.env.endpoints import KnownEndpoint, checked_name

HOOKS: dict[str, int] = {
    "request": 3,
    "translate": 4,
    "translate_all": 4,
    "decode": 2,
    "new_state": 1,
    "ending": 2,
    "finish": 3,
    "abandon": 3,
    "classify_error": 2,
    "report_plan_usage": 3,
}
"""What IO calls, and with how many arguments, self included. Plain functions; generators are, too."""

ENDPOINT_HOOKS: dict[str, int] = {
    "known_endpoints": 0,
    "models_request": 4,
    "read_models": 1,
    "next_models": 1,
    "model_questions": 4,
}
"""What an Env calls on the class, and with how many arguments. Plain class or static methods."""

ASYNC_HOOKS: dict[str, int] = {"detect_endpoints": 1, "login": 2, "test_connection": 1}
"""Those of them that are async."""


def check_hooks(cls: Any, base: type) -> None:
    """Raise TypeError, naming the hook, when one of *cls* can't be called as the same hook of *base*."""
    for hook, arguments in HOOKS.items():
        found = _function(cls, hook)
        if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
            raise TypeError(f"provider {cls.name!r}: {hook} must be a plain function: a dialect does no I/O")
        if _on_class(cls, hook):
            raise TypeError(f"provider {cls.name!r}: {hook} must be a method")
        _check_arguments(cls, base, hook, arguments)
    for hook, arguments in (ENDPOINT_HOOKS | ASYNC_HOOKS).items():
        found = _function(cls, hook)
        if inspect.iscoroutinefunction(found) is not (hook in ASYNC_HOOKS):
            want = "async" if hook in ASYNC_HOOKS else "a plain function"
            raise TypeError(f"provider {cls.name!r}: {hook} must be {want}")
        if not _on_class(cls, hook):
            raise TypeError(f"provider {cls.name!r}: {hook} must be a class method: there is no request")
        _check_arguments(cls, base, hook, arguments)
    _check_known_endpoints(cls)


def _function(cls: Any, hook: str) -> Any:
    found = getattr(cls, hook, None)
    if not callable(found):
        raise TypeError(f"provider {cls.name!r}: {hook} must be callable")
    return found


def _on_class(cls: Any, hook: str) -> bool:
    return isinstance(inspect.getattr_static(cls, hook), classmethod | staticmethod)


def _check_arguments(cls: Any, base: type, hook: str, arguments: int) -> None:
    try:
        inspect.signature(getattr(cls, hook)).bind(*range(arguments))
    except TypeError:
        want = "(" + ", ".join(inspect.signature(getattr(base, hook)).parameters) + ")"
        raise TypeError(f"provider {cls.name!r}: {hook} must take {want}") from None


def _check_known_endpoints(cls: Any) -> None:
    where = f"provider {cls.name!r}: known_endpoints"
    try:
        known = dict(cls.known_endpoints())
    except Exception as exc:
        raise TypeError(f"{where} must return endpoints by name: {type(exc).__name__}: {exc}") from exc
    for name, one in known.items():
        try:
            checked_name(name)
        except (TypeError, ValueError) as exc:
            raise TypeError(f"{where}: {exc}") from exc
        if not isinstance(one, KnownEndpoint):
            raise TypeError(f"{where} must return a KnownEndpoint for {name!r}, not {type(one).__name__}")
