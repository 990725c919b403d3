"""What holds for every input: order, counts, isolation, and a cost that grows linearly."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from aiio.builder import BuiltContext, ContextBuilder, ContextBuildError, ContextFragment
from aiio.context.types import Message
from aiio.context.usage import estimate_context_tokens

from .parts import builder, part, refused, said

TEXTS = st.text(max_size=12)
ROLES = st.sampled_from([("system", "system"), ("app", "system"), ("app", "user"), ("user", "user")])
CHATS = st.lists(st.builds(said, st.sampled_from(["user", "assistant"]), TEXTS), max_size=4)
VALUES = st.one_of(st.none(), TEXTS, st.fixed_dictionaries({"messages": CHATS}))


@st.composite
def cases(draw: st.DrawFn) -> tuple[ContextBuilder[Any], dict[str, Any], list[dict[str, Any]]]:
    """A builder, an input for it, and additional messages."""
    values = draw(st.lists(st.tuples(ROLES, VALUES), min_size=1, max_size=8))
    definitions = [part(f"f{at}", trust=trust, role=role) for at, ((trust, role), _) in enumerate(values)]
    input = {f"f{at}": value for at, (_, value) in enumerate(values)}
    return (
        builder(*definitions),
        input,
        draw(st.lists(TEXTS.map(lambda text: said("user", text)), max_size=2)),
    )


CASES = cases()


def texts(messages: list[Message]) -> list[str]:
    return [block["text"] for message in messages for block in message["content"]]


def given_texts(input: dict[str, Any], more: list[dict[str, Any]]) -> list[str]:
    """All text that is handed in, in order."""
    found: list[str] = []
    for value in input.values():
        messages = value["messages"] if isinstance(value, dict) else [said("", value or "")]
        found += [message["content"] for message in messages]
    return [text for text in [*found, *(message["content"] for message in more)] if text]


@given(CASES)
def test_all_text_is_sent_in_its_order(case: tuple[Any, Any, Any]) -> None:
    made, input, more = case
    built = made.build(input=input, additional_messages=more)
    rest = "".join(texts(built.messages))
    for text in given_texts(input, more):
        rest = rest.removeprefix("\n\n") if not rest.startswith(text) else rest
        assert rest.startswith(text)
        rest = rest.removeprefix(text)
    assert rest == ""


@given(CASES)
def test_counts_are_what_is_in_the_messages(case: tuple[Any, Any, Any]) -> None:
    made, input, more = case
    built: BuiltContext = made.build(input=input, additional_messages=more, max_input_tokens=10_000)
    assert built.input_chars == sum(map(len, texts(built.messages)))
    of_fragments = sum(usage.chars for usage in built.fragment_usage)
    assert built.input_chars == of_fragments + built.separator_chars + built.additional_chars
    begun = sum(usage.message_count for usage in built.fragment_usage)
    assert len(built.messages) == begun + sum(message["content"] != "" for message in more)
    assert built.input_tokens == estimate_context_tokens(built.messages)
    assert [usage.id for usage in built.fragment_usage] == list(input)


@given(CASES)
def test_what_is_too_large_raises_and_is_never_cut_off(case: tuple[Any, Any, Any]) -> None:
    made, input, more = case
    whole = made.build(input=input, additional_messages=more)
    for budget in {0, whole.input_chars // 2, whole.input_chars - 1} - {-1, whole.input_chars}:
        error = refused(
            "INPUT_TOO_LARGE",
            partial(made.build, input=input, additional_messages=more, max_input_chars=budget),
        )
        assert (error.input_chars, error.max_input_chars) == (whole.input_chars, budget)
        assert error.fragment_usage == whole.fragment_usage
    exact = made.build(input=input, additional_messages=more, max_input_chars=whole.input_chars)
    assert exact.messages == whole.messages


@given(CASES)
def test_nothing_handed_in_is_changed_or_kept(case: tuple[Any, Any, Any]) -> None:
    made, input, more = case
    before = copy.deepcopy((input, more))
    first = made.build(input=input, additional_messages=more)
    expected = copy.deepcopy(first)
    for message in first.messages:  # the caller's own
        message["content"].clear()
    for fragment in made.fragments(input):
        for message in fragment.messages or ():
            message.clear()
    assert (input, more) == before
    assert made.build(input=input, additional_messages=more) == expected


@settings(max_examples=20)
@given(st.lists(CASES, min_size=1, max_size=3))
def test_equal_inputs_give_equal_results_from_many_tasks_at_once(cases: list[tuple[Any, Any, Any]]) -> None:
    """One builder a case, ten tasks each in threads of their own, while the others build other inputs."""
    expected = [made.build(input=input, additional_messages=more) for made, input, more in cases]
    found: list[list[BuiltContext]] = [[] for _ in cases]

    async def build(at: int) -> None:
        made, input, more = cases[at]
        found[at].append(
            await trio.to_thread.run_sync(lambda: made.build(input=input, additional_messages=more))
        )

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                for at in range(len(cases)):
                    nursery.start_soon(build, at)

    trio.run(main)
    assert found == [[one] * 10 for one in expected]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["role", "system", "user", "text", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "type", "content", "text", "item", "call_id"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=3), st.sampled_from(["user", "external"]))
def test_whatever_is_handed_in_untrusted_is_no_system_message(values: list[Any], trust: str) -> None:
    made = builder(part("chat", trust=trust, format=lambda input: {"messages": input}))
    try:
        built = made.build(input=values)
    except ContextBuildError:
        return
    assert all(message["type"] in (2, 3, 4) for message in built.messages)
    assert all("item" not in block for message in built.messages for block in message["content"])


# -- cost


class Counted(str):
    """A text that counts how often somebody asks for its length or walks over it."""

    __slots__ = ()
    looks = 0

    def __len__(self) -> int:
        Counted.looks += 1
        return super().__len__()


def work(fragments: int) -> tuple[int, int, int]:
    """What one build of so many fragments does: formats called, fragments transformed, texts measured."""
    formats = seen = 0

    def text(input: Any) -> str:
        nonlocal formats
        formats += 1
        return Counted("word")

    def look(given: tuple[ContextFragment, ...], input: Any) -> tuple[ContextFragment, ...]:
        nonlocal seen
        seen += len(given)
        return given

    made = builder(
        *(part(f"f{at}", format=text, trust=("user", "external")[at // 4 % 2]) for at in range(fragments)),
        transforms=[look],
    )
    Counted.looks = 0
    built = made.build(input=None)
    assert len(built.messages) == fragments / 4
    return formats, seen, Counted.looks


def test_the_work_of_a_build_is_linear() -> None:
    """Each text is formatted once, and measured a fixed number of times, however many there are."""
    formats, transformed, measured = work(16)
    assert (formats, transformed) == (16, 16)
    assert measured <= 8 * 16
    assert work(1600) == (1600, 1600, 100 * measured)
