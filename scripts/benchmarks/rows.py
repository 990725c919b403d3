"""What is compared with what, and the goals that PERFORMANCE sets. To add a row is to add a value here."""

from __future__ import annotations

from dataclasses import replace

from .figures import Cell, Ratio, Row, Seconds, Told
from .loads import Load

BURST = Load()
BURST_SINGLE = Load(batch=1)
PACED = Load(events=300, batch=1, streams=100, period_ms=20)
HUGE_FRAME = Load(events=1, piece_bytes=16 << 20, batch=1)
"""Larger than caches: across their size the same bytes cost more."""
ARGUMENTS = Load(content="arguments", events=20_000)
ANTHROPIC = Load(content="anthropic")
TLS = Load(content="tls")
SHORT = Load(content="tls", events=8)
HELD = Load(content="held", events=1, streams=1000)
TIMED = replace(PACED, content="timed")
FIRST = Load(events=1)
MANY = Load(events=200, streams=1000)
COUNTED = Cell(contender="instructions", load=Load(events=500), rounds=1, passes=1)
COUNTED_STARTS = Cell(contender="starts", load=replace(HELD, streams=150), rounds=1, passes=1)
NDJSON = Load(content="ndjson")
WEBSOCKET = Load(content="ws")
CONTEXTS = Cell(contender="runs", load=Load(content="contexts", events=10_000), rounds=3, passes=1)
FRAGMENTS = Cell(contender="builder", load=Load(content="fragments", events=1_000), rounds=5, passes=1)


def _against(
    load: Load, other: str, *, passes: int = 5, of: str | None = None, contender: str = "aiio"
) -> Ratio:
    return Ratio(
        top=Cell(contender=contender, load=load, passes=passes),
        bottom=Cell(contender=other, load=load, passes=passes),
        of=of,
    )


def _sdk(contender: str, load: Load, *, passes: int = 2) -> Ratio:
    """Return how many times more *contender* needs than aiio does."""
    return Ratio(
        top=Cell(contender=contender, load=load, rounds=3, passes=passes),
        bottom=Cell(contender="aiio", load=load),
    )


def _held(content: str, other: str, of: str | None = None, *, contender: str = "aiio") -> Ratio:
    """Return what *contender* needs to hold or to stop the same streams, over what *other* needs."""
    return Ratio(
        top=Cell(contender=contender, load=replace(HELD, content=content), rounds=5, passes=1),
        bottom=Cell(contender=other, load=HELD, rounds=5, passes=1),
        of=of,
    )


def _kept(of: str | None = None) -> Ratio:
    """Return what an answer costs on a connection of its own, over what it costs on one that is kept."""
    fresh = Cell(contender="aiio", load=SHORT, rounds=5, passes=200)
    return Ratio(top=fresh, bottom=replace(fresh, load=replace(SHORT, content="kept")), of=of)


def _imports(*modules: str) -> Cell:
    return Cell(contender="imports", load=Load(content="+".join(("import", *modules)), events=1))


def _growth(small: Load, large: Load) -> Ratio:
    return Ratio(
        top=Cell(contender="aiio", load=large, rounds=5),
        bottom=Cell(contender="aiio", load=small, rounds=5),
        per_event=False,
    )


DELTAS = Load(content="deltas", events=200_000)
MESSAGES = Load(content="messages", events=20_000)
SAVES = Load(content="saves", events=8_000)
BLOCKS = Load(content="blocks", events=10_000, piece_bytes=450)
"""A context of 10,000 blocks of a hundred words of prose each, all different."""
BLOCKS_AGAIN = replace(BLOCKS, content="blocks-again")
SESSIONS = Load(content="sessions", events=10_000)

AGENTS = Cell(
    contender="agents", load=Load(events=5, batch=1, streams=1000, period_ms=3000), rounds=3, passes=1
)


def _work(load: Load) -> Cell:
    """Return a cell of work without a server: one pass a process; a second would be cheaper."""
    return Cell(contender="context", load=load, rounds=5, passes=1)


def _work_growth(load: Load) -> Ratio:
    return Ratio(top=_work(replace(load, events=2 * load.events)), bottom=_work(load), per_event=False)


