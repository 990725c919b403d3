"""Draws one write from the tables of `aiio/io/state.py`, as plain SVG.

    python -m scripts.docs_drawing      # writes docs/drawings/one-write.svg

Above, the states of an IO and every move between them; below, what each cause makes of the terminal event. A
test compares the file with the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from aiio.context import ErrorKind
from aiio.io.state import MOVES, OUTCOMES, Cause, IOState, Step

FILE = Path(__file__).resolve().parents[1] / "docs" / "drawings" / "one-write.svg"

WIDTH, MARGIN = 960, 24
BOX_WIDTH, BOX_HEIGHT = 120, 44
ROW = 30
STATES_Y = 176
"""The middle of the row of states."""
CAUSES_Y = 340
"""The top of the table of causes."""
COLUMNS = (MARGIN + 12, 140, 346, 430)
"""Left edges: cause, terminal event, limit, sentence."""

GROUND, INK, QUIET, LINE = "#ffffff", "#1f2933", "#52606d", "#9aa5b1"
KIND_COLOURS = {
    None: "#0b6e4f",
    ErrorKind.CANCELLED: "#8a4b08",
    ErrorKind.NETWORK: "#9b1c1c",
}
"""Of `Done`, and of the kinds in `OUTCOMES`."""
FONT = 'font-family="system-ui, sans-serif"'

BRINGS_ITS_OWN = {
    Cause.ANSWERED: ("Done", "what the provider said; an Error, when it said that it failed"),
    Cause.FAULT: ("Error, its kind", "what failed: provider, network, or a plug-in that breaks its contract"),
}
"""Causes without a row in `OUTCOMES`: their terminal event comes with them."""


def text(x: float, y: float, words: str, *, size: int = 14, fill: str = INK, more: str = "") -> str:
    """Return one line of text that begins at *x* and stands on *y*."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" {more}>{escape(words)}</text>'


def centred(x: float, y: float, words: str, *, size: int = 14, fill: str = INK, more: str = "") -> str:
    """Return one line of text around *x*."""
    return text(x, y, words, size=size, fill=fill, more=f'text-anchor="middle" {more}'.strip())


def middle(state: IOState) -> float:
    """Return where the middle of a state's box is; the boxes stand in the order of `IOState`."""
    states = list(IOState)
    gap = (WIDTH - 2 * MARGIN - len(states) * BOX_WIDTH) / (len(states) - 1)
    return MARGIN + BOX_WIDTH / 2 + states.index(state) * (BOX_WIDTH + gap)


def move_path(before: IOState, after: IOState) -> tuple[str, float, float]:
    """Return the path of an arrow, and where its label goes.

    To the next state straight, further ahead above the boxes, back below them, to itself a loop on top.
    """
    states = list(IOState)
    steps = states.index(after) - states.index(before)
    start, end = middle(before), middle(after)
    half = BOX_HEIGHT / 2
    if steps == 0:
        top = STATES_Y - half
        reach = top - 52
        bend = f"C{start - 40:g},{reach:g} {start + 40:g},{reach:g} {start + 22:g},{top:g}"
        path = f"M{start - 22:g},{top:g} {bend}"
        return path, start, top - 44
    if steps == 1:
        left, right = start + BOX_WIDTH / 2, end - BOX_WIDTH / 2
        return f"M{left:g},{STATES_Y:g} L{right:g},{STATES_Y:g}", (left + right) / 2, STATES_Y - 8
    side = -1 if steps > 0 else 1  # -1 is up
    height = 44 + 44 * abs(steps) if side < 0 else 48 * abs(steps) - 12
    edge = STATES_Y + side * half
    lean = -14
    out, back = start - lean * abs(steps) / 2, end + lean * abs(steps) / 2
    apex = edge + side * height
    path = f"M{out:g},{edge:g} C{out:g},{apex:g} {back:g},{apex:g} {back:g},{edge:g}"
    return path, (out + back) / 2, edge + side * height * 0.75 + (-6 if side < 0 else 16)


def moves() -> Iterator[str]:
    """Yield the boxes of the states, and an arrow for every pair in `MOVES`."""
    for (before, step), after in MOVES.items():
        path, x, y = move_path(before, after)
        yield f'<path d="{path}" fill="none" stroke="{QUIET}" stroke-width="1.5" marker-end="url(#tip)"/>'
        halo = f'stroke="{GROUND}" stroke-width="4" paint-order="stroke"'
        yield centred(x, y, step.value, size=13, fill=QUIET, more=halo)
    for state in IOState:
        left, top = middle(state) - BOX_WIDTH / 2, STATES_Y - BOX_HEIGHT / 2
        yield (
            f'<rect x="{left:g}" y="{top:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8" '
            f'fill="#e4e7eb" stroke="{INK}" stroke-width="1.5"/>'
        )
        yield centred(middle(state), STATES_Y + 5, state.value, size=15, more='font-weight="600"')


def causes() -> Iterator[str]:
    """Yield the table: a row for each cause, in the order of `Cause`."""
    heads = ("cause", "terminal event", "limit", "error")
    for x, head in zip(COLUMNS, heads, strict=True):
        yield text(x, CAUSES_Y, head, size=13, fill=QUIET)
    for place, cause in enumerate(Cause):
        base = CAUSES_Y + (place + 1) * ROW
        yield f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{base - 20}" y2="{base - 20}" stroke="{LINE}"/>'
        outcome = OUTCOMES.get(cause)
        kind = outcome.kind if outcome else None if cause is Cause.ANSWERED else ErrorKind.NETWORK
        yield text(COLUMNS[0], base, cause.value, fill=KIND_COLOURS[kind], more='font-weight="600"')
        if outcome is None:
            event, sentence = BRINGS_ITS_OWN[cause]
            limit = ""
        else:
            event = f"Error, {outcome.kind.value}" + (", retryable" if outcome.retryable else "")
            limit, sentence = outcome.limit or "", outcome.text
        yield text(COLUMNS[1], base, event)
        yield text(COLUMNS[2], base, limit)
        yield text(COLUMNS[3], base, sentence, size=12, fill=QUIET)


def step_words() -> str:
    """Return the drawing in words, for who can't see it."""
    pairs = "; ".join(f"{before} by {step.value} to {after}" for (before, step), after in MOVES.items())
    return f"Moves: {pairs}. Causes: {', '.join(cause.value for cause in Cause)}."


def drawing() -> str:
    """Return the whole drawing."""
    missing = [cause for cause in Cause if (cause in OUTCOMES) == (cause in BRINGS_ITS_OWN)]
    assert not missing, f"no outcome, or two: {missing}"
    assert {step for _, step in MOVES} == set(Step)
    height = CAUSES_Y + (len(Cause) + 1) * ROW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT} role="img">',
            "<title>One write: the states of an IO, and what ends it</title>",
            f"<desc>{escape(step_words())}</desc>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{QUIET}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" rx="10" fill="{GROUND}"/>',
            *moves(),
            *causes(),
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Write the file."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(drawing(), "utf-8")


if __name__ == "__main__":
    main()
