"""Spans and metrics, read back from the SDK's in-memory exporters and from OTLP over HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio import observe
from aiio.agents import Agent
from aiio.context.types import user_message
from aiio.env.env import open_env
from aiio.env.errors import HttpStatusError
from aiio.io import IO
from aiio.observe import otel_names as names
from tests.agents.peer import MODEL, answer, call, calling, peer
from tests.io.scripted import HANG, Refuse, say, scripted
from tests.serving import respond, serve

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed (group `test`)")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.trace import SpanKind, StatusCode

from aiio.observe import otel_spans

SCRIPT = "script/m"
SECRET = "the prompt nobody may see"
QUESTION = [user_message(SECRET)]


@dataclass
class Seen:
    """Providers, and what they were told."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    tracer_provider: TracerProvider = field(default_factory=TracerProvider)

    def __post_init__(self) -> None:
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meter_provider = MeterProvider(metric_readers=[self.reader])

    def providers(self) -> dict[str, Any]:
        return {"tracer_provider": self.tracer_provider, "meter_provider": self.meter_provider}

    def spans(self) -> dict[str, ReadableSpan]:
        """The spans by name, the last of a name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def points(self, metric: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for found in scope.metrics
            if found.name == metric
            for point in found.data.data_points
        ]


@pytest.fixture
def seen() -> Iterator[Seen]:
    found = Seen()
    yield found
    found.tracer_provider.shutdown()
    found.meter_provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def own_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def everything(seen: Seen) -> str:
    return "".join(span.to_json() for span in seen.exporter.get_finished_spans())


async def weather(city: str) -> str:  # a sync one runs in a thread, which a jumping clock does not wait for
    """Tell the weather."""
    await trio.lowlevel.checkpoint()
    return f"rain in {city}"


# -- the table -----------------------------------------------------------------------------------------


@pytest.mark.skipif(
    int(version("opentelemetry-semantic-conventions").split(".")[1].partition("b")[0]) < 66,
    reason="the conventions that are installed are older than our names",
)
def test_every_name_of_the_conventions_is_one_they_have() -> None:
    tables = (gen_ai_attributes, gen_ai_metrics)
    theirs = {value for table in tables for value in vars(table).values() if isinstance(value, str)}
    newer = {names.AGENT_DURATION, names.TOOL_DURATION}  # of the conventions' own repository, v0.1.0
    ours: set[str] = set()
    for value in [value for name, value in vars(names).items() if not name.startswith("_")]:
        ours |= {value} if isinstance(value, str) else set()
        ours |= set(value.values()) if isinstance(value, dict) else set()
    used = {name for name in ours if name.startswith("gen_ai.")} - newer
    assert len(used) > 30
    assert used <= theirs
    operations = {entry.value for entry in gen_ai_attributes.GenAiOperationNameValues}
    assert {names.CHAT, names.INVOKE_AGENT, names.EXECUTE_TOOL, names.INVOKE_WORKFLOW} <= operations
    providers = {entry.value for entry in gen_ai_attributes.GenAiProviderNameValues}
    assert set(names.PROVIDERS.values()) <= providers


def test_no_other_file_spells_a_name() -> None:
    room = Path(observe.__file__).parent
    for path in room.glob("otel*.py"):
        if path.name != "otel_names.py":
            code = [line for line in path.read_text("utf-8").splitlines() if '"gen_ai.' in line]
            assert code == [], path.name


# -- writes --------------------------------------------------------------------------------------------


async def test_a_write_is_a_span_with_the_names_of_the_conventions(
    autojump_clock: MockClock, seen: Seen
) -> None:
    async with peer(answer("Wren.")) as (env, _):
        env.register_endpoint(
            "peer", provider="agent-scripted", url="peer://host.test:4000/x", temperature=0.5
        )
        with observe.instrument(env, **seen.providers()):
            await IO(env=env, model=MODEL).write(QUESTION)
    (span,) = seen.exporter.get_finished_spans()
    assert (span.name, span.kind, span.status.status_code) == ("chat m", SpanKind.CLIENT, StatusCode.UNSET)
    found = attributes(span)
    assert found.pop("aiio.queued_ms") == 0
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "peer",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.5,
        "server.address": "host.test",
        "server.port": 4000,
        "gen_ai.response.time_to_first_chunk": 0.0,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "aiio.outcome": "done",
        "aiio.attempts": 1,
    }
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum for point in seen.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": 10, "output": 5}
    (duration,) = seen.points("gen_ai.client.operation.duration")
    assert duration.attributes["gen_ai.request.model"] == "m"
    assert len(seen.points("gen_ai.client.operation.time_to_first_chunk")) == 1


async def test_a_write_that_times_out_is_marked(autojump_clock: MockClock, seen: Seen) -> None:
    async with scripted(say("Wr"), HANG) as (env, _):
        with observe.instrument(env, **seen.providers()):
            await IO(env=env, model=SCRIPT, stuck_timeout="20s").write(QUESTION)
    (span,) = seen.exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert "20 s" in (span.status.description or "")
    found = attributes(span)
    assert (found["error.type"], found["aiio.limit"], found["aiio.limit.budget_ms"]) == (
        "timeout",
        "stuck",
        20_000,
    )
    (duration,) = seen.points("gen_ai.client.operation.duration")
    assert duration.attributes["error.type"] == "timeout"
    assert seen.points("gen_ai.client.token.usage") == []  # an estimate is no count


async def test_cancelled_writes_are_marked_killed_or_from_outside(
    autojump_clock: MockClock, seen: Seen
) -> None:
    async with scripted(say("Wr"), HANG) as (env, _):
        with observe.instrument(env, **seen.providers()):
            io = IO(env=env, model=SCRIPT)
            with trio.move_on_after(3):
                await io.write(QUESTION)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(io.write, QUESTION)
                await trio.sleep(3)
                await io.kill("enough")
    spans = seen.exporter.get_finished_spans()
    assert [attributes(span)["error.type"] for span in spans] == ["cancelled", "cancelled"]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * 2
    assert spans[1].status.description == "cancelled: enough"


async def test_what_a_provider_says_about_an_error_is_content(autojump_clock: MockClock, seen: Seen) -> None:
    refusal = Refuse(HttpStatusError(429, "Too Many", f"not again: {SECRET}"))
    async with scripted(refusal) as (env, _):
        with observe.instrument(env, **seen.providers()):
            await IO(env=env, model=SCRIPT).write(QUESTION)
        (span,) = seen.exporter.get_finished_spans()
        assert attributes(span)["error.type"] == "429"
        assert attributes(span)["http.response.status_code"] == 429
        assert span.status.description == "provider 429"
        assert SECRET not in everything(seen)
        with observe.instrument(env, content=True, **seen.providers()):
            await IO(env=env, model=SCRIPT).write(QUESTION)
    assert SECRET in (seen.exporter.get_finished_spans()[-1].status.description or "")


async def test_a_write_that_was_never_admitted_or_began_before_is_no_span(seen: Seen) -> None:
    async with scripted(say("Wr"), HANG, max_active=1) as (env, _):
        first, second = IO(env=env, model=SCRIPT), IO(env=env, model=SCRIPT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.write, QUESTION)
            await trio.testing.wait_all_tasks_blocked()
            instrumentation = observe.instrument(env, **seen.providers())
            nursery.start_soon(second.write, QUESTION)
            await trio.testing.wait_all_tasks_blocked()
            await second.kill()
            await first.kill()
        instrumentation.close()
    assert seen.exporter.get_finished_spans() == ()


async def test_closing_ends_open_spans_when_their_writes_end(autojump_clock: MockClock, seen: Seen) -> None:
    async with scripted(say("Wr"), HANG) as (env, _):
        first, second = IO(env=env, model=SCRIPT), IO(env=env, model=SCRIPT)
        async with trio.open_nursery() as nursery:
            instrumentation = observe.instrument(env, **seen.providers())
            nursery.start_soon(first.write, QUESTION)
            await trio.testing.wait_all_tasks_blocked()
            instrumentation.close()
            nursery.start_soon(second.write, QUESTION)
            await trio.testing.wait_all_tasks_blocked()
            await second.kill()
            assert seen.exporter.get_finished_spans() == ()
            await first.kill()
        assert len(seen.exporter.get_finished_spans()) == 1
        assert not env.off_event(instrumentation._handle)  # it listens no more
        instrumentation.close()


async def test_an_embedded_or_odd_address_is_left_out(autojump_clock: MockClock, seen: Seen) -> None:
    async with scripted(say("Wr"), HANG) as (env, _):
        env.register_endpoint("odd", provider="scripted", url="scripted:///nowhere")
        with observe.instrument(env, **seen.providers()):
            await IO(env=env, model="odd/m", timeout="1s").write(QUESTION)
            await IO(env=env, model="odd/m", url="wss://other.test/x", timeout="1s").write(QUESTION)
            await IO(env=env, model="odd/m", url="scripted://third.test/x", timeout="1s").write(QUESTION)
    addresses = [
        (attributes(span).get("server.address"), attributes(span).get("server.port"))
        for span in seen.exporter.get_finished_spans()
    ]
    assert addresses == [(None, None), ("other.test", 443), ("third.test", None)]


# -- agents and tools ----------------------------------------------------------------------------------


async def test_writes_and_tools_lie_under_their_agent_and_a_tools_work_under_the_tool(
    autojump_clock: MockClock, seen: Seen
) -> None:
    tracer = seen.tracer_provider.get_tracer("the program")

    async def look_up(city: str) -> str:
        """Look a city up."""
        with tracer.start_as_current_span("query"):
            await trio.lowlevel.checkpoint()
        return city

    async with peer(calling(call("look_up", '{"city": "Ulm"}')), answer("ok")) as (env, _):
        with observe.instrument(env, **seen.providers()), tracer.start_as_current_span("request"):
            agent = Agent(env=env, model=MODEL, tools=[look_up], name="bob")
            assert (await agent.run(SECRET)).ok
        assert trace.get_current_span() is trace.INVALID_SPAN
    spans = seen.spans()
    assert set(spans) == {"request", "invoke_agent bob", "chat m", "execute_tool look_up", "query"}
    for child, above in (
        ("invoke_agent bob", "request"),
        ("chat m", "invoke_agent bob"),
        ("execute_tool look_up", "invoke_agent bob"),
        ("query", "execute_tool look_up"),
    ):
        assert parent(spans[child]) == own_id(spans[above]), child
    found = attributes(spans["invoke_agent bob"])
    assert (found["gen_ai.agent.name"], found["aiio.agent.rounds"], found["aiio.outcome"]) == (
        "bob",
        2,
        "done",
    )
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (30, 12)
    assert attributes(spans["execute_tool look_up"]) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look_up",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "bob",
        "aiio.outcome": "done",
    }
    assert len(seen.points("gen_ai.invoke_agent.duration")) == 1
    assert len(seen.points("gen_ai.execute_tool.duration")) == 1
    assert SECRET not in everything(seen)


async def test_tools_and_agents_that_fail_are_marked(autojump_clock: MockClock, seen: Seen) -> None:
    async def slow() -> None:
        """Take long."""
        await trio.sleep(1000)

    steps = calling(call("slow"), call("nosuch", call_id="c2", index=1))
    async with peer(steps, [say("Wr"), HANG], answer("ok"), steps) as (env, _):
        with observe.instrument(env, **seen.providers()):
            agent = Agent(
                env=env, model=MODEL, tools=[slow], name="bob", tool_timeout="5s", stuck_timeout="20s"
            )
            await agent.run("Go.")
            spans = seen.spans()
            assert attributes(spans["execute_tool slow"])["error.type"] == "timeout"
            assert attributes(spans["execute_tool nosuch"])["error.type"] == "unknown"
            found = attributes(spans["invoke_agent bob"])
            assert (found["error.type"], found["aiio.outcome"]) == ("timeout", "network")

            def crash(_: Any) -> None:
                raise LookupError(SECRET)

            with pytest.raises(LookupError):
                await agent.run("Go.", {"on_done": crash})
            assert attributes(seen.spans()["invoke_agent bob"])["error.type"] == "LookupError"

            with trio.move_on_after(2):
                await agent.run("Go.")
            spans = seen.spans()
            assert attributes(spans["execute_tool slow"])["error.type"] == "cancelled"
            assert attributes(spans["invoke_agent bob"])["error.type"] == "cancelled"

            short = Agent(env=env, model=MODEL, tools=[slow], name="jim", max_rounds=1)
            await short.run("Go.")
            assert attributes(seen.spans()["invoke_agent jim"])["error.type"] == "max_rounds"

            async with trio.open_nursery() as nursery:
                killed = Agent(env=env, model=MODEL, tools=[slow], name="kim")
                nursery.start_soon(killed.run, "Go.")
                await trio.sleep(1)
                await killed.kill()
            assert attributes(seen.spans()["invoke_agent kim"])["error.type"] == "cancelled"
    assert SECRET not in everything(seen)


# -- content -------------------------------------------------------------------------------------------


async def test_content_is_there_on_opt_in_without_credentials(autojump_clock: MockClock, seen: Seen) -> None:
    steps = calling(call("weather", '{"city": "Ulm sk-canary-0123456789"}'))
    async with peer(steps, answer("It rains.")) as (env, _):
        env.scrubber.add("sk-canary-0123456789")
        with observe.instrument(env, content=True, **seen.providers()):
            agent = Agent(env=env, model=MODEL, tools=[weather], name="bob", system="Be brief.")
            await agent.run("Weather?")
    spans = seen.spans()
    said = json.loads(attributes(spans["chat m"])["gen_ai.input.messages"])
    arguments = {"city": "Ulm ***"}
    assert said == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": arguments}],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": ["rain in Ulm ***"]}],
        },
    ]
    assert json.loads(attributes(spans["chat m"])["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "It rains."}],
            "finish_reason": "stop",
        }
    ]
    tool = attributes(spans["execute_tool weather"])
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == arguments
    assert json.loads(tool["gen_ai.tool.call.result"])[0]["text"] == "rain in Ulm ***"
    assert "canary" not in everything(seen)


async def test_a_partial_answer_and_a_cancelled_tool_are_content_too(
    autojump_clock: MockClock, seen: Seen
) -> None:
    async def slow() -> None:
        """Take long."""
        await trio.sleep(1000)

    async with peer([say("Wr"), HANG], [HANG], calling(call("slow"))) as (env, _):
        with observe.instrument(env, content=True, **seen.providers()):
            io = IO(env=env, model=MODEL, stuck_timeout="5s")
            await io.write(QUESTION)
            said = json.loads(attributes(seen.spans()["chat m"])["gen_ai.output.messages"])
            assert said == [
                {"role": "assistant", "parts": [{"type": "text", "content": "Wr"}], "finish_reason": "error"}
            ]
            await io.write(QUESTION)
            assert "gen_ai.output.messages" not in attributes(seen.spans()["chat m"])
            with trio.move_on_after(1):
                await Agent(env=env, model=MODEL, tools=[slow]).run("Go.")
            assert "gen_ai.tool.call.result" not in attributes(seen.spans()["execute_tool slow"])


def test_blocks_of_every_type_and_any_value_become_content() -> None:
    from aiio.observe.otel_content import messages_json, value_json

    blocks = [
        {"type": "thinking", "text": "hm"},
        {"type": "image", "content": "AAAA", "mimetype": "image/png"},
        {"type": "of_tomorrow"},
    ]
    (message,) = json.loads(messages_json([{"type": 9, "content": blocks}], str))
    assert message == {
        "role": "9",
        "parts": [
            {"type": "reasoning", "content": "hm"},
            {"type": "image", "mime_type": "image/png"},
            {"type": "of_tomorrow", "mime_type": None},
        ],
    }
    assert value_json("text", str) == "text"
    assert value_json({"a": 1}, str) == '{"a":1}'
    assert value_json(1j, str) == "1j"


# -- the rest ------------------------------------------------------------------------------------------


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiio.observe.otel_spans", None)
    with pytest.raises(ImportError, match=r"pip install 'aiio-runtime\[otel\]'"):
        observe.instrument(None)  # type: ignore[arg-type]


async def test_without_providers_the_global_ones_are_used_and_do_nothing_here() -> None:
    async with peer(answer("Wren.")) as (env, _):
        with observe.instrument(env):
            terminal = await IO(env=env, model=MODEL).write(QUESTION)
    assert terminal.type == "done"


async def test_runs_have_a_face_of_their_own(autojump_clock: MockClock, seen: Seen) -> None:
    providers: dict[str, Any] = {"tracer_provider": seen.tracer_provider}
    async with peer(answer("Wren.")) as (env, _):
        with observe.instrument(env, **seen.providers()):
            run = otel_spans.start_run_span("briefing", **providers)
            step = otel_spans.start_run_span("step think", run, {"path": "0"}, **providers)
            with otel_spans.under(step):
                await IO(env=env, model=MODEL).write(QUESTION)
            otel_spans.end_run_span(step)
            otel_spans.end_run_span(run, "cancelled")
    spans = seen.spans()
    assert parent(spans["chat m"]) == own_id(spans["step think"])
    assert parent(spans["step think"]) == own_id(spans["invoke_workflow briefing"])
    assert attributes(spans["step think"]) == {"path": "0", "aiio.outcome": "done"}
    assert attributes(spans["invoke_workflow briefing"]) == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "briefing",
        "aiio.outcome": "cancelled",
        "error.type": "cancelled",
    }
    assert spans["invoke_workflow briefing"].status.status_code is StatusCode.ERROR


async def test_a_collector_gets_spans_and_metrics_by_otlp_over_http() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the OTLP exporter is not installed")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    async with serve(respond(b"")) as collector:
        tracer_provider = TracerProvider()
        tracer_provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces"))
        )
        exporter = OTLPMetricExporter(endpoint=f"{collector.url}/v1/metrics")
        meter_provider = MeterProvider(metric_readers=[PeriodicExportingMetricReader(exporter, 3_600_000)])
        async with peer(calling(call("weather", '{"city": "Ulm"}')), answer("It rains.")) as (env, _):
            with observe.instrument(env, tracer_provider=tracer_provider, meter_provider=meter_provider):
                await Agent(env=env, model=MODEL, tools=[weather], name="bob").run(SECRET)
        for end in (tracer_provider.shutdown, meter_provider.shutdown):  # they send, and block meanwhile
            await trio.to_thread.run_sync(end)
    bodies = {request.target: request.body for request in collector.requests}
    traces = ExportTraceServiceRequest.FromString(bodies["/v1/traces"])
    spans = {
        span.name: span
        for resource in traces.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert set(spans) == {"invoke_agent bob", "chat m", "execute_tool weather"}
    assert spans["chat m"].parent_span_id == spans["invoke_agent bob"].span_id
    sent = ExportMetricsServiceRequest.FromString(bodies["/v1/metrics"])
    metrics = {
        metric.name: metric
        for resource in sent.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert sum(point.sum for point in metrics["gen_ai.client.token.usage"].histogram.data_points) == 42
    assert SECRET.encode() not in b"".join(bodies.values())


async def test_the_names_of_known_providers_are_those_of_the_conventions(seen: Seen) -> None:
    async with serve(respond(b"", status=401)) as server, open_env(config=False) as env:
        env.register_endpoint("mistral", auth="sk-canary-0123456789", url=server.url)
        with observe.instrument(env, **seen.providers()):
            env.emit("agent_added", agent=None, key="an event that is no span")
            await IO(env=env, model="mistral/m").write(QUESTION)
    (span,) = seen.exporter.get_finished_spans()
    assert attributes(span)["gen_ai.provider.name"] == "mistral_ai"
    assert attributes(span)["server.port"] == server.port
