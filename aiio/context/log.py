"""Where the library's log lines go: to the program's structlog, or quietly to standard logging.

A library never configures logging. In a program that configured structlog, lines go through its
processors; in any other they go to the standard logger `aiio`, which shows warnings and worse only.
"""

from __future__ import annotations

import logging
import sys
from functools import cache
from typing import Any

_STANDARD = logging.getLogger("aiio")


@cache
def _quiet() -> Any:
    import structlog

    return structlog.wrap_logger(
        _STANDARD,
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def is_info_heard() -> bool:
    """Tell whether a line of level info may go anywhere, for who has much to put together for it.

    structlog is not imported to find out: who configured it has done that.
    """
    is_configured = getattr(sys.modules.get("structlog"), "is_configured", None)
    return (is_configured is not None and is_configured()) or _STANDARD.isEnabledFor(logging.INFO)


def get_logger() -> Any:
    """Return the logger to use now; ask again for every line, a program may configure structlog later.

    structlog is imported with the first line: with what it imports itself it is half of an import of aiio.
    """
    import structlog

    return structlog.get_logger("aiio") if structlog.is_configured() else _quiet()
