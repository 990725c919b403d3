"""What must not have changed: fragments against their originals, and what transforms may not grant."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aiio.context.types import MessageType

from .errors import ContextBuildError, ContextErrorCode
from .fragments import ContextFragment, Trust
from .messages import texts_of

_FIXED = ("source_id", "trust", "lifetime", "role", "max_chars")


def audit(
    fragments: Sequence[ContextFragment], originals: Sequence[ContextFragment], mutable: Collection[str]
) -> None:
    """Compare *fragments* with *originals*: nothing may differ but the values of those in *mutable*.

    Raises:
      ContextBuildError: UNKNOWN_FRAGMENT, FRAGMENT_SET_CHANGED or FRAGMENT_MUTATED.
    """
    were, are = [one.id for one in originals], [one.id for one in fragments]
    if unknown := sorted(set(mutable).difference(were)):
        text = f"fragment {unknown[0]!r} is mutable, but there is no original of it"
        raise ContextBuildError(ContextErrorCode.UNKNOWN_FRAGMENT, text, id=unknown[0])
    if were != are:
        id, what = _set_difference(were, are)
        text = f"fragment {id!r} {what}: there are {len(are)} fragments, of {len(were)} originals"
        raise ContextBuildError(ContextErrorCode.FRAGMENT_SET_CHANGED, text, id=id)
    for fragment, original in zip(fragments, originals, strict=True):
        field = _difference(fragment, original, mutable=fragment.id in mutable)
        if field is not None:
            text = f"fragment {fragment.id!r}: {field} is not as in its original"
            raise ContextBuildError(ContextErrorCode.FRAGMENT_MUTATED, text, id=fragment.id, field=field)


def _set_difference(were: Sequence[str], are: Sequence[str]) -> tuple[str, str]:
    """Return the first fragment that makes the difference, and what it is."""
    original, present = set(were), set(are)
    for id in were:
        if id not in present:
            return id, "is missing"
    for id in are:
        if id not in original:
            return id, "has no original"
    if len(were) != len(are):
        return next(id for id in were if were.count(id) > 1), "has two originals"
    return next(id for id, was in zip(are, were, strict=True) if id != was), "is not at its place"


def _difference(fragment: ContextFragment, original: ContextFragment, *, mutable: bool) -> str | None:
    for field in _FIXED:
        if getattr(fragment, field) != getattr(original, field):
            return field
    if (fragment.content is None) != (original.content is None):
        return "content" if fragment.content is None else "messages"
    if mutable:
        return None
    return next((f for f in ("content", "messages") if getattr(fragment, f) != getattr(original, f)), None)


class Grants:
    """What fragments may be after the transforms, taken from what they are before."""

    def __init__(self, before: Sequence[ContextFragment]) -> None:
        self._trust = {fragment.id: fragment.trust for fragment in before}
        self._heard: dict[str, str] = {}
        """Texts that somebody else said, each with the fragment it is in."""
        self._said: set[str] = set()
        """Texts of system messages."""
        for fragment in before:
            for message in fragment.as_messages():
                texts = filter(str.strip, texts_of(message))
                if message["type"] == MessageType.SYSTEM:
                    self._said.update(texts)
                elif fragment.messages is not None or not fragment.trust.may_be_system:
                    self._heard.update(dict.fromkeys(texts, fragment.id))

    def check(self, after: Sequence[ContextFragment]) -> None:
        """Check that transforms, which made *after*, gave nothing a trust that it had not.

        A fragment that no definition has may be trusted as a user is. And a text that somebody else said may
        not come to stand, as it is, in a system message, under whatever name.

        Raises:
          ContextBuildError: FRAGMENT_TRUST_RAISED or FRAGMENT_TRUST_ROLE.
        """
        for fragment in after:
            most = self._trust.get(fragment.id, Trust.USER)
            if fragment.trust.rank > most.rank:
                why = f"raised its trust from {most.value!r} to {fragment.trust.value!r}"
                raise _granted(ContextErrorCode.FRAGMENT_TRUST_RAISED, fragment, why)
            systems = (one for one in fragment.as_messages() if one["type"] == MessageType.SYSTEM)
            for words in (text for message in systems for text in texts_of(message)):
                if words in self._heard and words not in self._said:
                    why = f"made a system message of text from fragment {self._heard[words]!r}"
                    raise _granted(ContextErrorCode.FRAGMENT_TRUST_ROLE, fragment, why)


def _granted(code: ContextErrorCode, fragment: ContextFragment, why: str) -> ContextBuildError:
    return ContextBuildError(code, f"fragment {fragment.id!r}: a transform {why}", id=fragment.id)
