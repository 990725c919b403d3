"""Where an agent's messages are kept: a plain list of the caller's, or a `Context` that may have a file."""

from __future__ import annotations

import errno
from typing import Any, Protocol

import trio

from aiio.context.linkage import repair_linkage
from aiio.context.merge import append_valid
from aiio.context.session_lock import SessionLockedError
from aiio.context.store import Context
from aiio.context.types import Message
from aiio.context.validate import validate_context
from aiio.env import sessions

SAVE_LIMIT = 30.0
"""Seconds that a shielded save may wait."""


class Conversation(Protocol):
    """All ways in which an agent changes its context."""

    def entries(self) -> list[Any]:
        """Return the messages and records, to be read."""
        ...

    def check(self) -> None:
        """TypeError: it is no valid context any more. ValueError: it can't be changed any more."""
        ...

    def append(self, message: Message) -> None:
        """Append *message*, merged into the last one where they belong together."""
        ...

    def prepend(self, message: Message) -> None:
        """Put *message* in front."""
        ...

    def replace(self, entries: list[Any]) -> None:
        """Put *entries* in the place of all that is there."""
        ...

    def repair(self) -> int:
        """Pair calls and results (`repair_linkage`); return how many repairs it took."""
        ...

    async def save(self) -> None:
        """Make durable what was said so far, as far as there is a file.

        OSError, TypeError, ValueError: it can't be; everything stays in memory, and may be saved later.
        """
        ...


class ListConversation:
    """A list, which grows. Saving does nothing, and is no checkpoint."""

    def __init__(self, context: list[Any]) -> None:
        self._context = context

    def entries(self) -> list[Any]:
        return self._context

    def check(self) -> None:
        validate_context(self._context)

    def append(self, message: Message) -> None:
        append_valid(self._context, message)

    def prepend(self, message: Message) -> None:
        self._context.insert(0, message)

    def replace(self, entries: list[Any]) -> None:
        self._context[:] = entries

    def repair(self) -> int:
        return repair_linkage(self._context)

    async def save(self) -> None:
        return


class SessionConversation:
    """A `Context`, changed by its methods only, so that it knows what a flush must write."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.check()

    def entries(self) -> list[Any]:
        return self._context.messages()

    def check(self) -> None:
        if self._context.closed:
            raise ValueError(f"the context {self._context.id!r} is closed; resume it")
        validate_context(self._context.messages())

    def append(self, message: Message) -> None:
        self._context.append(message)

    def prepend(self, message: Message) -> None:
        self._context.prepend([message])

    def replace(self, entries: list[Any]) -> None:
        def replace(live: list[Any]) -> bool:
            live[:] = entries
            return True

        self._context.update(replace)

    def repair(self) -> int:
        repairs = 0

        def repair(entries: list[Any]) -> int:
            nonlocal repairs
            repairs = repair_linkage(entries)
            return repairs

        self._context.update(repair)
        return repairs

    async def save(self) -> None:
        context = self._context
        try:
            await sessions.flush(context)
        except SessionLockedError:
            raise
        except OSError as exc:
            why = f"{exc.strerror}; what was said is kept in memory, but not in the session"
            raise OSError(exc.errno or errno.EIO, why, context.file) from exc


def conversation(context: list[Any] | Context) -> Conversation:
    """Return what keeps the messages in *context*. TypeError: neither a valid list nor a `Context`.

    ValueError: a `Context` that is closed.
    """
    if isinstance(context, Context):
        return SessionConversation(context)
    return ListConversation(validate_context(context))


async def save_shielded(conversation: Conversation) -> None:
    """Save, also where this task is cancelled. Raises what `save` raises; OSError also: it took too long.

    Writing that has begun is waited for, as nobody can stop it; the limit is for a thread to be free.
    """
    with trio.move_on_after(SAVE_LIMIT, shield=True) as scope:
        await conversation.save()
    if scope.cancelled_caught:
        raise OSError(errno.ETIMEDOUT, "the session was not written: no thread was free for it")
