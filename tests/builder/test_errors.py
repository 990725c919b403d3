"""Every error: its class, its code, and a text with the fragment in it."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest

from aiio.builder import (
    ContextDefinitionError,
    ContextErrorCode,
    ContextFragment,
    FragmentDefinition,
    define_context_fragments,
)
from aiio.context.text import MAX_DEPTH

from .parts import builder, part, policy, refused, said, user


async def later(*args: Any) -> str:
    return "never"


# -- definitions


def undefined(*definitions: Any, **options: Any) -> ContextDefinitionError:
    with pytest.raises(ContextDefinitionError) as caught:
        builder(*definitions, **options)
    return caught.value


@pytest.mark.parametrize("definitions", [[], (), None, "text", {}])
def test_definitions_are_a_list_that_is_not_empty(definitions: Any) -> None:
    with pytest.raises(ContextDefinitionError, match="at least one"):
        define_context_fragments(definitions)


def test_an_id_is_defined_once() -> None:
    error = undefined(part("a"), part("b"), part("a"))
    assert (str(error), error.id, error.field) == ("fragment 'a' is defined twice", "a", "id")
    assert error.code is ContextErrorCode.DEFINITION


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("id", ""),
        ("id", " \n"),
        ("id", 7),
        ("source_id", ""),
        ("source_id", None),
        ("trust", "root"),
        ("trust", None),
        ("lifetime", "forever"),
        ("lifetime", []),
        ("role", "tool"),
        ("max_chars", 0),
        ("max_chars", -5),
        ("max_chars", math.nan),
        ("max_chars", 2.5),
        ("max_chars", "10"),
        ("max_chars", True),
    ],
)
def test_a_field_that_is_not_valid_is_named(field: str, wrong: Any) -> None:
    error = undefined(part("first"), {**part("a"), field: wrong})
    assert error.field == field
    assert str(error).startswith("definitions[1] (")
    assert repr(wrong) in str(error)
    assert error.id == (wrong if field == "id" and isinstance(wrong, str) else None if field == "id" else "a")


@pytest.mark.parametrize("wrong", [None, "text", later])
def test_a_format_is_a_sync_function(wrong: Any) -> None:
    error = undefined(part("a", format=wrong))
    assert "definitions[0] ('a'): format must be a sync function" in str(error)


@pytest.mark.parametrize("missing", ["id", "source_id", "trust", "max_chars", "format"])
def test_a_field_that_is_missing_is_named(missing: str) -> None:
    definition = part("a")
    del definition[missing]
    error = undefined(definition)
    assert (str(error), error.field) == (f"definitions[0]: {missing} is missing", missing)


def test_a_field_that_nobody_knows_is_named() -> None:
    assert str(undefined(part("a", maxChars=3, b=1))) == "definitions[0]: unknown fields: 'b', 'maxChars'"


def test_a_definition_is_a_dict_or_a_definition() -> None:
    assert "definitions[0]: a definition is a dict" in str(undefined(3))
    definition = FragmentDefinition(id="a", source_id="t", trust="user", max_chars=0, format=str)
    assert "max_chars must be at least 1, not 0" in str(undefined(definition))


@pytest.mark.parametrize("name", ["max_input_chars", "max_input_tokens"])
@pytest.mark.parametrize("wrong", [0, -1, math.nan, 1.5, "10", None, False])
def test_a_budget_that_is_not_positive_is_no_definition(name: str, wrong: Any) -> None:
    assert name in str(undefined(part("a"), **{name: wrong}))


def test_functions_and_the_unit_are_checked_at_once() -> None:
    assert "transforms[1] must be a sync function" in str(
        undefined(part("a"), transforms=[lambda fragments, input: fragments, later])
    )
    assert "token_counter must be a sync function" in str(undefined(part("a"), token_counter=7))
    assert "'bytes'" in str(undefined(part("a"), char_unit="bytes"))


# -- formats


def test_a_format_that_raises_is_named() -> None:
    def fail(input: Any) -> str:
        raise LookupError("no such row")

    error = refused("FRAGMENT_FORMAT", lambda: builder(part("a", format=fail)).fragments({}))
    assert (str(error), error.id) == ("fragment 'a': format raised LookupError: no such row", "a")
    assert isinstance(error.__cause__, LookupError)


@pytest.mark.parametrize(
    "wrong",
    [
        3,
        b"text",
        ["text"],
        {},
        {"messages": None},
        {"messages": [], "role": "user"},
        {"message": []},
        object(),
    ],
)
def test_a_format_returns_text_or_messages_or_nothing(wrong: Any) -> None:
    error = refused("FRAGMENT_FORMAT", lambda: builder(part("a", format=lambda input: wrong)).fragments({}))
    assert str(error).startswith("fragment 'a': format must return text, {'messages': [...]} or None, not ")
    assert error.id == "a"


def test_a_format_that_returns_a_coroutine_is_no_format() -> None:
    refused("FRAGMENT_FORMAT", lambda: builder(part("a", format=lambda input: later())).fragments({}))


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(MAX_DEPTH + 1):
        nested = [nested]
    return nested


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ("text", "messages must be a list, not a str"),
        ([7], "messages[0]: a message is a dict, not a int"),
        ([said("user", "ok"), said("wizard", "x")], "messages[1]: a role is one of system, developer, user,"),
        ([{"role": "user", "content": None}], "messages[0]: content is a list of blocks, not None"),
        ([{"type": 2, "content": "x"}], "messages[0]: content is a list of blocks, not a str"),
        ([{"content": []}], "messages[0]: a message has a `role` or a `type` from 1 to 4, not None"),
        (
            [{"role": "assistant", "content": "", "tool_calls": [], "id": 1}],
            "messages[0]: unknown keys beside role and content: id, tool_calls",
        ),
        ([{"type": 2, "content": ["x"]}], "messages[0].content[0]: a block is a dict with a string `type`"),
        ([{"type": 2, "content": [{"type": 1}]}], "messages[0].content[0]: a block is a dict"),
        ([{"type": 2, "content": [{"type": "text"}]}], "a block of type 'text' has a string `text`"),
        ([{"type": 2, "content": [{"type": "image", "image": "x"}]}], "'image' has a string `content`"),
        ([{"role": "tool", "content": "x"}], "messages[0]: a tool's message needs the `call_id`"),
        ([{"role": "tool", "content": "x", "call_id": " "}], "a tool's message needs the `call_id`"),
        ([{"type": 2, "content": [], 3: 4}], "messages[0]: the key 3 is no string"),
        ([{"type": 2, "content": [{"type": "text", "text": "", "x": b""}]}], "a bytes is no JSON data"),
        ([{"type": 2, "content": deep()}], f"messages[0]: data nested deeper than {MAX_DEPTH}"),
    ],
)
def test_messages_that_are_none_are_told_apart(messages: Any, why: str) -> None:
    made = builder(part("a", format=lambda input: {"messages": messages}))
    error = refused("FRAGMENT_FORMAT", lambda: made.fragments({}))
    assert str(error).startswith("fragment 'a': messages")
    assert why in str(error)
    assert error.id == "a"
    if isinstance(messages, list):
        error = refused(
            "ADDITIONAL_MESSAGE", lambda: builder(part("b")).plan(input={}, additional_messages=messages)
        )
        assert why in f"additional_{error}" or why.replace("messages[", "additional_messages[") in str(error)


# -- fragments


def test_a_fragment_is_checked_when_it_is_made() -> None:
    (fragment,) = builder(part("a")).fragments({"a": "x"})
    for fields in ({"messages": ()}, {"content": None}):
        with pytest.raises(ValueError, match="fragment 'a' needs either content or messages"):
            dataclasses.replace(fragment, **fields)
    with pytest.raises(TypeError, match="content must be text, not a int"):
        dataclasses.replace(fragment, content=7)  # type: ignore[arg-type]  # that is the test


# -- the audit

INPUT = {"policy": "Be kind.", "question": "Why?", "chat": [said("user", "Hi")]}


def audited(
    change: dict[str, Any], *, at: int = 1, mutable: tuple[str, ...] = (), originals: bool = True
) -> Any:
    """Build where a transform changes the fragment at *at*, with originals from before it."""

    def transform(fragments: tuple[ContextFragment, ...], input: Any) -> list[ContextFragment]:
        changed = list(fragments)
        changed[at] = dataclasses.replace(changed[at], **change)
        return changed

    made = builder(
        policy(),
        part("question"),
        part("chat", format=lambda input: {"messages": input["chat"]}),
        transforms=[transform] if change else [],
    )
    return made.build(
        input=INPUT,
        original_fragments=made.originals(INPUT) if originals else None,
        mutable_fragment_ids=mutable,
    )


def test_what_is_as_in_its_original_passes() -> None:
    assert [message["type"] for message in audited({}).messages] == [1, 2, 2]


@pytest.mark.parametrize("mutable", [(), ("question",)])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source_id", "elsewhere"),
        ("trust", "external"),
        ("lifetime", "static"),
        ("role", "assistant"),
        ("max_chars", 999),
    ],
)
def test_the_audit_catches_a_changed_field(field: str, value: Any, mutable: tuple[str, ...]) -> None:
    error = refused("FRAGMENT_MUTATED", lambda: audited({field: value}, mutable=mutable))
    assert str(error) == f"fragment 'question': {field} is not as in its original"
    assert (error.id, error.field) == ("question", field)
    assert audited({field: value}, originals=False).input_chars == 14


def test_a_value_may_change_where_that_is_allowed_and_nowhere_else() -> None:
    for at, change in ((1, {"content": "Why not?"}), (2, {"messages": [said("user", "Ho")]})):
        (field,) = change
        id = ("policy", "question", "chat")[at]
        error = refused("FRAGMENT_MUTATED", partial(audited, change, at=at))
        assert (error.id, error.field) == (id, field)
        assert audited(change, at=at, mutable=(id,)).messages[at] in (user("Why not?"), user("Ho"))
        refused(
            "FRAGMENT_MUTATED",
            partial(audited, change, at=at, mutable=("policy",)),
        )


@pytest.mark.parametrize("mutable", [(), ("question", "chat")])
def test_a_text_stays_a_text_and_messages_stay_messages(mutable: tuple[str, ...]) -> None:
    text = {"content": None, "messages": [user("Why?")]}
    assert refused("FRAGMENT_MUTATED", lambda: audited(text, mutable=mutable)).field == "content"
    chat = {"content": "Hi", "messages": None}
    assert refused("FRAGMENT_MUTATED", lambda: audited(chat, at=2, mutable=mutable)).field == "messages"


def test_mutable_ids_need_an_original_each_if_there_are_any() -> None:
    error = refused("UNKNOWN_FRAGMENT", lambda: audited({}, mutable=("question", "nobody")))
    assert (str(error), error.id) == (
        "fragment 'nobody' is mutable, but there is no original of it",
        "nobody",
    )
    assert audited({}, mutable=("nobody",), originals=False).input_chars == 14


def test_the_set_of_fragments_and_their_order_stay() -> None:
    made = builder(part("a"), part("b"), part("c"))
    a, b, c = made.fragments({})
    for originals, id, what in (
        ((a, b), "c", "has no original: there are 3 fragments, of 2 originals"),
        ((), "a", "has no original: there are 3 fragments, of 0 originals"),
        ((a, b, c, dataclasses.replace(c, id="d")), "d", "is missing"),
        ((a, c, b), "b", "is not at its place"),
        ((a, b, c, a), "a", "has two originals"),
    ):
        error = refused(
            "FRAGMENT_SET_CHANGED",
            partial(made.build, input={}, original_fragments=originals),
        )
        assert str(error).startswith(f"fragment {id!r} {what}")
        assert error.id == id


def test_originals_are_fragments_and_ids_are_a_list() -> None:
    made = builder(part("a"))
    with pytest.raises(TypeError, match=r"original_fragments must be ContextFragments, not {}"):
        made.plan(input={}, original_fragments=[{}])  # type: ignore[list-item]  # that is the test
    with pytest.raises(TypeError, match="mutable_fragment_ids is a list of ids, not 'a'"):
        made.plan(input={}, mutable_fragment_ids="a")


def test_a_plan_audits_nothing() -> None:
    made = builder(part("a"))
    plan = made.plan(input={}, original_fragments=[], mutable_fragment_ids=["x"])
    assert plan.original_fragments == ()
    assert plan.mutable_fragment_ids == {"x"}
