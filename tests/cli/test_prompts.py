"""The prompts file: every broken line is told as file:line, before anything is sent."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiio.cli.exits import CliFault
from aiio.cli.prompts import Prompt, read_prompts
from aiio.context.types import system_message, user_message

CONTEXT = '{"context":[{"type":2,"content":[{"type":"text","text":"Hi"}]}]}'


def any_model(selector: str) -> None:
    if "/" not in selector:
        raise ValueError(f"no model {selector!r}")


def write(path: Path, *lines: str | bytes) -> str:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return str(path)


def test_every_form_is_read(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p",
        b'\xef\xbb\xbf"Hi"\r',
        "",
        '{"prompt":"Hi","key":"k","model":"a/b","system":"Be brief.","note":1}',
        CONTEXT,
        '{"prompt":"Hi","key":7}',
        "",
    )
    prompts, faults = read_prompts(path, any_model)
    assert faults == []
    assert prompts == [
        Prompt(key=1, line=1, text="Hi"),
        Prompt(key="k", line=3, text="Hi", model="a/b", system="Be brief."),
        Prompt(key=4, line=4, context=[user_message("Hi")]),
        Prompt(key=7, line=5, text="Hi"),
    ]


BROKEN: dict[str, str | bytes] = {
    "not JSON": '{"prompt": "Hi"',
    "not UTF-8 text \\(byte 1": b'"\xff"',
    "a prompt is a string or an object, not a list": "[]",
    "a prompt is a string or an object, not a number": "1",
    "a prompt is a string or an object, not null": "null",
    "a prompt is a string or an object, not a truth value": "true",
    "either `prompt` or `context`": "{}",
    "a prompt has either": CONTEXT[:-1] + ',"prompt":"x"}',
    "`prompt` is text that is not empty, not empty text": '"  "',
    "`prompt` is text that is not empty, not an object": '{"prompt":{}}',
    "`key` is text or a whole number, not empty text": '{"prompt":"x","key":""}',
    "`key` is text or a whole number, not a truth value": '{"prompt":"x","key":true}',
    "`key` is text or a whole number, not a number": '{"prompt":"x","key":1.5}',
    "`model` is text": '{"prompt":"x","model":1}',
    "no model 'm'": '{"prompt":"x","model":"m"}',
    "`system` is text": '{"prompt":"x","system":[]}',
    "a context is a list": '{"context":{}}',
    r"context\[1\]": '{"context":[{"type":2,"content":[]},{"type":2}]}',
    "no message with content": '{"context":[{"type":2,"content":[]}]}',
    "that of line 1 already": '{"prompt":"x","key":1}',
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_broken_line_is_named(reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", '"fine"', "", BROKEN[reason], '"fine too"')
    with pytest.raises(CliFault, match=rf"p\.jsonl:3: .*{reason}.*nothing was sent.*--skip-bad") as fault:
        read_prompts(path, any_model)
    assert fault.value.code == 5
    prompts, faults = read_prompts(path, any_model, skip_bad=True)
    assert [prompt.key for prompt in prompts] == [1, 4]
    assert len(faults) == 1


def test_a_file_of_broken_lines_only_is_no_prompts_but_no_fault_when_they_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "p", "{", "[")
    prompts, faults = read_prompts(path, any_model, skip_bad=True)
    assert (prompts, len(faults)) == ([], 2)


def test_an_unreadable_or_empty_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CliFault, match="none can't be read: No such file"):
        read_prompts(str(tmp_path / "none"), any_model)
    with pytest.raises(CliFault, match="holds no prompts"):
        read_prompts(write(tmp_path / "p", " ", ""), any_model)


def test_stdin_is_read_for_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'"Hi"\n{')))
    with pytest.raises(CliFault, match=r"^<stdin>:2: not JSON"):
        read_prompts("-", any_model)


def test_a_context_may_end_with_any_message(tmp_path: Path) -> None:
    path = write(tmp_path / "p", '{"context":[{"type":1,"content":[{"type":"text","text":"S"}]}]}')
    prompts, _ = read_prompts(path, any_model)
    assert prompts[0].context == [system_message("S")]
