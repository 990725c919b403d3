"""Endpoints of an Env: saved, removed, where they live, what other processes change (spec/io.md A15)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing

from aiio.env import Env, Secret

KEY = "sk-canary-0123456789"
OTHER = "sk-other-0123456789"


pytestmark = pytest.mark.usefixtures("nothing_installed")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "user"


def env_of(user: Path, settings: dict[str, Any] | None = None, **environ: str) -> Env:
    return Env(settings, environ={"AIIO_CONFIG_DIR": str(user), "AIIO_CACHE_DIR": str(user), **environ})


def people_write(user: Path, text: str) -> None:
    user.mkdir(exist_ok=True)
    (user / "config.toml").write_text(text)


def kept(user: Path) -> dict[str, Any]:
    return tomllib.loads((user / "credentials.toml").read_text())


A15 = [
    "access",
    "active_io",
    "auth_set",
    "call_tool",
    "context_consumption",
    "context_window",
    "detect_endpoints",
    "emit",
    "endpoint",
    "endpoint_local",
    "endpoint_names",
    "endpoint_scope",
    "endpoint_settings",
    "is_dynamic",
    "known_endpoints",
    "login",
    "max_active",
    "models",
    "off_event",
    "on_event",
    "provider",
    "refresh_endpoint_settings",
    "refresh_models",
    "refresh_tool_availability",
    "register_endpoint",
    "register_provider",
    "register_tool",
    "register_transport",
    "remove_endpoint",
    "safe",
    "save_endpoint",
    "test_connection",
    "tool_schemas",
]


@pytest.mark.parametrize("name", A15)
def test_A15_an_env_has_the_member_and_says_what_it_does(name: str) -> None:
    assert getattr(Env, name).__doc__


# --- saved ---


async def test_A15_a_saved_endpoint_outlives_the_env_with_its_credential(user: Path) -> None:
    env = env_of(user)
    with trio.testing.assert_checkpoints():
        saved = await env.save_endpoint(
            "mine", url="http://h/v1", auth=KEY, models={"a": {"context_window": 5}}, timeout="5s"
        )
    assert (saved.url, saved.provider, saved.policy["timeout"]) == ("http://h/v1", "openai_chat", "5s")
    assert env.scrub(KEY) == "***"
    assert kept(user)["mine"] == {
        "provider": "openai_chat",
        "url": "http://h/v1",
        "timeout": "5s",
        "models": {"a": {"context_window": 5}},
        "auth": {"type": "api_key", "token": KEY},
    }
    again = env_of(user)
    assert again.endpoint("mine").url == "http://h/v1"
    assert again.credential("mine") == Secret(KEY)
    assert again.context_window("mine/a") == 5
    await again.save_endpoint("mine", timeout="7s")
    assert again.credential("mine") == Secret(KEY)
    assert env_of(user).endpoint("mine").policy["timeout"] == "7s"
    assert str(user) in str(again.credential_source("mine"))


async def test_A15_what_is_known_already_is_saved_with_what_changes_only(user: Path) -> None:
    env = env_of(user)
    await env.save_endpoint("openai", timeout="5s")
    assert kept(user) == {"openai": {"timeout": "5s"}}
    assert env_of(user).endpoint("openai").url == "https://api.openai.com/v1"


async def test_an_endpoint_of_the_program_is_saved_whole(user: Path) -> None:
    env = env_of(user)
    env.register_endpoint("mine", url="http://h/v1", provider="ollama", auth=KEY)
    await env.save_endpoint("mine", timeout="5s")
    assert kept(user) == {"mine": {"url": "http://h/v1", "provider": "ollama", "timeout": "5s"}}
    assert env.credential_source("mine") == "the program's own settings"
    await env.save_endpoint("other", url="http://h", scope="local")
    assert env.endpoint_scope("other") == "local"
    assert env_of(user).endpoint_scope("other") == "local"


async def test_without_files_it_is_saved_in_memory() -> None:
    env = Env(environ={})
    await env.save_endpoint("mine", url="http://h")
    assert env.endpoint("mine").url == "http://h"
    assert await env.remove_endpoint("mine")
    assert "mine" not in env.endpoint_names()


async def test_what_cannot_be_saved_is_refused() -> None:
    env = Env(environ={})
    with pytest.raises(ValueError, match="'mine' needs a url"):
        await env.save_endpoint("mine", timeout="5s")
    with pytest.raises(ValueError, match="must be absolute"):
        await env.save_endpoint("mine", url="h/v1")
    with pytest.raises(ValueError, match="can't be an endpoint's name"):
        await env.save_endpoint("a/b", url="http://h")
    with pytest.raises(ValueError, match="a scope is"):
        await env.save_endpoint("mine", url="http://h", scope="here")
    assert "mine" not in env.endpoint_names()


# --- removed ---


async def test_A15_a_removed_endpoint_is_gone_with_its_credential(user: Path) -> None:
    env = env_of(user)
    await env.save_endpoint("mine", url="http://h", auth=KEY)
    await env.save_endpoint("here", url="http://h", scope="local")
    with trio.testing.assert_checkpoints():
        assert await env.remove_endpoint("mine")
    assert await env.remove_endpoint("here")
    await env.save_endpoint("here", url="http://h")
    assert env.endpoint_scope("here") == "package"
    assert await env.remove_endpoint("here")
    for name in ("mine", "here"):
        with pytest.raises(ValueError, match="unknown endpoint"):
            env.endpoint(name)
    assert kept(user) == {}
    assert not await env.remove_endpoint("mine")
    env.register_endpoint("mine", url="http://h")
    assert await env.remove_endpoint("mine")
    with pytest.raises(ValueError, match="a scope is"):
        await env.remove_endpoint("mine", scope="here")


async def test_what_needs_no_configuration_stays_known_and_what_people_wrote_is_theirs(user: Path) -> None:
    people_write(user, '[providers.theirs]\nurl = "http://h"\n')
    env = env_of(user)
    await env.save_endpoint("openai", auth=KEY)
    env.model_lists.put("openai", {"m": {"context_window": 3}})
    assert await env.remove_endpoint("openai")
    assert env.endpoint("openai").auth is None
    assert env.endpoint("openai").url == "https://api.openai.com/v1"
    assert env.context_window("openai/m") is None
    with pytest.raises(ValueError, match="'theirs' stands in a settings file"):
        await env.remove_endpoint("theirs")
    assert env.endpoint("theirs").url == "http://h"


async def test_a_removed_list_is_removed_from_the_disk(user: Path) -> None:
    (user / "models").mkdir(parents=True)
    path = user / "models" / "openai.json"
    path.write_text("{}")
    await env_of(user).remove_endpoint("openai")
    assert not path.exists()


# --- which there are ---


def test_A15_names_are_told_by_access_and_secret_ones_only_when_asked() -> None:
    providers = {
        "far": {"url": "http://far.example"},
        "near": {"url": "http://127.0.0.1:1"},
        "tunnel": {"url": "http://127.0.0.1:2", "remote": True},
        "lan": {"url": "http://10.0.0.1", "local": True},
        "hidden": {"url": "http://h", "secret": True},
        "unplaced": {"provider": "openai_chat"},
    }
    env = Env({"providers": providers}, environ={})
    near = {"ollama", "vllm", "llamacpp", "local", "near", "lan"}
    assert set(env.endpoint_names(access="local")) == near
    assert set(env.endpoint_names()) == set(env.endpoint_names(access="remote")) | near
    assert "hidden" not in env.endpoint_names()
    assert "hidden" in env.endpoint_names(include_secret=True)
    assert env.endpoint_local("lan")
    assert not env.endpoint_local("tunnel")
    assert not env.endpoint_local("unplaced")
    with pytest.raises(ValueError, match="access is 'local'"):
        env.endpoint_names(access="here")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown endpoint") as caught:
        env.endpoint("nobody")
    assert "hidden" not in str(caught.value)
    assert env.register_endpoint("hidden", timeout="1s").provider == "openai_chat"


def test_A15_an_endpoint_of_a_project_is_local_to_it(user: Path, tmp_path: Path) -> None:
    user.mkdir()
    (tmp_path / "aiio.toml").write_text('[providers.theirs]\nurl = "http://h"\n')
    env = env_of(user)
    assert env.endpoint_scope("theirs") == "local"
    assert not env.is_dynamic("theirs")
    with pytest.raises(ValueError, match="unknown endpoint"):
        env.endpoint_scope("nobody")


# --- what another process writes ---


async def test_A15_settings_of_an_endpoint_are_read_anew(user: Path) -> None:
    people_write(user, '[providers.mine]\nurl = "http://h"\ntimeout = "1s"\nstuck_timeout = "1s"\n')
    env = env_of(user, {"providers": {"mine": {"stuck_timeout": "9s"}}})
    with trio.testing.assert_checkpoints():
        assert not await env.refresh_endpoint_settings("mine")
    people_write(user, '[providers.mine]\nurl = "http://h"\ntimeout = "2s"\nstuck_timeout = "3s"\n')
    assert await env.refresh_endpoint_settings("mine")
    policy = env.endpoint("mine").policy
    assert (policy["timeout"], policy["stuck_timeout"]) == ("2s", "9s")  # the program's own word stays
    assert not await env.refresh_endpoint_settings("mine")
    people_write(user, '[providers.mine]\nurl = "http://h"\ntimeout = "3s"\n')
    assert await env.refresh_endpoint_settings("mine")
    assert env.endpoint("mine").policy["timeout"] == "3s"

    other = env_of(user)
    await other.save_endpoint("mine", auth=KEY, connect_timeout="4s")
    assert await env.refresh_endpoint_settings("mine")
    assert env.credential("mine") == Secret(KEY)
    assert env.endpoint("mine").policy["connect_timeout"] == "4s"
    assert env.scrub(KEY) == "***"
    await other.auth_set("mine", OTHER)
    assert await env.refresh_endpoint_settings("mine")
    assert env.credential("mine") == Secret(OTHER)
    assert not await env.refresh_endpoint_settings("mine")


async def test_a_broken_file_changes_nothing_and_is_logged(user: Path) -> None:
    people_write(user, '[providers.mine]\nurl = "http://h"\n')
    env = env_of(user)
    people_write(user, "[providers")
    with structlog.testing.capture_logs() as logs:
        assert not await env.refresh_endpoint_settings("mine")
    assert [log["event"] for log in logs] == ["config.ignored"]
    with trio.testing.assert_checkpoints():
        assert not await Env(environ={}).refresh_endpoint_settings("openai")
