"""K1: no secret leaves in a log, an event, an exception, a traceback, a repr or a file.

A canary sits wherever people put keys. Scenarios fail in all the ways that this room knows; whatever was
written meanwhile, at debug level, by us and by the libraries below us, is searched for all canaries, in the
encodings they may take.
"""

from __future__ import annotations

import base64
import io as std_io
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import structlog
import trio
from trio.testing import MockClock

import aiio
from aiio import observe
from aiio.providers import define_provider
from tests.serving import (
    Exchange,
    Server,
    Step,
    chunk,
    drop,
    head,
    last_chunk,
    raw,
    reset,
    respond,
    serve,
    sse,
    stall,
)

from .conftest import TLS
from .peer import CONTEXT, DONE, GOOD, MODEL, call, events, read_by_client, stop, text

CANARIES = {
    "auth": "sk-canary-auth-0a1b2c3d",
    "header": "canary/header+4e5f6a7b==",
    "query": "canary-query-8c9d0e1f",
    "userinfo": "canary-userinfo-2a3b4c5d",
    "setting": "canary-setting-6e7f8a9b",
    "proxy": "canary-proxy-0c1d2e3f",
}
AUTH = CANARIES["auth"]
ECHO = json.dumps(
    {"you sent": f"Bearer {AUTH}", "and": [CANARIES[name] for name in CANARIES if name != "proxy"]}
)
"""What a peer can know of, and tell."""


def encodings(canary: str) -> set[str]:
    """What *canary* may look like."""
    shown = {canary, quote(canary, safe=""), json.dumps(canary)[1:-1], repr(canary.encode())[2:-1]}
    return shown | {base64.b64encode(canary.encode()).decode().rstrip("="), canary[:-4], canary[4:]}


@dataclass
class Written:
    """Everything that was written anywhere."""

    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, place: str, *texts: str) -> None:
        self.places.setdefault(place, []).extend(texts)

    def add_exception(self, place: str, exc: BaseException) -> None:
        """What people and crash reporters make of an exception; locals of our own frames included."""
        self.add(place, str(exc), repr(exc), "".join(traceback.format_exception(exc)))
        shown: BaseException | None = exc
        while shown is not None:
            frames = traceback.StackSummary.extract(
                traceback.walk_tb(shown.__traceback__), capture_locals=True
            )
            ours = [frame for frame in frames if "/tests/" not in frame.filename]
            self.add(f"{place}: locals", *(repr(frame.locals) for frame in ours))
            self.add(place, repr(vars(shown)), str(shown), repr(shown))
            shown = shown.__cause__ or shown.__context__

    def add_terminal(self, place: str, terminal: Any) -> None:
        self.add(place, repr(terminal), str(terminal), msgspec.json.encode(terminal).decode())
        self.add(place, json.dumps(terminal.message), json.dumps(terminal.usage))

    def check(self) -> None:
        """Assert that no canary is in anything."""
        leaks = [
            f"{where} canary in {place}: ...{found[max(0, found.index(form) - 80) :][:200]}..."
            for place, texts in self.places.items()
            for found in texts
            for where, canary in CANARIES.items()
            for form in encodings(canary)
            if form in found
        ]
        assert not leaks, "\n".join(dict.fromkeys(leaks))


# --- where a program's log lines go ---------------------------------------------------------------


@contextmanager
def standard_logging(name: str | None) -> Iterator[std_io.StringIO]:
    """What goes to the standard logger *name* at debug level; None: to any."""
    sink = std_io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s %(args)r"))
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield sink
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def ours(path: Path) -> Callable[[], None]:
    """The set-up that aiio offers; returns what undoes it."""
    return observe.configure(path, level="debug").close


def the_programs_own(path: Path) -> Callable[[], None]:
    """Everything as JSON, and nothing masked."""
    sink = path.open("w")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.ExceptionRenderer(),
            structlog.processors.JSONRenderer(default=repr),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(file=sink),
    )

    def close() -> None:
        structlog.reset_defaults()
        sink.close()

    return close


