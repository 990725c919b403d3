"""Endpoints that dialects bring: known without configuration, as the built-in ones are (spec/io.md A12)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from aiio.env import Env, KnownEndpoint, ProviderError, registry
from aiio.providers.base import Provider

KEY = "sk-canary-0123456789"


class Acme(Provider):
    """A dialect with an endpoint of its own."""

    name = "acme"
    known: Mapping[str, KnownEndpoint] = {
        "acme": KnownEndpoint(
            url="https://acme.example/v1", label="Acme", env_keys=("ACME_API_KEY",), more={"timeout": "5s"}
        )
    }

    @classmethod
    def known_endpoints(cls) -> Mapping[str, KnownEndpoint]:
        return cls.known

    def request(self, context: Any, io: Any) -> Any:
        return {}, None

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        return ()


def dialect(name: str, secret: bool = False, **known: KnownEndpoint) -> type[Acme]:
    return type("Dialect", (Acme,), {"name": name, "known": known, "secret": secret})


def test_A12_an_endpoint_of_a_dialect_needs_only_its_key() -> None:
    env = Env(environ={"ACME_API_KEY": KEY})
    env.register_provider(Acme)
    endpoint = env.endpoint("acme")
    assert (endpoint.provider, endpoint.url) == ("acme", "https://acme.example/v1")
    assert endpoint.policy["timeout"] == "5s"
    assert endpoint.key_required
    credential = env.credential("acme")
    assert credential is not None
    assert credential.reveal() == KEY
    assert env.known_endpoints()["acme"].label == "Acme"
    assert "acme" in env.endpoint_names()
    assert not env.is_dynamic("acme")


def test_A12_the_first_dialect_wins_a_name_and_may_change_its_mind() -> None:
    env = Env(environ={})
    env.register_provider(dialect("one", shop=KnownEndpoint(url="http://one"), openai=KnownEndpoint()))
    env.register_provider(dialect("two", shop=KnownEndpoint(url="http://two")))
    assert env.endpoint("shop").provider == "one"
    assert env.endpoint("openai").url == "https://api.openai.com/v1"
    env.register_provider(dialect("one", shop=KnownEndpoint(url="http://new")))
    assert env.endpoint("shop").url == "http://new"


def test_A12_the_endpoints_of_a_secret_dialect_stay_hidden() -> None:
    env = Env(environ={})
    env.register_provider(dialect("one", secret=True, shop=KnownEndpoint(url="http://one")))
    assert "shop" not in env.known_endpoints()
    assert "shop" not in env.endpoint_names()
    assert "shop" in env.endpoint_names(include_secret=True)
    assert env.endpoint("shop").url == "http://one"


def test_the_built_in_ones_are_known() -> None:
    known = Env(environ={}).known_endpoints()
    assert known["anthropic"].provider == "anthropic"
    assert len(known) == 13


def entry_points(monkeypatch: pytest.MonkeyPatch, **points: str) -> list[str]:
    """Install *points*; returns the names that are asked for."""
    asked: list[str] = []

    def installed(*, group: str, name: str) -> EntryPoints:
        asked.append(name)
        return EntryPoints([EntryPoint(name, points[name], group)] if name in points else [])

    monkeypatch.setattr(registry, "entry_points", installed)
    return asked


def test_an_installed_dialect_is_looked_for_when_somebody_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = entry_points(monkeypatch, acme=f"{__name__}:Acme", odd=f"{__name__}:KEY")
    env = Env(environ={})
    assert "acme" not in env.endpoint_names()
    assert env.endpoint("acme").provider == "acme"
    assert "acme" in env.endpoint_names()
    for _ in range(2):
        with pytest.raises(ValueError, match="unknown endpoint 'nobody'"):
            env.endpoint("nobody")
    assert asked == ["acme", "nobody"]
    with pytest.raises(ProviderError, match="plug-in 'odd' can't be used"):
        env.endpoint("odd")
    env.register_endpoint("mine", url="http://h")
    assert "mine" not in asked
    with pytest.raises(ValueError, match="unknown endpoint 'openai_chat'"):
        env.endpoint("openai_chat")  # a dialect is no endpoint


def test_no_dialect_gives_a_credential_to_what_a_project_introduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "aiio.toml").write_text('[providers.acme]\nurl = "http://evil.example"\n')
    environ = {"AIIO_CONFIG_DIR": str(tmp_path / "user"), "ACME_API_KEY": KEY}
    env = Env(environ=environ)
    env.register_provider(Acme)
    assert env.endpoint("acme").url == "http://evil.example"
    assert env.credential("acme") is None
    assert "acme" not in env.known_endpoints()
