"""Follow the documents as a newcomer would: read what they say to type, type it, and look at what comes.

Nothing to type is written down here, only where in the documents it stands, so the two can't drift apart.
`tests/examples/pages.py` says how a page shows commands, programs and what they print. All is typed into one
shell, in one empty folder; the programs between two commands go into one file, one below the other.

Left out are the blocks that need a key: those that say `export NAME=...`.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.examples.pages import ROOT, Block, as_shown, blocks, commands

PATIENCE = 300.0
"""Seconds that one command may take."""

KEPT = re.compile(r"PIP_|LANG$|LC_|TERM$|TMPDIR$|SSL_CERT_|REQUESTS_CA_BUNDLE$|(?i:https?_proxy|no_proxy)$")
"""What of this process's environment a newcomer has too: what it takes to reach the package index."""

_NEEDS_A_KEY = re.compile(r"^export \w+=\.\.\.$", re.MULTILINE)
_SILENT = ("", "...\n")
"""What a page shows of a command whose output it does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A part of the path."""

    page: str
    section: str | None = None
    """Only what stands under this heading; None: the whole page."""
    prints: str = ""
    """What its program must print, where the page does not show it."""


PATH = (
    Leg(page="docs/tutorial.md"),  # makes the environment in which all the rest is done
    Leg(page="README.md", section="Install"),
    Leg(page="README.md", section="In Python", prints="...{...'output_tokens': ...}\n"),
    Leg(page="docs/index.md"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do: a command to type, or a program to put into a file and run."""

    place: str
    """Page and line."""
    command: str = ""
    program: str = ""
    prints: str = ""
    """What must be printed, `...` for anything. A command may print more than nothing is shown of."""


class WrongPage(Exception):
    """The documents say something that is not so."""


def steps(leg: Leg) -> list[Step]:
    """Return what *leg* says to do. WrongPage: there is nothing."""
    found: list[Step] = []
    program: list[Block] = []
    for block in _blocks(leg):
        if block.language == "python":
            program.append(block)
        elif block.language in ("console", "sh"):
            found += [*_programs(program, leg), *_commands(block)]
            program = []
    found += _programs(program, leg)
    if not found:
        raise WrongPage(f"{leg.page} has nothing to do under {leg.section!r}")
    return found


def _blocks(leg: Leg) -> Iterator[Block]:
    page = ROOT / leg.page
    lines = page.read_text("utf-8").splitlines()
    for block in blocks(page):
        heading = next((line for line in reversed(lines[: block.line]) if line.startswith("## ")), "")
        if leg.section in (None, heading.removeprefix("## ")) and not _NEEDS_A_KEY.search(block.text):
            yield block
            if leg.section is not None and block.language == "python":
                return  # the first one is whole; what follows in a section are pieces


def _commands(block: Block) -> Iterator[Step]:
    if block.language == "console":
        for command, shown in commands(block):
            yield Step(place=str(block), command=command, prints=shown)
    else:
        for command in filter(None, block.text.splitlines()):
            yield Step(place=str(block), command=command)


def _programs(parts: Sequence[Block], leg: Leg) -> list[Step]:
    if not parts:
        return []
    text = "\n\n".join(part.text for part in parts)
    shown = "".join(part.prints or "" for part in parts) or leg.prints
    return [Step(place=str(parts[0]), program=text, prints=shown)]


class Terminal:
    """A shell that somebody types into, in *folder*."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that all of it can be ended
        )

    def type(self, command: str) -> tuple[str, int]:
        """Return what *command* prints, on either stream, and its exit code. What it sets stays set."""
        shell = self._shell
        assert shell.stdin is not None
        assert shell.stdout is not None
        end = f"ended {os.urandom(8).hex()}"
        shell.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %d\\n' '{end}' $?\n")
        shell.stdin.flush()
        patience = threading.Timer(PATIENCE, self._end)
        patience.start()
        said: list[str] = []
        for line in shell.stdout:
            if line.startswith(end):
                patience.cancel()
                return "".join(said).removesuffix("\n"), int(line.removeprefix(end))
            said.append(line)
        patience.cancel()
        raise WrongPage(f"the shell ended in the middle of {command!r}:\n{''.join(said)}")

    def close(self) -> None:
        """End the shell, and what runs in it."""
        self._end()
        with self._shell:
            pass

    def _end(self) -> None:
        try:
            os.killpg(self._shell.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def do(step: Step, terminal: Terminal) -> None:
    """Do *step*. WrongPage: it fails, or prints something else than the page says."""
    command = step.command
    if step.program:
        file = Path(step.place.partition(":")[0]).stem + ".py"
        (terminal.folder / file).write_text(step.program)
        command = f"python {file}"
    print(f"$ {command}", file=sys.stderr)
    said, code = terminal.type(command)
    if code:
        raise WrongPage(f"{step.place}: {command}: exit code {code}\n{said}")
    if step.prints not in _SILENT and not as_shown(said, step.prints):
        raise WrongPage(f"{step.place}: {command}\nprinted:\n{said}\nand the page shows:\n{step.prints}")
    if not said.strip() and (step.prints or command.startswith("aiio ")):
        raise WrongPage(f"{step.place}: {command}: printed nothing")


def surroundings(folder: Path, python: str, index: Path) -> dict[str, str]:
    """Make the home of a newcomer in *folder* and return the environment of a new shell.

    *python* is what `python` runs; packages are also looked for in *index*. Versions are those of
    constraints.txt, and what pip has downloaded before is not downloaded again.
    """
    home, tools = folder / "home", folder / "bin"
    home.mkdir(parents=True)
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    (tools / "python").chmod(0o755)
    cache = subprocess.run(
        [python, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        **{name: value for name, value in os.environ.items() if KEPT.match(name)},
        **({"PIP_CACHE_DIR": cache} if cache else {}),
        "HOME": str(home),
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {index}".strip(),
        "PIP_QUIET": "1",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk the path; return 1 where the documents are wrong."""
    parser = argparse.ArgumentParser(prog="scripts/newcomer")
    parser.add_argument("folder", type=Path, help="an empty or missing folder to do it in")
    parser.add_argument("--python", required=True, help="the newcomer's Python")
    parser.add_argument("--index", required=True, type=Path, help="the folder with the wheel")
    options = parser.parse_args(arguments)
    environment = surroundings(options.folder, options.python, options.index.resolve())
    here = options.folder / "here"
    here.mkdir()
    terminal = Terminal(here, environment)
    done = 0
    try:
        for leg in PATH:
            print(f"\n== {leg.page}" + (f", {leg.section}" if leg.section else ""), file=sys.stderr)
            for step in steps(leg):
                do(step, terminal)
                done += 1
    except WrongPage as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    finally:
        terminal.close()
    print(f"\n== {done} commands and programs did what their pages say", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
