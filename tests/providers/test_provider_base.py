"""The provider contract: defaults, completion of plug-ins, checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from aiio.context.events import ErrorKind, TextDelta
from aiio.context.types import Message
from aiio.providers.base import (
    Capabilities,
    Events,
    Provider,
    ProviderIO,
    check_provider,
    decode_json,
    define_provider,
    dialect_class,
)
from aiio.providers.openai_chat import OpenAIChat
from aiio.providers.think_tags import ThinkTags

from .fakes import FakeIO


class Own:
    """A plug-in of two functions."""

    name = "own"

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        return {}, {"n": len(context)}

    def translate(self, native: Any, state: Any, io: ProviderIO) -> Events:
        return []


def test_a_class_with_two_functions_is_enough() -> None:
    completed = define_provider(Own)
    assert issubclass(completed, Own)
    assert issubclass(completed, Provider)
    assert (completed.__name__, completed.name, completed.__doc__) == ("Own", "own", Own.__doc__)
    provider = completed("http://x/", FakeIO())
    assert provider.url == "http://x"
    assert provider.decode(b'{"a":1}') == {"a": 1}
    state = provider.new_state()
    assert state == {}
    assert not provider.ending(state)
    assert list(provider.finish(state, provider.io)) == list(provider.abandon(state, provider.io)) == []
    provider.report_plan_usage({}, provider.io)
    assert provider.classify_error(OSError("x")).kind is ErrorKind.NETWORK
    assert provider.capabilities == Capabilities()


def test_a_dialect_fills_in_what_a_plug_in_leaves_out() -> None:
    @define_provider(name="mine", dialect="chat")
    class Mine:
        path = "/mine"

    provider = Mine("http://x", FakeIO())  # type: ignore[call-arg]
    assert isinstance(provider, OpenAIChat)
    assert (provider.name, provider.url) == ("mine", "http://x/mine")


def test_a_subclass_of_a_dialect_needs_no_second_base() -> None:
    class Mine(OpenAIChat):
        pass

    completed = define_provider(Mine, name="sub", dialect="openai_chat")
    assert completed.__bases__ == (Mine,)


def test_misuse_is_named() -> None:
    with pytest.raises(TypeError, match="a provider is a class"):
        define_provider(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Nameless has no name"):
        define_provider(type("Nameless", (), {}))
    with pytest.raises(TypeError, match="Blank has no name"):
        define_provider(type("Blank", (), {"name": " "}))
    with pytest.raises(ValueError, match=r"unknown dialect 'pigeon'; built in: .*chat"):
        define_provider(Own, dialect="pigeon")
    with pytest.raises(TypeError, match=r"no request\(\)"):
        define_provider(type("Half", (), {"name": "half"}))
    with pytest.raises(TypeError, match=r"no translate\(\)"):
        define_provider(type("Half", (), {"name": "half", "request": Own.request}))
    with pytest.raises(TypeError, match="'half': finish must be callable"):
        define_provider(type("Half", (), {"name": "half", "finish": 7}), dialect="chat")


@pytest.mark.parametrize("value", [7, Own, Own(), int])
def test_what_is_no_provider_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="subclass of aiio"):
        check_provider(value)


def test_a_provider_needs_a_name() -> None:
    with pytest.raises(TypeError, match="has no name"):
        check_provider(type("Unnamed", (Provider,), {}))


def test_the_bare_base_has_no_request_and_no_translate() -> None:
    provider = dialect_class(None)("http://x", FakeIO())
    with pytest.raises(TypeError, match=r"'Provider' has no request\(\)"):
        provider.request([], provider.io)
    with pytest.raises(TypeError, match=r"has no translate\(\)"):
        provider.translate({}, {}, provider.io)


def test_json_that_the_fast_decoder_refuses() -> None:
    value = decode_json(b'{"a":[NaN,-Infinity,1e999,-1.5e300],"b":"\\ud83d"}')
    assert value == {"a": [None, None, None, -1.5e300], "b": "\ud83d"}


@pytest.mark.parametrize("data", [b"", b"{", b'"\xff"', b"[" * 100_000, b"[1]x"])
def test_unreadable_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_json(data)


THINK: dict[str, tuple[str, list[tuple[bool, str]]]] = {
    "tags": ("<think>a</think>b", [(True, "a"), (False, "b")]),
    "space before": (" \n<think>a</think>b", [(True, "a"), (False, "b")]),
    "no tags": ("a<think>b</think>", [(False, "a<think>b</think>")]),
    "empty": ("<think></think>b", [(False, "b")]),
    "open": ("<think>a</thin", [(True, "a</thin")]),
    "nearly": ("<thinking>a", [(False, "<thinking>a")]),
    "false end": ("<think>a</b></think>c", [(True, "a</b>"), (False, "c")]),
    "only the start": ("<thi", [(False, "<thi")]),
    "later tags": ("<think>a</think>b<think>c", [(True, "a"), (False, "b<think>c")]),
    "ends there": ("<think>a</think>", [(True, "a")]),
}


@pytest.mark.parametrize(("text", "expected"), THINK.values(), ids=THINK.keys())
def test_think_tags_however_they_are_cut(text: str, expected: list[tuple[bool, str]]) -> None:
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            tags = ThinkTags()
            pieces: list[tuple[bool, str]] = []
            for part in (text[:first], text[first:second], text[second:]):
                pieces.extend(tags.feed(part))
            decided = tags.done
            pieces.extend(tags.flush())
            joined = [(kind, "".join(t for k, t in pieces if k is kind)) for kind in (True, False)]
            assert [one for one in joined if one[1]] == expected
            assert decided == (text not in ("<think>a</thin", "<thi"))


def test_a_plug_in_that_overrides_translate_is_not_passed_over_by_a_fast_path() -> None:
    class Loud:
        def translate(self, native: Any, state: Any, io: Any) -> Any:
            return [TextDelta(0, "LOUD")]

    frame = b'{"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"quiet"}}]}'
    for cls in (
        define_provider(Loud, name="loud", dialect="chat"),
        type("Sub", (OpenAIChat,), dict(vars(Loud))),
    ):
        provider = cls("http://x", FakeIO())
        assert list(provider.translate_all([frame, frame], provider.new_state(), provider.io)) == [
            TextDelta(0, "LOUD"),
            TextDelta(0, "LOUD"),
        ]
    assert OpenAIChat.translate_all is not Provider.translate_all
    fast: Any = type("Fast", (OpenAIChat,), {"path": "/other"})
    assert fast.translate_all is OpenAIChat.translate_all


async def hook_async(self: Any, *args: Any) -> Any:
    return None


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"request": hook_async}, "request must be a plain function"),
        ({"translate": lambda self, native: []}, r"translate must take \(self, native, state, io\)"),
        ({"request": staticmethod(lambda context, io: ({}, None))}, "request must be a method"),
        ({"finish": 3}, "finish must be callable"),
        ({"framing": "xml"}, "framing must be one of"),
        ({"capabilities": None}, "capabilities must be a Capabilities"),
        ({"name": 3}, "has no name"),
    ],
)
def test_a_class_that_breaks_the_contract_is_refused_naming_the_hook(
    broken: dict[str, Any], says: str
) -> None:
    whole = {"name": "own", "request": Own.request, "translate": Own.translate}
    with pytest.raises(TypeError, match=says):
        check_provider(type("Broken", (Provider,), {**whole, **broken}))
