"""The answer to one request as it comes: frames in, events out, and the message they make.

Everything here is plain function calls between two awaits of `request.py`. `take` runs once per read and
is the hot path: per event it looks up one handler, feeds the assembler, and calls the handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from aiio.context.assemble import Assembler, create_assembler
from aiio.context.events import (
    BlockEvent,
    Done,
    Error,
    Placed,
    Send,
    Start,
    Terminal,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Working,
    as_event,
)
from aiio.context.types import Message
from aiio.env.errors import ErrorKind, ProviderError

if TYPE_CHECKING:
    from aiio.providers.base import Provider

    from .io import IO


class CallbackFailed(Exception):
    """Carries what a callback of the caller raised out of the dispatching loops."""

    def __init__(self, crash: BaseException) -> None:
        super().__init__(crash)
        self.crash = crash


def plugin_fault(where: str, exc: BaseException) -> ProviderError:
    """Return the fault of a plug-in that raised what its contract does not allow."""
    return ProviderError(ErrorKind.MALFORMED, f"{where} failed: {type(exc).__name__}: {exc}")


class Answer:
    """One answer, from its first frame to its last.

    Args:
      io: the IO that runs the request.
      context: what is sent, for estimating usage.
      handlers: by event class, as `handlers_by_class` makes them.
    """

    def __init__(
        self, io: IO, context: Sequence[Message], handlers: Mapping[type, Callable[[Any], object]]
    ) -> None:
        self._io = io
        self._handlers = handlers
        self.context = context
        self.assembler: Assembler = create_assembler()
        self.provider: Provider | None = None
        """None: it has not come to making the request."""
        self.state: Any = None
        """The provider's stream state."""
        self.headers: Mapping[str, str] = {}
        """Response headers; empty while there are none."""
        self.emitted: bool = False
        """Whether any content event was delivered."""
        self.keepalives = 0
        self.outbox: list[bytes] = []
        """Messages that the provider wants sent next."""
        self.terminal: Terminal | None = None
        """The provider's own terminal event."""
        self.over: bool = False
        """Set when nothing that still comes is to be looked at."""
        self._open_text: tuple[int, Any] = _NO_TEXT  # index and slot of the text block that grew last

    def begin(self, provider: Provider, state: Any) -> None:
        """An attempt was made ready: its answer is read by *provider* into *state*."""
        self.provider, self.state = provider, state
        self.outbox = []
        self._open_text = _NO_TEXT

    def take(self, frames: list[bytes]) -> bool:
        """Translate, assemble and dispatch what one read brought; tell whether it held message data.

        Raises:
          ProviderError: malformed: the frames can't be read, or the provider broke its contract.
          CallbackFailed: a callback raised.
        """
        provider, io = self.provider, self._io
        assert provider is not None  # `begin` comes before the first frame
        try:
            return self._dispatch_all(provider.translate_all(frames, self.state, io))
        except (CallbackFailed, ProviderError):
            raise
        except ValueError as exc:
            raise ProviderError(
                ErrorKind.MALFORMED, f"the answer of {io.endpoint_name} can't be read: {exc}"
            ) from exc
        except Exception as exc:
            raise plugin_fault(f"provider {provider.name!r}: translate", exc) from exc

    def finish(self) -> None:
        """The stream has ended: take the provider's last events, one of which must be terminal.

        Raises what `take` raises, and ProviderError (network) when the answer was cut.
        """
        provider, io = self.provider, self._io
        assert provider is not None  # as in `take`
        try:
            self._dispatch_all(provider.finish(self.state, io))
        except (CallbackFailed, ProviderError):
            raise
        except Exception as exc:
            raise plugin_fault(f"provider {provider.name!r}: finish", exc) from exc
        if not self.over:
            raise ProviderError(
                ErrorKind.NETWORK,
                f"the answer of {io.endpoint_name} was cut: the stream ended without an end signal",
                phase="body",
            )

    def complete(self) -> bool:
        """Tell whether the answer is whole and only late usage may follow. ProviderError: the hook failed."""
        provider = self.provider
        assert provider is not None  # as in `take`
        try:
            return provider.ending(self.state)
        except Exception as exc:
            raise plugin_fault(f"provider {provider.name!r}: ending", exc) from exc

    def dispatch(self, event: Start | BlockEvent | Terminal) -> None:
        """Call the handler of *event*. CallbackFailed: it raised."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            try:
                handler(event)
            except BaseException as exc:
                raise CallbackFailed(exc) from exc

    def _dispatch_all(self, events: Any) -> bool:
        """Assemble and dispatch *events*; tell whether they held message data.

        Text that goes on in the block of the event before it is put there directly: what `consume` would
        do with it, without the call.
        """
        handler_of, consume = self._handlers.get, self.assembler.consume
        on_text = handler_of(TextDelta)
        progress = worked = False
        (text_at, slot), self._open_text = self._open_text, _NO_TEXT
        for event in events:
            cls = type(event)
            if cls is TextDelta:
                text = event.text
                if not text:
                    continue
                if event.content_index == text_at and text.__class__ is str:
                    slot.pieces.append(text)
                    event._block = slot
                else:
                    consume(event)
                    text_at, slot = event.content_index, event._block
                handler = on_text
            elif cls in _BLOCK_CLASSES:
                if (cls is ThinkingDelta and not event.text) or (
                    cls is ToolCallDelta and not event.arguments
                ):
                    continue
                consume(event)
                text_at = -1
                handler = handler_of(cls)
            else:
                text_at = -1
                worked = self._take_other(event) or worked
                if self.over:
                    break
                continue
            if not progress:
                progress = self.emitted = True
            if handler is not None:
                try:
                    handler(event)
                except BaseException as exc:
                    raise CallbackFailed(exc) from exc
                if self.over:  # it called kill_nowait()
                    break
        self._open_text = text_at, slot
        return progress or worked

    def _take_other(self, event: Any) -> bool:
        """Take what is no block event; tell whether it was message data."""
        match event:
            case dict():
                return self._dispatch_all((as_event(event),))
            case Placed():
                self.assembler.consume(event)
                return True
            case Working():
                return True
            case Send():
                self.outbox.append(event.data)
            case Start():
                if event.message is not None:
                    self.assembler.consume(event)  # the attempt's own `start` was dispatched already
            case Done() | Error():
                self.terminal = event
                self.over = True
            case None:
                pass
            case _:
                raise TypeError(f"not a response event: {event!r:.120}")
        return False


_BLOCK_CLASSES = frozenset(get_args(BlockEvent))
_NO_TEXT = (-1, None)
