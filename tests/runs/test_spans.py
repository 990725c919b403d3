"""Spans: to the log always, to OpenTelemetry where it is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio import observe
from aiio.runs import spans
from aiio.runs.code_steps import run_code
from aiio.runs.errors import RunError
from aiio.runs.harness import Harness
from aiio.runs.model_step import call_model
from aiio.runs.spawning import spawn
from tests.agents.peer import MODEL, answer, peer

Lines = list[dict[str, Any]]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """What spans write to the log."""
    found: Lines = []

    class Log:
        def info(self, event: str, **facts: Any) -> None:
            found.append({"event": event, **facts})

        debug = info

    monkeypatch.setattr(spans, "get_logger", Log)
    return found


@pytest.fixture
def without_otel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "aiio.observe.otel_spans", None)
    spans._opentelemetry.cache_clear()
    yield
    spans._opentelemetry.cache_clear()


@pytest.mark.usefixtures("without_otel")
async def test_B1_spans_go_to_the_log_without_opentelemetry(lines: Lines, autojump_clock: MockClock) -> None:
    root = spans.Span("root", run="r")
    child = spans.Span("child", root)
    with child.current():
        await trio.sleep(1)
    child.set_attribute("n", 1)
    child.add_event("thing", at=2)
    child.end("failed")
    child.end("twice")
    root.end()
    assert [line["event"] for line in lines] == ["run.span_event", "run.span", "run.span"]
    told = lines[1]
    assert (told["span"], told["outcome"], told["elapsed_ms"], told["events"]) == ("child", "failed", 1000, 1)
    assert (told["trace_id"], told["parent_span_id"]) == (root.trace_id, root.span_id)
    assert told["attributes"] == {"n": 1}
    assert lines[2]["parent_span_id"] is None


async def test_B1_the_api_of_opentelemetry_without_a_provider_does_no_harm(lines: Lines) -> None:
    pytest.importorskip("opentelemetry.trace")
    root = spans.Span("root")
    child = spans.Span("child", root)
    child.end()
    assert child.trace_id == root.trace_id
    assert len(root.span_id) == 16
    assert lines[0]["span_id"] == child.span_id
    with root.current():
        await trio.lowlevel.checkpoint()


async def test_B1_the_spans_of_a_run_nest_and_writes_lie_under_their_step(lines: Lines) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed (group `test`)")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.trace import StatusCode

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def fail(input: Any, context: Any) -> None:
        context.span.set_attribute("k", "v")
        context.span.add_event("e", a=1)
        raise ValueError("no")

    async with peer(answer("Hi.")) as (env, _):
        harness = Harness(env=env, model=MODEL, name="mine", tracer_provider=provider)
        with observe.instrument(env, tracer_provider=provider):
            await harness.run(call_model("ask"), "q")
        with pytest.raises(RunError):
            await harness.run(spawn("child", run_code("bad", fail)))
    found = {span.name: span for span in exporter.get_finished_spans()}

    def above(name: str) -> str | None:
        parent = found[name].parent
        names = {span.context.span_id: span.name for span in exporter.get_finished_spans()}
        return None if parent is None else names[parent.span_id]

    assert above("chat m") == "call_model ask"
    assert above("call_model ask") == "invoke_workflow mine"
    assert above("invoke_workflow mine") is None
    assert above("child") == "invoke_workflow mine"
    assert above("run_code bad") == "child"
    bad = found["run_code bad"]
    assert bad.attributes is not None
    assert (bad.attributes["error.type"], bad.status.status_code) == ("RunError", StatusCode.ERROR)
    child = found["child"]
    assert child.attributes is not None
    assert child.attributes["k"] == "v"
    assert [event.name for event in child.events] == ["e"]
    logged = {line["span"]: line for line in lines if line["event"] == spans.SPAN_ENDED}
    assert logged["child"]["span_id"] == f"{child.context.span_id:016x}"
    assert logged["run_code bad"]["outcome"] == "raised RunError"
