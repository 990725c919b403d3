"""The timeline as one page of HTML that needs nothing else: no network, no other file.

Text in it comes from providers and may hold anything. It reaches the page as JSON in a data block with every
character escaped that HTML could see, is put on the screen as text only, and a content security policy
lets the page's own script run and nothing else, and load nothing.
"""

from __future__ import annotations

import hashlib
import html
from base64 import b64encode
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template
from typing import Any

from .encode import encode_line
from .timeline import Phase, Timeline, Write

_UNTOLD = frozenset({"event", "level", "gaps"})
"""Keys of a log line that are the same in each, or told otherwise."""

_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}

_PHASES = ("queued", "preparing", "connecting", "waiting", "streaming")


def timeline_page(timeline: Timeline, name: str) -> bytes:
    """Return *timeline* as a page; *name* is what its heading calls the log."""
    script = _part("page_data.js") + _part("page_lanes.js") + _part("page_write.js") + _part("page.js")
    style = _part("page.css")
    policy = f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}"
    page = Template(_part("page.html")).substitute(
        policy=html.escape(policy),
        name=html.escape(name),
        style=style,
        data=encode_line(_data(timeline)).decode().translate(_ESCAPES),
        script=script,
    )
    return page.encode("utf-8", "replace")


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    """Return the source expression by which a policy allows an inline element with this *text*."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(timeline: Timeline) -> dict[str, Any]:
    """Return what the page's script reads. Columns, not rows: a third of the size, and read in a fraction."""
    writes = timeline.writes
    keys = dict.fromkeys(key for write in writes for key in write.facts if key not in _UNTOLD)
    return {
        "began_ms": timeline.began.timestamp() * 1000,
        "end": _rounded(timeline.end),
        "unread": timeline.unread,
        "phase_names": _PHASES,
        "writes": {
            "begin": [_rounded(write.begin) for write in writes],
            "end": [_rounded(write.end) for write in writes],
            "lane": _coded(write.lane for write in writes),
            "outcome": _coded(write.outcome for write in writes),
            "limit": _coded(write.limit for write in writes),
            "phases": [_phase_ends(write.phases) for write in writes],
            "gaps": [_gap_marks(write) for write in writes],
            "first_event": [write.first_event and _rounded(write.first_event) for write in writes],
        },
        "facts": {key: _column([write.facts.get(key) for write in writes]) for key in keys},
        "tools": {
            "begin": [_rounded(tool.begin) for tool in timeline.tools],
            "end": [_rounded(tool.end) for tool in timeline.tools],
            "lane": _coded(tool.lane for tool in timeline.tools),
            "name": _coded(tool.name for tool in timeline.tools),
            "outcome": _coded(tool.outcome for tool in timeline.tools),
        },
    }


def _rounded(ms: float) -> float:
    return round(ms, 3)


def _phase_ends(phases: Iterable[Phase]) -> list[float]:
    """Return `[number of a phase, its end, ...]`; each begins where the one before ended."""
    return [part for phase in phases for part in (_PHASES.index(phase.name), _rounded(phase.end))]


def _gap_marks(write: Write) -> list[float]:
    """Return `[begin, end, ...]`."""
    return [_rounded(at) for gap in write.gaps for at in (gap.begin, gap.end)]


def _column(values: Sequence[Any]) -> Any:
    """Return a column as it is, or coded where it holds text."""
    return _coded(values) if any(isinstance(value, str) for value in values) else list(values)


def _coded(values: Iterable[Any]) -> dict[str, list[Any]]:
    """Return `{"values": each once, "at": place in values by row, -1 for none}`."""
    places: dict[str, int] = {}
    at = []
    for value in values:
        text = value if value is None or isinstance(value, str) else encode_line(value).decode().strip()
        at.append(-1 if text is None else places.setdefault(text, len(places)))
    return {"values": list(places), "at": at}
