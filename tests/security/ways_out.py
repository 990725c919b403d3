"""Where something of ours can be read by somebody else. A new output is one function here.

Each makes requests of all endpoints, in all manners the server has, and returns what was written: texts.
"""

from __future__ import annotations

import copy
import gc
import io as std_io
import json
import logging
import pickle
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

import aiio
from aiio import observe
from aiio.agents import Agent
from aiio.env import sessions
from aiio.observe.chrome import chrome_trace
from aiio.observe.page import timeline_page
from aiio.observe.timeline import read_timeline
from aiio.runs.errors import RunError
from aiio.runs.harness import Harness
from aiio.runs.model_step import call_model
from aiio.runs.stores import DiskStore, SQLiteStore
from aiio.testing import record
from tests.cli.processes import forked
from tests.faults.test_secrets import standard_logging, the_programs_own
from tests.serving import Server, Step

from .ways_in import (
    MANNERS,
    SELECTORS,
    WAYS_IN,
    break_off,
    cut,
    environment,
    overrides,
    program_settings,
    refuse,
    settled,
    stay,
)

CONTEXT = [aiio.user_message("Hello")]
Texts = list[str]


@dataclass
class Place:
    """What an output has to work with."""

    server: Server
    folder: Path
    """Of its own."""

    @asynccontextmanager
    async def env(self) -> AsyncIterator[aiio.Env]:
        """An Env with a canary in every place."""
        environ = environment(self.server, self.folder)
        async with aiio.Env(program_settings(self.server), environ=environ) as env:
            yield env

    async def ask_all(
        self,
        env: aiio.Env,
        hear: Callable[[Any], object] = bool,
        *,
        manners: Sequence[Step] = (refuse, cut),
        **options: Any,
    ) -> list[aiio.IO]:
        """Ask every endpoint, in all *manners*; *hear* is told events and terminals."""
        asked = []
        for manner in manners:
            self.server.script(manner)
            for selector in SELECTORS:
                io = aiio.IO(env=env, model=selector, settings=overrides(selector), on_data=hear, **options)
                hear(await io.write(CONTEXT))
                asked.append(io)
                await env.models(io.endpoint_name, refresh=True)
        return asked

    def file(self, name: str) -> Path:
        """Return a path in the folder."""
        return self.folder / name


Output = Callable[[Place], Awaitable[Texts]]
WAYS_OUT: dict[str, Output] = {}


def way_out(name: str) -> Callable[[Output], Output]:
    """Add an output."""

    def add(output: Output) -> Output:
        WAYS_OUT[name] = output
        return output

    return add


# --- logs ---


@way_out("the log as aiio sets it up, its page and its Chrome trace")
async def our_log(place: Place) -> Texts:
    path = place.file("log.jsonl")
    async with place.env() as env:
        with observe.configure(path, level="debug", scrub=env.scrub):
            await place.ask_all(env, manners=MANNERS)
            logging.getLogger("aiio").error(
                "told %s", WAYS_IN["settings"], extra={"also": [WAYS_IN["settings"]]}
            )
    timeline = read_timeline(str(path))
    assert timeline.writes
    return [path.read_text(), timeline_page(timeline, "log").decode(), chrome_trace(timeline).decode()]


@way_out("the log without the Env's help")
async def our_log_by_name(place: Place) -> Texts:
    path = place.file("log.jsonl")
    with observe.configure(path, level="debug"):
        async with place.env() as env:
            await place.ask_all(env)
    return [path.read_text()]


@way_out("the log of a program that masks nothing")
async def programs_log(place: Place) -> Texts:
    path = place.file("log.jsonl")
    close = the_programs_own(path)
    try:
        async with place.env() as env:
            await place.ask_all(env)
    finally:
        close()
    return [path.read_text()]