ROWS = (
    Row(
        name="burst",
        what="chat SSE burst, CPU per event, aiio / bare trio (one frame a write)",
        ratio=_against(BURST, "bare"),
        bracket=_against(BURST_SINGLE, "bare"),
        goal=1.25,
    ),
    Row(
        name="anthropic",
        what="Anthropic SSE burst, CPU per event, official SDK on trio / aiio",
        ratio=_sdk("anthropic", ANTHROPIC),
        goal=12,
        at_least=True,
    ),
    Row(
        name="ndjson",
        what="NDJSON burst, CPU per event, official client on trio / aiio",
        ratio=_sdk("ollama", NDJSON),
        goal=15,
        at_least=True,
    ),
    Row(
        name="websocket",
        what="WebSocket burst, CPU per event, aiio / trio-websocket raw",
        ratio=_against(WEBSOCKET, "trio-websocket", passes=2),
        goal=1.15,
    ),
    Row(
        name="websocket-sdk",
        what="WebSocket burst, CPU per event, official client on asyncio / aiio",
        ratio=_sdk("openai-websocket", WEBSOCKET),
        goal=2.5,
        at_least=True,
    ),
    Row(
        name="paced",
        what="chat SSE paced, 100 streams at 50 chunks/s, CPU per event, aiio / bare trio",
        ratio=_against(PACED, "bare", passes=1),
        goal=1.25,
    ),
    Row(
        name="sdk",
        what="chat SSE burst, CPU per event, official SDK on trio / aiio",
        ratio=_sdk("openai", BURST, passes=1),
        goal=35,
        at_least=True,
    ),
    Row(
        name="pydantic-ai",
        what="chat SSE burst, CPU per event, pydantic-ai direct stream on trio / aiio",
        ratio=_sdk("pydantic-ai", BURST, passes=1),
        goal=50,
        at_least=True,
    ),
    Row(
        name="langchain",
        what="the same, langchain-openai on asyncio / aiio",
        ratio=_sdk("langchain", BURST, passes=1),
        goal=None,
    ),
    Row(
        name="litellm",
        what="the same, litellm on asyncio / aiio",
        ratio=_sdk("litellm", BURST, passes=1),
        goal=None,
    ),
    Row(
        name="tls",
        what="chat SSE burst over TLS, CPU per event, aiio / bare trio on SSLStream (one frame a write)",
        ratio=_against(TLS, "bare"),
        bracket=_against(replace(TLS, batch=1), "bare"),
        goal=1,
    ),
    Row(
        name="lateness",
        what="chat SSE paced, p99 lateness of a 5.3 ms timer in the loop, aiio / bare trio (on the clock)",
        ratio=_against(TIMED, "bare", passes=1, of="late_p99_ms"),
        bracket=_against(TIMED, "bare", passes=1, of="clock_late_p99_ms"),
        goal=1.5,
    ),
    Row(
        name="first-event",
        what="time to the first event on a cold connection, aiio / official SDK on trio (/ bare trio)",
        ratio=_against(FIRST, "openai", passes=100, of="first_event_ms"),
        bracket=_against(FIRST, "bare", passes=100, of="first_event_ms"),
        goal=0.4,
    ),
    Row(
        name="reuse",
        what="200 short answers over TLS, CPU each, a connection each / one for all (time to first event)",
        ratio=_kept(),
        bracket=_kept("first_event_ms"),
        goal=1.5,
        at_least=True,
    ),
    Row(
        name="many",
        what="1,000 streams x 200 frames, CPU, aiio / bare trio (CPU to start 1,000 requests)",
        ratio=_against(MANY, "bare", passes=2),
        bracket=_held("held", "bare", of="start_cpu_ms"),
        goal=1.3,
    ),
    Row(
        name="many-least",
        what="the same, bare trio with a nursery, three limits and h11 for the head / without (CPU to start)",
        ratio=_against(MANY, "bare", passes=2, contender="least"),
        bracket=_held("held", "bare", of="start_cpu_ms", contender="least"),
        goal=None,
    ),
    Row(
        name="start",
        what="CPU to start 1,000 requests, aiio / stock httpx (/ official SDK on trio)",
        ratio=_held("held", "httpx", of="start_cpu_ms"),
        bracket=_held("held", "openai", of="start_cpu_ms"),
        goal=0.25,
    ),
    Row(
        name="start-least",
        what="the same, bare trio with a nursery, three limits and h11 for the head / stock httpx",
        ratio=_held("held", "httpx", of="start_cpu_ms", contender="least"),
        goal=None,
    ),
    Row(
        name="silent",
        what="memory of each of 1,000 silent streams, aiio / official SDK on trio",
        ratio=_held("held", "openai", of="kb_per_stream"),
        goal=0.5,
    ),
    Row(
        name="silent-kb",
        what="the same, kB with aiio",
        ratio=Told(cell=_held("held", "openai").top, name="kb_per_stream"),
        goal=24,
    ),
    Row(
        name="cancel",
        what="1,000 silent streams cancelled from outside, CPU, aiio / official SDK on trio (on the clock)",
        ratio=_held("held", "openai"),
        bracket=_held("held", "openai", of="stop_ms"),
        goal=0.5,
    ),
    Row(
        name="kill",
        what="1,000 silent streams killed, CPU, aiio / official SDK on trio, cancelled (on the clock)",
        ratio=_held("killed", "openai"),
        bracket=_held("killed", "openai", of="stop_ms"),
        goal=0.5,
    ),
    Row(
        name="import",
        what="CPU to import aiio / trio, httpx and structlog together",
        ratio=Ratio(top=_imports("aiio"), bottom=_imports("trio", "httpx", "structlog")),
        goal=1.25,
    ),
    Row(
        name="instructions",
        what="instructions an event by callgrind, in memory, aiio (one frame a piece)",
        ratio=Told(cell=COUNTED, name="aiio_whole"),
        bracket=Told(cell=COUNTED, name="aiio_single"),
        goal=None,
    ),
    Row(
        name="instructions-bare",
        what="the same, the bare parser",
        ratio=Told(cell=COUNTED, name="bare_whole"),
        bracket=Told(cell=COUNTED, name="bare_single"),
        goal=None,
    ),
    Row(
        name="start-instructions",
        what="instructions to start a request, aiio / stock httpx (bare trio, nursery, limits, h11 / httpx)",
        ratio=Told(cell=COUNTED_STARTS, name="aiio_start_ratio"),
        bracket=Told(cell=COUNTED_STARTS, name="least_start_ratio"),
        goal=None,
    ),
    Row(
        name="stop-instructions",
        what="instructions to cancel one, aiio / stock httpx (bare trio, nursery, limits, h11 / httpx)",
        ratio=Told(cell=COUNTED_STARTS, name="aiio_stop_ratio"),
        bracket=Told(cell=COUNTED_STARTS, name="least_stop_ratio"),
        goal=None,
    ),
    Row(
        name="growth-chunks",
        what="growth: CPU for 40,000 chunks / 20,000",
        ratio=_growth(BURST, replace(BURST, events=2 * BURST.events)),
        goal=2.3,
    ),
    Row(
        name="growth-frame",
        what="growth: CPU for one frame of 32 MiB / 16 MiB",
        ratio=_growth(HUGE_FRAME, replace(HUGE_FRAME, piece_bytes=2 * HUGE_FRAME.piece_bytes)),
        goal=2.3,
    ),
    Row(
        name="growth-arguments",
        what="growth: CPU for one tool call of 40,000 pieces / 20,000",
        ratio=_growth(ARGUMENTS, replace(ARGUMENTS, events=2 * ARGUMENTS.events)),
        goal=2.3,
    ),
    Row(
        name="context-deltas",
        what="growth: CPU to assemble 400,000 deltas / 200,000",
        ratio=_work_growth(DELTAS),
        goal=2.3,
    ),
    Row(
        name="context-messages",
        what="growth: CPU to append 40,000 messages to a context / 20,000",
        ratio=_work_growth(MESSAGES),
        goal=2.3,
    ),
    Row(
        name="context-saves",
        what="growth: CPU to append and flush (no fsync) 16,000 messages / 8,000",
        ratio=_work_growth(SAVES),
        goal=2.3,
    ),
    Row(
        name="context-estimate",
        what="growth: CPU to estimate a context of 20,000 blocks of 100 words / 10,000",
        ratio=_work_growth(BLOCKS),
        goal=2.3,
    ),
    Row(
        name="context-again",
        what="CPU to estimate a context of 10,000 blocks of 100 words, at first / again, unchanged",
        ratio=Ratio(top=_work(BLOCKS), bottom=_work(BLOCKS_AGAIN)),
        goal=20,
        at_least=True,
    ),
    Row(
        name="context-list",
        what="seconds to list the newest 50 of 10,000 sessions (1 GB)",
        ratio=Seconds(cell=_work(SESSIONS)),
        goal=1,
    ),
    Row(
        name="builder-growth",
        what="growth: CPU for assembling 2,000 fragments / 1,000",
        ratio=Ratio(
            top=replace(FRAGMENTS, load=Load(content="fragments", events=2_000)),
            bottom=FRAGMENTS,
            per_event=False,
        ),
        goal=2.3,
    ),
    Row(
        name="agents-delay",
        what="1,000 agents under one nursery, a chunk each 3 s: milliseconds that a timer is late, p99",
        ratio=Told(cell=AGENTS, name="late_p99_ms"),
        goal=100,
    ),
    Row(
        name="agents-memory",
        what="the same: kB that an agent weighs while its request is in flight",
        ratio=Told(cell=AGENTS, name="kb_per_agent"),
        goal=48,
    ),
    Row(
        name="runs-memory",
        what="10,000 contexts of a run in one tree, each with a step that waits: bytes that one weighs",
        ratio=Told(cell=CONTEXTS, name="bytes_per_context"),
        goal=16_384,
    ),
)
