"""Credentials kept for later runs: in the user's file, in a keyring, for one folder only."""

from __future__ import annotations

import os
import stat
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from aiio.env import Env, ErrorKind, ProviderError, Secret
from aiio.env.credential_file import CredentialFile, Keyring, revealed
from aiio.env.credentials import KEYRING_LIMIT

KEY = "sk-canary-0123456789"
OTHER = "sk-other-0123456789"


pytestmark = pytest.mark.usefixtures("nothing_installed")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "user" / "aiio"


def env_of(user: Path, settings: dict[str, Any] | None = None, **environ: str) -> Env:
    return Env(settings, environ={"AIIO_CONFIG_DIR": str(user), **environ})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def write(user: Path, text: str) -> None:
    user.mkdir(parents=True)
    (user / "credentials.toml").write_text(text)


def kept(user: Path) -> dict[str, Any]:
    return tomllib.loads((user / "credentials.toml").read_text())


# --- the file ---


async def test_a_credential_outlives_the_env(user: Path) -> None:
    env = env_of(user)
    with trio.testing.assert_checkpoints():
        await env.auth_set("openai", f" {KEY}\n")
    assert env.credential("openai") == Secret(KEY)
    assert env.scrub(KEY) == "***"
    assert kept(user) == {"openai": {"auth": {"type": "api_key", "token": KEY}}}
    assert env_of(user).credential("openai") == Secret(KEY)
    assert mode(user / "credentials.toml") == 0o600
    assert mode(user) == 0o700
    assert names(user) == {"credentials.toml", ".credentials.lock"}


async def test_other_sections_stay_and_objects_merge(user: Path) -> None:
    write(user, 'top = 1\n[groq.auth]\ntoken = "g"\n[openai.models.a]\nx = 1\n')
    env = env_of(user)
    await env.auth_set("openai", {"type": "oauth", "access": KEY, "refresh": OTHER, "models": {"b": {}}})
    await env.auth_set("openai", {"refresh": None, "expires": 5})
    assert kept(user) == {
        "top": 1,
        "groq": {"auth": {"token": "g"}},
        "openai": {"auth": {"type": "oauth", "access": KEY, "expires": 5}, "models": {"b": {}}},
    }
    changed = (user / "credentials.toml").stat().st_mtime_ns
    await env.auth_set("openai", {"expires": 5})
    assert (user / "credentials.toml").stat().st_mtime_ns == changed