@way_out("standard logging, of the libraries below too")
async def standard_log(place: Place) -> Texts:
    structlog.reset_defaults()
    with standard_logging(None) as lines:
        async with place.env() as env:
            await place.ask_all(env)
    return [lines.getvalue()]


# --- what the caller is given ---


@way_out("events, terminals and readouts")
async def events(place: Place) -> Texts:
    heard: list[Any] = []
    lines: Texts = []
    async with place.env() as env:
        env.on_event(lambda event: heard.append(event.name))
        for io in await place.ask_all(env, heard.append, manners=MANNERS, on_log=lines.append):
            heard += [io, io.plan_usage, io.context_usage]
    texts = [f"{one} {one!r}" for one in heard]
    structs = [msgspec.json.encode(one).decode() for one in heard if isinstance(one, msgspec.Struct)]
    terminals = [one for one in heard if isinstance(one, aiio.Error)]
    assert len(terminals) >= len(SELECTORS) * (len(MANNERS) - 1)
    return [
        *texts,
        *structs,
        *lines,
        *(json.dumps([one.message, one.usage, one.native]) for one in terminals),
    ]


@way_out("exceptions, their tracebacks and what hangs on them")
async def exceptions(place: Place) -> Texts:
    texts: Texts = []
    async with place.env() as env:
        place.server.script(refuse)
        for selector in SELECTORS:
            name = selector.partition("/")[0]
            calls: list[Callable[[], Awaitable[Any]]] = [
                partial(env.model_lists.fetch, name),
                partial(env.test_connection, name),
                partial(env.auth_set, name, f"{WAYS_IN['settings']}\nX: 1"),
                partial(env.auth_set, name, [WAYS_IN["settings"]]),  # type: ignore[arg-type]  # that is the misuse
            ]
            for call in calls:
                try:
                    await call()
                except Exception as exc:  # noqa: BLE001  # whatever it is, it is looked at
                    texts += _of_exception(exc)
    assert texts
    return texts


def _of_exception(exc: BaseException) -> Texts:
    """What a program shows of an exception. Not the local variables: see SECURITY.md."""
    texts = ["".join(traceback.format_exception(exc))]
    shown: BaseException | None = exc
    while shown is not None:
        texts += [str(shown), repr(shown), repr(vars(shown)), repr(shown.args)]
        shown = shown.__cause__ or shown.__context__
    return texts


@way_out("the reprs of all our objects, in the middle of requests")
async def live_objects(place: Place) -> Texts:
    objects = await in_the_middle(place)
    shown = [one for one in objects if not isinstance(one, BaseException)]  # on their way to be scrubbed
    texts = [repr(one) for one in shown]
    assert len(texts) > 100
    return texts


async def in_the_middle(place: Place) -> list[object]:
    """Return all objects of the library's classes that live while requests to all endpoints run."""
    gc.collect()
    place.server.script(stay)
    async with place.env() as env, trio.open_nursery() as nursery:
        ios = [aiio.IO(env=env, model=name, settings=overrides(name)) for name in SELECTORS]
        for io in ios:
            nursery.start_soon(io.write, CONTEXT)
        with trio.fail_after(10):
            await place.server.wait_open(len(SELECTORS))
        objects = [one for one in gc.get_objects() if str(type(one).__module__).partition(".")[0] == "aiio"]
        nursery.cancel_scope.cancel()
    await settled(place.server)
    return objects


@way_out("copies, pickles and JSON of what an Env shows")
async def copies(place: Place) -> Texts:
    texts: Texts = []
    async with place.env() as env:
        for selector in SELECTORS:
            name = selector.partition("/")[0]
            endpoint = env.endpoint(name)
            shown = [endpoint, env.credential(name), env.credential_source(name)]
            texts += [repr(shown), f"{shown}", repr(copy.deepcopy(shown)), json.dumps(shown, default=repr)]
            texts += [repr(env.endpoint_settings(name).get("auth"))]
            try:
                texts.append(repr(pickle.dumps(env.credential(name))))
            except TypeError as exc:
                texts.append(str(exc))
        texts += [repr(env), repr(env.settings), repr(env.ledger), repr(env.safe), repr(env.files)]
    return texts


