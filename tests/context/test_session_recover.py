"""Saving what can be saved from damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.context.session_recover import _cut_message, _pieces
from aiio.context.store import Context
from aiio.context.types import tool_result_message
from aiio.context.validate import has_content, is_message

from .sessions import answered, names, said, texts, turns
from .strategies import messages

CALL = {"type": "tool_call", "call_id": "a", "name": "look", "arguments": {"text": "x", "n": [1, 2]}}
RICH: dict[str, Any] = {
    "type": 3,
    "content": [
        {"type": "thinking", "text": 'hm "quoted" \\ and \u00e9\n', "signature": "sig"},
        {"type": "text", "text": "Hello \U0001f600 there"},
        CALL,
        {"type": "image", "content": "aGk=", "mimetype": "image/png"},
    ],
    "id": "msg",
    "meta": {"a": [{}, None, True, 1.5]},
}


def line(entry: Any, **options: Any) -> str:
    return json.dumps(entry, separators=(",", ":"), **options)


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_message_cut_anywhere_keeps_whole_blocks_and_text(ascii_only: bool) -> None:
    whole = line(RICH, ensure_ascii=ascii_only)
    saved_blocks = 0
    for cut in range(len(whole)):
        message = _cut_message(whole[:cut])
        if message is None:
            assert saved_blocks == 0
            continue
        blocks = message["content"]
        assert len(blocks) >= saved_blocks
        saved_blocks = len(blocks)
        for block, original in zip(blocks, RICH["content"], strict=False):
            if block["type"] in ("text", "thinking"):
                assert original["text"].startswith(block["text"].rstrip("\ud83d"))
                assert block.get("signature", "sig") == "sig"
            else:  # whole or not at all
                assert block == original
        assert message.get("id", "msg") == "msg"
    assert saved_blocks == 4
    assert _cut_message(whole) == RICH


@given(messages(), messages(), st.data())
def test_a_message_glued_to_a_fragment_is_saved(
    first: dict[str, Any], second: dict[str, Any], data: st.DataObject
) -> None:
    fragment = line(first)[: data.draw(st.integers(0, len(line(first)) - 1))]
    *_, last = _pieces(fragment + line(second))
    assert last == second
    assert [*_pieces(line(first) + line(second))] == [first, second]
    for piece in _pieces(fragment):
        assert is_message(piece)
        assert has_content(piece)


@given(st.text(alphabet='{}[]",:\\type2content 0', max_size=60))
def test_garbage_is_never_more_than_messages_and_records(garbage: str) -> None:
    for piece in _pieces(garbage):
        assert "type" in piece


def test_what_is_saved_of_garbage() -> None:
    assert [*_pieces("garbage")] == []
    assert [*_pieces("7 " + line(said("a")) + "]")] == [said("a")]
    assert [*_pieces(line({"type": "note"}) + "{" * 3000)] == [{"type": "note"}]
    assert [*_pieces("[" * 3000)] == []
    assert [*_pieces('{"type":2,"content":[{"type":"text","text":"a"},')] == [said("a")]
    assert [*_pieces('{"type":2,"content":[],"text":"a')] == []


def test_recover_makes_a_new_session_and_reports_each_line(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(2), origin="/o", settings={"a": 1}) as context:
        pass
    path = Path(str(context.file))
    lines = path.read_text().splitlines()
    cut = line(RICH)
    lines += [
        cut[: cut.index("there")],
        "\x00\x00",
        "",
        cut[: cut.index('"id"')] + line(said("glued")),
        line({"type": 3, "content": [CALL]}),
        line(tool_result_message("a", "look", "seen")),
        line({"type": 3, "content": [{**CALL, "call_id": "b"}]}),
        '{"type":"note","val',
    ]
    path.write_text("\n".join(lines))
    before = path.read_bytes()
    recovery = Context.recover("work", tmp_path, "saved")
    assert path.read_bytes() == before
    assert recovery.file == str(path)
    assert [problem.line for problem in recovery.problems] == [4, 5, 7, 11]
    outcomes = [problem.reason.rpartition("; ")[2] for problem in recovery.problems]
    assert outcomes == [
        "saved 1 of it",
        "nothing of it could be saved",
        "saved 2 of it",
        "nothing of it could be saved",
    ]
    with recovery.context as saved:
        assert (saved.id, saved.origin, saved.settings, saved.save) == ("saved", "/o", {"a": 1}, True)
        kept = saved.messages()
    assert texts(kept[:2]) == ["m0", "m1"]
    assert [len(entry["content"]) for entry in kept] == [1, 1, 2, 4, 1, 1, 1, 1, 1, 1]
    assert kept[2]["content"][1]["text"] == "Hello \U0001f600 "
    assert kept[5] == said("glued")
    for at in (4, 9):
        assert kept[at]["error"] is True  # a call that nobody answered
    assert Context.resume("saved", tmp_path, save=False).messages() == kept
    with pytest.raises(FileExistsError):
        Context.recover("work", tmp_path, "saved")


def test_what_may_be_named(tmp_path: Path) -> None:
    with Context("work", dir=tmp_path, messages=turns(1)) as context:
        pass
    path = Path(str(context.file))
    for named in ("work", path, path.name, path.stem):
        recovery = Context.recover(named, tmp_path)
        assert recovery.problems == ()
        with recovery.context as saved:
            assert texts(saved) == ["m0"]
        Context.delete_by_id(saved.id, tmp_path)
    with pytest.raises(FileNotFoundError, match="no such session or file"):
        Context.recover("nothing", tmp_path)


def test_fragments_and_empty_files(tmp_path: Path) -> None:
    torn = tmp_path / "x.jsonl.torn-1"
    torn.write_text(line(answered("Hello there"))[:-12])
    with Context.recover(torn, tmp_path).context as saved:
        assert texts(saved) == ["Hel"]
    torn.write_text("")
    recovery = Context.recover(torn, tmp_path)
    assert [problem.reason for problem in recovery.problems] == ["the file is empty"]
    assert len(recovery.context) == 0
    recovery.context.close()
    assert len([name for name in names(tmp_path) if name.endswith(".jsonl")]) == 1
