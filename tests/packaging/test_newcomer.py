"""scripts/newcomer takes what it types from the documents, and notices where they are wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts import newcomer_path
from scripts.newcomer_path import PATH, Leg, Step, Terminal, WrongPage, do, steps, surroundings


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "python").symlink_to(sys.executable)
    opened = Terminal(tmp_path, {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
    yield opened
    opened.close()


def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Make a document of *text*; return its name."""
    monkeypatch.setattr(newcomer_path, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(text)
    return "page.md"


def test_the_documents_say_how_to_install_set_up_ask_and_look() -> None:
    todo = [step for leg in PATH for step in steps(leg)]
    typed = [step.command.partition("#")[0].strip() for step in todo if step.command]
    assert typed[:3] == [
        "python -m venv .venv && . .venv/bin/activate",
        "pip install 'aiio-runtime[cli,local]'",
        "aiio local setup",
    ]
    assert "aiio ask 'Name three birds.'" in typed
    assert "aiio trace trace.jsonl" in typed
    programs = [step for step in todo if step.program]
    assert len(programs) == 3
    assert all(step.prints for step in programs)


def test_what_needs_a_key_is_left_out() -> None:
    assert not [step for leg in PATH for step in steps(leg) if "_API_KEY" in step.command]


def test_programs_between_two_commands_are_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
```python
a = 1
```

```python
print(a)
```

```text
1
```

```console
$ ls
```
"""
    program, command = steps(Leg(page=page(tmp_path, monkeypatch, text)))
    assert program == Step(place="page.md:3", program="a = 1\n\n\nprint(a)\n", prints="1\n")
    assert command == Step(place="page.md:15", command="ls")


def test_a_section_that_is_gone_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = page(tmp_path, monkeypatch, "## Install\n\n```sh\nls\n```\n\n## Use\n\nIt is easy.\n")
    assert [step.command for step in steps(Leg(page=name, section="Install"))] == ["ls"]
    for section in ("Use", "Set up"):
        with pytest.raises(WrongPage, match=f"nothing to do under '{section}'"):
            steps(Leg(page=name, section=section))


def test_what_a_command_sets_stays_set(terminal: Terminal) -> None:
    assert terminal.type("export BIRD=wren; cd /") == ("", 0)
    assert terminal.type('echo "$BIRD in $PWD"; echo err >&2; cat # nothing to read') == (
        "wren in /\nerr\n",
        0,
    )
    assert terminal.type("printf half; (exit 3)") == ("half", 3)


def test_a_shell_that_ends_is_noticed(terminal: Terminal) -> None:
    with pytest.raises(WrongPage, match="ended in the middle"):
        terminal.type("echo on my way; exit 0")


def test_what_the_page_shows_is_what_must_be_printed(terminal: Terminal) -> None:
    do(Step(place="page.md:1", command="echo 3 birds", prints="... birds\n"), terminal)
    do(Step(place="page.md:1", program="print('wren')\n", prints="wren\n"), terminal)
    assert (terminal.folder / "page.py").read_text() == "print('wren')\n"


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (Step(place="page.md:7", command="echo 3 fish", prints="... birds\n"), "3 fish"),
        (Step(place="page.md:7", command="true", prints="...\n"), "printed nothing"),
        (Step(place="page.md:7", command="false"), "exit code 1"),
        (Step(place="page.md:7", program="print(2)\n", prints="1\n"), "printed:\n2"),
    ],
)
def test_a_page_that_is_wrong_is_told_with_its_line(terminal: Terminal, step: Step, why: str) -> None:
    with pytest.raises(WrongPage) as raised:
        do(step, terminal)
    assert str(raised.value).startswith("page.md:7: ")
    assert why in str(raised.value)


def test_a_newcomer_has_no_keys_and_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AIIO_CONFIG_DIR", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PIP_FIND_LINKS", "elsewhere")
    environment = surroundings(tmp_path, sys.executable, Path("wheels"))
    assert not {"OPENAI_API_KEY", "AIIO_CONFIG_DIR", "PYTHONPATH", "VIRTUAL_ENV"} & set(environment)
    assert environment["PIP_FIND_LINKS"] == "elsewhere wheels"
    assert list(Path(environment["HOME"]).iterdir()) == []
