"""Help pages show examples that hold, and shells complete what is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from aiio.cli.app import cli, invoke
from aiio.cli.completion_commands import SHELLS, VARIABLE

ROOT = Path(__file__).parents[2]


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command, groups before their members."""
    yield path
    if isinstance(command, click.Group):
        for name, member in command.commands.items():
            yield from commands(member, (*path, name))


def examples(page: str) -> list[str]:
    """Return the lines under `Examples:`."""
    _, _, rest = page.partition("Examples:\n")
    return [line.strip() for line in rest.partition("\n\n")[0].splitlines()]


PATHS = list(commands())


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_help_page_shows_examples_that_hold(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke([*path, "--help"]) == 0
    shown = examples(capsys.readouterr().out)
    assert shown, f"aiio {' '.join(path)} --help shows no example"
    own = " ".join(("aiio", *path))
    assert any(own in line for line in shown), f"no example of {own}"
    for line in shown:
        for part in re.split(r"\s\|\s|<\(|\)|\s&$|\s>\s|\s{3,}", line):
            if part.startswith("aiio "):
                check(shlex.split(part)[1:])


def check(arguments: list[str]) -> None:
    """Raise click.UsageError if there is no such command, or it has no such option."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        name = arguments.pop(0)
        assert name in command.commands, f"no command {name!r}"
        command = command.commands[name]
    command.make_context(command.name, arguments)


def test_the_check_finds_examples_that_do_not_hold() -> None:
    check(["sessions", "list", "--all"])
    with pytest.raises(AssertionError, match="no command 'nosuch'"):
        check(["sessions", "nosuch"])
    with pytest.raises(click.NoSuchOption):
        check(["sessions", "list", "--nosuch"])


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_completion_prints_code_for_the_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["completion", shell]) == 0
    code = capsys.readouterr().out
    assert f"{VARIABLE}={shell}_complete" in code
    binary = shutil.which(shell)
    if binary is not None:
        subprocess.run([binary, "-n", "-c", code], check=True)


def test_bash_completes_commands_and_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    assert invoke(["completion", "bash"]) == 0
    code = capsys.readouterr().out
    program = tmp_path / "aiio"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aiio.cli "$@"\n')
    program.chmod(0o755)

    def completed(*words: str) -> list[str]:
        typed = " ".join(map(shlex.quote, words))
        script = f"{code}\nCOMP_WORDS=({typed})\nCOMP_CWORD={len(words) - 1}\n_aiio_completion aiio\n"
        ended = subprocess.run(
            [bash, "--norc", "-c", f'{script}printf "%s\\n" "${{COMPREPLY[@]}}"'],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return ended.stdout.split()

    assert completed("aiio", "sess") == ["sessions"]
    assert completed("aiio", "sessions", "re") == ["recover", "rename"]
    assert "--connect-timeout" in completed("aiio", "ask", "--con")


def test_another_shell_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["completion", "tcsh"]) == 5
    assert "'tcsh' is not one of 'bash', 'fish', 'zsh'" in capsys.readouterr().err