def nothing_configured(path: Path) -> Callable[[], None]:
    """As a program has it that never heard of structlog."""
    structlog.reset_defaults()  # `capture_logs` in an earlier test leaves it configured
    path.touch()
    return lambda: None


LOGGING_MODES = {"ours": ours, "own": the_programs_own, "none": nothing_configured}


# --- the scenarios --------------------------------------------------------------------------------


@define_provider(name="clumsy", dialect="chat")
class Clumsy:
    """A plug-in that tells what it should not."""

    def translate_all(self, frames: Any, state: Any, io: Any) -> Any:
        raise RuntimeError(f"can't read this with {io.token}")


Options = dict[str, Any]
Scenario = tuple[list[Step], Options]


async def echo_in_head(exchange: Exchange) -> None:
    """Answer with headers that echo what came."""
    await exchange.send(
        f"HTTP/1.1 429 Slow\r\nx-request-id: {AUTH}\r\nretry-after: 3\r\ncontent-length: 0\r\n\r\n".encode()
    )


def refusal(status: int, body: str, **headers: str) -> list[Step]:
    return [respond(body.encode(), status=status, headers={"content-type": "application/json", **headers})]


def said(message: str, **fields: Any) -> str:
    return json.dumps({"error": {"message": message, **fields}})


SCENARIOS: dict[str, Scenario] = {
    "refused-connection": ([], {"closed": True}),
    "401-echoes-the-key": (refusal(401, said(f"Incorrect API key provided: {AUTH}.")), {}),
    "401-echoes-half-the-key": (refusal(401, said(f"Incorrect key {AUTH[:9]}***{AUTH[-4:]}")), {}),
    "400-echoes-everything": (refusal(400, said(ECHO, code=AUTH, param=ECHO)), {}),
    "500-page-echoes-the-url": (
        [respond(f"<p>/v1?key={CANARIES['query']} {ECHO}</p>".encode(), status=500)],
        {},
    ),
    "html-under-200": ([respond(f"<p>{ECHO}</p>".encode(), headers={"content-type": "text/html"})], {}),
    "error-in-band": (
        [head(), events(text("Hm"), said(ECHO, code=AUTH, type=AUTH).encode()), last_chunk()],
        {},
    ),
    "named-error-in-band": (
        [head(), events(text("Hm")), chunk(b"event: error\ndata: " + ECHO.encode() + b"\n\n"), last_chunk()],
        {},
    ),
    "malformed-frame": ([head(), events(text("Hm"), b"{" + ECHO.encode()), last_chunk()], {}),
    "not-an-object": ([head(), events(text("Hm"), json.dumps([ECHO]).encode()), last_chunk()], {}),
    "redirect": (
        [respond(b"", status=307, headers={"location": f"http://u:{AUTH}@h/{AUTH}?key={AUTH}#{AUTH}"})],
        {},
    ),
    "garbage-status-line": ([raw(f"{AUTH} is not HTTP\r\n\r\n".encode())], {}),
    "bad-header-line": ([raw(f"HTTP/1.1 200 OK\r\n{AUTH}\r\n\r\n".encode())], {}),
    "echo-in-headers": ([echo_in_head], {}),
    "reset-in-body": ([head(), events(text("Hm")), read_by_client(), reset()], {}),
    "cut": ([head(), events(text("Hm"), call('{"a', id="c", name="f")), drop()], {}),
    "stuck": ([head(), events(text("Hm")), stall()], {"stuck_timeout": "1s"}),
    "connect-limit": ([stall()], {"connect_timeout": "1s"}),
    "overall-limit": ([stall()], {"timeout": "1s"}),
    "killed": ([head(), events(text("Hm")), stall()], {"kill": True}),
    "cancelled": ([head(), events(text("Hm")), stall()], {"cancel": True}),
    "callback-raises": ([head(), events(*GOOD), last_chunk()], {"crash": True}),
    "clumsy-plug-in": ([head(), events(text("Hm"), stop(), DONE), last_chunk()], {"provider": "clumsy"}),
    "bad-header-value": (
        [],
        {"settings": {"extra_headers": {"X-Api-Key": f"{CANARIES['header']}\r\nX: 1"}}},
    ),
    "not-latin-1-header": ([], {"settings": {"extra_headers": {"X-Note": f"{CANARIES['header']} \u2013"}}}),
    "bad-quirk": ([], {"settings": {"quirks": {"auth_header": AUTH}}}),
    "proxy-refused": ([], {"settings": {"proxy": f"http://user:{CANARIES['proxy']}@127.0.0.1:9"}}),
    "proxy-nonsense": ([], {"settings": {"proxy": f"http://user:{CANARIES['proxy']}@[::bad"}}),
    "unserved-scheme": ([], {"url": f"gopher://user:{CANARIES['userinfo']}@h/?key={CANARIES['query']}"}),
    "nonsense-url": ([], {"url": f"http://user:{CANARIES['userinfo']}@[bad/?key={CANARIES['query']}"}),
    "bad-port": ([], {"url": f"http://user:{CANARIES['userinfo']}@h:99999/?key={CANARIES['query']}"}),
    "untrusted-tls": ([respond(sse(*GOOD))], {"tls": True}),
}


