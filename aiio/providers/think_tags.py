"""A leading `<think>...</think>` in the text of an answer, told apart from the rest, whatever the cuts."""

from __future__ import annotations

from collections.abc import Iterator

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkTags:
    """Feed text, read (is thinking, text) pieces. The opening tag counts only at the start of the answer."""

    __slots__ = ("_held", "_state")

    def __init__(self) -> None:
        self._state = "before"
        self._held = ""

    @property
    def done(self) -> bool:
        """Whether everything that follows is plain text."""
        return self._state == "after"

    def feed(self, text: str) -> Iterator[tuple[bool, str]]:
        """Yield what *text* decides; what may still become a tag is held back."""
        text, self._held = self._held + text, ""
        if self._state == "before":
            bare = text.lstrip()
            if not bare.startswith(_OPEN):
                if _OPEN.startswith(bare):
                    self._held = text
                    return
                self._state = "after"
            else:
                self._state = "inside"
                text = bare[len(_OPEN) :]
        if self._state == "inside":
            thinking, closed, rest = text.partition(_CLOSE)
            if not closed:
                keep = _tail(thinking)
                self._held = thinking[len(thinking) - keep :]
                thinking = thinking[: len(thinking) - keep]
            if thinking:
                yield True, thinking
            if not closed:
                return
            self._state, text = "after", rest
        if text:
            yield False, text

    def flush(self) -> Iterator[tuple[bool, str]]:
        """Yield what was held back; nothing more can complete a tag."""
        held, self._held = self._held, ""
        if held:
            yield self._state == "inside", held


def _tail(text: str) -> int:
    """Return how many characters at the end of *text* may be the start of the closing tag."""
    return next((n for n in range(min(len(text), len(_CLOSE) - 1), 0, -1) if _CLOSE.startswith(text[-n:])), 0)
