"""The entry point `aiio`: needs nothing but the standard library until it knows that the extra is there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

EXTRA = ("click", "rich")
MISSING_EXTRA = "aiio: the command line needs its extra: pip install 'aiio-runtime[cli]'"
_BAD_INPUT = 5  # as in exits.py, which needs more than the standard library
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in *argv* (None: the process's own) and return its exit code. Raises nothing."""
    if any(importlib.util.find_spec(module) is None for module in EXTRA):
        print(MISSING_EXTRA, file=sys.stderr)
        return _BAD_INPUT
    try:
        from .app import invoke

        return invoke(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:  # while the modules load
        return _INTERRUPTED
