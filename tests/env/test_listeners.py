from __future__ import annotations

from typing import Any

import pytest

from aiio.env.listeners import EnvEvent, Listeners, witness


def make() -> tuple[Listeners, list[tuple[str, Exception]]]:
    reports: list[tuple[str, Exception]] = []
    return Listeners(lambda what, error: reports.append((what, error))), reports


def test_every_listener_hears_every_event_in_order() -> None:
    listeners, reports = make()
    heard: list[tuple[str, EnvEvent]] = []
    first = listeners.add(lambda event: heard.append(("first", event)))
    listeners.add(lambda event: heard.append(("second", event)))
    listeners.emit("io_start", {"io": 1})
    assert heard == [("first", EnvEvent("io_start", {"io": 1})), ("second", EnvEvent("io_start", {"io": 1}))]
    assert listeners.remove(first) is True
    assert listeners.remove(first) is False
    assert listeners.remove("nothing") is False
    heard.clear()
    listeners.emit("io_done", {})
    assert [name for name, _ in heard] == ["second"]
    assert reports == []


def test_a_listener_that_raises_is_reported_and_harms_nobody() -> None:
    listeners, reports = make()
    heard: list[str] = []

    def broken(event: EnvEvent) -> None:
        raise ValueError("bug")

    class Broken:
        def __call__(self, event: EnvEvent) -> None:
            raise KeyError("bug")

        def __repr__(self) -> str:
            return "<Broken>"

    listeners.add(broken)
    listeners.add(Broken())
    listeners.add(lambda event: heard.append(event.name))
    listeners.emit("io_start", {})
    assert heard == ["io_start"]
    assert [type(error) for _, error in reports] == [ValueError, KeyError]
    assert reports[0][0].endswith("broken")
    assert reports[1][0] == "<Broken>"


def test_a_listener_may_remove_itself() -> None:
    listeners, _ = make()
    heard: list[str] = []

    def once(event: EnvEvent) -> None:
        heard.append(event.name)
        listeners.remove(handle)

    handle = listeners.add(once)
    listeners.emit("a", {})
    listeners.emit("b", {})
    assert heard == ["a"]


async def _later(event: EnvEvent) -> None: ...


@pytest.mark.parametrize("fn", [None, 5, _later])
def test_a_listener_is_a_plain_function(fn: Any) -> None:
    with pytest.raises(TypeError, match="plain function"):
        make()[0].add(fn)


def test_a_witness_hears_what_happens_in_its_context_beside_the_listeners() -> None:
    listeners, reports = make()
    heard: list[str] = []
    listeners.emit("before", {})
    token = witness.set(lambda event: heard.append(f"witness {event.name}"))
    listeners.emit("alone", {})
    listeners.add(lambda event: heard.append(f"listener {event.name}"))
    listeners.emit("both", {})
    witness.reset(token)
    listeners.emit("after", {})
    assert heard == ["witness alone", "listener both", "witness both", "listener after"]
    assert reports == []
