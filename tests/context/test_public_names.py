"""Every name the design of this room asked for is importable, spelled as Python spells it."""

from __future__ import annotations

import inspect

import pytest

import aiio.context

NAMES = [
    "Context",
    "ContentType",
    "EventType",
    "FALLBACK_CONTEXT_WINDOWS",
    "MIME_BY_EXTENSION",
    "MessageType",
    "TOKENS_PER_WORD",
    "assembly_callbacks",
    "create_assembler",
    "normalize_callbacks",
    "binary_content",
    "content_indexer",
    "text_content",
    "callback_name",
    "dispatch",
    "is_response_event",
    "validate_response_event",
    "fallback_context_window",
    "append_message",
    "assistant_message",
    "error_text",
    "file_message",
    "has_content",
    "has_error",
    "is_record",
    "rebuild_message",
    "system_message",
    "user_message",
    "is_message",
    "validate_message",
    "parse_context",
    "is_context",
    "validate_context",
    "detect_mime",
    "mimetype_of",
    "estimate_tokens",
    "estimate_context_tokens",
    "usage_add",
    "usage_details",
    "estimate_usage",
    "finalize_usage",
    "usage_headers",
    "usage_normalize",
    "word_count",
    "tool_result_message",
]


MEMBERS = [
    "__iter__",
    "__len__",
    "append",
    "at",
    "block_at",
    "close",
    "delete_all",
    "delete_by_id",
    "edit",
    "edit_block",
    "error_pop",
    "file_of",
    "flush",
    "fork",
    "id_anonymous",
    "latest",
    "list",
    "messages",
    "origin_of",
    "pop",
    "prepend",
    "recover",
    "remove",
    "rename",
    "rename_by_id",
    "resume",
    "rollback",
    "save",
    "settings",
    "summary",
    "to_json",
    "update",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_public(name: str) -> None:
    assert hasattr(aiio.context, name)
    assert name in aiio.context.__all__


@pytest.mark.parametrize("name", MEMBERS)
def test_a_context_has_the_member_and_says_what_it_does(name: str) -> None:
    member = getattr(aiio.context.Context, name)
    assert name.startswith("__") or member.__doc__


def test_a_context_is_made_of_what_it_should_be() -> None:
    parameters = inspect.signature(aiio.context.Context).parameters
    wanted = ["id", "dir", "messages", "origin", "uuid", "name", "settings", "save"]
    assert all(name in parameters for name in wanted)


def test_what_is_public_exists() -> None:
    assert all(hasattr(aiio.context, name) for name in aiio.context.__all__)
    assert list(aiio.context.__all__) == sorted(aiio.context.__all__, key=lambda name: (_rank(name), name))


def _rank(name: str) -> int:
    return 0 if name.isupper() else 1 if name[0].isupper() else 2