# --- files ---


def broken() -> str:
    """A tool that fails, and tells what it should not."""
    raise RuntimeError(f"can't reach https://u:{WAYS_IN['settings']}@h/ with {WAYS_IN['credential file']}")


def telling() -> Callable[[], str]:
    """Return a tool of the same name that returns what it should not."""

    def broken() -> str:
        return f"the key is {WAYS_IN['settings']}"

    return broken


async def call_broken(exchange: Any) -> None:
    """Ask for the tool, and when it was called, break off."""
    if b'"role":"tool"' in exchange.request.body.replace(b" ", b""):
        await break_off(exchange)
        return
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "broken", "arguments": "{}"}}
    frames: list[Any] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    body = b"".join(b"data: %b\n\n" % json.dumps(frame).encode() for frame in frames) + b"data: [DONE]\n\n"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    await exchange.send(head.encode() + body)


def _files_in(folder: Path) -> Texts:
    texts = [path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file()]
    return [*texts, *(str(path) for path in folder.rglob("*"))]


@way_out("session files")
async def session_files(place: Place) -> Texts:
    place.server.script(call_broken)
    folder = place.file("sessions")
    async with place.env() as env:
        for number, selector in enumerate(SELECTORS):
            context = await sessions.open_context(f"s{number}", dir=str(folder))
            context.append(aiio.user_message("Hello"))
            agent = Agent(
                env=env, model=selector, tools=[broken], context=context, settings=overrides(selector)
            )
            await agent.run()
            await sessions.aclose(context)
    texts = _files_in(folder)
    assert "the tool 'broken' failed" in "".join(texts)
    return texts


async def _run_steps(place: Place, store: Any, selectors: Sequence[str]) -> None:
    async with place.env() as env:
        for manner in (call_broken, refuse):
            place.server.script(manner)
            for selector in selectors:
                step = call_model("ask", model=selector, tools=[broken], settings=overrides(selector))
                try:
                    await Harness(env=env, store=store).run(step, "Hi")
                except RunError:
                    continue  # what it says is looked at elsewhere


@way_out("checkpoints in files")
async def checkpoint_files(place: Place) -> Texts:
    await _run_steps(place, DiskStore(place.file("checkpoints")), SELECTORS)
    texts = _files_in(place.file("checkpoints"))
    assert texts
    return texts


@way_out("checkpoints in SQLite")
async def checkpoint_database(place: Place) -> Texts:
    place.file("db").mkdir()
    with SQLiteStore(place.file("db") / "runs.sqlite") as store:
        await _run_steps(place, store, SELECTORS[:3])
    return _files_in(place.file("db"))


@way_out("spans and metrics")
async def spans(place: Place) -> Texts:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, reader, tracing = InMemorySpanExporter(), InMemoryMetricReader(), TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    metering = MeterProvider(metric_readers=[reader])
    async with place.env() as env:
        with observe.instrument(env, tracer_provider=tracing, meter_provider=metering, content=True):
            await place.ask_all(env)
            place.server.script(call_broken)
            for selector in SELECTORS:
                options: dict[str, Any] = {"tools": [telling()], "settings": overrides(selector)}
                agent = Agent(env=env, model=selector, **options)
                await agent.run("Hello")
    texts = [span.to_json() for span in exporter.get_finished_spans()]
    assert len(texts) > len(SELECTORS)
    data = reader.get_metrics_data()
    tracing.shutdown()
    metering.shutdown()
    return [*texts, "" if data is None else data.to_json()]


