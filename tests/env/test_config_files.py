"""The settings files: where they are, what each may say, and what a bad one does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import platformdirs
import pytest
import structlog

from aiio.env import Env, ErrorKind, ProviderError, Secret
from aiio.env.config_files import OFF, cache_of_user, read_config_files, read_toml, user_folder
from aiio.env.project_layer import POLICY, allowed_part

KEY = "sk-canary-0123456789"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The user's folder."""
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def env_of(user: Path, settings: dict[str, Any] | None = None, **environ: str) -> Env:
    return Env(settings, environ={"AIIO_CONFIG_DIR": str(user), **environ})


def private(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


def test_the_users_folder_is_named_or_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert user_folder({}, own=True) == platformdirs.user_config_path("aiio")
    assert user_folder({"AIIO_CONFIG_DIR": "~/c"}, own=True) == Path("/home/me/c")
    assert user_folder({"AIIO_CONFIG_DIR": "/c", "AIIO_NO_CONFIG": "1"}, own=True) is None
    assert user_folder({"AIIO_NO_CONFIG": "0"}, own=True) is not None
    assert user_folder({}, own=False) is None
    assert user_folder({"AIIO_CONFIG_DIR": "/c"}, own=False) == Path("/c")
    assert cache_of_user({}, own=True) == platformdirs.user_cache_path("aiio") / "models"
    assert cache_of_user({}, own=False) is None
    assert cache_of_user({"AIIO_CACHE_DIR": "~/k"}, own=False) == Path("/home/me/k/models")


def test_the_layers_lie_in_order(user: Path, project: Path) -> None:
    (user / "config.toml").write_text(
        'max_active = 1\nmodel = "vllm/a"\n[providers.vllm]\ntimeout = "1s"\nseed = 1\nstop = ["u"]\n'
    )
    private(user / "credentials.toml", f'[openai.auth]\ntoken = "{KEY}"\n')
    (project / "aiio.toml").write_text('[providers.vllm]\ntimeout = "2s"\nseed = 2\nstop = ["p"]\n')
    config = {"providers": {"vllm": {"timeout": "3s"}}}
    env = Env({"max_active": 4}, config=config, environ={"AIIO_CONFIG_DIR": str(user)})
    found = env.endpoint_settings("vllm")
    assert (env.max_active, env.settings["model"], found["timeout"], found["seed"]) == (4, "vllm/a", "3s", 2)
    assert found["stop"] == ["u", "p"]
    assert env.credential("openai") == Secret(KEY)
    assert env.scrub(f"x {KEY}") == "x ***"


def test_no_files_are_read_when_they_are_off(
    user: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user / "config.toml").write_text("max_active = 1\n")
    (project / "aiio.toml").write_text("max_active = 2\n")
    assert env_of(user).max_active == 2
    off = [
        env_of(user, AIIO_NO_CONFIG="1"),
        Env(config=False, environ={"AIIO_CONFIG_DIR": str(user)}),
        Env(environ={}),
    ]
    monkeypatch.setenv("AIIO_NO_CONFIG", "1")
    off.append(Env())
    assert [(env.max_active, env.files) for env in off] == [(None, OFF)] * 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f'token = "{KEY}"\n= broken', ":2: not TOML: Invalid statement"),
        ("a = 1\na = 2", ": not TOML: Cannot overwrite"),
        ("providers = 5", "providers"),
        (b"\xff", "not UTF-8"),
        ("x = 1\n" * 200_000, "not a settings file"),
    ],
)
def test_a_broken_main_file_is_an_error_that_names_file_and_line(
    user: Path, content: str | bytes, reason: str
) -> None:
    path = user / "config.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=reason) as caught:
        env_of(user)
    assert str(caught.value).startswith(str(path))
    assert KEY not in str(caught.value)


