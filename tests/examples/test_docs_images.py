"""The pictures in the documents: there, small, described in words, and of what there is now."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import trio

from aiio.cli.progress import Tally, table
from aiio.context.events import ErrorKind
from scripts.docs_screenshots import PAGE, TABLE, as_svg, pictures

from .pages import ROOT, pages

MOST_BYTES = 150_000
PNG = b"\x89PNG\r\n\x1a\n"
SVG = "{http://www.w3.org/2000/svg}"


def shown(document: Path) -> dict[Path, str]:
    """Return the pictures of *document* with the words that stand for them."""
    found = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", document.read_text("utf-8"))
    return {(document.parent / target).resolve(): words for words, target in found}


def texts(svg: str) -> list[str]:
    """Return the texts in a picture, as they are read."""
    found = ElementTree.fromstring(svg).iter(f"{SVG}text")
    return [" ".join((one.text or "").replace("\N{NO-BREAK SPACE}", " ").split()) for one in found]


def test_the_readme_shows_both_pictures() -> None:
    assert set(shown(ROOT / "README.md")) == {TABLE, PAGE}


@pytest.mark.parametrize("document", [ROOT / "README.md", *pages()], ids=lambda document: document.stem)
def test_a_picture_is_there_and_says_in_words_what_it_shows(document: Path) -> None:
    for image, words in shown(document).items():
        assert image.is_file(), f"{document.name} shows {image.name}, which is not there"
        assert len(words.split()) > 5, f"{document.name} says only {words!r} of {image.name}"


def test_pictures_are_small_and_all_are_shown() -> None:
    there = {path for path in PAGE.parent.iterdir() if not path.name.startswith(".")}
    assert there == {image for document in (ROOT / "README.md", *pages()) for image in shown(document)}
    assert [path.name for path in there if path.stat().st_size > MOST_BYTES] == []
    assert PAGE.read_bytes().startswith(PNG)


def test_the_terminal_loads_nothing_from_elsewhere() -> None:
    named = re.findall(r"\bhttps?://[\w./]+", TABLE.read_text("utf-8"))
    assert named == ["http://www.w3.org/2000/svg", "https://www.textualize.io"]  # its format; a comment


async def test_the_terminal_shows_the_table_of_today() -> None:
    tally = Tally(total=1, began=trio.current_time())
    tally.failed.update([ErrorKind.NETWORK, ErrorKind.PROVIDER])
    headings = [str(column.header) for column in table(tally).columns]
    drawn = texts(TABLE.read_text("utf-8"))
    begin = drawn.index(headings[0])
    assert drawn[begin : begin + len(headings)] == headings


def test_each_table_that_a_terminal_drew_is_a_picture() -> None:
    first, second = "in flight  ETA\r\n        1    -\r\n", "in flight  ETA\r\n        2  0:04\r\n"
    written = f"\x1b[?25l{first}\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K{second}\r\x1b[2K\x1b[?25h18 prompts\r\n"
    assert list(pictures(written.encode())) == [
        "in flight  ETA\n        1    -",
        "in flight  ETA\n        2  0:04",
    ]


def test_a_picture_of_a_terminal_has_the_command_and_the_colours() -> None:
    svg = as_svg("aiio run x.jsonl", "\x1b[31mred\x1b[0m & plain")
    assert [text for text in texts(svg) if text] == ["aiio run", "$", "aiio run x.jsonl", "red", "& plain"]
    classes = [one.get("class") for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert len(set(classes)) == 4  # the title, the prompt, plain text, red
