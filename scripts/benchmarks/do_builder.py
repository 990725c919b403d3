"""What `ContextBuilder` costs, without a server: assembling as many fragments as the load has events.

The texts of half of the fragments join the one before them, tokens are estimated, and one transform looks at
all fragments. What comes out must be the text that went in.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import cycle
from typing import Any

from aiio.builder import BuiltContext, ContextBuilder, ContextFragment, define_context_fragments

from .loads import Load, parse_load, stream_pieces
from .reading import Meter, print_report

REPEATS = 10
"""Builds in one pass; one would be a short time to measure."""

END = "\x1e"
"""Ends the text of every fragment, so that the blank lines between joined ones can be told from text."""

SPEAKERS = (("system", "system"), ("system", "system"), ("app", "user"), ("app", "user"))
"""Trust and role, in turn."""


def make_builder(fragments: int) -> ContextBuilder[list[str]]:
    """Return a builder of so many fragments, whose input is their texts."""

    def text(at: int, texts: list[str]) -> str:
        return texts[at]

    def look(given: tuple[ContextFragment, ...], texts: list[str]) -> tuple[ContextFragment, ...]:
        return given

    definitions: list[dict[str, Any]] = [
        {
            "id": f"fragment-{at}",
            "source_id": "bench",
            "trust": trust,
            "lifetime": "turn",
            "role": role,
            "max_chars": 1_000,
            "format": partial(text, at),
        }
        for at, (trust, role) in zip(range(fragments), cycle(SPEAKERS), strict=False)
    ]
    budget = 1_000_000
    return define_context_fragments(
        definitions, max_input_chars=budget, max_input_tokens=budget, transforms=[look]
    )


def text_of(built: BuiltContext) -> str:
    """Return the text of all fragments, as it went in."""
    text = "".join(block["text"] for message in built.messages for block in message["content"])
    return text.replace(f"{END}\n\n", "").replace(END, "")


def assemble(load: Load, meter: Meter) -> str:
    """Build one context several times; the cost is that of one build."""
    builder, texts = make_builder(load.events), [piece + END for piece in stream_pieces(load)]
    builder.build(input=texts)
    meter.start()
    for _ in range(REPEATS):
        built = builder.build(input=texts)
    meter.stop(per=REPEATS)
    return text_of(built)


def main() -> None:
    """Do what the command line asks for, and print the report."""
    _, path, passes = sys.argv[1:]
    load, meter = parse_load(path), Meter()
    texts = {assemble(load, meter) for _ in range(int(passes))}
    if len(texts) != 1:
        raise RuntimeError("the passes ended with different texts")
    print_report(meter, [texts.pop()])


if __name__ == "__main__":
    main()
