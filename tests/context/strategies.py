"""Hypothesis strategies for messages and contexts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXTS = st.sampled_from(["", "a", "two words", "ends\n", "\n", "\ufeff \u3000", "日本語", "\ud83d"])
METADATA = st.dictionaries(st.sampled_from(["id", "signature"]), st.integers(0, 2), max_size=1)


def blocks() -> st.SearchStrategy[dict[str, Any]]:
    spoken = st.builds(
        lambda kind, text, more: {"type": kind, "text": text, **more},
        st.sampled_from(["text", "thinking"]),
        TEXTS,
        METADATA,
    )
    call = st.builds(
        lambda arguments: {"type": "tool_call", "call_id": "c", "name": "n", "arguments": arguments},
        st.sampled_from(["", "{", '{"a":1}', {}, {"a": [1]}]),
    )
    other = st.sampled_from([{"type": "image", "content": "aGk="}, {"type": "new"}])
    return st.one_of(spoken, spoken, call, other)


def messages() -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda kind, content, more: {"type": kind, "content": content, **more},
        st.integers(1, 4),
        st.lists(blocks(), max_size=4),
        st.dictionaries(st.sampled_from(["error", "draft"]), st.sampled_from(["", "x"]), max_size=2),
    )


def contexts() -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(messages() | st.just({"type": "note", "value": 1}), max_size=6)
