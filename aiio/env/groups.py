"""One exception out of a group: what leaves a nursery of ours is a plain exception, never a group."""

from __future__ import annotations

import trio


def first_leaf(error: BaseException) -> BaseException:
    """Return the exception in *error* that is most worth raising.

    What is no Exception comes first (KeyboardInterrupt), then an Exception, then a cancellation.
    """
    return min(leaves(error), key=_rank)


def leaves(error: BaseException) -> list[BaseException]:
    """Return the plain exceptions in *error*; itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def _rank(leaf: BaseException) -> int:
    if isinstance(leaf, trio.Cancelled):
        return 2
    return 1 if isinstance(leaf, Exception) else 0
