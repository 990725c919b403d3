"""H1, H5: a bad key never meets the network, and a good one never meets another host."""

from __future__ import annotations

import io as std_io
import json
import logging
import traceback
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import aiio
from aiio.env.errors import ProviderError
from tests.serving import respond, serve, sse

from .peer import CONTEXT, GOOD, KEY, MODEL, peer, write

SECRET = "canary-4711-abcdef"

# --- H1: keys as people paste them ----------------------------------------------------------------

TRIMMED = {
    "trailing-lf": f"{SECRET}\n",
    "crlf": f"{SECRET}\r\n",
    "leading-space": f"  {SECRET}",
    "tabs": f"\t{SECRET}\t",
}
REFUSED = {
    "empty": "",
    "blank": " \n ",
    "inner-lf": f"{SECRET}\nX-Evil: 1",
    "inner-crlf": f"{SECRET}\r\nX-Evil: 1",
    "inner-cr": f"{SECRET}\rX",
    "nul": f"{SECRET}\0",
    "not-ascii": f"{SECRET}é",
    "dash-of-a-word-processor": f"{SECRET}\u2013x",
    "lone-surrogate": f"{SECRET}\ud800",
    "escape": f"{SECRET}\x1b[0m",
}


@pytest.fixture
def all_text() -> Iterator[std_io.StringIO]:
    """Everything that goes to standard logging, at any level."""
    sink = std_io.StringIO()
    handler = logging.StreamHandler(sink)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield sink
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize("case", list(TRIMMED))
@pytest.mark.parametrize("where", ["register", "settings", "auth_set", "environment"])
async def test_H1_whitespace_around_a_key_is_trimmed(patient_clock: MockClock, case: str, where: str) -> None:
    async with serve(respond(sse(*GOOD))) as server:
        env, model = await env_with_key(TRIMMED[case], where, server.url)
        async with env:
            assert (await write(aiio.IO(env=env, model=model))).text == "Hi"
        assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"


async def env_with_key(key: str, where: str, url: str) -> tuple[aiio.Env, str]:
    """Return an Env that got *key* by the way *where*, and a selector; raises what that way raises."""
    match where:
        case "register":
            env = aiio.Env(environ={})
            env.register_endpoint("peer", url=url, auth=key)
        case "settings":
            env = aiio.Env(
                {"providers": {"peer": {"url": url}}, "peer": {"auth": {"token": key}}}, environ={}
            )
        case "auth_set":
            env = aiio.Env(environ={})
            env.register_endpoint("peer", url=url)
            await env.auth_set("peer", key)
        case _:
            env = aiio.Env(environ={"OPENAI_API_KEY": key})
            env.register_endpoint("openai", url=url)
            return env, "openai/m"
    return env, MODEL


NAMES = {
    "register": "peer",
    "settings": "peer",
    "auth_set": "peer",
    "environment": "OPENAI_API_KEY",
}


@pytest.mark.parametrize("case", list(REFUSED))
@pytest.mark.parametrize("where", list(NAMES))
async def test_H1_a_key_no_request_can_carry_is_an_auth_error_before_any_connection(
    patient_clock: MockClock, all_text: std_io.StringIO, case: str, where: str
) -> None:
    told: list[str] = []
    async with serve(respond(sse(*GOOD))) as server:
        with capture_logs() as logs:
            try:
                env, model = await env_with_key(REFUSED[case], where, server.url)
                async with env:
                    seen = await write(aiio.IO(env=env, model=model))
                    kind, message = seen.error.kind, seen.error.error
                    told += [repr(seen.error), repr(env.settings), repr(env.endpoint(model.split("/")[0]))]
                    told.append(json.dumps(env.endpoint_settings(model.split("/")[0]), default=repr))
            except ProviderError as exc:
                kind, message = exc.kind, exc.message
                told += [str(exc), repr(exc), repr(exc.detail), "".join(traceback.format_exception(exc))]
        assert kind is aiio.ErrorKind.AUTH
        assert NAMES[where] in message
        assert server.connections == 0
        told += [repr(logs), all_text.getvalue(), message]
        assert SECRET not in "\n".join(told)
        assert "X-Evil" not in "\n".join(told)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\rb", "\ud800"])