@way_out("recordings")
async def recordings(place: Place) -> Texts:
    path = place.file("incident.jsonl")
    async with place.env() as env:
        record(env, path)
        await place.ask_all(env)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    datas = [
        msgspec.json.decode(json.dumps(line["data_b64"]), type=bytes) for line in lines if "data_b64" in line
    ]
    assert datas
    return [path.read_text(), *(data.decode("utf-8", "replace") for data in datas)]


@way_out("what the Env keeps in its cache")
async def caches(place: Place) -> Texts:
    async with place.env() as env:
        place.server.script(_list_of_models)
        for selector in SELECTORS:
            await env.model_lists.fetch(selector.partition("/")[0])
    return _files_in(place.file("cache"))


async def _list_of_models(exchange: Any) -> None:
    body = b'{"data": [{"id": "m"}]}'
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    await exchange.send(head.encode() + body)


# --- the command line ---

_EXAMINED = ("openai", "headed", "used", "proxied")

_NAMES = [selector.partition("/")[0] for selector in SELECTORS]
_NAMES = [name for name in _NAMES if name not in ("given", "overridden", "keyringed")]


async def _printed(place: Place, *commands: tuple[str, ...]) -> Texts:
    environ = {**environment(place.server, place.folder), "PYTHONWARNINGS": "error", "COLUMNS": "400"}
    texts: Texts = []
    for command in commands:
        arguments = [argument.format(folder=place.folder) for argument in command]
        ended = await forked(place.folder, *arguments, env=environ)
        texts += [ended.out.decode("utf-8", "replace"), ended.err]
    assert all(texts[at] or texts[at + 1] for at in range(0, len(texts), 2)), commands
    return texts


@way_out("aiio ask and doctor")
async def cli_asks(place: Place) -> Texts:
    place.server.script(refuse)
    log = ("--debug", "--log", "{folder}/cli.jsonl")
    asked = [("ask", "Hello", "-m", f"{name}/m", *log) for name in ("queried", "authorized")]
    texts = await _printed(place, *asked, *(("doctor", f"{name}/m", *log) for name in _EXAMINED))
    return [*texts, place.file("cli.jsonl").read_text()]


@way_out("aiio endpoints, models, auth list and config show")
async def cli_lists(place: Place) -> Texts:
    place.server.script(refuse)
    shown = [
        ("endpoints",),
        ("endpoints", "--json"),
        ("auth", "list"),
        ("config", "show"),
        ("models", "--debug"),
    ]
    return await _printed(place, *shown, *(("models", name, "--refresh", "--debug") for name in _NAMES))


@way_out("aiio run and trace")
async def cli_runs(place: Place) -> Texts:
    place.server.script(refuse)
    lines = [{"prompt": "Hello", "model": f"{name}/m"} for name in _NAMES]
    place.file("prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    log, out = "{folder}/run.jsonl", "{folder}/out.jsonl"
    texts = await _printed(
        place,
        ("run", "{folder}/prompts.jsonl", "--out", out, "--log", log, "--debug"),
        ("trace", log),
        ("trace", log, "--html", "{folder}/page.html"),
    )
    return [*texts, *(place.file(name).read_text() for name in ("run.jsonl", "out.jsonl", "page.html"))]


@way_out("a crash of the command line")
async def cli_crashes(place: Place) -> Texts:
    from aiio.cli.session import LogOptions, crashed

    texts: Texts = []
    stderr = sys.stderr
    async with place.env() as env:
        for selector in SELECTORS:
            name = selector.partition("/")[0]
            env.credential(name, overrides(selector))
            env.proxy_for(str(env.endpoint(name).url), env.endpoint_settings(name))
        for canary in WAYS_IN.values():
            sys.stderr = std_io.StringIO()
            try:
                try:
                    raise RuntimeError(f"crashed over {canary}")
                except RuntimeError as exc:
                    crashed(exc, LogOptions(debug=True), env.scrub)
                texts.append(sys.stderr.getvalue())
            finally:
                sys.stderr = stderr
    assert all("unexpected RuntimeError" in text for text in texts)
    return texts
