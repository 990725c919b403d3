"""`MessageList`: the messages and records of a context in memory, and every way to change them.

It counts its changes: `_version` with each one, `_full_version` with each that is more than a new tail. What
is written to disk, and how, follows from these two numbers alone.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias, overload

from .edit import rebuild_message
from .merge import append_valid
from .types import Block, Message, MessageType, Record
from .validate import has_content, has_error, is_message, is_record, validate_context, validate_message

Entries: TypeAlias = "list[Any]"
"""Messages and records."""


class MessageList:
    """Messages and records, oldest first. The list is private; the messages in it are live.

    An index may be negative and then counts from the end. Methods may be called from any thread, one at a
    time. A message that is changed in place, behind the methods, is not known to have changed: `update` is
    for that.

    Raises (every method that changes something):
      IndexError: no such index.
      TypeError: an invalid message, block or index. Nothing was changed.
      ValueError: closed.
    """

    def __init__(self, messages: Sequence[Message | Record] = ()) -> None:
        if not isinstance(messages, list | tuple):
            raise TypeError(f"messages must be a list, not {messages!r:.80}")
        self._entries: Entries = copy.deepcopy(validate_context([*messages]))
        self._guard = threading.RLock()
        """Held while the list changes or a snapshot is taken; never during file work."""
        self._version = self._full_version = int(bool(self._entries))
        self._closed = False

    # -- reading ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Message | Record]:
        return iter(self.messages())

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Entries: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return the live entry at *index*, or a fresh list of those in a slice. IndexError, TypeError."""
        with self._guard:
            return self._entries[index]

    def messages(self) -> Entries:
        """Return a fresh list of the live messages and records."""
        with self._guard:
            return [*self._entries]

    def to_json(self) -> Entries:
        """Return what stands for this context in JSON: its messages and records, live."""
        return self.messages()

    def at(self, index: int) -> Message | Record | None:
        """Return the live entry at *index*, None when there is none. TypeError: not an int."""
        with self._guard, contextlib.suppress(IndexError):
            entry: Message | Record = self._entries[self._position(index)]
            return entry
        return None

    def block_at(self, index: int, block_index: int) -> Block:
        """Return a live block. IndexError: no such entry, or it has no such block. TypeError: not ints."""
        with self._guard:
            content = self._entries[self._position(index)].get("content")
            blocks = content if isinstance(content, list) else []
            return blocks[_position(block_index, len(blocks), f"context[{index}].content")]  # type: ignore[no-any-return]

    # -- changing ---------------------------------------------------------------------------------

    def append(self, message: Message | Record, *, merge: bool = True) -> Message | Record | None:
        """Append *message*, merging it into the last one when they belong together: see `append_message`.

        Returns:
          The stored message, or None when it was empty and was dropped with a warning.
        """
        if not is_record(message):
            validate_message(message)
        with self._changing():
            before = len(self._entries)
            stored = append_valid(self._entries, message, merge=merge)
            if len(self._entries) > before:
                self._version += 1
            elif has_content(message) or has_error(message):
                self._changed()
            return stored

    def prepend(self, messages: Sequence[Message | Record]) -> None:
        """Put *messages* in front, in their order (a system message, say). They are not merged."""
        added = validate_context([*messages])
        with self._changing():
            if added:
                self._entries[:0] = added
                self._changed()

    def edit(self, index: int, message: Message) -> Message:
        """Replace the message at *index* by *message*, rebuilt (`rebuild_message`); return what is stored.

        TypeError: a record is there, too.
        """
        rebuilt = rebuild_message(message)
        with self._changing():
            position = self._message_position(index)
            self._entries[position] = rebuilt
            self._changed()
            return rebuilt

    def edit_block(self, index: int, block_index: int, block: Block) -> Message:
        """Replace one block of the message at *index*, rebuild that message, and return what is stored.

        TypeError: a record is there, too.
        """
        with self._changing():
            position = self._message_position(index)
            message = self._entries[position]
            content = [*message["content"]]
            content[_position(block_index, len(content), f"context[{index}].content")] = block
            self._entries[position] = rebuilt = rebuild_message({**message, "content": content})
            self._changed()
            return rebuilt

    def rollback(self, index: int) -> Entries:
        """Remove the entry at *index* and all after it, and return them."""
        with self._changing():
            position = self._position(index)
            removed = self._entries[position:]
            del self._entries[position:]
            self._changed()
            return removed

    def pop(self) -> Message | Record | None:
        """Remove the last entry and return it; None when there is none."""
        with self._changing():
            return self.rollback(-1)[0] if self._entries else None

    def error_pop(self) -> Message | None:
        """Remove the last entry and return it, if it is an assistant message with an error; else None."""
        with self._changing():
            last = self._entries[-1] if self._entries else None
            failed = is_message(last) and last["type"] == MessageType.ASSISTANT and has_error(last)
            return self.pop() if failed else None

    def remove(self, indexes: Collection[int]) -> Entries:
        """Remove the entries at *indexes*, a non-empty list or set, and return them in their order."""
        if not isinstance(indexes, list | tuple | set | frozenset | range) or not indexes:
            raise TypeError(f"indexes must be a list of ints with at least one in it, not {indexes!r:.80}")
        with self._changing():
            positions = sorted({self._position(index) for index in indexes})
            removed = [self._entries[position] for position in positions]
            for position in reversed(positions):
                del self._entries[position]
            self._changed()
            return removed

    def update(self, fn: Callable[[Entries], object]) -> bool:
        """Let *fn* repair the live list as it likes, and return whether it says that it changed something.

        Args:
          fn: gets the list; what it returns counts as a bool.

        Raises:
          TypeError: the list is no context any more; it has its former entries again.
          Exception: what *fn* raised; the list has its former entries again.
        """
        with self._changing():
            former = [*self._entries]
            try:
                changed = bool(fn(self._entries))
                if changed:
                    validate_context(self._entries)
            except BaseException:
                self._entries[:] = former
                self._changed()  # the list is as it was, but a message in it may not be
                raise
            if changed:
                self._changed()
            return changed

    # -- for the subclass -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Keep other threads out. ValueError: closed."""
        with self._guard:
            if self._closed:
                raise ValueError("this context is closed")
            yield

    def _changed(self) -> None:
        """Count a change that is more than a new tail."""
        self._version += 1
        self._full_version = self._version

    def _position(self, index: int) -> int:
        return _position(index, len(self._entries), "context")

    def _message_position(self, index: int) -> int:
        position = self._position(index)
        if not is_message(self._entries[position]):
            raise TypeError(f"context[{index}] is a record; only messages can be edited")
        return position


def _position(index: object, length: int, what: str) -> int:
    """Return *index* counted from the start. TypeError, IndexError."""
    if isinstance(index, bool) or not isinstance(index, int):
        raise TypeError(f"an index is an int, not {index!r:.80}")
    if not -length <= index < length:
        raise IndexError(f"{what}[{index}]: " + (f"there are {length}" if length else "it is empty"))
    return index % length
