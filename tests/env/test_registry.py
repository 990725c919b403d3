from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from aiio.env import registry
from aiio.env.errors import ErrorKind, ProviderError
from aiio.env.registry import BUILTIN_PROVIDERS, BUILTIN_TRANSPORTS, Registry, load_object
from aiio.providers.base import Provider


class Dialect(Provider):
    name = "dialect"

    def request(self, context: Any, io: Any) -> Any:
        return {}, None

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        return ()


class Pipe:
    """A transport that remembers what happened to it."""

    def __init__(self, env: object) -> None:
        self.env = env
        self.closed = 0
        self.fault: Exception | None = None

    async def open(self, request: object, nursery: object) -> None: ...

    async def aclose(self) -> None:
        self.closed += 1
        if self.fault is not None:
            raise self.fault


def entry_points(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    def installed(*, group: str, name: str) -> EntryPoints:
        found = [EntryPoint(name, points[name], group)] if name in points else []
        return EntryPoints(found)

    monkeypatch.setattr(registry, "entry_points", installed)


def test_what_is_built_in_can_be_imported() -> None:
    for where in {*BUILTIN_PROVIDERS.values(), *BUILTIN_TRANSPORTS.values(), registry.PROVIDER_CONTRACT}:
        assert callable(load_object(where))
    found = Registry("env")
    assert found.provider("openai_chat").name == "openai_chat"
    assert found.transport("https://h") is found.transport("http://h")


def test_a_provider_is_registered_under_its_own_name() -> None:
    found = Registry("env")
    found.register_provider(Dialect)
    assert found.provider("dialect") is Dialect
    assert found.provider_keys() == [*BUILTIN_PROVIDERS, "dialect"]
    replacement = type("Other", (Dialect,), {"name": "openai_chat"})
    found.register_provider(replacement)
    assert found.provider("openai_chat") is replacement
    with pytest.raises(TypeError):
        found.register_provider(object)


def test_plug_ins_are_found_when_nothing_else_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points(
        monkeypatch, plug=f"{__name__}:Dialect", pipe=f"{__name__}:Pipe", broken="no_such_module_at_all:X"
    )
    found = Registry("env")
    assert found.provider("plug") is Dialect
    assert found.transport("pipe://x").env == "env"
    with pytest.raises(
        ProviderError, match=r"'broken' \(no_such_module_at_all:X\) can't be loaded"
    ) as caught:
        found.provider("broken")
    assert caught.value.kind is ErrorKind.PROVIDER


def test_a_plug_in_that_breaks_the_contract_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points(monkeypatch, odd=f"{__name__}:Pipe")
    with pytest.raises(ProviderError, match="'odd' can't be used: a provider is a subclass") as caught:
        Registry("env").provider("odd")
    assert caught.value.code == "broken_plugin"


def test_what_is_unknown_is_answered_with_what_is_known() -> None:
    found = Registry("env")
    with pytest.raises(ProviderError, match=r"'nobody'; known: openai_chat.*register_provider"):
        found.provider("nobody")
    with pytest.raises(ProviderError, match=r"'gopher'; known: http, https.*register_transport"):
        found.transport("gopher://h")


def test_a_transport_class_is_made_once_for_all_its_schemes() -> None:
    found = Registry("env")
    found.register_transport("one", Pipe)
    found.register_transport("TWO", Pipe)
    ready = Pipe(None)
    found.register_transport("three", ready)
    assert found.transport("one://h") is found.transport("two://h") is found.transport("one://other")
    assert found.transport("three://h") is ready
    with pytest.raises(ValueError, match="empty"):
        found.register_transport("", ready)
    with pytest.raises(TypeError, match="open"):
        found.register_transport("four", object())


async def test_closing_closes_each_transport_once_and_raises_the_first_fault() -> None:
    found = Registry("env")
    pipes = [Pipe(None) for _ in range(3)]
    for number, pipe in enumerate(pipes):
        found.register_transport(f"s{number}", pipe)
        found.register_transport(f"t{number}", pipe)
    found.register_transport("unused", Pipe)
    found.register_transport("used", Pipe)
    made = found.transport("used://h")
    pipes[0].fault, pipes[1].fault = OSError("first"), OSError("second")
    with pytest.raises(OSError, match="first"):
        await found.aclose()
    assert [pipe.closed for pipe in [*pipes, made]] == [1, 1, 1, 1]
    await found.aclose()
    assert made.closed == 1
