from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.env import local_process
from aiio.env.auth import Secret
from aiio.env.errors import ErrorKind, ProviderError
from aiio.env.local_process import (
    TEMPLATE,
    ServerSpec,
    default_threads,
    require_runtime,
    server_spec,
    start_server,
)

SPEC = ServerSpec(weights=Path("/w/model.gguf"))


def child(script: str) -> list[str]:
    return [sys.executable, "-c", "import json, os, signal, sys, time\n" + script]


SERVES = child(
    "config = json.loads(sys.stdin.readline())\n"
    "assert config['weights'] == '/w/model.gguf' and len(config['key']) > 30\n"
    "assert [config[key] for key in ('alias', 'slots', 'context', 'threads')] == ['smollm2', 4, 2048, 1]\n"
    "sys.stderr.write('n' * 100_000)\n"
    "print(json.dumps({'port': 4711, 'pid': os.getpid()}), flush=True)\n"
    "sys.stdin.read()\n"
)


async def test_a_server_starts_serves_and_ends() -> None:
    server = await start_server(SPEC, SERVES)
    assert server.url == "http://127.0.0.1:4711/v1"
    assert isinstance(server.key, Secret)
    lives = [server.alive]
    os.kill(server.pid, 0)
    await server.aclose()
    lives.append(server.alive)
    assert lives == [True, False]
    await server.aclose()
    assert await server.wait() is not None


async def test_each_server_has_its_own_key() -> None:
    servers = [await start_server(SPEC, SERVES) for _ in range(2)]
    assert servers[0].key != servers[1].key
    for server in servers:
        await server.aclose()


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        (
            "print(json.dumps({'error': 'No module', 'code': 'no_runtime'}))",
            "no_runtime",
            r"pip install.*\[local\]",
        ),
        (
            "print(json.dumps({'error': 'bad file', 'code': 'no_start'}))",
            "no_start",
            r"local setup.*\(bad file\)",
        ),
        ("print(json.dumps({'error': 'what', 'code': 'news'}))", "news", r"did not start.*\(what\)"),
        ("sys.stderr.write('first\\nSegmentation fault\\n')", "no_start", r"\(Segmentation fault\)"),
        ("print('[1]')", "no_start", "without a word"),
        ("print('{')", "no_start", "without a word"),
        ("print('x' * 100_000)", "no_start", "without a word"),
        ("print('{\"port\": null}')", "no_start", "without a word"),
        ("sys.stdin.close()", "no_start", "without a word"),
    ],
)
async def test_a_server_that_does_not_start_says_what_to_do(script: str, code: str, message: str) -> None:
    with pytest.raises(ProviderError, match=message) as caught:
        await start_server(SPEC, child(script))
    assert caught.value.kind is ErrorKind.PROVIDER
    assert caught.value.code == code
    assert not caught.value.retryable


async def test_a_server_that_is_never_ready_is_given_up(autojump_clock: MockClock) -> None:
    # The child says nothing, so the only clock that matters is the test's.
    with pytest.raises(ProviderError, match="not ready after 120 s"):
        await start_server(SPEC, child("time.sleep(60)"))


async def test_a_cancelled_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[trio.Process] = []

    async def open_process(*args: Any, **options: Any) -> trio.Process:
        processes.append(await real(*args, **options))
        scope.cancel()
        return processes[0]

    real = trio.lowlevel.open_process
    monkeypatch.setattr(trio.lowlevel, "open_process", open_process)
    with trio.CancelScope() as scope:
        await start_server(SPEC, child("time.sleep(60)"))
    assert scope.cancelled_caught
    assert processes[0].returncode is not None


async def test_a_server_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_process, "_STOP_GRACE", 0.01)
    script = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('{\"port\": 1}', flush=True)\ntime.sleep(60)"
    )
    server = await start_server(SPEC, child(script))
    await server.aclose()
    assert await server.wait() == -9


async def test_closing_under_cancellation_still_ends_the_process() -> None:
    server = await start_server(SPEC, SERVES)
    with trio.CancelScope() as scope:
        scope.cancel()
        await server.aclose()
    assert scope.cancelled_caught
    assert not server.alive


def test_the_spec_comes_from_the_settings() -> None:
    weights = Path("/w")
    template = TEMPLATE.read_text()
    assert server_spec({}, weights) == ServerSpec(
        weights=weights, threads=default_threads(), chat_template=template
    )
    assert server_spec({"weights": "/w"}, weights).chat_template is None
    settings = {
        "slots": 2,
        "context_window": 4096,
        "threads": 3.0,
        "alias": "mine",
        "chat_template": "{{ x }}",
    }
    assert server_spec(settings, weights) == ServerSpec(
        weights=weights, slots=2, context=4096, threads=3, alias="mine", chat_template="{{ x }}"
    )
    for value in (0, -1, "4", True, None, float("nan"), float("inf")):
        with pytest.raises(ProviderError, match=r"settings\['local'\]\['slots'\] must be a number"):
            server_spec({"slots": value}, weights)


def test_a_missing_runtime_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ProviderError, match=r"pip install 'aiio-runtime\[local\]'") as caught:
        require_runtime()
    assert caught.value.code == "no_runtime"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    require_runtime()


@pytest.mark.parametrize(("cores", "threads"), [(None, 1), (1, 1), (2, 1), (4, 2), (64, 4)])
def test_small_machines_get_one_thread(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, threads: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert default_threads() == threads