async def test_scope_local_counts_in_one_folder_and_stands_in_the_users(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(tmp_path.resolve())  # noqa: ASYNC240
    env = env_of(user)
    await env.auth_set("openai", KEY, scope="package")
    await env.auth_set("openai", OTHER, scope="local")
    await env.auth_set("openai", {"expires": 5})  # where it lives
    local = {"type": "api_key", "token": OTHER, "expires": 5}
    assert kept(user)["projects"] == {here: {"openai": {"auth": local}}}
    assert kept(user)["openai"]["auth"]["token"] == KEY
    assert env_of(user).credential("openai") == Secret(OTHER)
    assert env_of(user).credential_source("openai") == f"{user}/credentials.toml (for this folder only)"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert env_of(user).credential("openai") == Secret(KEY)
    assert await env_of(user).auth_remove("openai", scope="package")
    assert kept(user) == {"projects": {here: {"openai": {"auth": local}}}}
    monkeypatch.chdir(tmp_path)
    assert await env_of(user).auth_remove("openai")
    assert (user / "credentials.toml").read_text().count("\n") == 2  # the header
    elsewhere.rmdir()


async def test_a_folder_that_is_gone_has_no_credentials(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    env = env_of(user)
    with pytest.raises(ValueError, match="working directory"):
        await env.auth_set("openai", KEY, scope="local")
    assert not await env.auth_remove("openai")
    monkeypatch.chdir(tmp_path)


async def test_removing_forgets_everywhere_but_in_the_environment(user: Path) -> None:
    env = env_of(user, OPENAI_API_KEY=OTHER)
    await env.auth_set("openai", {"token": KEY, "url": "http://kept"})
    assert env.credential("openai") == Secret(KEY)
    assert env.credential_source("openai") == f"{user}/credentials.toml"
    with trio.testing.assert_checkpoints():
        assert await env.auth_remove("openai")
    assert env.credential("openai") == Secret(OTHER)
    assert env.credential_source("openai") == "the environment variable OPENAI_API_KEY"
    assert kept(user) == {"openai": {"url": "http://kept"}}
    assert not await env.auth_remove("openai")
    bare = Env({"groq": {"auth": KEY}}, environ={})
    assert bare.credential_source("groq") == "the program's own settings"
    assert bare.credential_source("openai") is None
    assert await bare.auth_remove("groq")
    with pytest.raises(ValueError, match="scope"):
        await bare.auth_remove("groq", scope="all")


async def test_what_cannot_be_written_changes_nothing(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = env_of(user)
    await env.auth_set("openai", KEY)
    before = (user / "credentials.toml").read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        await env.auth_set("openai", OTHER)
    with pytest.raises(ProviderError, match="line break"):
        await env.auth_set("openai", "a\nb")
    with pytest.raises(ValueError, match="credential_store"):
        env.settings["credential_store"] = "cloud"
        await env.auth_set("openai", OTHER)
    assert (user / "credentials.toml").read_bytes() == before
    assert names(user) == {"credentials.toml", ".credentials.lock"}
    assert env.credential("openai") == Secret(KEY)


async def test_a_broken_file_is_not_written_over(user: Path) -> None:
    write(user, "= broken")
    with pytest.raises(ValueError, match=r"credentials.toml:1: not TOML"):
        await env_of(user).auth_set("openai", KEY)
    assert (user / "credentials.toml").read_text() == "= broken"


async def test_a_cancelled_change_is_whole_or_not_at_all(user: Path) -> None:
    env = env_of(user)
    with trio.move_on_after(0) as scope:
        await env.auth_set("openai", KEY)
    assert scope.cancelled_caught
    assert not (user / "credentials.toml").exists()
    assert "openai" not in env.settings


def test_a_link_stays_a_link_and_odd_sections_are_replaced(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.toml"
    target.write_text("a = 1\n[b]\nc = 2\n")
    link = tmp_path / "link.toml"
    link.symlink_to(target)
    CredentialFile(link).change(("a", "x"), lambda record: {"new": True})
    CredentialFile(link).change(("b", "c", "d"), lambda record: {})
    assert link.is_symlink()
    assert tomllib.loads(target.read_text()) == {"a": {"x": {"new": True}}, "b": {"c": 2}}
    assert CredentialFile(link).read(("a", "x", "new", "deeper")) == {}


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    file = CredentialFile(tmp_path / "c.toml")

    def add(name: str) -> None:
        for number in range(5):
            file.change((name, str(number)), lambda record: {"n": 1})

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: len(file.read((name,))) for name in "abc"} == {"a": 5, "b": 5, "c": 5}


def test_secrets_are_revealed_for_files_only() -> None:
    data = {"a": [Secret("x"), (1,)], "b": {"c": Secret("y")}}
    assert revealed(data) == {"a": ["x", [1]], "b": {"c": "y"}}


# --- what another process wrote ---


async def test_a_rotated_credential_is_taken_over(user: Path) -> None:
    mine, theirs = env_of(user), env_of(user)
    with trio.testing.assert_checkpoints():
        assert not await mine.refresh_credentials("openai")
    await theirs.auth_set("openai", KEY)
    assert await mine.refresh_credentials("openai")
    assert mine.credential("openai") == Secret(KEY)
    assert not await mine.refresh_credentials("openai")
    (user / "credentials.toml").write_text(f'[openai]\nauth = "{OTHER}"\n')
    assert await mine.refresh_credentials("openai")
    assert mine.credential("openai") == Secret(OTHER)
    assert mine.scrub(OTHER) == "***"
    for text in ("= broken", '[openai.auth]\ntoken = "a\\nb"\n', '[openai.auth]\ntype = "api_key"\n'):
        (user / "credentials.toml").write_text(text)
        with structlog.testing.capture_logs() as logs:
            assert not await mine.refresh_credentials("openai")
        assert len(logs) == ("type" not in text)
    assert mine.credential("openai") == Secret(OTHER)


async def test_what_the_program_gave_is_not_overridden(user: Path) -> None:
    await env_of(user).auth_set("openai", KEY)
    env = env_of(user, {"openai": {"auth": OTHER}})
    env.register_endpoint("mine", url="http://m", auth=OTHER)
    await env_of(user).auth_set("mine", KEY)
    for name in ("openai", "mine"):
        assert not await env.refresh_credentials(name)
        assert env.credential(name) == Secret(OTHER)
    assert not await Env(environ={}).refresh_credentials("openai")
    await env.auth_set("openai", KEY)
    await env_of(user).auth_set("openai", OTHER)
    assert await env.refresh_credentials("openai")
    assert env.credential_source("openai") == f"{user}/credentials.toml"


# --- the keyring ---


class FakeKeyring:
    """Stands in for the module `keyring`."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.fault: Exception | None = None
        self.forgets = False
        self.wait: Callable[[], object] = lambda: None

    def _come(self) -> None:
        self.wait()
        if self.fault is not None:
            raise self.fault

    def set_password(self, service: str, name: str, value: str) -> None:
        self._come()
        if not self.forgets:
            self.kept[service, name] = value

    def get_password(self, service: str, name: str) -> str | None:
        self._come()
        return self.kept.get((service, name))

    def delete_password(self, service: str, name: str) -> None:
        self._come()
        del self.kept[service, name]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> FakeKeyring:
    fake = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", fake)
    monkeypatch.setattr(Keyring, "installed", staticmethod(lambda: True))
    return fake


def test_whether_a_keyring_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: SimpleNamespace(name=name))
    assert Keyring.installed()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not Keyring.installed()


async def test_a_working_keyring_keeps_the_secrets(user: Path, ring: FakeKeyring) -> None:
    env = env_of(user)
    await env.auth_set("openai", KEY)
    assert kept(user) == {"openai": {"auth": {"type": "api_key", "store": "keyring"}}}
    assert ring.kept == {("aiio", "openai"): f'{{"token": "{KEY}"}}'}
    assert KEY not in (user / "credentials.toml").read_text()
    assert env.credential("openai") == Secret(KEY)
    async with env_of(user) as other:
        assert other.credential("openai") == Secret(KEY)
        assert other.scrub(KEY) == "***"
        assert other.credential_source("openai") == "the system's keyring"
        await other.auth_set("openai", {"access": OTHER, "token": None})
        assert ring.kept == {("aiio", "openai"): f'{{"access": "{OTHER}"}}'}
        assert await env.refresh_credentials("openai")
        assert env.credential("openai") == Secret(OTHER)
        assert await other.auth_remove("openai")
    assert ring.kept == {}


async def test_a_keyring_is_not_read_without_entering(user: Path, ring: FakeKeyring) -> None:
    await env_of(user).auth_set("openai", KEY)
    with pytest.raises(ProviderError, match="keyring") as caught:
        env_of(user).credential("openai")
    assert caught.value.kind is ErrorKind.AUTH
    ring.kept.clear()
    async with env_of(user) as env:
        with pytest.raises(ProviderError, match="auth set openai"):
            env.credential("openai")
    ring.kept["aiio", "openai"] = '{"token": "a\\nb"}'
    with structlog.testing.capture_logs() as logs:
        async with env_of(user) as env:
            with pytest.raises(ProviderError, match="keyring"):
                env.credential("openai")
    assert [log["event"] for log in logs] == ["keyring.unusable"]
    ring.kept["aiio", "openai"] = "[]"
    async with env_of(user, {"openai": {"auth": {"token": OTHER}}}) as env:
        assert env.credential("openai") == Secret(OTHER)


@pytest.mark.parametrize("how", ["raises", "forgets"])
async def test_a_keyring_that_does_not_work_leaves_it_to_the_file(
    user: Path, ring: FakeKeyring, how: str
) -> None:
    ring.forgets = True
    ring.fault = RuntimeError(f"no backend for {KEY}") if how == "raises" else None
    with structlog.testing.capture_logs() as logs:
        await env_of(user).auth_set("openai", KEY)
    assert kept(user) == {"openai": {"auth": {"type": "api_key", "token": KEY}}}
    assert KEY not in repr(logs)
    env = env_of(user, {"credential_store": "keyring"})
    with pytest.raises(ProviderError, match="extra `keyring`"):
        await env.auth_set("openai", OTHER)
    assert env.credential("openai") == Secret(KEY)


async def test_the_file_may_be_asked_for(user: Path, ring: FakeKeyring) -> None:
    await env_of(user).auth_set("openai", {"type": "api_key", "token": KEY, "expires": 5})
    async with env_of(user, {"credential_store": "file"}) as env:
        await env.auth_set("openai", {"expires": 6})
        assert env.credential("openai") == Secret(KEY)
    assert kept(user) == {"openai": {"auth": {"type": "api_key", "expires": 6, "token": KEY}}}
    assert ring.kept == {}


async def test_a_keyring_that_waits_for_somebody_is_given_up(
    user: Path, ring: FakeKeyring, mock_clock: MockClock
) -> None:
    await env_of(user).auth_set("openai", KEY)
    mock_clock.autojump_threshold = 0
    stuck = threading.Event()
    ring.wait = lambda: stuck.wait(10)
    started = trio.current_time()
    with structlog.testing.capture_logs() as logs:
        async with env_of(user):
            assert trio.current_time() - started == KEYRING_LIMIT
    stuck.set()
    assert [(log["event"], log["why"]) for log in logs] == [("keyring.failed", "no answer in 5 s")]


async def test_an_env_that_cannot_be_entered_leaves_no_task(user: Path, ring: FakeKeyring) -> None:
    await env_of(user).auth_set("openai", KEY)
    ring.wait = lambda: trio.from_thread.run_sync(scope.cancel)
    with trio.CancelScope() as scope:
        async with env_of(user):
            raise AssertionError("entered")
    assert scope.cancelled_caught
