"""Credentials that change while a program runs: renewed before a request, or replaced by somebody else."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import aiio
from aiio.env.credential_file import Keyring
from tests.faults.peer import CONTEXT, GOOD, MODEL, answer, write
from tests.serving import Server, respond, serve, stall

NOW = 1_795_000_000.0
OLD, NEW, AGAIN = "access-old-0123", "access-new-0123", "refresh-0123456"
RECORD = {"type": "oauth", "access": OLD, "refresh": AGAIN, "expires": NOW + 20}


@asynccontextmanager
async def oauth_env(server: Server, **policy: Any) -> AsyncIterator[aiio.Env]:
    """An Env whose token for *server* ends in 20 seconds."""
    async with aiio.Env(environ={}) as env:
        env.renewal.wall_clock = lambda: NOW
        env.register_endpoint("peer", url=server.url, auth=dict(RECORD), **policy)
        yield env


class Hanging:
    """A renewal that never comes to its end."""

    def __init__(self, env: aiio.Env) -> None:
        self.began = trio.Event()
        self.left = trio.Event()
        env.register_refresh("peer", self)

    async def __call__(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        self.began.set()
        try:
            await trio.sleep_forever()
        finally:
            self.left.set()
        raise AssertionError("unreachable")


def bearer(server: Server) -> list[str]:
    return [request.headers["authorization"].removeprefix("Bearer ") for request in server.requests]


# --- renewal inside the write ---


async def test_a_token_is_renewed_inside_the_write_that_needs_it() -> None:
    async with serve(*answer(*GOOD)) as server, oauth_env(server) as env:
        states: list[str] = []
        io = aiio.IO(env=env, model=MODEL)

        async def refresh(record: Mapping[str, Any]) -> Mapping[str, Any]:
            states.append(io.state)
            return {"access": NEW, "expires": NOW + 3600}

        env.register_refresh("peer", refresh)
        assert (await write(io)).text == "Hi"
        assert (await write(io)).text == "Hi"
        assert (bearer(server), states) == ([NEW, NEW], ["sending"])


@pytest.mark.parametrize("how", ["kill", "outer"])
async def test_a_hanging_renewal_is_stopped_with_its_write(how: str, autojump_clock: MockClock) -> None:
    async with serve(*answer(*GOOD)) as server, oauth_env(server) as env:
        hanging, io = Hanging(env), aiio.IO(env=env, model=MODEL)
        heard: list[Any] = []

        async def request(scope: trio.CancelScope) -> None:
            with scope:
                await io.write(CONTEXT, {"on_error": heard.append})

        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            nursery.start_soon(request, scope)
            await hanging.began.wait()
            began = trio.current_time()
            if how == "kill":
                await io.kill("enough")
            else:
                scope.cancel()
        assert (hanging.left.is_set(), trio.current_time() - began) == (True, 0)
        assert scope.cancelled_caught == (how == "outer")
        (error,) = heard
        assert (error.kind, error.cancelled, error.emitted) == (aiio.ErrorKind.CANCELLED, True, False)
        assert (server.connections, len(env.active_io)) == (0, 0)
        assert io.state == ("closed" if how == "kill" else "idle")


async def test_the_overall_limit_holds_during_a_renewal(autojump_clock: MockClock) -> None:
    async with serve(*answer(*GOOD)) as server, oauth_env(server) as env:
        hanging = Hanging(env)
        seen = await write(aiio.IO(env=env, model=MODEL, timeout="4s", connect_timeout="1s"))
        assert (seen.error.limit, seen.took, seen.error.budget_ms) == ("overall", 4, 4000)
        assert hanging.left.is_set()
        assert server.connections == 0


async def test_a_renewal_that_does_not_end_in_time_leaves_the_old_token(patient_clock: MockClock) -> None:
    async with serve(*answer(*GOOD)) as server, oauth_env(server) as env:
        Hanging(env)
        seen = await write(aiio.IO(env=env, model=MODEL, connect_timeout="1s"))
        assert (seen.text, bearer(server)) == ("Hi", [OLD])
        assert 15 <= seen.took < 16


async def fails(record: Mapping[str, Any]) -> Mapping[str, Any]:
    raise OSError("no token for you")


async def gives_nonsense(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"access": "two\nlines"}


@pytest.mark.parametrize("refresh", [fails, gives_nonsense])
async def test_a_failed_renewal_does_not_stop_the_request(
    refresh: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]],
) -> None:
    async with serve(*answer(*GOOD)) as server, oauth_env(server) as env:
        env.register_refresh("peer", refresh)
        assert (await write(aiio.IO(env=env, model=MODEL))).text == "Hi"
        assert bearer(server) == [OLD]


async def test_a_token_server_that_refuses_does_not_stop_the_request() -> None:
    async with (
        serve(respond(b'{"error":"invalid_grant"}', status=400)) as tokens,
        serve(*answer(*GOOD)) as server,
        oauth_env(server, oauth={"token_url": tokens.url + "/token", "client_id": "c"}) as env,
    ):
        assert (await write(aiio.IO(env=env, model=MODEL))).text == "Hi"
        assert (len(tokens.requests), bearer(server)) == (1, [OLD])


async def test_a_kill_leaves_a_token_server_that_says_nothing() -> None:
    async with (
        serve(stall()) as tokens,
        serve(*answer(*GOOD)) as server,
        oauth_env(server, oauth={"token_url": tokens.url, "client_id": "c"}) as env,
    ):
        io = aiio.IO(env=env, model=MODEL)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, io)
            await tokens.wait_open(1)
            await io.kill()
            await tokens.wait_idle()
        assert (io.state, server.connections) == ("closed", 0)


async def test_a_kill_during_a_shared_renewal_leaves_the_others_theirs() -> None:
    async with serve(*answer(*GOOD)) as server, oauth_env(server) as env:
        asked: list[Mapping[str, Any]] = []

        async def refresh(record: Mapping[str, Any]) -> Mapping[str, Any]:
            asked.append(record)
            if len(asked) == 1:
                await trio.sleep_forever()
            return {"access": NEW, "expires": NOW + 3600}

        env.register_refresh("peer", refresh)
        first, second = (aiio.IO(env=env, model=MODEL) for _ in range(2))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.write, CONTEXT)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(second.write, CONTEXT)
            await trio.testing.wait_all_tasks_blocked()
            await first.kill()
        assert (len(asked), bearer(server)) == (2, [NEW])


# --- the resend ---


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's folder, in a working directory of our own, and no keyring."""
    monkeypatch.setattr(Keyring, "installed", staticmethod(lambda: False))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


