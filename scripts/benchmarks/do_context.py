"""What the context room costs, without a server: appending, saving, estimating, listing.

`python -m scripts.benchmarks.do_context - LOAD PASSES` does the work that LOAD's content names, with what
it needs prepared outside of the measured part, and reports like the readers do, so that it is checked as they
are: the text that comes out must be the text that went in.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiio.context import Context, TextDelta, create_assembler, estimate_context_tokens, text_content
from aiio.context.session_format import Header, entry_line
from aiio.context.types import assistant_message, user_message

from .loads import LISTED, Load, parse_load, stream_pieces
from .reading import Meter, print_report

REPEATS = 20
"""Estimates of an unchanged context in one pass, which would be too short a time alone."""

SESSION_BYTES = 100_000
"""Apparent size of a session file: 10,000 of them are 1 GB. All behind the first lines is a hole in it."""

Message = dict[str, Any]
Work = Callable[[Load, Meter], str]
"""Does the work of one pass, measured by the meter, and returns the text that came out."""


def turns(load: Load) -> list[Message]:
    """Return the load as messages of two speakers, which don't merge."""
    return [
        assistant_message([text_content(text)]) if number % 2 else user_message(text)
        for number, text in enumerate(stream_pieces(load))
    ]


def text_of(messages: Any) -> str:
    """Return what all messages say."""
    return "".join(block["text"] for message in messages for block in message["content"])


def append_deltas(load: Load, meter: Meter) -> str:
    """Assemble one answer of many deltas."""
    events = [TextDelta(0, text) for text in stream_pieces(load)]
    assembler = create_assembler()
    meter.start()
    for event in events:
        assembler.consume(event)
    message = assembler.seal(cut=False)
    meter.stop()
    return text_of([message])


def append_messages(load: Load, meter: Meter) -> str:
    """Append many messages to one context, with the collector off.

    It walks over all there is whenever that has grown by a quarter: where that falls makes anything from
    1.5 to 2.5 of a doubling.
    """
    messages, context = turns(load), Context()
    gc.disable()
    meter.start()
    for message in messages:
        context.append(message)
    meter.stop()
    gc.enable()
    return text_of(context)


def save_messages(load: Load, meter: Meter) -> str:
    """Append many messages to one session and flush after each."""
    messages = turns(load)
    with tempfile.TemporaryDirectory() as folder:
        with Context("bench", dir=folder, fsync=False) as context:
            meter.start()
            for message in messages:
                context.append(message)
                context.flush()
            meter.stop()
        return text_of(Context.resume("bench", folder, save=False))


def estimate(load: Load, meter: Meter) -> str:
    """Estimate a context for the first time."""
    messages = turns(load)
    meter.start()
    estimate_context_tokens(messages)
    meter.stop()
    return text_of(messages)


def estimate_again(load: Load, meter: Meter) -> str:
    """Estimate a context that has not changed; the cost is that of one estimate."""
    messages = turns(load)
    first = estimate_context_tokens(messages)
    meter.start()
    again = [estimate_context_tokens(messages) for _ in range(REPEATS)]
    meter.stop(per=REPEATS)
    if set(again) != {first}:
        raise RuntimeError("an unchanged context was estimated differently")
    return text_of(messages)


def list_sessions(load: Load, meter: Meter) -> str:
    """List the newest sessions of a folder that holds many."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, load.events + 1):
            write_session(Path(folder), number)
        meter.start()
        found = Context.list(folder, limit=LISTED)
        meter.stop()
    return "".join(info.preview for info in found)


def write_session(folder: Path, number: int) -> None:
    """Write one session file, the newer the higher its number."""
    header = Header(
        id=f"session-{number}",
        uuid=str(uuid.UUID(int=number)),
        name=f"{number}",
        cwd="/",
        created="2026-05-04T12:00:00.000Z",
    )
    path = folder / f"2026-05-04 {number:08x} {number}.jsonl"
    path.write_bytes(header.line() + entry_line(user_message(f"Question {number}"), 0))
    os.truncate(path, SESSION_BYTES)
    os.utime(path, (number, number))


WORK: dict[str, Work] = {
    "deltas": append_deltas,
    "messages": append_messages,
    "saves": save_messages,
    "blocks": estimate,
    "blocks-again": estimate_again,
    "sessions": list_sessions,
}
"""By the content of the load."""


def main() -> None:
    """Do what the command line asks for, and print the report."""
    _, path, passes = sys.argv[1:]
    load, meter = parse_load(path), Meter()
    texts = {WORK[load.content](load, meter) for _ in range(int(passes))}
    if len(texts) != 1:
        raise RuntimeError("the passes ended with different texts")
    print_report(meter, [texts.pop()])


if __name__ == "__main__":
    main()
