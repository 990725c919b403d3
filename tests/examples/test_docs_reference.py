"""The reference has every public name, each with a docstring; what is made of tables agrees with them."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
import trio
import trio.lowlevel

from aiio.cli.app import cli
from aiio.io.state import MOVES, Cause, IOState
from scripts import docs_drawing
from scripts.benchmarks.rows import ROWS
from scripts.docs_benchmarks import read_results, table
from scripts.docs_reference import (
    PUBLIC,
    described_as,
    described_in,
    functions,
    names,
    page,
    readable,
    unsaid,
)

from .pages import DOCS, ROOT, blocks, commands, pages


@pytest.mark.parametrize("module", PUBLIC)
def test_docstrings_name_what_is_raised_and_say_what_cancellation_leaves(module: str) -> None:
    assert set(unsaid(module)) == set()


async def raises_and_waits(value: int) -> None:
    """Do a thing."""

    def later() -> None:
        raise KeyError(value)

    if value:
        raise trio.BusyResourceError("busy")
    await trio.lowlevel.checkpoint()
    later()


def test_a_silent_docstring_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("aiio.silent")
    vars(module).update(__all__=["raises_and_waits"], raises_and_waits=raises_and_waits)
    monkeypatch.setitem(sys.modules, "aiio.silent", module)
    monkeypatch.setattr(raises_and_waits, "__module__", "aiio.silent")
    where = "aiio.silent.raises_and_waits"
    assert unsaid("aiio.silent") == [
        f"{where} awaits, and says nothing of cancellation",
        f"{where} raises BusyResourceError, and does not say so",
    ]
    monkeypatch.setattr(
        raises_and_waits, "__doc__", "BusyResourceError: it is. Cancellation: nothing is done."
    )
    assert unsaid("aiio.silent") == []
    monkeypatch.setattr(raises_and_waits, "__doc__", None)
    assert f"{where} has no docstring" in unsaid("aiio.silent")


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_cites_no_page_that_its_reader_lacks(module: str) -> None:
    said = [page(module), *(function.said for function in functions(module))]
    said += [importlib.import_module(module).__doc__ or "", *(name.doc for name in names(module))]
    cited = {found for text in said for found in re.findall(r"\b(?:seed \d+|spec/\w+)", text)}
    assert cited == set()


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_described_once_or_says_where(module: str) -> None:
    text = page(module)
    for name in names(module):
        described = re.findall(rf"^\.\. (?:auto\w+|py:data):: {re.escape(name.path)}$", text, re.MULTILINE)
        where = described_in(name)
        assert len(described) == (where == module), name.path
        if where != module:
            assert f"- `{name.name}`: :py:obj:`{described_as(name)}`" in text
            entry = rf":: {re.escape(described_as(name))}$"
            assert re.search(entry, page(where), re.MULTILINE), name.path


def test_every_room_with_public_names_has_its_page() -> None:
    rooms = {path.parent.name for path in (ROOT / "aiio").glob("*/__init__.py")} - {"cli"}
    assert {f"aiio.{room}" for room in rooms} | {"aiio"} == set(PUBLIC)
    index = (DOCS / "reference" / "index.md").read_text("utf-8")
    assert [module for module in PUBLIC if f"\napi/{module}\n" not in index] == []
    assert all(importlib.import_module(module).__all__ for module in PUBLIC)


def test_a_docstring_reads_as_it_does_in_the_source() -> None:
    lines = [
        "Give `Name`s and `others`.",
        "",
        "    code = 1",
        "",
        "    more",
        "",
        "Args:",
        "  x: a thing.",
        "",
        "    y",
    ]
    assert readable(lines) == [
        "Give `Name`\\ s and `others`.",
        "",
        "::",
        "",
        *lines[2:],
    ]


def test_the_drawing_is_made_of_the_tables() -> None:
    assert docs_drawing.FILE.read_text("utf-8") == docs_drawing.drawing(), (
        "run python -m scripts.docs_drawing"
    )


def test_the_drawing_shows_every_state_move_and_cause() -> None:
    drawing = docs_drawing.drawing()
    shown = re.findall(r">([^<>]+)</text>", drawing)
    assert {state.value for state in IOState} <= set(shown)
    assert {cause.value for cause in Cause} <= set(shown)
    assert drawing.count("marker-end") == len(MOVES)


def test_the_table_of_benchmarks_has_the_rows_and_only_figures_that_were_measured(tmp_path: Path) -> None:
    assert [line.split("`")[1] for line in table(None).splitlines() if line.startswith("| `")] == [
        row.name for row in ROWS
    ]
    assert "Nothing was measured" in table(None)
    machine = {"python": "3.13.1", "platform": "Linux", "cpus": 2}
    measured = {"machine": machine, "quick": False, "rows": [{"name": ROWS[0].name, "measured": 1.234}]}
    file = tmp_path / "bench.json"
    assert read_results(file) is None
    file.write_text(json.dumps(measured))
    lines = table(read_results(file)).splitlines()
    assert [line for line in lines if "1.23 |" in line] == [
        line for line in lines if f"| `{ROWS[0].name}` |" in line
    ]
    assert "Measured by `scripts/bench` on Linux, 2 CPUs, Python 3.13.1." in lines
    file.write_text(json.dumps({**measured, "quick": True}))
    assert read_results(file) is None


def typed() -> Iterator[tuple[str, str]]:
    """Yield every line that a document has typed into a shell, with where it stands."""
    for document in [*pages(), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for block in blocks(document):
            match block.language:
                case "sh":
                    yield from ((str(block), line) for line in block.text.splitlines())
                case "console":
                    yield from ((str(block), command) for command, _ in commands(block))


@pytest.mark.parametrize(
    ("where", "line"), [found for found in typed() if re.search(r"(^|\| )aiio ", found[1])]
)
def test_a_command_in_the_documents_exists_with_its_options(where: str, line: str) -> None:
    words = shlex.split(line[line.index("aiio ") :], comments=True)[1:]
    for stop in ("&", "|", ">", "<", "&&"):
        words = words[: words.index(stop)] if stop in words else words
    command: click.Command = cli
    context = click.Context(cli, info_name="aiio")
    while isinstance(command, click.Group):
        assert words[0] in command.commands, f"{where}: no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    try:
        command.make_context(command.name, [*words], parent=context)
    except click.UsageError as exc:
        pytest.fail(f"{where}: {line}: {exc.format_message()}")


def test_a_script_in_the_documents_exists() -> None:
    named = {(where, found) for where, line in typed() for found in re.findall(r"\bscripts/[\w-]+", line)}
    assert named
    assert [one for one in named if not (ROOT / one[1]).is_file()] == []


def test_every_script_is_in_the_list_of_contributing() -> None:
    scripts = {path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix}
    listed = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert {name for name in scripts if f"scripts/{name}" not in listed} == {"quickstart"}  # a user's


def test_a_file_that_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(r"`((?:aiio|docs|tests|scripts)/[\w./-]+)`", text))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
