"""Reading frames that repeat an earlier one in everything but their text.

A server that streams text sends the same object over and over around a few new characters. One of them is
decoded; of those that follow, what stands before the text and after it is compared byte for byte, and only
the JSON string between is decoded. That is no guess about JSON: the same bytes around another string
are the same object with another text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_NEVER = 1 << 62  # bytes; no frame is that long
_decode_text = msgspec.json.Decoder(str).decode
PROBE = b'"\\u0001 probe"'
"""A JSON string that no model says, put in the place of a text to prove that it is one."""
PROBE_TEXT = "\u0001 probe"

MOST_IN_VAIN = 4
"""How often in a row something is learnt that is of no use afterwards."""
WORTH_IT = 8
"""Frames that have to be read by what was learnt, to have been worth it."""


class RepeatedFrames:
    """What the frames of one answer have in common, once that is known.

    Args:
      key: name of the member whose string is the text.
      text_of: decodes a whole frame and returns its text. ValueError: it is no frame that only adds text.
    """

    def __init__(self, key: str, text_of: Callable[[bytes], str]) -> None:
        self._member = re.compile(rb'"%s"\s*:\s*("(?:[^"\\]|\\.)*")' % key.encode(), re.DOTALL)
        self._text_of = text_of
        self._head = self._tail = b""
        self._text_at = self._text_end = 0
        self._least = _NEVER
        self._used = 0
        self._in_vain = 0  # how often what was learnt was of no use afterwards

    def text(self, frame: bytes) -> str | None:
        """Return the text of *frame*, which may be empty; None: it differs in more than its text."""
        if (
            frame[: self._text_at] != self._head
            or frame[self._text_end :] != self._tail
            or len(frame) < self._least
        ):
            return None
        self._used += 1
        try:
            return _decode_text(frame[self._text_at : self._text_end])
        except msgspec.DecodeError:
            return None

    def learn(self, frame: bytes) -> None:
        """Take *frame*, which only adds text, as the pattern of those to come.

        Where each frame differs from the one before in more than its text, that is soon given up.
        """
        self._in_vain = 0 if self._used >= WORTH_IT else self._in_vain + 1
        self._used, self._least = 0, _NEVER
        if self._in_vain > MOST_IN_VAIN or (member := self._member.search(frame)) is None:
            return
        head, tail = frame[: member.start(1)], frame[member.end(1) :]
        try:
            proven = self._text_of(head + PROBE + tail) == PROBE_TEXT
        except (ValueError, RecursionError):
            return
        if proven:
            self._head, self._tail = head, tail
            self._text_at, self._text_end = len(head), -len(tail)
            self._least = len(head) + len(tail) + 2
