"""Ollama answers that no recording has: odd shapes, cuts, faults."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from aiio.context.events import Done, Error, ErrorKind, FinishReason
from aiio.context.usage_data import usage_normalize
from aiio.env.errors import HttpStatusError
from aiio.providers.ollama import Ollama
from aiio.transports.framing import NDJSONDecoder, WholeBody

from .conformance import check_events
from .fakes import FakeIO
from .manifest import Replay, replay, replay_frames

END = {"done": True, "done_reason": "stop"}


def provider() -> Ollama:
    return Ollama("http://x", FakeIO())


def line(content: str = "", **message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": content, **message}, "done": False}


def call(name: Any, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, **more}}


def read(lines: Iterable[Any]) -> Replay:
    """Read *lines* one by one, and check what holds for every answer."""
    frames = [found if isinstance(found, bytes) else json.dumps(found).encode() for found in lines]
    result = replay_frames(provider(), frames)
    check_events(result.events, result.content, cut=result.terminal is None)
    return result


def test_thinking_and_text_are_blocks_and_thinking_knows_who_made_it() -> None:
    result = read(
        [
            line(thinking="hm"),
            line(""),
            line(thinking=" hm"),
            line("A", thinking="!"),
            line(""),
            line("B"),
            line(""),
            line("C", thinking=""),
            line("", thinking="D"),
            END,
        ]
    )
    assert result.content == [
        {"type": "thinking", "text": "hm hm!", "ollama": True},
        {"type": "text", "text": "ABC"},
        {"type": "thinking", "text": "D", "ollama": True},
    ]


def test_F1_calls_are_told_apart_by_order_and_made_ids_are_unique() -> None:
    calls = [
        {"id": "x", **call("f", index=0, arguments={"a": 1})},
        {"id": "x", **call("f", index=0, arguments={"a": 2})},
        {"id": None, **call("g", index=None)},
        {"id": "", **call("h", index=0, arguments="")},
    ]
    result = read([line(tool_calls=calls[:2]), line(tool_calls=calls[2:]), END])
    assert [(block["name"], block["arguments"]) for block in result.content] == [
        ("f", {"a": 1}),
        ("f", {"a": 2}),
        ("g", {}),
        ("h", {}),
    ]
    assert len({block["call_id"] for block in result.content}) == 4
    assert result.content[0]["call_id"] == "x"
    assert isinstance(result.terminal, Done)
    assert result.terminal.finish is FinishReason.TOOL_USE


def test_F3_arguments_that_do_not_parse_are_kept_raw_and_not_callable() -> None:
    calls = [call("f", arguments='{"a": 1'), call("f", arguments='{"a": 1}'), call("f", arguments=[1])]
    result = read([line(tool_calls=calls), {"done": True, "done_reason": "length"}])
    assert [block["arguments"] for block in result.content] == ['{"a": 1', {"a": 1}, [1]]
    assert [block.get("partial") for block in result.content] == [True, None, None]
    assert isinstance(result.terminal, Done)
    assert result.terminal.finish is FinishReason.LENGTH


def test_a_call_without_a_name_can_not_be_made() -> None:
    result = read([line(tool_calls=[{}, call(None, arguments={}), "junk"]), END])
    assert [block.get("partial") for block in result.content] == [True, True]


@pytest.mark.parametrize(
    ("head", "mimetype"),
    [("iVBORw", "image/png"), ("/9j/4A", "image/jpeg"), ("UklGRg", "image/webp"), ("R0lGODlh", "image/gif")],
)
def test_images_are_blocks(head: str, mimetype: str) -> None:
    result = read([line("See:"), line(images=[head, "", None]), END])
    assert result.content[1:] == [{"type": "binary", "mimetype": mimetype, "content": head}]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("load", FinishReason.OTHER),
        (None, FinishReason.STOP),
        ("", FinishReason.STOP),
    ],
)
def test_finish_reasons(reason: Any, finish: FinishReason) -> None:
    end = {"done": True, "done_reason": reason, "remote_model": "r", "remote_host": "h"}
    result = read([line("a"), end, line("late")])
    assert isinstance(result.terminal, Done)
    assert (result.terminal.done_reason, result.terminal.finish) == (reason or None, finish)
    assert result.terminal.native == {
        "model": "m",
        "remote_model": "r",
        "remote_host": "h",
        "finish_reason": reason or None,
    }
    assert result.text() == "a"


def test_E3_a_stream_without_done_is_no_answer() -> None:
    result = read([line("half a sen")])
    assert result.terminal is None
    assert result.content == [{"type": "text", "text": "half a sen"}]


@pytest.mark.parametrize("last", ["", " C"])
def test_E3_a_last_line_that_looks_like_any_other_ends_the_answer(last: str) -> None:
    result = read([line("A"), line(" B"), {**line(last), "done": True}])
    assert isinstance(result.terminal, Done)
    assert result.content == [{"type": "text", "text": f"A B{last}"}]


def test_nothing_is_said_after_the_end() -> None:
    one = provider()
    state = one.new_state()
    assert len(list(one.translate(END, state, one.io))) == 1
    assert one.translate(line("a"), state, one.io) == []
    assert one.abandon(state, one.io) == []


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"error": "model runner has unexpectedly stopped"}, ErrorKind.PROVIDER, True),
        (
            {"error": "an error was encountered while running the model: unexpected EOF"},
            ErrorKind.PROVIDER,
            True,
        ),
        ({"error": "server overloaded, please try again in 2s"}, ErrorKind.PROVIDER, True),
        ({"error": "no such tool"}, ErrorKind.PROVIDER, False),
        ({"error": "unauthorized", "signin_url": "https://ollama.com/connect"}, ErrorKind.AUTH, False),
    ],
)
def test_E1_an_error_line_is_classified(error: dict[str, Any], kind: ErrorKind, retryable: bool) -> None:
    for before in ([], [line("a", thinking="hm")]):
        result = read([*before, error])
        terminal = result.terminal
        assert isinstance(terminal, Error)
        assert (terminal.error, terminal.kind, terminal.retryable) == (error["error"], kind, retryable)
        assert result.text() == ("a" if before else "")
        assert terminal.retry_after_ms == (2000 if "2s" in error["error"] else None)


def test_thinking_that_is_cut_has_no_owner() -> None:
    assert read([line(thinking="hm"), {"error": "no"}]).content == [{"type": "thinking", "text": "hm"}]


def test_http_errors() -> None:
    one = provider()
    body = json.dumps({"error": "unauthorized", "signin_url": "https://ollama.com/connect"})
    verdict = one.classify_error(HttpStatusError(401, "Unauthorized", body))
    assert (verdict.kind, verdict.message) == (ErrorKind.AUTH, "unauthorized [fake]")
    assert verdict.native["signin_url"] == "https://ollama.com/connect"
    assert one.classify_error(HttpStatusError(503, "", '{"error": "server busy"}')).retryable
    assert one.classify_error(OSError("gone")).kind is ErrorKind.NETWORK


def test_a_whole_answer_is_read_too() -> None:
    whole = json.dumps({**line("ab", thinking="hm"), **END, "eval_count": 3}).encode()
    result = replay(provider(), whole, framer=WholeBody)
    assert (result.text(), result.text("thinking"), type(result.terminal)) == ("ab", "hm", Done)
    array = replay(provider(), b'[{"error": "no"}]', framer=WholeBody)
    assert isinstance(array.terminal, Error)


@pytest.mark.parametrize("frame", [b"nonsense", b"3", b"[]", b"[1, 2]", b'"text"', b"\xff"])
def test_what_is_no_line_is_unreadable(frame: bytes) -> None:
    result = read([line("a"), frame])
    assert result.fault is not None
    assert result.text() == "a"


def test_D5_blank_lines_and_crlf_carry_nothing() -> None:
    wire = b"\r\n".join(
        [b"", json.dumps(line("a")).encode(), b"", b"  ", json.dumps({**line("b"), **END}).encode()]
    )
    assert replay(provider(), wire, framer=NDJSONDecoder).text() == "ab"


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"message": None},
        {"message": {}},
        {"message": {"role": "assistant", "content": None, "tool_calls": None, "images": None}},
        {"message": {"content": 3, "thinking": 3, "tool_calls": {}, "images": 3}},
        {"message": {"content": ""}, "done": False, "logprobs": []},
        {"done": None, "error": ""},
        {"prompt_eval_count": None, "eval_count": None},
    ],
)
def test_G1_odd_lines_are_fine_anywhere(odd: dict[str, Any]) -> None:
    counted = {**line("b"), "prompt_eval_count": 5}
    result = read([odd, line("a"), odd, counted, odd, {**END, "eval_count": True, **odd, "done": True}])
    assert result.text() == "ab"
    assert isinstance(result.terminal, Done)
    assert usage_normalize(result.terminal.usage).get("output_tokens") is None


def test_G1_usage_without_the_prompt_is_half_known() -> None:
    terminal = read([line("a"), {**END, "eval_count": 3, "total_duration": 7}]).terminal
    assert terminal is not None
    assert usage_normalize(terminal.usage) == {"output_tokens": 3, "details": {"total_duration": 7}}


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    wire = [json.dumps(line(words)).encode() for words in ("x\ud83d", "\ude00", "y", "\ud83d")]
    assert read([*wire, END]).text() == "x😀y\ud83d"
    assert read(wire).text() == "x😀y\ud83d"
    assert read(wire[:0]).content == []
