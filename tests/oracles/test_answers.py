"""The same bytes in: text, calls, finish and counters are what the official SDK reads, or aiio is right.

Where the manifest of the recordings has a value by hand, because the SDK gets it wrong, that value was tested
against aiio with the recordings; here the SDK need not agree.
"""

from __future__ import annotations

import pytest

from aiio.context.events import Done
from tests.providers.dialects import DIALECTS
from tests.providers.manifest import Row, rows

from .sdk_answers import Said, counters, sdk_said

ROWS = [row for name in DIALECTS for row in rows(name)]

FIELDS = {"text": "text", "calls": "tool_calls", "finish": "finish", "usage": "usage", "failed": "error"}
"""What is compared, and what a manifest calls it."""

EVERYTHING = frozenset(FIELDS)

AIIO_IS_RIGHT: dict[str, tuple[frozenset[str], str]] = {
    "chat-mistral-thinking.sse": (
        EVERYTHING,
        "content in typed parts, which OpenAI's SDK does not know; the expected values are of Mistral's SDK",
    ),
    "chat-q-nulls.sse": (EVERYTHING, "`choices: null`, over which the SDK's users trip"),
    "chat-q-tool-args-object.sse": (
        EVERYTHING,
        "arguments as an object, not as text; the rest of the answer is lost with it",
    ),
    "chat-q-tool-noindex.sse": (
        frozenset({"calls"}),
        "calls without an index, which are joined to one broken call",
    ),
    "chat-openrouter-error.sse": (
        frozenset({"usage"}),
        "usage on the chunk of the error, where the SDK raises",
    ),
    "gemini-malformed-call.sse": (
        frozenset({"finish", "failed"}),
        "a call that the model could not write is an error, not an answer with nothing in it",
    ),
}
"""Recordings of which the SDK makes something else: what differs, and why aiio is right."""


def aiio_said(row: Row) -> Said:
    """Return what aiio reads from the recording."""
    result = DIALECTS[row.protocol].replay(row)
    terminal = result.terminal
    return Said(
        text=result.text(),
        calls=[
            (block["call_id"], block["name"], block["arguments"])
            for block in result.content
            if block["type"] == "tool_call"
        ],
        finish=terminal.done_reason if isinstance(terminal, Done) else None,
        usage=counters(terminal.usage if terminal else result.state.usage),
        failed=not isinstance(terminal, Done),
    )


def excused(row: Row) -> set[str]:
    """Return the fields in which the SDK need not agree."""
    fields, _ = AIIO_IS_RIGHT.get(row.file, (frozenset(), ""))
    return {*fields, *(field for field, name in FIELDS.items() if name in row.by_hand)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.file)
def test_an_answer_is_what_the_official_sdk_reads(row: Row) -> None:
    theirs, ours = sdk_said(row), aiio_said(row)
    if len(theirs.calls) == len(ours.calls):  # an id that was made here, because the server gave none
        ours.calls = [
            (their_id and our_id, *rest)
            for (their_id, *_), (our_id, *rest) in zip(theirs.calls, ours.calls, strict=True)
        ]
    if theirs.failed and ours.failed:
        theirs.finish = None  # an SDK may have seen one before it failed
    different = {field for field in FIELDS if getattr(theirs, field) != getattr(ours, field)}
    assert different <= excused(row), (theirs, ours)


@pytest.mark.parametrize("file", AIIO_IS_RIGHT)
def test_what_is_excused_does_differ(file: str) -> None:
    """The table holds nothing that an SDK has learned meanwhile."""
    found = [row for row in ROWS if row.file == file]
    if not found:
        pytest.skip("this recording is not here")
    theirs, ours = sdk_said(found[0]), aiio_said(found[0])
    assert any(getattr(theirs, field) != getattr(ours, field) for field in AIIO_IS_RIGHT[file][0])
