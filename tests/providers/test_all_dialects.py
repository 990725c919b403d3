"""One answer, five wires: events, message and partials keep the same laws over all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.events import Done, FinishReason
from aiio.context.types import Block, assistant_message, user_message
from aiio.context.usage_data import usage_normalize

from .conformance import check_events
from .dialects import DIALECTS, Dialect
from .manifest import Replay, replay
from .wires import INPUT, OUTPUT, Answer, Call, Part, Text, Thinking, wire

each = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)

ANSWERS: dict[str, list[Part]] = {
    "text": [Text("Hello, wörld 🐦!")],
    "thinking, then text": [Thinking("Let me see. Aha."), Text("It is blue.")],
    "one call": [Call("c1", "look", {"at": "sky"})],
    "thinking, text and two calls": [
        Thinking("Two things."),
        Text("I'll look."),
        Call("c1", "look", {"at": "sky", "n": [1, 2.5, None, True], "deep": {"é": "\n"}}),
        Call("c2", "look", {}),
    ],
}
answers = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())


def sent(dialect: Dialect, answer: Answer, cut: int | None = None, *, length: bool = False) -> Replay:
    """Replay *answer*, or its first *cut* frames, as *dialect* sends it."""
    frames = wire(dialect.name, answer, length=length)[:cut]
    return replay(dialect.provider(), b"".join(frames), framer=dialect.framer)


def plain(content: list[Block]) -> list[Part]:
    """Return blocks as the parts that they were scripted as, without what a dialect adds."""
    parts: list[Part] = []
    for block in content:
        match block["type"]:
            case "thinking":
                parts.append(Thinking(block["text"]))
            case "text":
                parts.append(Text(block["text"]))
            case _:
                parts.append(Call(block["call_id"], block["name"], block["arguments"]))
    return parts


@each
@answers
@pytest.mark.parametrize("length", [False, True])
def test_one_answer_is_the_same_message_over_every_wire(
    dialect: Dialect, answer: list[Part], length: bool
) -> None:
    result = sent(dialect, answer, length=length)
    check_events(result.events, result.content)
    assert plain(result.content) == answer
    terminal = result.terminal
    assert isinstance(terminal, Done)
    called = any(isinstance(part, Call) for part in answer)
    expected = FinishReason.LENGTH if length else FinishReason.TOOL_USE if called else FinishReason.STOP
    assert terminal.finish is expected
    usage = usage_normalize(terminal.usage)
    assert (usage["input_tokens"], usage["output_tokens"]) == (INPUT, OUTPUT)


@each
@answers
def test_E3_cut_after_any_frame_it_is_no_answer_and_its_partial_goes_to_any_dialect(
    dialect: Dialect, answer: list[Part]
) -> None:
    for cut in range(len(wire(dialect.name, answer))):
        result = sent(dialect, answer, cut)
        if result.terminal is not None:
            break  # what comes after the end signal may be missing
        check_events(result.events, result.content, cut=True)
        context = [user_message("u"), assistant_message(result.content), user_message("v")]
        for other in DIALECTS.values():
            other.body(context)


PARTS = st.one_of(
    st.builds(Thinking, st.text(min_size=1, max_size=8)),
    st.builds(Text, st.text(min_size=1, max_size=8)),
    st.builds(
        Call, st.uuids().map(str), st.just("look"), st.dictionaries(st.text(max_size=3), st.integers())
    ),
)


@each
@given(st.lists(PARTS, max_size=4))
def test_no_text_and_no_call_is_lost_whatever_is_said(dialect: Dialect, answer: list[Part]) -> None:
    result = sent(dialect, answer)
    check_events(result.events, result.content)
    found = plain(result.content)
    for kind in (Text, Thinking):
        said = "".join(part.text for part in answer if isinstance(part, kind))
        assert "".join(part.text for part in found if isinstance(part, kind)) == said
    assert [part for part in found if isinstance(part, Call)] == [
        part for part in answer if isinstance(part, Call)
    ]
