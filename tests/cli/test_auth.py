"""`aiio auth`: a credential goes in, and never comes out."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from aiio.cli.auth import list_auth, read_secret, remove_auth, set_auth
from aiio.cli.exits import CliFault
from aiio.env.auth import Secret
from aiio.env.credential_file import Keyring
from aiio.env.env import Env
from aiio.env.errors import ProviderError
from aiio.providers import define_provider
from tests.cli.printed import Printed

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Keyring, "installed", staticmethod(lambda: False))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_secret_comes_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{CANARY}\n"))
    assert read_secret("openai").strip() == CANARY
    for nothing in (io.StringIO(" \n"), None):
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(CliFault, match="credential"):
            read_secret("openai")


def test_a_secret_is_typed_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def prompt(text: str, **options: object) -> str:
        asked.append({"text": text, **options})
        return CANARY

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(click, "prompt", prompt)
    assert read_secret("openai") == CANARY
    assert asked == [{"text": "Credential for openai (not shown)", "hide_input": True, "err": True}]


async def test_a_credential_is_set_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Printed(tmp_path, GROQ_API_KEY="gsk-0123456") as printed:
        assert await set_auth(printed.session, "openai", f"{CANARY}\n") == 0
        file = printed.user / "credentials.toml"
        assert capsys.readouterr().err == f"aiio: the credential of openai is kept in {file}\n"
        assert printed.env.credential("openai") == Secret(CANARY)
        assert await set_auth(printed.session, "openai", CANARY, local=True) == 0
        assert "(for this folder only)" in capsys.readouterr().err
        assert await list_auth(printed.session, printed.out) == 0
        lines = printed.text().splitlines()
        assert lines[1].split()[0] == "openai"
        assert "the environment variable GROQ_API_KEY" in lines[2]
        assert "missing" in lines[3]
        assert not any(line.startswith("vllm") for line in lines)
        assert await remove_auth(printed.session, "openai", local=True) == 0
        assert await remove_auth(printed.session, "openai") == 0
        assert await remove_auth(printed.session, "groq") == 0
        err = capsys.readouterr().err
        assert "the credential of openai was removed" in err
        assert "no credential of groq is kept" in err
        assert "groq still has one in the environment variable GROQ_API_KEY" in err
        assert CANARY not in printed.text() + err


async def test_the_dialect_makes_the_credential_of_what_was_typed(tmp_path: Path) -> None:
    async def login(cls: Any, given: Any, access: Any) -> Any:
        return {"type": "oauth", "access": f"{given}-exchanged"}

    dialect = type("Own", (), {"login": classmethod(login)})
    with Printed(tmp_path, {"providers": {"mine": {"provider": "own", "url": "http://h"}}}) as printed:
        printed.env.register_provider(define_provider(dialect, name="own", dialect="chat"))
        assert await set_auth(printed.session, "mine", CANARY) == 0
        assert printed.env.credential("mine") == Secret(f"{CANARY}-exchanged")


async def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    with Printed(tmp_path) as printed:
        with pytest.raises(CliFault, match="unknown endpoint 'opnai'"):
            await set_auth(printed.session, "opnai", CANARY)
        with pytest.raises(ProviderError, match="line break"):
            await set_auth(printed.session, "openai", "a\nb")
        (tmp_path / "user").mkdir()
        (tmp_path / "user" / "credentials.toml").write_text("= broken")
        with pytest.raises(CliFault, match=r"not kept: .*credentials.toml:1"):
            await set_auth(printed.session, "openai", CANARY)
        with pytest.raises(CliFault, match=r"not removed: .*credentials.toml:1"):
            await remove_auth(printed.session, "openai")
    (tmp_path / "user" / "credentials.toml").unlink()
    (tmp_path / "user").rmdir()
    (tmp_path / "user").write_text("in the way")
    with Printed(tmp_path) as printed:
        with pytest.raises(CliFault, match=r"not kept: (Not a directory|File exists)"):
            await set_auth(printed.session, "openai", CANARY)
        printed.session.env = Env(environ={})
        with pytest.raises(CliFault, match="AIIO_NO_CONFIG"):
            await set_auth(printed.session, "openai", CANARY)
