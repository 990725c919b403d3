"""The HTTP libraries log the URL of every request they send; a key may stand in its query.

Our own connections bypass that, but a request through a proxy, or through a client the program lends us, is
sent by the library. What its loggers say is masked before any handler sees it, whatever the program does with
its logging. That is the one thing we ever do to loggers that are not ours.
"""

from __future__ import annotations

import logging
import weakref

from .scrub import Scrubber

_CORE = ("", ".connection", ".http11", ".http2", ".proxy", ".socks")
_LOGGERS = (
    "httpx",
    "httpx2",
    *(f"httpcore{part}" for part in _CORE),
    *(f"httpcore2{part}" for part in _CORE),
    "trio-websocket",
)
"""Every logger that speaks: what a filter of a logger lets through or not is its own records only."""


class _HttpMask(logging.Filter):
    """Masks credentials in a record: by their name, and the known ones of every Env by value."""

    def __init__(self) -> None:
        super().__init__()
        self.scrubbers: weakref.WeakSet[Scrubber] = weakref.WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the record pass, without credentials."""
        try:
            text = record.getMessage()
        except Exception as exc:  # noqa: BLE001  # a bad call of the logger must not end a request
            text = f"unreadable log record ({type(exc).__name__})"
        record.msg, record.args = Scrubber.joining(self.scrubbers).text(text), ()
        return True


_mask = _HttpMask()


def mask_http_logs(scrubber: Scrubber) -> None:
    """Mask what *scrubber* knows, and what is named like a credential, in the HTTP libraries' log records."""
    _mask.scrubbers.add(scrubber)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_mask)  # once, however often it is added