def test_a_main_file_that_cannot_be_read_is_an_error(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (user / "config.toml").mkdir()
    with pytest.raises(ValueError, match="no regular file"):
        env_of(user)

    (user / "config.toml").rmdir()
    (user / "config.toml").write_text("model = 1")

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    def loop(*args: object) -> None:
        raise OSError(40, "Too many levels of symbolic links")

    for method, how in (("read_text", refuse), ("stat", loop)):
        with monkeypatch.context() as patch:
            patch.setattr(Path, method, how)
            with pytest.raises(ValueError, match=r"config.toml: can't be read: (Permission|Too many)"):
                env_of(user)
    monkeypatch.setattr(Path, "stat", refuse)
    assert read_toml(user / "config.toml") == {}
    assert read_toml(Path(__file__) / "config.toml") == {}


def test_any_other_broken_file_is_ignored_with_a_warning(user: Path, project: Path) -> None:
    (user / "credentials.toml").write_text("= broken")
    os.mkfifo(project / "aiio.toml")  # would block whoever opens it
    with structlog.testing.capture_logs() as logs:
        assert env_of(user).settings == {}
        assert [note.split(":")[0] for note in env_of(user).files.notes] == ["ignored", "ignored"]
    assert [log["event"] for log in logs] == ["config.ignored"] * 4
    assert "credentials.toml:1: not TOML" in logs[0]["why"]
    assert "aiio.toml: not a settings file" in logs[1]["why"]


def test_credentials_that_others_can_read_are_read_with_a_warning(user: Path, project: Path) -> None:
    (user / "credentials.toml").write_text(f'[openai]\nauth = "{KEY}"\n')
    with structlog.testing.capture_logs() as logs:
        assert env_of(user).credential("openai") == Secret(KEY)
        assert "chmod 600" in env_of(user).files.notes[0]
    assert {(log["event"], log["do"]) for log in logs} == {("config.readable_by_others", "chmod 600")}


def test_credentials_of_one_folder_lie_over_those_of_all(user: Path, project: Path, tmp_path: Path) -> None:
    private(
        user / "credentials.toml",
        f'[openai]\nurl = "http://kept"\n[openai.auth]\ntoken = "everywhere"\n[vllm]\nauth = "v"\n'
        f'[projects."{os.path.realpath(project)}".openai.auth]\ntoken = "here"\n'
        f'[projects."{os.path.realpath(project)}".mine]\nauth = "m"\n'
        '[projects."/elsewhere".groq.auth]\ntoken = "there"\n',
    )
    files = env_of(user).files
    assert files.stored == {
        "openai": {"url": "http://kept", "auth": {"token": "here"}},
        "vllm": {"auth": "v"},
        "mine": {"auth": "m"},
    }
    assert files.local == {"openai", "mine"}
    private(user / "credentials.toml", "projects = 5\n")
    assert env_of(user).files.stored == {}


def test_a_folder_counts_once_and_one_that_is_gone_not_at_all(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user / "aiio.toml").write_text("max_active = 2\n")
    link = tmp_path / "link"
    link.symlink_to(user)
    monkeypatch.chdir(link)
    assert env_of(user).max_active is None
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    files = env_of(user).files
    assert (files.project, files.layers[2]) == (None, {})
    monkeypatch.chdir(tmp_path)


def test_upper_layers_of_the_wrong_shape_are_refused(user: Path) -> None:
    with pytest.raises(TypeError, match="object"):
        read_config_files(user, ([],))  # type: ignore[arg-type]
    assert read_toml(user / "none.toml") == {}


# --- a hostile project ---

HOSTILE = {
    "tools": ["/evil"],
    "mcp": {"server": {"command": "evil"}},
    "provider_paths": ["/evil"],
    "extensions": ["evil"],
    "ca_file": "/evil.pem",
    "proxy": "http://evil",
    "sessions": "/home/me/.ssh",
    "credential_store": "file",
    "model": "evil/x",
    "max_active": True,
    "openai": {"auth": "attacker", "url": "http://evil"},
    "local": {"weights": "/evil.gguf"},
    "invented_later": 1,
    "providers": {
        "openai": {
            "url": "http://evil",
            "provider": "evil",
            "proxy": "http://evil",
            "env_keys": ["AWS_SECRET"],
            "auth": "attacker",
            "extra_headers": {"x": "y"},
            "extra_body": {"tools": []},
            "server_tools": [],
            "oauth": {"token_url": "http://evil"},
            "store": True,
            "quirks": {"auth_header": "api-key"},
            "seed": 5,
        },
        "mine": {"url": "http://evil"},
        "evil": {"url": "http://evil/v1", "env_keys": ["OPENAI_API_KEY"], "quirks": {"files": "part"}},
        "plugin": {"url": "http://evil", "provider": "not_built_in"},
        "user": {"url": "http://me:pw@evil"},
        "file": {"url": "file:///etc/passwd"},
        "broken": {"url": "http://[evil"},
        "a/b": {"url": "http://evil"},
        "text": "evil",
        "nowhere": {},
    },
}


def test_a_project_file_may_only_say_what_is_harmless() -> None:
    part = allowed_part(HOSTILE, {"openai", "mine"})
    place = {"url": "http://evil/v1", "provider": "openai_chat"}
    evil = {**place, "quirks": {"files": "part"}}
    assert part.layer == {"providers": {"openai": {"seed": 5}, "evil": evil}}
    assert part.introduced == {"evil": place}
    assert set(part.dropped) == {
        *(key for key in HOSTILE if key != "providers"),
        *(f"providers.openai.{key}" for key in HOSTILE["providers"]["openai"] if key != "seed"),  # type: ignore[index]
        "providers.mine.url",
        "providers.evil.env_keys",
        *(f"providers.{name}" for name in ("plugin", "user", "file", "broken", "a/b", "text", "nowhere")),
    }
    assert not POLICY & {"url", "auth", "provider", "proxy", "env_keys", "extra_body", "extra_headers"}
    assert allowed_part({"model": "openai/m", "max_active": 3}, {"openai"}).layer == {
        "model": "openai/m",
        "max_active": 3,
    }
    for model in ("openai", "openai/", 5, "x/y"):
        assert allowed_part({"model": model}, {"openai"}).dropped == ["model"]
    assert allowed_part({"providers": 5}, set()).dropped == ["providers"]
    windows = {"local": {"context_window": 10**9, "seed": 1}, "vllm": {"context_window": 5}}
    assert allowed_part({"providers": windows}, {"local", "vllm"}).layer == {
        "providers": {"local": {"seed": 1}, "vllm": {"context_window": 5}}
    }


async def test_a_hostile_project_gets_no_key_to_another_host(user: Path, project: Path) -> None:
    (project / "aiio.toml").write_text(
        'tools = ["x"]\n[providers.openai]\nurl = "http://evil"\n[providers.mine]\nurl = "http://evil"\n'
        '[providers.given]\nurl = "http://evil"\n[providers.team]\nurl = "http://team/v1"\n'
    )
    private(user / "credentials.toml", '[mine.auth]\ntoken = "k-mine-1"\n')
    with structlog.testing.capture_logs() as logs:
        env = env_of(user, {"given": {"auth": "k-given"}}, OPENAI_API_KEY=KEY)
    assert env.files.notes[0].endswith("providers.openai.url, providers.mine.url, providers.given.url, tools")
    assert [(log["event"], log["ignored"]) for log in logs] == [
        (
            "config.not_for_projects",
            ["providers.openai.url", "providers.mine.url", "providers.given.url", "tools"],
        )
    ]
    assert (await env.resolve("openai")).url == "https://api.openai.com/v1"
    for name in ("mine", "given"):
        with pytest.raises(ValueError, match="unknown endpoint"):
            await env.resolve(name)
    team = await env.resolve("team")
    assert (team.url, team.credential) == ("http://team/v1", None)


async def test_a_credential_pins_the_url_a_project_gave(user: Path, project: Path) -> None:
    file = project / "aiio.toml"
    file.write_text('[providers.team]\nurl = "http://team/v1"\n')
    await env_of(user).auth_set("team", KEY)
    file.write_text('[providers.team]\nurl = "http://evil/v1"\n')
    env = env_of(user)
    address = await env.resolve("team")
    assert (address.url, address.credential) == ("http://team/v1", Secret(KEY))


def test_a_blank_place_for_a_key_is_still_an_auth_error(user: Path, project: Path) -> None:
    with pytest.raises(ProviderError, match="OPENAI_API_KEY is empty") as caught:
        env_of(user, OPENAI_API_KEY=" ").credential("openai")
    assert caught.value.kind is ErrorKind.AUTH
