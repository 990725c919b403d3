"""The messages of a context in memory, and every way to change them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from aiio.context.message_list import MessageList
from aiio.context.store import Context
from aiio.context.types import assistant_message, system_message, text_content, user_message

from .sessions import answered, said, texts, turns

NOTE = {"type": "note", "value": 1}


def test_messages_are_copied_and_live_inside() -> None:
    given = turns(2)
    context = Context(messages=given)
    given[0]["content"][0]["text"] = "changed"
    assert texts(context) == ["m0", "m1"]
    assert context.messages() is not context.messages()
    assert context.messages()[0] is context.at(0)
    assert context.to_json() == context.messages()
    assert len(context) == 2
    assert [*context] == context.messages()


@pytest.mark.parametrize("given", [{}, "text", None, 7, iter(())])
def test_messages_are_a_list(given: Any) -> None:
    with pytest.raises(TypeError, match="messages must be a list"):
        Context(messages=given)


def test_messages_are_valid() -> None:
    with pytest.raises(TypeError, match=r"context\[1\]"):
        Context(messages=[said("a"), {"type": 2}])


def test_reading_by_index() -> None:
    context = Context(messages=[*turns(2), NOTE])
    assert context.at(0) == said("m0")
    assert context.at(-1) == NOTE
    assert context.at(3) is None
    assert context.at(-4) is None
    assert context.block_at(1, -1) is context.messages()[1]["content"][0]
    assert context[-1] is context.at(2)
    assert context[:2] == turns(2)
    with pytest.raises(IndexError):
        context[3]


@pytest.mark.parametrize("where", [(0, 1), (2, 0), (3, 0), (-4, 0)])
def test_no_such_block(where: tuple[int, int]) -> None:
    with pytest.raises(IndexError):
        Context(messages=[*turns(2), NOTE]).block_at(*where)


@pytest.mark.parametrize("index", [True, "0", 1.0, None])
def test_an_index_is_an_int(index: Any) -> None:
    context = Context(messages=turns(2))
    calls: list[Callable[[], object]] = [
        lambda: context.at(index),
        lambda: context.block_at(0, index),
        lambda: context.edit(index, said("x")),
        lambda: context.edit_block(0, index, text_content("x")),
        lambda: context.rollback(index),
        lambda: context.remove([0, index]),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="an index is an int"):
            call()
    assert texts(context) == ["m0", "m1"]


def test_append_merges_and_returns_what_is_stored() -> None:
    context = Context()
    first = context.append(said("a"))
    assert context.append(said("b")) is first
    assert texts(context) == ["a\n\nb"]
    assert context.append(said("c"), merge=False) is context.at(1)
    assert context.append(NOTE) is context.at(2)
    with pytest.raises(TypeError):
        context.append({"type": 2})
    assert len(context) == 3


def test_an_empty_append_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    context = Context(messages=[answered("a")])
    before = context._version
    assert context.append(user_message("")) is None
    assert "empty_message_dropped" in caplog.text
    assert context.append(assistant_message([])) is context.at(0)
    assert context._version == before


def test_prepend_keeps_the_order_and_merges_nothing() -> None:
    context = Context(messages=turns(1))
    context.prepend([system_message("be brief"), said("before")])
    assert texts(context) == ["be brief", "before", "m0"]
    version = context._version
    context.prepend([])
    assert context._version == version
    with pytest.raises(TypeError):
        context.prepend([{"type": 2}])


def test_edit_rebuilds() -> None:
    context = Context(messages=[*turns(2), NOTE])
    assert context.edit(1, answered("new", id="stale")) is context.at(1)
    assert context.at(1) == answered("new")
    assert context.edit_block(-2, 0, {**text_content("newer"), "id": "stale"}) is context.at(1)
    assert context.at(1) == answered("newer")
    edits: list[Callable[[], object]] = [
        lambda: context.edit(2, said("x")),
        lambda: context.edit_block(2, 0, text_content("x")),
    ]
    for call in edits:
        with pytest.raises(TypeError, match="is a record"):
            call()
    with pytest.raises(TypeError, match="numeric `type`"):
        context.edit(0, NOTE)
    with pytest.raises(TypeError, match="a content block is a dict"):
        context.edit_block(0, 0, "text")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match=r"context\[0\].content\[1\]: there are 1"):
        context.edit_block(0, 1, text_content("x"))
    with pytest.raises(IndexError, match=r"context\[3\]: there are 3"):
        context.edit(3, said("x"))
    assert texts(context.messages()[:2]) == ["m0", "newer"]


def test_rollback_drops_the_rest() -> None:
    context = Context(messages=turns(4))
    assert texts(context.rollback(2)) == ["m2", "m3"]
    assert texts(context.rollback(-1)) == ["m1"]
    assert texts(context) == ["m0"]
    context.rollback(0)
    with pytest.raises(IndexError, match="it is empty"):
        context.rollback(0)


def test_pop() -> None:
    context = Context(messages=[said("a"), answered("b", error="broke")])
    assert context.error_pop() == answered("b", error="broke")
    assert context.error_pop() is None
    assert context.pop() == said("a")
    assert context.pop() is None
    assert context.error_pop() is None
    context.append({**said("x"), "error": "not an answer"})
    assert context.error_pop() is None


def test_remove_a_set() -> None:
    context = Context(messages=turns(5))
    assert texts(context.remove([3, 0, -2, 3])) == ["m0", "m3"]
    assert texts(context.remove({2})) == ["m4"]
    bad: Any
    for bad in ([], "0", 0, None, {}):
        with pytest.raises(TypeError, match="indexes must be a list"):
            context.remove(bad)
    with pytest.raises(IndexError):
        context.remove([0, 2])
    assert texts(context) == ["m1", "m2"]


def test_update_repairs_the_live_list() -> None:
    context = Context(messages=turns(3))
    version = context._version

    def drop_first(entries: list[Any]) -> int:
        del entries[0]
        return 1

    assert context.update(drop_first) is True
    assert texts(context) == ["m1", "m2"]
    assert context._version > version
    version = context._version
    assert context.update(lambda entries: None) is False
    assert context._version == version


def test_a_failed_update_leaves_the_former_entries() -> None:
    context = Context(messages=turns(2))
    before = context.messages()

    def break_it(entries: list[Any]) -> bool:
        entries[:] = [{"type": 2}]
        return True

    def crash(entries: list[Any]) -> bool:
        entries.clear()
        raise ZeroDivisionError

    with pytest.raises(TypeError):
        context.update(break_it)
    with pytest.raises(ZeroDivisionError):
        context.update(crash)
    assert all(was is is_now for was, is_now in zip(before, context.messages(), strict=True))


def test_a_closed_context_refuses_changes() -> None:
    context = Context(messages=turns(2))
    context.close()
    context.close()
    assert context.closed
    changes: list[Callable[[], object]] = [
        lambda: context.append(said("x")),
        lambda: context.prepend([]),
        lambda: context.edit(0, said("x")),
        lambda: context.edit_block(0, 0, text_content("x")),
        lambda: context.rollback(0),
        context.pop,
        context.error_pop,
        lambda: context.remove([0]),
        lambda: context.update(bool),
        lambda: context.rename("new"),
        lambda: setattr(context, "settings", {}),
        lambda: setattr(context, "save", False),
    ]
    for change in changes:
        with pytest.raises(ValueError, match="this context is closed"):
            change()
    assert texts(context) == ["m0", "m1"]


def test_threads_may_append_at_once() -> None:
    context = MessageList()
    threads = [
        threading.Thread(target=lambda: [context.append(said(str(n)), merge=False) for n in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(context) == context._version == 800