def address(server: Server, options: Options) -> str:
    """Return the server's URL with a canary in its query and its user part."""
    scheme, _, host = server.url.partition("://")
    return str(
        options.get("url") or f"{scheme}://user:{CANARIES['userinfo']}@{host}/v1?key={CANARIES['query']}"
    )


@asynccontextmanager
async def canary_env(server: Server, options: Options) -> AsyncIterator[aiio.Env]:
    """An Env with a canary in every place."""
    settings = {"password": CANARIES["setting"], "peer": {"auth": {"refresh": CANARIES["setting"]}}}
    async with aiio.Env(settings, environ={}) as env:
        env.register_provider(Clumsy)
        env.register_endpoint(
            "peer",
            provider=options.get("provider"),
            url=address(server, options),
            auth=AUTH,
            api_key=CANARIES["setting"],
            extra_headers={"X-Auth-Token": CANARIES["header"], "Cookie": f"session={CANARIES['header']}"},
        )
        yield env


async def run_scenario(written: Written, name: str, tls: TLS) -> None:
    """Run one scenario, and put all that its caller can see into *written*."""
    steps, options = SCENARIOS[name]
    async with serve(*steps, tls=tls.server if "tls" in options else None) as server:
        if "closed" not in options:
            await seen_by_caller(written, name, server, options)
    if "closed" in options:
        await seen_by_caller(written, name, server, options)


async def seen_by_caller(written: Written, name: str, server: Server, options: Options) -> None:
    async with canary_env(server, options) as env:
        limits = {key: value for key, value in options.items() if key.endswith("timeout")}
        heard: list[Any] = []
        lines: list[str] = []

        def hear(one: Any) -> None:
            heard.append(one)
            if "crash" in options and isinstance(one, aiio.TextDelta):
                raise ValueError("mine")

        def listen(one: Any) -> None:
            raise RuntimeError(f"a listener that tells {AUTH}")

        env.on_event(listen)
        try:
            io = aiio.IO(
                env=env, model=MODEL, settings=options.get("settings"), on_data=hear, on_log=lines.append
            )
            with trio.move_on_after(1 if "cancel" in options else 10_000):
                async with trio.open_nursery() as nursery:
                    if "kill" in options:
                        nursery.start_soon(kill_later, io)
                    terminal = await io.write(CONTEXT, **limits)
                    assert isinstance(terminal, aiio.Error), terminal
                    nursery.cancel_scope.cancel()
            written.add(f"{name}: reprs", repr(io))
            written.add(f"{name}: readouts", repr(io.plan_usage), repr(io.context_usage))
        except* ValueError as group:
            for exc in group.exceptions:
                written.add_exception(f"{name}: exception", exc)
        for one in heard:
            written.add(f"{name}: event", repr(one), msgspec.json.encode(one).decode())
            if isinstance(one, aiio.Error):
                written.add_terminal(f"{name}: terminal", one)
        written.add(f"{name}: on_log", *lines)
        written.add(f"{name}: env", repr(env), repr(env.settings), repr(env.ledger))


