"""`aiio endpoints`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from aiio.cli.endpoints import endpoint_row, endpoints, table
from aiio.env.env import Env
from aiio.providers import define_provider
from tests.cli.printed import Printed
from tests.serving import respond, serve

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def quiet(**urls: str) -> dict[str, dict[str, dict[str, str]]]:
    """Settings in which no local server runs but those given."""
    nowhere = dict.fromkeys(("ollama", "llamacpp", "vllm"), "http://192.0.2.1")
    return {"providers": {name: {"url": url} for name, url in {**nowhere, **urls}.items()}}


async def test_every_endpoint_is_a_line_and_no_credential_is_shown(tmp_path: Path) -> None:
    settings = {**quiet(mine=f"http://me:{CANARY}@h/v1?key={CANARY}"), "groq": {"auth": CANARY}}
    with Printed(tmp_path, settings, OPENAI_API_KEY=CANARY, XAI_API_KEY="a\nb") as printed:
        assert await endpoints(printed.session, printed.out) == 0
    lines = {line.split()[0]: line for line in printed.text().splitlines()}
    assert next(iter(lines)) == "endpoint"
    assert "the environment variable OPENAI_API_KEY" in lines["openai"]
    assert "the program's own settings" in lines["groq"]
    assert "missing: ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN" in lines["anthropic"]
    assert "unusable: the credential in the environment variable XAI_API_KEY has a line break" in lines["xai"]
    assert lines["azure"].endswith("-")
    assert "needs none" in lines["mine"]
    assert lines["mine"].endswith("http://***@h/v1?key=***")
    assert "embedded" in lines["local"]
    assert CANARY not in printed.text()


async def test_servers_that_run_here_are_told(tmp_path: Path, mock_clock: MockClock) -> None:
    body = b'{"models": [{"name": "m"}]}'
    async with serve(respond(body, headers={"content-type": "application/json"})) as server:
        settings = quiet(ollama=server.url, vllm="http://127.0.0.1:1")
        with Printed(tmp_path, settings) as printed:
            await endpoints(printed.session, printed.out, json_lines=True)
            await printed.env.aclose()
    rows = {row["endpoint"]: row for row in printed.rows()}
    assert rows["ollama"]["runs"] == "this machine, running"
    assert rows["vllm"]["runs"] == "this machine"
    assert rows["llamacpp"]["runs"] == "remote"
    assert rows["azure"]["url"] is None


async def test_a_server_nobody_configured_is_told_when_it_runs(tmp_path: Path) -> None:
    async def detect_endpoints(cls: Any, search: Any) -> Any:
        return {"box": {"url": "http://127.0.0.1:1/v1"}}

    dialect = type("Own", (), {"detect_endpoints": classmethod(detect_endpoints)})
    settings = quiet(hidden="http://127.0.0.1:1")
    settings["providers"]["hidden"]["secret"] = True  # type: ignore[assignment]
    with Printed(tmp_path, settings) as printed:
        printed.env.register_provider(define_provider(dialect, name="own", dialect="chat"))
        await endpoints(printed.session, printed.out, json_lines=True)
        await printed.env.aclose()
    rows = {row["endpoint"]: row for row in printed.rows()}
    assert (rows["box"]["dialect"], rows["box"]["runs"]) == ("own", "this machine, running")
    assert "hidden" not in rows


def test_an_endpoint_that_names_no_variable_lacks_something_all_the_same() -> None:
    env = Env({"providers": {"mine": {"url": "http://m", "key_required": True}}}, environ={})
    assert endpoint_row(env, "mine")["credential"] == "missing"


def test_a_table_is_aligned() -> None:
    assert table([{"a": 1, "bb": "x"}, {"a": 333, "bb": "y"}]) == "a    bb\n1    x\n333  y\n"
    assert table([]) == ""
