"""Printing the events of an answer as they come."""

from __future__ import annotations

import sys

from aiio.context.events import (
    Done,
    Error,
    ResponseEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ThinkingDelta,
    ThinkingEnd,
)
from aiio.observe import encode_line

from .output import Output, visible, write_error

LAST_WORDS = 1.5
"""Seconds a reader has, after Ctrl-C, to take what was received."""

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class Printer:
    """Prints events: text to the output, thinking dimmed to stderr, or every event as a line of JSON."""

    def __init__(self, out: Output, *, json_lines: bool = False, thinking: bool = False) -> None:
        self._out = out
        self._json_lines = json_lines
        self._thinking = thinking
        self._dims = thinking and sys.stderr.isatty()
        self._pieces: list[str] = []  # of the text block being printed
        self._last = "\n"  # the last character printed

    async def event(self, event: ResponseEvent) -> None:
        """Print *event*, as far as it has something to print. Raises `OutputLost`."""
        if self._json_lines:
            await self._out.line(encode_line(event))
            return
        match event:
            case TextStart():
                if self._pieces:
                    await self._text("\n\n")  # a second block is a new paragraph
                self._pieces = []
            case TextDelta():
                self._pieces.append(event.text)
                await self._text(event.text)
            case TextEnd() if event.text is not None:
                # The authoritative text may say more than was streamed; what was printed can't be taken back.
                printed = "".join(self._pieces)
                if event.text.startswith(printed):
                    self._pieces.append(event.text.removeprefix(printed))
                    await self._text(self._pieces[-1])
            case ThinkingDelta() if self._thinking:
                self._think(event.text)
            case ThinkingEnd() if self._thinking:
                self._think("\n")
            case Done() | Error():
                await self.end()
            case _:
                pass

    async def end(self) -> None:
        """End the line that was begun. Raises `OutputLost`."""
        if self._last != "\n":
            await self._text("\n")

    async def _text(self, text: str) -> None:
        if text:
            await self._out.text(text)
            self._last = text[-1]

    def _think(self, text: str) -> None:
        shown = visible(text)
        write_error(f"{_DIM}{shown}{_PLAIN}" if self._dims else shown)