async def kill_later(io: aiio.IO) -> None:
    await trio.sleep(1)
    await io.kill()


def test_K1_there_are_enough_scenarios() -> None:
    assert len(SCENARIOS) >= 12


@pytest.mark.parametrize("mode", list(LOGGING_MODES))
@pytest.mark.parametrize("name", list(SCENARIOS))
async def test_K1_no_canary_is_in_anything_written(
    patient_clock: MockClock,
    tls: TLS,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    mode: str,
) -> None:
    written = Written()
    path = tmp_path / "log.jsonl"
    with standard_logging("aiio") as standard:
        close = LOGGING_MODES[mode](path)
        try:
            await run_scenario(written, name, tls)
        finally:
            close()
    lines = path.read_text() + standard.getvalue()
    assert "request.settled" in lines
    written.add("log", lines)
    written.add("console", *capfd.readouterr())
    written.check()


@pytest.mark.parametrize("name", ["401-echoes-the-key", "redirect", "cut", "stuck", "proxy-refused"])
async def test_K1_the_libraries_below_us_log_no_canary(patient_clock: MockClock, tls: TLS, name: str) -> None:
    written = Written()
    with standard_logging(None) as standard:
        await run_scenario(written, name, tls)
    written.add("standard logging", standard.getvalue())
    written.check()


async def test_K1_a_look_at_an_endpoint_shows_no_canary(patient_clock: MockClock) -> None:
    written = Written()
    async with serve() as server, canary_env(server, {}) as env:
        written.add("repr", repr(env.endpoint("peer")), str(env.endpoint("peer")))
    written.check()


async def test_K1_the_canaries_do_reach_the_peer(patient_clock: MockClock) -> None:
    async with serve(respond(sse(*GOOD))) as server, canary_env(server, {}) as env:
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert isinstance(terminal, aiio.Done)
        (request,) = server.requests
        assert request.headers["authorization"] == f"Bearer {AUTH}"
        assert request.headers["x-auth-token"] == CANARIES["header"]
        assert f"key={CANARIES['query']}" in request.target


Misuse = Callable[[aiio.Env], Awaitable[Any]]


async def _unknown_model(env: aiio.Env) -> None:
    aiio.IO(env=env, model="peers/m")


async def _bad_url(env: aiio.Env) -> None:
    env.register_endpoint("other", url=f"user:{CANARIES['userinfo']}@host?key={CANARIES['query']}", auth=AUTH)


async def _bad_key(env: aiio.Env) -> None:
    await env.auth_set("peer", {"token": f"{AUTH}\nX: 1"})


async def _bad_record(env: aiio.Env) -> None:
    await env.auth_set("peer", [AUTH])  # type: ignore[arg-type]  # that is the misuse


@pytest.mark.parametrize("misuse", [_unknown_model, _bad_url, _bad_key, _bad_record])
async def test_K1_misuse_quotes_no_canary(patient_clock: MockClock, misuse: Misuse) -> None:
    written = Written()
    async with serve(respond(sse(*GOOD))) as server, canary_env(server, {}) as env:
        with pytest.raises((TypeError, ValueError, Exception)) as raised:
            await misuse(env)
        written.add("exception", str(raised.value), repr(raised.value))
        written.add("exception", "".join(traceback.format_exception(raised.value)))
    written.check()
