"""Tokens that run out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import structlog
import trio
from trio.testing import MockClock

from aiio.env import Env, ProviderError, Secret
from aiio.env.oauth import read_token
from tests.serving import respond, serve

NOW = 1_795_000_000.0
OLD, NEW, AGAIN = "access-old-0123", "access-new-0123", "refresh-0123456"
RECORD = {"type": "oauth", "access": OLD, "refresh": AGAIN, "expires": NOW + 20}
JSON = {"content-type": "application/json"}


def env_of(record: Mapping[str, Any] = RECORD, **more: Any) -> Env:
    env = Env(
        {"mine": {"auth": dict(record), **more}, "providers": {"mine": {"url": "http://m"}}}, environ={}
    )
    env.renewal.wall_clock = lambda: NOW
    return env


async def token_of(env: Env) -> str | None:
    credential = (await env.resolve("mine")).credential
    return None if credential is None else credential.reveal()


class Renewing:
    """A renewal that counts."""

    def __init__(self, env: Env, changes: Mapping[str, Any] | Exception, seconds: float = 0.0) -> None:
        self.seen: list[Mapping[str, Any]] = []
        self.changes = changes
        self.seconds = seconds
        env.register_refresh("mine", self)

    async def __call__(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        self.seen.append(record)
        await trio.sleep(self.seconds)
        if isinstance(self.changes, Exception):
            raise self.changes
        return self.changes


async def test_a_token_is_renewed_before_it_ends_once_for_all() -> None:
    env = env_of()
    renewing = Renewing(env, {"access": NEW, "expires": NOW + 3600})
    tokens: list[str | None] = []

    async def ask() -> None:
        tokens.append(await token_of(env))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert tokens == [NEW] * 20
    assert len(renewing.seen) == 1
    assert renewing.seen[0]["refresh"] == Secret(AGAIN)
    assert env.scrub(f"{NEW} {OLD} {AGAIN}") == "*** *** ***"


@pytest.mark.parametrize(
    "change",
    [
        {"expires": NOW + 31},
        {"expires": (NOW + 31) * 1000},
        {"expires": "soon"},
        {"expires": True},
        {"type": "api_key"},
        {"refresh": None},
    ],
)
async def test_a_token_that_is_not_due_stays(change: dict[str, Any]) -> None:
    env = env_of({**RECORD, **change})
    renewing = Renewing(env, {"access": NEW})
    assert await token_of(env) == OLD
    assert renewing.seen == []


async def test_milliseconds_are_understood_and_overrides_left_alone() -> None:
    env = env_of({**RECORD, "expires": (NOW + 20) * 1000})
    renewing = Renewing(env, {"access": NEW})
    address = await env.resolve("mine", {"auth": "given"})
    assert address.credential == Secret("given")
    assert renewing.seen == []
    assert await token_of(env) == NEW
    assert not Env({"mine": {"auth": "bare"}}, environ={}).renewal.is_due("mine")


@pytest.mark.parametrize("fault", [OSError(f"bad {AGAIN}"), ProviderError("auth", "refused"), None])
async def test_a_failed_renewal_stops_nothing_and_pauses(
    fault: Exception | None, autojump_clock: MockClock
) -> None:
    env = env_of()
    renewing = Renewing(env, fault or {}, seconds=0.0 if fault else 1000.0)
    with structlog.testing.capture_logs() as logs:
        assert await token_of(env) == OLD
    assert [log["event"] for log in logs] == ["oauth.not_renewed"]
    assert logs[0]["why"] in ("OSError", "refused", "no answer in 15 s")
    assert trio.current_time() == (0 if fault else 15)
    assert await token_of(env) == OLD
    assert len(renewing.seen) == 1
    await trio.sleep(10)
    assert await token_of(env) == OLD
    assert len(renewing.seen) == 2


async def test_a_renewal_is_killable() -> None:
    env = env_of()
    Renewing(env, {"access": NEW}, seconds=1000)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(token_of, env)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught
    Renewing(env, {"access": NEW})
    assert await token_of(env) == NEW


async def test_a_new_token_is_kept_even_if_the_request_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"AIIO_CONFIG_DIR": str(tmp_path)}
    await Env({"providers": {"mine": {"url": "http://m"}}}, environ=environ).auth_set(
        "mine", {**RECORD, "url": "http://m", "provider": "openai_chat"}
    )
    env = Env(environ=environ)
    env.renewal.wall_clock = lambda: NOW

    async def refresh(record: Mapping[str, Any]) -> Mapping[str, Any]:
        scope.cancel()
        return {"access": NEW, "expires": NOW + 3600}

    env.register_refresh("mine", refresh)
    with trio.CancelScope() as scope:
        await token_of(env)
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert Env(environ=environ).credential("mine") == Secret(NEW)


async def test_a_token_server_is_asked_as_the_rfc_has_it() -> None:
    answer = b'{"access_token": "%s", "refresh_token": "r2-0123456", "expires_in": "60"}' % NEW.encode()
    async with serve(respond(answer, headers=JSON)) as server:
        env = env_of(oauth={"token_url": f"{server.url}/token", "client_id": "me"})
        assert await token_of(env) == NEW
        await env.aclose()
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/token")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qs(request.body.decode()) == {
        "grant_type": ["refresh_token"],
        "refresh_token": [AGAIN],
        "client_id": ["me"],
    }
    auth = env.settings["mine"]["auth"]
    assert (auth["refresh"], auth["expires"]) == (Secret("r2-0123456"), NOW + 60)


@pytest.mark.parametrize("url", ["http://elsewhere/token", None])
async def test_a_token_is_sent_to_no_open_wire(url: str | None) -> None:
    env = env_of(oauth={"token_url": url})
    with structlog.testing.capture_logs() as logs:
        assert await token_of(env) == OLD
    assert "no https URL" in logs[0]["why"]


async def test_without_a_way_to_renew_the_token_is_used_as_it_is() -> None:
    env = env_of(oauth="odd")
    with structlog.testing.capture_logs() as logs:
        assert await token_of(env) == OLD
    assert logs == []
    assert abs(Env(environ={}).renewal.wall_clock() - time.time()) < 60


def test_what_a_token_server_answers_is_read_tolerantly() -> None:
    assert read_token({"access_token": "a", "expires_in": 9.5}, "e", NOW) == {
        "access": Secret("a"),
        "token": None,
        "expires": int(NOW + 9.5),
    }
    for seconds in (True, "soon", None):
        assert read_token({"access_token": "a", "expires_in": seconds}, "e", NOW)["expires"] is None
    answers: list[object] = [{}, {"access_token": ""}, {"access_token": 5}, [], None]
    for answer in answers:
        with pytest.raises(ProviderError, match="no access_token"):
            read_token(answer, "e", NOW)


async def test_a_token_server_without_a_client_id() -> None:
    async with serve(respond(b'{"access_token": "x-0123456789"}', headers=JSON)) as server:
        env = env_of(oauth={"token_url": server.url})
        assert await token_of(env) == "x-0123456789"
        await env.aclose()
    assert b"client_id" not in server.requests[0].body
