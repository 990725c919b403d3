"""`aiio config`, and the commands about endpoints as they are typed."""

from __future__ import annotations

import io
import os
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from aiio.cli.app import invoke
from aiio.cli.config import set_value, show
from aiio.cli.exits import CliFault
from aiio.env.auth import Secret
from aiio.env.credential_file import Keyring
from aiio.env.env import Env
from tests.cli.printed import Printed

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Keyring, "installed", staticmethod(lambda: False))
    monkeypatch.setenv("AIIO_CONFIG_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("AIIO_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("ollama", "llamacpp", "vllm"):
        monkeypatch.delenv(f"{name.upper()}_HOST", raising=False)
    monkeypatch.delenv("AIIO_NO_CONFIG", raising=False)


async def test_settings_are_shown_without_credentials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "openai": {"auth": {"type": "api_key", "token": CANARY}},
        "groq": {"auth": "abc"},
        "mine": {"auth": Secret(CANARY), "note": f"uses {CANARY}", "n": 1.5, "x": None, "odd": {1: b"x"}},
        "providers": {"mine": {"url": f"http://h/?key={CANARY}", "stop": ["a", 1, True]}},
    }
    with Printed(tmp_path, settings) as printed:
        assert await show(printed.session, printed.out) == 0
        shown = tomllib.loads(printed.text())
    assert shown["openai"]["auth"] == {"type": "api_key", "token": "***"}
    assert shown["groq"]["auth"] == shown["mine"]["auth"] == "***"
    assert shown["mine"]["note"] == "uses ***"
    assert shown["providers"]["mine"] == {"url": "http://h/?key=***", "stop": ["a", 1, True]}
    err = capsys.readouterr().err
    assert f"aiio: {tmp_path / 'user' / 'config.toml'} is not there" in err
    assert "aiio.toml" in err
    assert CANARY not in printed.text() + err
    with Printed(tmp_path) as printed:
        printed.session.env = Env(environ={})
        await show(printed.session, printed.out)
    assert "settings files are off" in capsys.readouterr().err


async def test_a_value_is_set_and_the_comments_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "user" / "config.toml"
    with Printed(tmp_path) as printed:
        assert await set_value(printed.session, "model", "openai/gpt-5") == 0
        assert "model is set in" in capsys.readouterr().err
        path.write_text("# mine\n" + path.read_text() + "\n[providers.vllm] # here\nseed = 1\n")
        path.chmod(0o640)
        await set_value(printed.session, "providers.vllm.timeout", "5m")
        await set_value(printed.session, "max_active", "4")
        await set_value(printed.session, "providers.new.seed", "1")
    text = path.read_text()
    assert "# mine" in text
    assert "# here" in text
    assert tomllib.loads(text) == {
        "model": "openai/gpt-5",
        "max_active": 4,
        "providers": {"vllm": {"seed": 1, "timeout": "5m"}, "new": {"seed": 1}},
    }
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    assert sorted(os.listdir(path.parent)) == ["config.toml"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("openai.auth.token", "x", "aiio auth set"),
        ("providers.mine.api_key", "x", "aiio auth set"),
        ("", "x", "not ''"),
        ("a..b", "x", "named like"),
        ("a", "null", "null"),
        ("providers", "5", "providers"),
        ("model.deeper", "5", "model is a value"),
    ],
)
async def test_what_cannot_be_set_is_said(tmp_path: Path, key: str, value: str, why: str) -> None:
    with Printed(tmp_path) as printed:
        await set_value(printed.session, "model", "a/b")
        before = (tmp_path / "user" / "config.toml").read_text()
        with pytest.raises(CliFault, match=why):
            await set_value(printed.session, key, value)
        assert (tmp_path / "user" / "config.toml").read_text() == before


async def test_files_that_refuse_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Printed(tmp_path) as printed:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(CliFault, match="tomlkit"):
            await set_value(printed.session, "model", "a/b")
        monkeypatch.undo()
        (tmp_path / "user").write_text("in the way")
        with pytest.raises(CliFault, match=r"config.toml can't be changed"):
            await set_value(printed.session, "model", "a/b")
        printed.session.env = Env(environ={})
        with pytest.raises(CliFault, match="AIIO_NO_CONFIG"):
            await set_value(printed.session, "model", "a/b")


def test_the_commands_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "config.toml").write_text(
        "".join(
            f'[providers.{name}]\nurl = "http://127.0.0.1:1"\n' for name in ("ollama", "llamacpp", "vllm")
        )
    )
    (tmp_path / "aiio.toml").write_text('tools = ["x"]\n')
    monkeypatch.setattr(sys, "stdin", io.StringIO(CANARY))
    assert invoke(["auth", "set", "openai"]) == 0
    assert "because a project's file may not say it: tools" in capfd.readouterr().err
    assert invoke(["auth", "list"]) == 0
    assert "openai" in capfd.readouterr().out
    assert invoke(["endpoints"]) == 0
    assert "credentials.toml" in capfd.readouterr().out
    assert invoke(["config", "set", "model", "vllm/m"]) == 0
    assert invoke(["config", "show"]) == 0
    captured = capfd.readouterr()
    assert 'model = "vllm/m"' in captured.out
    assert invoke(["models", "vllm"]) == 3
    assert invoke(["doctor"]) == 3
    captured = capfd.readouterr()
    assert "vllm: nothing is listening at 127.0.0.1:1" in captured.out
    assert invoke(["auth", "remove", "openai"]) == 0
    assert CANARY not in captured.out + captured.err
    (tmp_path / "user" / "config.toml").write_text("= broken")
    assert invoke(["endpoints"]) == 5
    assert "config.toml:1: not TOML" in capfd.readouterr().err
