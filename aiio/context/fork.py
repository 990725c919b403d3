"""A valid copy of a context up to a message."""

from __future__ import annotations

import copy
from typing import Any

from .linkage import repair_linkage


def forked_entries(entries: list[Any], upto: int | None) -> list[Any]:
    """Return a deep copy of *entries* as far as index *upto*, that one included; None: all of them.

    Calls and results are in pairs in it (`repair_linkage`), so that it can be sent as it is: what the cut
    breaks is mended, and so is what was broken before.
    """
    kept = copy.deepcopy(entries if upto is None else entries[: upto + 1])
    repair_linkage(kept)
    return kept
