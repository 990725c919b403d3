"""Logging set-up: the one place that calls `structlog.configure`.

A library never configures logging, so nothing here runs unless a program asks for it; `aiio`'s own
command line does. Lines of the library and of the standard logger `aiio` go the same way:

    context variables -> level, time, exception text -> masking -> one line of JSON -> sinks
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, TextIO

import structlog

from .encode import encode_line
from .mask import Masking, Scrub
from .sink import FileSink, NoSink, Sink, Sinks, StreamSink

LEVELS = ("debug", "info", "warning", "error", "critical")
"""Levels by name, the most talkative first."""

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""Attributes every record of standard logging has; others were given as `extra`."""


class Logging:
    """Logging as `configure` set it up. A context manager: leaving it closes the file, resets structlog."""

    def __init__(self, sink: Sink, handler: logging.Handler) -> None:
        self._sink = sink
        self._handler = handler

    def __enter__(self) -> Logging:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and leave structlog and the logger `aiio` as if never configured. Idempotent."""
        structlog.reset_defaults()
        logger = logging.getLogger("aiio")
        logger.removeHandler(self._handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
        self._sink.close()


def configure(
    log_file: str | Path | None = None,
    *,
    level: str = "info",
    console: TextIO | None = None,
    scrub: Scrub | None = None,
) -> Logging:
    """Send the log lines of aiio, as JSON without credentials, to a file and a console.

    Args:
      log_file: appended to; None: no file.
      level: the least serious level that is written, one of `LEVELS`.
      console: an open stream with a descriptor (`sys.stderr`), written to beside the file.
      scrub: masks known credentials in a string, `env.scrub`; without it masking goes by name only.

    Returns:
      What undoes it. The last call holds for the whole process.

    Raises:
      OSError: *log_file* can't be opened.
      ValueError: an unknown *level*.
    """
    if level not in LEVELS:
        raise ValueError(f"no such log level: {level!r} (there are {', '.join(LEVELS)})")
    number = logging.getLevelNamesMapping()[level.upper()]
    sinks: list[Sink] = [] if log_file is None else [FileSink(log_file)]
    if console is not None:
        sinks.append(StreamSink(console.fileno()))
    sink: Sink = Sinks(*sinks) if sinks else NoSink()
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        Masking(scrub),
        _encode,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *names: _SinkLogger(sink),
        cache_logger_on_first_use=False,  # a later call must reach loggers made before it
    )
    handler = _FromStandardLogging(processors, sink)
    logger = logging.getLogger("aiio")
    for old in [found for found in logger.handlers if isinstance(found, _FromStandardLogging)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False
    return Logging(sink, handler)


class _SinkLogger:
    """What structlog calls with the encoded line, under the name of the level."""

    def __init__(self, sink: Sink) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = self.fatal = self.msg = (
            sink.write
        )


class _FromStandardLogging(logging.Handler):
    """Takes records of the standard logger through the same processors."""

    def __init__(self, processors: list[Any], sink: Sink) -> None:
        super().__init__()
        self._processors = processors
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        """Write *record*. What the record itself gets wrong (its arguments) shows in the line."""
        try:
            text = record.getMessage()
        except Exception as exc:  # noqa: BLE001  # as standard logging does: a bad call must not end the program
            text = f"{record.msg} ({type(exc).__name__} in its arguments)"
        event: Any = {"event": text, "logger": record.name}
        event |= {key: item for key, item in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            event["exc_info"] = record.exc_info
        for process in self._processors:
            event = process(None, record.levelname.lower(), event)
        self._sink.write(event)


def _encode(logger: Any, method: str, event: dict[str, Any]) -> bytes:
    """Render an event dict; the name of the event and its time come first, for the eye."""
    first: dict[str, Any] = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return encode_line(first | event)
