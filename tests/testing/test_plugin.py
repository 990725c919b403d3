"""The plug-in and the package: what they are, and that loading them imports nothing of weight."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import aiio
import aiio.testing
from aiio.testing import FaultProxy, MockServer


async def test_the_env_knows_nothing_of_this_machine(
    aiio_env: aiio.Env, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-machine-0123456789")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:1")
    assert aiio_env.credential_source("openai") is None
    assert aiio_env.proxy_for("https://api.example.com") is None
    assert not any(aiio_env.files.layers)


async def test_server_and_proxy_have_endpoints_of_their_own(
    aiio_env: aiio.Env, aiio_server: MockServer, aiio_faults: FaultProxy
) -> None:
    for peer in (aiio_server, aiio_faults):
        for dialect in ("chat", "responses", "anthropic", "gemini", "ollama"):
            endpoint = aiio_env.endpoint(peer.model(dialect).partition("/")[0])
            assert (endpoint.url or "").startswith(peer.url)
    assert aiio_faults.url != aiio_server.url


async def test_the_clock_jumps(aiio_clock: MockClock) -> None:
    start = trio.current_time()
    await trio.sleep(3600)
    assert trio.current_time() - start == pytest.approx(3600)


def test_every_public_name_is_there_and_imported_when_used() -> None:
    tree = ast.parse(Path(aiio.testing.__file__).read_text())
    shown = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert shown == set(aiio.testing.__all__) == set(aiio.testing._HOME_OF)
    for name in aiio.testing.__all__:
        assert getattr(aiio.testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = aiio.testing.nonsense


def test_loading_the_plugin_loads_nothing_of_weight_beyond_aiio_itself() -> None:
    code = (
        "import sys, aiio; before = set(sys.modules)\n"
        "import aiio.testing.pytest_plugin\n"
        "new = {name for name in set(sys.modules) - before if name.startswith(('aiio', 'h', 'trio'))}\n"
        "print(sorted(new))\n"
        "assert not {'httpx', 'h11', 'trio_websocket', 'click'} & set(sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "['aiio.testing', 'aiio.testing.pytest_plugin']", ended.stderr
