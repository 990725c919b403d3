"""Contexts that a conversation with one dialect leaves behind, to go on with another.

Three kinds: what its recordings became, an exchange in which every block type there is occurs, and answers
that were killed. The tests of the SDKs' own types (tests/oracles) send the same ones.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from typing import Any

from aiio.context.types import (
    Block,
    Message,
    assistant_message,
    system_message,
    text_content,
    tool_result_message,
    user_message,
)
from tests.providers.dialects import DIALECTS, Dialect
from tests.providers.manifest import Row, replay, rows
from tests.providers.wires import Answer, Call, Text, Thinking, wire

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
NOTE = base64.b64encode(b"Zeile 1\n").decode()

ANSWER: Answer = (
    Thinking("The sky first, then the sea."),
    Text("I'll look at both."),
    Call("call-sky", "look", {"at": "sky"}),
    Call("call-sea", "look", {"at": "sea", "deep": {"é": [1, None]}}),
)

SERVER_SIDE: dict[str, list[Block]] = {
    "chat": [
        {"type": "text", "text": "Said aloud.", "audio_transcript": True},
        {"type": "binary", "content": "UklGRg==", "mimetype": "audio/wav", "audio_id": "a1", "expires_at": 1},
        {"type": "text", "text": "Cited.", "annotations": [{"type": "url_citation", "url": "http://x"}]},
        {"type": "text", "text": "I can't help with that part.", "refusal": True},
        {
            "type": "thinking",
            "text": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "s"}],
        },
    ],
    "responses": [
        {"type": "thinking", "text": "", "id": "rs_1", "summary": [], "encrypted_content": "Z2g="},
        {
            "type": "server",
            "dialect": "openai_responses",
            "item": {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "sky"},
            },
        },
        {"type": "text", "text": "In passing.", "phase": "commentary"},
        {"type": "text", "text": "I won't.", "refusal": True},
    ],
    "anthropic": [
        {"type": "thinking", "text": "", "redacted": True, "data": "RW5j"},
        {"type": "thinking", "text": "", "signature": "c2ln"},
        {
            "type": "server",
            "dialect": "anthropic",
            "item": {
                "type": "server_tool_use",
                "id": "srvtoolu_1",
                "name": "web_search",
                "input": {"query": "sky"},
            },
        },
        {
            "type": "server",
            "dialect": "anthropic",
            "item": {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        },
        {
            "type": "text",
            "text": "Blue.",
            "citations": [
                {
                    "type": "char_location",
                    "cited_text": "blue",
                    "document_index": 0,
                    "document_title": None,
                    "start_char_index": 0,
                    "end_char_index": 4,
                }
            ],
        },
    ],
    "gemini": [
        {"type": "text", "text": "", "thought_signature": "c2ln"},
        {
            "type": "server",
            "dialect": "gemini",
            "item": {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        },
        {
            "type": "server",
            "dialect": "gemini",
            "item": {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        },
        {"type": "image", "content": PNG, "mimetype": "image/png"},
        {"type": "text", "text": "Seen.", "grounding": {"groundingChunks": []}},
    ],
    "ollama": [{"type": "thinking", "text": "Hm.", "ollama": True}],
}
"""What only one dialect makes, as its answers keep it."""

STRAYS: list[Block] = [
    {"type": "text", "text": ""},
    {"type": "text", "text": " \n"},
    {"type": "thinking", "text": ""},
    {"type": "tool_call", "call_id": "cut", "name": "look", "arguments": '{"at": "s', "partial": True},
    {"type": "a block of next year", "x": 1},
]
"""What no dialect may be sent."""


def all_blocks(maker: Dialect) -> list[Any]:
    """Return an exchange with *maker* in which every role, block and kind of result occurs."""
    answered = replay(maker.provider(), b"".join(wire(maker.name, ANSWER)), framer=maker.framer).content
    image: Block = {"type": "image", "content": PNG, "mimetype": "image/png"}
    note: Block = {"type": "binary", "content": NOTE, "mimetype": "text/plain", "filename": "note.txt"}
    return [
        system_message("Be brief."),
        {"type": "title", "title": "a record"},
        user_message([text_content("What is this?"), image, note]),
        assistant_message([*STRAYS, *SERVER_SIDE[maker.name], text_content("Let me see.")]),
        user_message("Go on."),
        assistant_message([*answered, *STRAYS]),
        tool_result_message("call-sky", "look", [text_content("blue"), image]),
        tool_result_message("call-sea", "look", "no sea", error=True),
        tool_result_message("cut", "look", "never came"),
        tool_result_message("lost", "look", "a result without its call"),
        {**assistant_message([text_content("Half of what was filtered")]), "refused": True},
        assistant_message([]),
        system_message("Now in French."),
        assistant_message([{"type": "tool_call", "call_id": "open", "name": "look", "arguments": {}}]),
        user_message("Thanks."),
    ]


def after(content: list[Block]) -> list[Message]:
    """Return a conversation that goes on after an answer with *content*: its whole calls have results."""
    results = [
        tool_result_message(block["call_id"], block["name"], "r")
        for block in content
        if block["type"] == "tool_call" and not block.get("partial")
    ]
    return [user_message("u"), assistant_message(content), *results, user_message("v")]


def recorded(maker: Dialect) -> Iterator[tuple[Row, list[Message]]]:
    """Yield each recording of *maker* with the conversation that goes on after it."""
    for row in rows(maker.name):
        if content := maker.replay(row).content:
            yield row, after(_whole_files(content))


def _whole_files(content: list[Block]) -> list[Block]:
    """Return *content* with a small picture where a published recording has the middle of one left out."""
    return [{**block, "content": PNG} if "..." in str(block.get("content")) else block for block in content]


def killed(maker: Dialect, points: int = 5) -> Iterator[tuple[Row, int, list[Message]]]:
    """Yield each recording of *maker* cut at *points* places, with how the conversation goes on."""
    for row in rows(maker.name):
        data = row.data
        for at in range(1, points + 1):
            end = len(data) * at // (points + 1)
            if content := replay(maker.provider(row), data[:end], framer=maker.framer).content:
                yield row, end, after(_whole_files(content))


def killed_scripted(maker: Dialect) -> Iterator[list[Message]]:
    """Yield the conversations that go on after `ANSWER` from *maker* was killed behind each of its frames."""
    frames = wire(maker.name, ANSWER)
    for end in range(1, len(frames)):
        if content := replay(maker.provider(), b"".join(frames[:end]), framer=maker.framer).content:
            yield after(content)


@functools.cache
def every_context(maker: Dialect) -> list[tuple[str, list[Any]]]:
    """Return all contexts of *maker*, each under a name that says where it comes from. Not to be changed."""
    return [
        ("all blocks", all_blocks(maker)),
        *((row.file, context) for row, context in recorded(maker)),
        *((f"{row.file} cut at {end}", context) for row, end, context in killed(maker)),
        *(
            (f"scripted, cut after {number} frames", context)
            for number, context in enumerate(killed_scripted(maker), 1)
        ),
    ]


PAIRS = [(maker, taker) for maker in DIALECTS.values() for taker in DIALECTS.values()]