async def test_H1_a_line_break_in_any_other_header_is_refused_likewise(
    patient_clock: MockClock, value: str
) -> None:
    async with serve(respond(sse(*GOOD))) as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL, settings={"extra_headers": {"X-Title": f"{SECRET}{value}"}})
        seen = await write(io)
        assert seen.error.kind in (aiio.ErrorKind.MALFORMED, aiio.ErrorKind.AUTH)
        assert "X-Title" in seen.error.error
        assert SECRET not in repr(seen.error)
        assert not seen.error.retryable
        assert server.connections == 0


async def test_H1_a_missing_key_names_the_variable_to_set(patient_clock: MockClock) -> None:
    async with serve(respond(sse(*GOOD))) as server, aiio.Env(environ={}) as env:
        env.register_endpoint("openai", url=server.url)
        seen = await write(aiio.IO(env=env, model="openai/m"))
        assert seen.error.kind is aiio.ErrorKind.AUTH
        assert "OPENAI_API_KEY" in seen.error.error
        assert server.connections == 0


# --- H5: redirects --------------------------------------------------------------------------------

REDIRECTS = [301, 302, 303, 307, 308]
TARGETS = ["same-port", "other-port", "other-host", "relative", "scheme-relative", "to-https"]


@pytest.mark.parametrize("header", ["bearer", "api-key"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("status", REDIRECTS)
async def test_H5_a_redirect_is_an_error_and_the_key_stays_here(
    patient_clock: MockClock, status: int, target: str, header: str
) -> None:
    async with serve(respond(sse(*GOOD))) as other, serve() as server:
        location = {
            "same-port": f"{server.url}/v2/chat",
            "other-port": f"{other.url}/v2/chat",
            "other-host": f"http://localhost:{other.port}/v2/chat",
            "relative": "/v2/chat",
            "scheme-relative": f"//127.0.0.1:{other.port}/v2/chat",
            "to-https": f"https://127.0.0.1:{other.port}/v2/chat",
        }[target]
        server.script(respond(b"moved", status=status, headers={"location": location}))
        async with peer(server, quirks={"auth_header": header}) as env:
            seen = await write(aiio.IO(env=env, model=MODEL))
            await trio.sleep(1)
        assert (seen.error.kind, seen.error.status) == (aiio.ErrorKind.PROVIDER, status)
        assert location in seen.error.error
        assert not seen.error.retryable
        assert KEY in str(server.requests[0].headers)
        assert (len(server.requests), server.connections, other.connections) == (1, 1, 0)


async def test_H5_a_loop_of_redirects_is_one_request(patient_clock: MockClock) -> None:
    async with serve() as server, peer(server) as env:
        hops = [f"{server.url}/hop/{number % 30}" for number in range(31)]
        for hop in hops:
            server.script_next(respond(b"", status=307, headers={"location": hop}))
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.error.status == 307
        assert server.connections == 1


@pytest.mark.parametrize(
    "location", [None, "", "http://[broken", f"http://u:{SECRET}@h/?key={SECRET}", "x" * 9000]
)
async def test_H5_a_redirect_to_anything_is_still_a_plain_error(
    patient_clock: MockClock, location: str | None
) -> None:
    headers: dict[str, Any] = {} if location is None else {"location": location}
    async with serve(respond(b"", status=302, headers=headers)) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert (seen.error.kind, seen.error.status) == (aiio.ErrorKind.PROVIDER, 302)
        assert SECRET not in repr(seen.error)
        assert len(seen.error.error) < 1000


async def test_H5_a_lent_client_that_follows_redirects_does_not_for_us(patient_clock: MockClock) -> None:
    async with serve(respond(sse(*GOOD))) as other, serve() as server:
        server.script(respond(b"", status=307, headers={"location": f"{other.url}/v2"}))
        async with (
            httpx.AsyncClient(follow_redirects=True, trust_env=False) as client,
            peer(server, http_client=client) as env,
        ):
            terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert isinstance(terminal, aiio.Error)
        assert terminal.status == 307
        assert other.connections == 0
