"""Plug-ins that break the contract: refused when registered, or alone in their trouble when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

import aiio
from aiio.context.types import Message
from aiio.env.env import open_env
from aiio.env.errors import HttpStatusError
from aiio.providers import Provider, define_provider
from aiio.providers.base import HOOKS, ProviderIO
from tests.faults.peer import GOOD, Seen, answer, peer, write
from tests.serving import serve

from .scripted import CONTEXT, Refuse, finish, frames, say, scripted


class Minimal(Provider):
    """As little as a provider can be."""

    name = "minimal"

    def request(self, context: Sequence[Message], io: ProviderIO) -> Any:
        return {}, {"n": len(context)}

    def translate(self, native: Any, state: Any, io: ProviderIO) -> Any:
        return native


# --- refused at registration ---


def without(hook: str) -> type[Provider]:
    """A provider that lacks *hook*."""
    cls: Any = type("Lacking", (Minimal,), {"name": "lacking", hook: getattr(Provider, hook)})
    return cls  # type: ignore[no-any-return]


def spoiled(hook: str) -> type[Provider]:
    """A provider whose *hook* is no function."""
    cls: Any = type("Spoiled", (Minimal,), {"name": "spoiled", hook: 3})
    return cls  # type: ignore[no-any-return]


async def test_what_is_no_provider_is_refused_with_a_sentence() -> None:
    class Bare:
        name = "bare"

    nameless: Any = type("Nameless", (Minimal,), {"name": ""})
    async with open_env() as env:
        for wrong, text in (
            (Bare, r"a provider is a subclass of aiio\.providers\.Provider"),
            (Minimal("http://h", None), "a provider is a subclass"),  # type: ignore[arg-type]
            ("minimal", "a provider is a subclass"),
            (nameless, "provider Nameless has no name"),
        ):
            with pytest.raises(TypeError, match=text):
                env.register_provider(wrong)
        env.register_provider(Minimal)
        assert env.provider("minimal") is Minimal


@pytest.mark.parametrize("hook", ["request", "translate"])
async def test_a_missing_hook_is_refused_and_named(hook: str) -> None:
    async with open_env() as env:
        with pytest.raises(TypeError, match=rf"provider 'lacking' has no {hook}\(\)"):
            env.register_provider(without(hook))
        with pytest.raises(TypeError, match=rf"has no {hook}\(\)"):
            define_provider(without(hook), name="again")
        with pytest.raises(aiio.ProviderError, match="unknown provider 'lacking'"):
            env.provider("lacking")


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_cannot_be_called_is_refused_and_named(hook: str) -> None:
    async with open_env() as env:
        with pytest.raises(TypeError, match=f"'spoiled'.*{hook}"):
            env.register_provider(spoiled(hook))


async def test_what_has_no_open_is_no_transport() -> None:
    async with open_env() as env:
        with pytest.raises(TypeError, match=r"open\(request, nursery\)"):
            env.register_transport("x", object())


# --- alone in its trouble at run time ---


def odd(hook: str, result: Callable[[], Any]) -> type[Provider]:
    """A provider whose *hook* does what it must not."""

    def misbehave(self: Any, *args: Any) -> Any:
        return result()

    body = {hook: property(misbehave) if hook == "url" else misbehave}
    cls: Any = type("Odd", (Minimal,), {"name": "odd", **body})
    return cls  # type: ignore[no-any-return]


def crash() -> Any:
    raise ZeroDivisionError("oops")


async def wait() -> None:
    """What an author writes who thinks that hooks may be async."""


def unawaited() -> Any:
    coroutine = wait()
    coroutine.close()  # else the interpreter warns: that is the author's to see, not this test's
    return coroutine


MISBEHAVIOURS: list[tuple[str, Callable[[], Any]]] = [
    ("request", crash),
    ("request", lambda: ("no", "headers")),
    ("request", lambda: ({}, {"x": object()})),
    ("translate", crash),
    ("translate", unawaited),
    ("translate", lambda: 5),
    ("translate", lambda: [{"type": "nope"}]),
    ("translate", lambda: [{"type": "text_delta", "content_index": -1, "text": "x"}]),
    ("new_state", crash),
    ("finish", crash),
    ("url", crash),
    ("url", lambda: 5),
    ("ending", crash),
    ("translate_all", crash),
]


@pytest.mark.parametrize(("hook", "does"), MISBEHAVIOURS)
async def test_one_that_misbehaves_ends_its_write_as_malformed_and_harms_no_other(
    hook: str, does: Callable[[], Any]
) -> None:
    """Twenty writes at once on one Env, one of them through a broken plug-in."""
    started = trio.Event()
    arrived: list[Any] = []

    async def together(exchange: Any) -> None:
        arrived.append(exchange)
        if len(arrived) >= 19:
            started.set()
        await started.wait()

    async with serve(together, *answer(*GOOD)) as server, peer(server) as env, serve() as other:
        other.script(*(answer() if hook == "finish" else answer(b"[]")))
        env.register_provider(odd(hook, does))
        env.register_endpoint("bad", provider="odd", url=other.url)
        found: dict[int, Seen] = {}

        async def one(number: int) -> None:
            io = aiio.IO(env=env, model="bad/m" if number == 7 else "peer/m")
            found[number] = await write(io)
            assert io.state == "idle"

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(one, number)
        bad = found.pop(7).error
        assert bad.kind is aiio.ErrorKind.MALFORMED
        assert not bad.retryable
        assert "odd" in bad.error or "bad" in bad.error or "request" in bad.error
        assert [seen.text for seen in found.values()] == ["Hi"] * 19
        await server.wait_idle()
        await other.wait_idle()
        assert len(env.active_io) == 0


@pytest.mark.parametrize(
    ("hook", "does", "said"),
    [
        ("request", crash, "provider 'odd': request failed: ZeroDivisionError: oops"),
        ("url", lambda: 5, "provider 'odd': url failed: TypeError: not a string: int"),
        ("ending", crash, "provider 'odd': ending failed: ZeroDivisionError: oops"),
    ],
)
async def test_an_author_is_told_which_hook_of_which_provider_failed(
    hook: str, does: Callable[[], Any], said: str
) -> None:
    async with scripted(frames([])) as (env, _):
        env.register_provider(odd(hook, does))
        env.register_endpoint("bad", provider="odd", url="scripted://peer")
        terminal = await aiio.IO(env=env, model="bad/m").write(CONTEXT)
        assert isinstance(terminal, aiio.Error)
        assert terminal.error == said


async def test_one_that_fails_to_classify_hides_nothing() -> None:
    async with scripted(Refuse(HttpStatusError(503, "Busy", "later"))) as (env, _):
        env.register_provider(odd("classify_error", crash))
        env.register_endpoint("bad", provider="odd", url="scripted://peer")
        terminal = await aiio.IO(env=env, model="bad/m").write(CONTEXT)
        assert isinstance(terminal, aiio.Error)
        assert (terminal.status, terminal.kind, terminal.retryable) == (503, "provider", True)


async def test_a_readout_that_fails_costs_no_answer() -> None:
    async with scripted(say("Hi"), finish()) as (env, _):
        env.register_provider(odd("report_plan_usage", crash))
        env.register_endpoint("bad", provider="odd", url="scripted://peer")
        assert isinstance(await aiio.IO(env=env, model="bad/m").write(CONTEXT), aiio.Done)
