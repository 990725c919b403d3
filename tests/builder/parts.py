"""Definitions and small things that the tests of the builder share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from aiio.builder import ContextBuilder, ContextBuildError, ContextErrorCode, define_context_fragments
from aiio.context.types import Message


def part(id: str, **fields: Any) -> dict[str, Any]:
    """A definition: the text of the input under its id, as a user's, unless told otherwise."""
    return {
        "id": id,
        "source_id": "test",
        "trust": "user",
        "lifetime": "turn",
        "max_chars": 1000,
        "role": "user",
        "format": lambda input: input.get(id),
        **fields,
    }


def policy(**fields: Any) -> dict[str, Any]:
    """A definition whose text the author wrote."""
    return part("policy", trust="system", lifetime="static", role="system", **fields)


def builder(*definitions: Mapping[str, Any], **options: Any) -> ContextBuilder[Any]:
    return define_context_fragments(definitions, **options)


def refused(code: ContextErrorCode | str, call: Callable[[], object]) -> ContextBuildError:
    """The error that *call* raises, which has *code*."""
    with pytest.raises(ContextBuildError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def system(text: str) -> Message:
    return {"type": 1, "content": [{"type": "text", "text": text}]}


def user(text: str) -> Message:
    return {"type": 2, "content": [{"type": "text", "text": text}]}


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}
