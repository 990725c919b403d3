"""The examples of the specification, order, budgets, usage, transforms, plans."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypedDict

import pytest

from aiio.builder import (
    BuiltContext,
    CharUnit,
    ContextBuilder,
    ContextErrorCode,
    ContextFragment,
    FragmentChange,
    FragmentDefinition,
    Lifetime,
    Role,
    TokenSource,
    Trust,
    define_context_fragments,
)
from aiio.context.usage import estimate_context_tokens, estimate_tokens
from aiio.context.validate import validate_context

from .parts import builder, part, policy, refused, said, system, user


class Input(TypedDict):
    question: str
    history: Sequence[dict[str, str]]


QUESTION = "服务状态?"


@pytest.fixture
def seed() -> ContextBuilder[Input]:
    """The builder of both examples."""
    definitions: list[dict[str, Any]] = [
        {
            "id": "question",
            "source_id": "request",
            "trust": "user",
            "lifetime": "turn",
            "max_chars": 1000,
            "role": "user",
            "format": lambda input: input["question"],
        },
        {
            "id": "history",
            "source_id": "conversation",
            "trust": "user",
            "lifetime": "turn",
            "max_chars": 10000,
            "role": "user",
            "format": lambda input: {"messages": input["history"]},
        },
    ]
    return define_context_fragments(definitions, max_input_chars=1200)


def test_example_configure_once_then_supply_only_question_and_history(seed: ContextBuilder[Input]) -> None:
    built = seed.build(input={"question": QUESTION, "history": []})
    assert built.messages == [user(QUESTION)]
    assert built.input_chars == 5
    assert built.max_input_chars == 1200
    question, history = built.fragment_usage
    assert (question.id, question.chars, question.max_chars, question.message_count) == (
        "question",
        5,
        1000,
        1,
    )
    assert (history.id, history.chars, history.max_chars, history.message_count) == ("history", 0, 10000, 0)


def test_example_the_same_builder_produces_a_plan_in_advance(seed: ContextBuilder[Input]) -> None:
    input: Input = {"question": QUESTION, "history": []}
    plan = seed.plan(input=input)
    expanded = seed.fragments(input)
    assert plan.max_input_chars == 1200
    assert [fragment.id for fragment in expanded] == ["question", "history"]
    assert plan.fragments == expanded
    larger = seed.build(input=input, max_input_chars=2000)
    assert larger.max_input_chars == 2000


def test_messages_come_in_the_order_of_the_definitions(seed: ContextBuilder[Input]) -> None:
    history = [said("user", "Hi"), said("assistant", "Hello"), said("user", "Bye")]
    built = seed.build(input={"question": QUESTION, "history": history})
    assert [message["type"] for message in built.messages] == [2, 2, 3, 2]
    assert [message["content"][0]["text"] for message in built.messages] == [QUESTION, "Hi", "Hello", "Bye"]
    assert built.fragment_usage[1].message_count == 3
    assert validate_context(built.messages) is built.messages


def test_definitions_may_be_dataclasses_with_defaults() -> None:
    definition: FragmentDefinition[str] = FragmentDefinition(
        id="echo", source_id="test", trust=Trust.USER, max_chars=math.inf, format=lambda text: text
    )
    (fragment,) = define_context_fragments([definition]).fragments("Hi")
    assert (fragment.lifetime, fragment.role, fragment.content) == (Lifetime.TURN, Role.USER, "Hi")
    with pytest.raises(dataclasses.FrozenInstanceError):
        fragment.content = "no"  # type: ignore[misc]  # that is the test


# -- merging and counting


def test_texts_of_one_role_and_trust_become_one_message() -> None:
    made = builder(
        policy(),
        part("style", trust="system", role="system"),
        part("nothing", trust="system", role="system"),
        part("tone", trust="system", role="system"),
        part("site", trust="app", role="system"),
        part("question"),
        part("page", trust="external"),
    )
    built = made.build(
        input={
            "policy": "Be kind.",
            "style": "Be brief.",
            "tone": "Be dry.",
            "site": "It rains.",
            "question": "Why?",
            "page": "Because.",
        }
    )
    assert built.messages == [
        system("Be kind.\n\nBe brief.\n\nBe dry."),
        system("It rains."),
        user("Why?"),
        user("Because."),
    ]
    assert [usage.message_count for usage in built.fragment_usage] == [1, 0, 0, 0, 1, 1, 1]
    assert [usage.chars for usage in built.fragment_usage] == [8, 9, 0, 7, 9, 4, 8]
    assert built.separator_chars == 4
    assert built.input_chars == sum(len(one["content"][0]["text"]) for one in built.messages) == 49


def test_messages_stay_apart_and_empty_ones_do_not() -> None:
    made = builder(
        part("first"),
        part("none", format=lambda input: {"messages": []}),
        part("second"),
        part("chat", format=lambda input: {"messages": [said("user", "Hi"), said("user", ""), user("Ho")]}),
        part("third"),
    )
    built = made.build(input={"first": "1", "second": "2", "third": "3"})
    assert built.messages == [user("1\n\n2"), user("Hi"), user("Ho"), user("3")]
    assert [usage.message_count for usage in built.fragment_usage] == [1, 0, 0, 2, 1]


def test_a_developers_text_is_a_system_message_of_its_own() -> None:
    made = builder(policy(), part("rules", trust="system", role="developer"))
    assert made.build(input={"policy": "A", "rules": "B"}).messages == [system("A"), system("B")]


def test_an_assistants_text_is_an_assistant_message() -> None:
    built = builder(part("draft", role="assistant")).build(input={"draft": "So far"})
    assert built.messages == [{"type": 3, "content": [{"type": "text", "text": "So far"}]}]


def test_all_text_counts_and_files_do_not() -> None:
    call = {"type": "tool_call", "call_id": "c1", "name": "look", "arguments": {"at": "鳥"}}
    raw = {"type": "tool_call", "call_id": "c2", "name": "look", "arguments": "{}"}
    messages = [
        {"type": 2, "content": [{"type": "image", "content": "aGk="}, {"type": "text", "text": "What?"}]},
        {"type": 3, "content": [{"type": "thinking", "text": "Hm."}, call, raw]},
        {"role": "tool", "call_id": "c1", "name": "look", "content": "A bird."},
        {"role": "tool", "call_id": "c2", "content": "", "error": True},
    ]
    made = builder(part("chat", format=lambda input: {"messages": messages}))
    built = made.build(input=None)
    assert built.input_chars == len("What?" + "Hm." + '{"at":"鳥"}' + "{}" + "A bird.")
    assert built.messages[2] == {
        "type": 4,
        "content": [{"type": "text", "text": "A bird."}],
        "call_id": "c1",
        "name": "look",
    }
    assert built.messages[3]["error"] is True


@pytest.mark.parametrize(("unit", "chars"), [(CharUnit.CODE_POINTS, 2), ("utf16", 3)])
def test_characters_are_code_points_unless_told_otherwise(unit: CharUnit, chars: int) -> None:
    made = builder(part("bird"), char_unit=unit, max_input_chars=3)
    assert made.build(input={"bird": "a🐦"}).input_chars == chars
    assert made.build(input={"bird": "\ud83d"}).input_chars == 1


def test_records_are_left_out() -> None:
    made = builder(part("chat", format=lambda input: {"messages": [{"type": "checkpoint"}, user("Hi")]}))
    assert made.build(input=None).messages == [user("Hi")]


def test_additional_messages_come_last_unmerged_and_count() -> None:
    image = {"role": "user", "content": [{"type": "image", "mimetype": "image/png", "content": "aGk="}]}
    built = builder(part("question"), max_input_chars=8).build(
        input={"question": "What?"}, additional_messages=[said("user", "See"), image, said("user", "")]
    )
    assert built.messages == [user("What?"), user("See"), {"type": 2, "content": image["content"]}]
    assert (built.input_chars, built.additional_chars) == (8, 3)
    assert sum(usage.chars for usage in built.fragment_usage) == 5


# -- budgets


def test_what_is_exactly_as_large_passes_and_more_raises_with_the_usage() -> None:
    made = builder(part("question"), part("page", trust="external"), max_input_chars=10)
    assert made.build(input={"question": "12345", "page": "67890"}).input_chars == 10
    error = refused(
        ContextErrorCode.INPUT_TOO_LARGE,
        lambda: made.build(
            input={"question": "12345", "page": "678901"}, additional_messages=[said("user", "!")]
        ),
    )
    assert str(error) == (
        "the input has 12 characters, 10 at most; most of it: fragment 'page' with 6 characters"
    )
    assert (error.input_chars, error.max_input_chars) == (12, 10)
    assert error.fragment_usage is not None
    assert [(usage.id, usage.chars) for usage in error.fragment_usage] == [("question", 5), ("page", 6)]


def test_a_fragment_over_its_limit_raises_from_every_method() -> None:
    made = builder(part("question", max_chars=3))
    assert made.build(input={"question": "123"}).input_chars == 3
    for call in (
        lambda: made.fragments({"question": "1234"}),
        lambda: made.plan(input={"question": "1234"}),
        lambda: made.build(input={"question": "1234"}),
    ):
        error = refused(ContextErrorCode.FRAGMENT_TOO_LARGE, call)
        assert str(error) == "fragment 'question' has 4 characters, 3 at most"
        assert (error.id, error.chars, error.max_chars) == ("question", 4, 3)


def test_a_plan_does_not_look_at_the_budget() -> None:
    plan = builder(part("question"), max_input_chars=1).plan(
        input={"question": "long"},
        max_input_tokens=5,
        additional_messages=[said("user", "more")],
        mutable_fragment_ids=["question"],
    )
    assert (plan.max_input_chars, plan.max_input_tokens) == (1, 5)
    assert plan.additional_messages == (user("more"),)
    assert plan.original_fragments is None
    assert plan.mutable_fragment_ids == {"question"}


def test_zero_is_a_budget_for_an_empty_result_only() -> None:
    made = builder(part("question"))
    built = made.build(input={}, max_input_chars=0)
    assert (built.messages, built.input_chars) == ([], 0)
    assert "-" in built.explain()
    error = refused(
        "INPUT_TOO_LARGE",
        lambda: made.build(input={}, max_input_chars=0, additional_messages=[said("user", "x")]),
    )
    assert "most of it: additional messages with 1 characters" in str(error)


@pytest.mark.parametrize("name", ["max_input_chars", "max_input_tokens"])
def test_a_budget_of_a_request_is_checked(name: str) -> None:
    made = builder(part("question"))
    for value in (math.nan, -1, 1.5, -math.inf):
        with pytest.raises(ValueError, match=name):
            made.plan(input={}, **{name: value})  # type: ignore[arg-type]  # one name of several
    for wrong in ("10", True):
        with pytest.raises(TypeError, match=name):
            made.plan(input={}, **{name: wrong})  # type: ignore[arg-type]  # that is the test
    unbounded = made.build(input={"question": "Hi"}, **{name: math.inf})  # type: ignore[arg-type]  # as above
    assert getattr(unbounded, name) == math.inf
    whole = getattr(made.plan(input={}, **{name: 10.0}), name)  # type: ignore[arg-type]  # as above
    assert (whole, type(whole)) == (10, int)


# -- tokens


def test_tokens_are_estimated_for_a_budget_and_only_then() -> None:
    made = builder(part("question"), part("page", trust="external"))
    input = {"question": "one two three", "page": "四五六七八九十"}
    free = made.build(input=input)
    assert (free.input_tokens, free.token_source) == (None, None)
    assert [usage.tokens for usage in free.fragment_usage] == [None, None]
    built = made.build(input=input, max_input_tokens=6)
    assert built.token_source is TokenSource.ESTIMATE
    assert built.input_tokens == estimate_context_tokens(built.messages) == 6
    assert [usage.tokens for usage in built.fragment_usage] == [
        estimate_tokens(text) for text in input.values()
    ]
    error = refused("INPUT_TOO_MANY_TOKENS", lambda: made.build(input=input, max_input_tokens=5))
    assert str(error) == (
        "the input has 6 tokens by estimate, 5 at most; most of it: fragment 'question' with 13 characters"
    )
    assert (error.input_tokens, error.max_input_tokens, error.input_chars) == (6, 5, 20)
    assert error.fragment_usage is not None


def test_a_counter_of_the_caller_counts_also_without_a_budget() -> None:
    made = builder(part("a"), part("b"), token_counter=lambda text: len(text.split()))
    built = made.build(input={"a": "one two", "b": "three"}, additional_messages=[said("user", "four")])
    assert built.token_source is TokenSource.COUNTER
    assert built.input_tokens == 4
    assert [usage.tokens for usage in built.fragment_usage] == [2, 1]
    refused("INPUT_TOO_MANY_TOKENS", lambda: made.build(input={"a": "one two"}, max_input_tokens=1))


@pytest.mark.parametrize("wrong", [-1, 1.0, True, None, "3"])
def test_a_counter_that_returns_no_count_is_named(wrong: Any) -> None:
    error = refused(
        "TOKEN_COUNTER", lambda: builder(part("a"), token_counter=lambda text: wrong).build(input={"a": "x"})
    )
    assert str(error) == f"fragment 'a': the token counter returned {wrong!r}"
    assert error.id == "a"


def test_a_counter_that_raises_is_named() -> None:
    def fail(text: str) -> int:
        raise RuntimeError("no vocabulary")

    made = builder(part("a"), token_counter=fail)
    error = refused("TOKEN_COUNTER", lambda: made.build(input={}, additional_messages=[said("user", "x")]))
    assert str(error) == "the token counter raised RuntimeError: no vocabulary"
    assert isinstance(error.__cause__, RuntimeError)


# -- transforms


def keep_last(fragments: tuple[ContextFragment, ...], input: Any) -> list[ContextFragment]:
    return [
        fragment
        if fragment.messages is None
        else dataclasses.replace(fragment, messages=fragment.messages[-1:])
        for fragment in fragments
    ]


def drop_page(fragments: tuple[ContextFragment, ...], input: Any) -> list[ContextFragment]:
    return [fragment for fragment in fragments if fragment.id != "page"]


def add_note(fragments: tuple[ContextFragment, ...], input: Any) -> tuple[ContextFragment, ...]:
    note = dataclasses.replace(fragments[0], id="note", content="Noted.", messages=None)
    return (note, *fragments)


TRANSFORMED = {"chat": [said("user", "Hello"), said("assistant", "Hi"), said("user", "Bye")], "page": "Page"}


def transformed() -> ContextBuilder[Any]:
    return builder(
        part("chat", format=lambda input: {"messages": input["chat"]}),
        part("page", trust="external"),
        part("empty"),
        max_input_chars=100,
        transforms=[keep_last, drop_page, add_note],
    )


def test_transforms_run_in_order_after_all_formats() -> None:
    made = transformed()
    assert [fragment.id for fragment in made.originals(TRANSFORMED)] == ["chat", "page", "empty"]
    assert [fragment.id for fragment in made.fragments(TRANSFORMED)] == ["note", "chat", "empty"]
    built = made.build(input=TRANSFORMED)
    assert built.messages == [user("Noted."), user("Bye")]
    assert built.changes == (
        FragmentChange(id="chat", transform="keep_last", before=10, after=3),
        FragmentChange(id="page", transform="drop_page", before=4, after=None),
        FragmentChange(id="note", transform="add_note", before=0, after=6),
    )


def test_a_transform_can_bring_a_fragment_within_its_limit() -> None:
    def cut(fragments: tuple[ContextFragment, ...], input: Any) -> list[ContextFragment]:
        return [dataclasses.replace(one, content=(one.content or "")[:3]) for one in fragments]

    made = builder(part("page", max_chars=3), transforms=[cut])
    assert made.build(input={"page": "123456"}).messages == [user("123")]


def test_what_a_transform_does_to_the_dicts_or_keeps_of_them_reaches_nobody() -> None:
    kept: list[ContextFragment] = []

    def meddle(fragments: tuple[ContextFragment, ...], input: Any) -> tuple[ContextFragment, ...]:
        kept.extend(fragments)
        assert fragments[0].messages is not None
        fragments[0].messages[0]["content"][0]["text"] = "Changed"
        return fragments

    history = [said("user", "Said")]
    made = builder(part("chat", format=lambda input: {"messages": input}), transforms=[meddle])
    built = made.build(input=history)
    assert built.messages == [user("Changed")]
    assert kept[0].messages is not None
    kept[0].messages[0]["content"].clear()
    assert built.messages == [user("Changed")]
    assert history == [said("user", "Said")]


class Callable:
    def __call__(self, fragments: tuple[ContextFragment, ...], input: Any) -> Any:
        return [*fragments, "text"]


def test_a_transform_that_fails_is_named() -> None:
    def fail(fragments: tuple[ContextFragment, ...], input: Any) -> tuple[ContextFragment, ...]:
        raise KeyError("gone")

    def twice(fragments: tuple[ContextFragment, ...], input: Any) -> tuple[ContextFragment, ...]:
        return fragments * 2

    code = ContextErrorCode.FRAGMENT_TRANSFORM
    error = refused(code, lambda: builder(part("a"), transforms=[fail]).fragments({}))
    assert str(error) == "transform fail raised KeyError: 'gone'"
    assert isinstance(error.__cause__, KeyError)
    error = refused(code, lambda: builder(part("a"), transforms=[twice]).fragments({}))
    assert (str(error), error.id) == ("fragment 'a': transform twice returned it twice", "a")
    error = refused(code, lambda: builder(part("a"), transforms=[Callable()]).fragments({}))
    assert "what Callable returns must be ContextFragments, not 'text'" in str(error)


def test_everything_may_be_taken_away() -> None:
    built = builder(part("a"), transforms=[lambda fragments, input: ()]).build(input={"a": "x"})
    assert (built.messages, built.fragment_usage) == ([], ())
    error = refused(
        "INPUT_TOO_LARGE",
        lambda: builder(part("a"), max_input_chars=1, transforms=[lambda fragments, input: ()]).build(
            input={}, additional_messages=[said("user", "more")]
        ),
    )
    assert error.fragment_usage == ()


# -- the table


def test_the_table_shows_who_takes_what_and_what_was_cut_off() -> None:
    assert transformed().build(input=TRANSFORMED).explain() == "\n".join(
        [
            "fragment  source  trust  chars     of  share  note",
            "note      test    user       6  1,000   6.0%  6 characters added by add_note",
            "chat      test    user       3  1,000   3.0%  7 of 10 characters cut off by keep_last",
            "empty     test    user       0  1,000   0.0%  empty, not sent",
            "page                         0          0.0%  taken away by drop_page (4 characters)",
            "total                        9    100   9.0%",
        ]
    )


def explained(**budgets: float) -> BuiltContext:
    made = builder(part("a"), part("b", max_chars=math.inf))
    return made.build(
        input={"a": "one two", "b": "three"},
        additional_messages=[said("user", "four")],
        **budgets,  # type: ignore[arg-type]  # budgets only
    )


def test_the_table_states_tokens_where_they_were_counted() -> None:
    assert explained(max_input_tokens=100).explain() == "\n".join(
        [
            "fragment       source  trust  chars         of  share  tokens  note",
            "a              test    user       7      1,000      -       3",
            "b              test    user       5  unbounded      -       2",
            "(blank lines)                     2                 -",
            "(additional)                      4                 -",
            "total                            18  unbounded      -       6  tokens are of 100, by estimate",
        ]
    )
    assert "tokens" not in explained(max_input_chars=100).explain()