def keep(user: Path, key: str) -> None:
    (user / "credentials.toml").write_text(f'[peer.auth]\ntype = "api_key"\ntoken = "{key}"\n')


@pytest.mark.parametrize("changed", [True, False])
async def test_a_refused_credential_is_read_anew_from_its_file(user: Path, changed: bool) -> None:
    """ACCEPTANCE 5, the key having been replaced by another process while the request was out."""
    first, second = "key-first-0123", "key-second-0123"
    keep(user, first)

    async def replace(exchange: Any) -> None:
        if changed:
            keep(user, second)

    async with serve(*answer(*GOOD)) as server, aiio.Env(environ={"AIIO_CONFIG_DIR": str(user)}) as env:
        env.register_endpoint("peer", url=server.url)
        server.script_next(replace, respond(b'{"error":{"message":"bad key"}}', status=401))
        server.script_next(*(answer(*GOOD) if changed else [respond(b"again", status=401)]))
        seen = await write(aiio.IO(env=env, model=MODEL))
        kinds = [one.type for one in seen.events]
        if changed:
            assert (seen.text, kinds.count("start"), bearer(server)) == ("Hi", 2, [first, second])
        else:
            assert (seen.error.kind, kinds, bearer(server)) == ("auth", ["start", "error"], [first])
        kept = tomllib.loads((user / "credentials.toml").read_text())
        assert kept["peer"]["auth"]["token"] == (second if changed else first)
        assert env.scrub(f"{first} {second}") == f"*** {'***' if changed else second}"


async def test_a_credential_that_a_file_lost_is_no_reason_to_send_again(user: Path) -> None:
    keep(user, "key-first-0123")

    async def empty(exchange: Any) -> None:
        (user / "credentials.toml").write_text("")

    async with (
        serve(empty, respond(b"no", status=401)) as server,
        aiio.Env(environ={"AIIO_CONFIG_DIR": str(user)}) as env,
    ):
        env.register_endpoint("peer", url=server.url)
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert (seen.error.kind, seen.error.status, len(server.requests)) == ("auth", 401, 1)


async def test_a_kill_while_the_files_are_read_anew_ends_it(user: Path) -> None:
    keep(user, "key-first-0123")
    async with (
        serve(respond(b"no", status=401)) as server,
        aiio.Env(environ={"AIIO_CONFIG_DIR": str(user)}) as env,
    ):
        env.register_endpoint("peer", url=server.url)
        io = aiio.IO(env=env, model=MODEL)
        reading = trio.Event()

        async def slow(endpoint: str) -> bool:
            reading.set()
            await trio.sleep_forever()

        env.refresh_credentials = slow  # type: ignore[method-assign]
        heard: list[Any] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(io.write, CONTEXT, {"on_error": heard.append})
            await reading.wait()
            await io.kill()
        assert [error.kind for error in heard] == ["cancelled"]
        assert (io.state, len(server.requests)) == ("closed", 1)
