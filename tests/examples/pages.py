"""Reads the pages of docs/, and does what their examples show.

A fenced block is what its language says: `python` is run, all blocks of a page in one namespace; `console` is
typed into a shell, in the page's own folder; `toml` and `json` are read. What a block prints is the `text`
block that follows it at once. A comment of one line before a block says more:

    <!-- file: prompts.jsonl -->        the block is the file of that name, in the page's folder
    <!-- shown: tests/examples/... -->  the block is that file of the repository, which other tests run
    <!-- waits -->                      the block waits; it runs on a clock that jumps over waiting
    <!-- not run: why -->               it can't be run here
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(?P<ticks>`{3,})(?P<language>[^`]*)$")
_MARK = re.compile(r"^<!-- (?P<word>file|shown|waits|not run)(?:: (?P<value>.+))? -->$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    """Where its first line of text is, from 1."""
    language: str
    text: str
    mark: str | None = None
    """`file`, `shown`, `waits` or `not run`."""
    value: str = ""
    """What the mark says."""
    prints: str | None = None
    """The `text` block that follows at once; None: there is none."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def pages() -> list[Path]:
    """Return the pages that people write; the reference is made of the code."""
    return sorted(DOCS.glob("*.md"))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of *page*, with what they print."""
    found: list[Block] = []
    last_end = 0
    for end, block in _fenced(page):
        before = found[-1] if found else None
        between = page.read_text("utf-8").splitlines()[last_end : block.line - 2]
        if block.language == "text" and before is not None and not "".join(between).strip():
            found[-1] = _printing(before, block.text)
        else:
            found.append(block)
        last_end = end
    return [block for block in found if not block.language.startswith("{")]  # directives of the site


def _printing(block: Block, prints: str) -> Block:
    return Block(
        page=block.page,
        line=block.line,
        language=block.language,
        text=block.text,
        mark=block.mark,
        value=block.value,
        prints=prints,
    )


def _fenced(page: Path) -> Iterator[tuple[int, Block]]:
    """Yield every block with the number of its last line."""
    lines = page.read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        end = lines.index(fence["ticks"], at + 1)
        mark = _MARK.match(lines[at - 1]) if at else None
        yield (
            end + 1,
            Block(
                page=page,
                line=at + 2,
                language=fence["language"],
                text="".join(f"{line}\n" for line in lines[at + 1 : end]),
                mark=mark["word"] if mark else None,
                value=(mark["value"] or "") if mark else "",
            ),
        )
        at = end + 1


def commands(block: Block) -> list[tuple[str, str]]:
    """Return what a `console` block types after `$`, and what it shows as output of each."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), ""))
        else:
            command, output = found[-1]
            found[-1] = (command, f"{output}{line}\n")
    return found


def as_shown(said: str, shown: str) -> bool:
    """Tell whether *said* is what is *shown*, where `...` stands for anything, also for several lines."""
    pattern = ".*?".join(re.escape(part) for part in _trimmed(shown).split("..."))
    return re.fullmatch(pattern, _trimmed(said), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
