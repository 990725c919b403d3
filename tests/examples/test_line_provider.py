"""The worked example: a provider in 30 lines, installed as a stranger would, held to every dialect's laws."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.serving import chunk, head, last_chunk, serve

from .check_line_provider import KEY, LINES, lines
from .wheels import build_wheel

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = Path(__file__).parent / "line_provider"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which the example is installed, in a folder of its own."""
    pytest.importorskip("pip", reason="pip is needed to install the example")
    folder = tmp_path_factory.mktemp("example")
    site = folder / "site"
    wheel = build_wheel(EXAMPLE, folder)
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(site), str(wheel)], check=True
    )
    assert (site / "line_provider.py").read_bytes() == (EXAMPLE / "line_provider.py").read_bytes()
    path = os.pathsep.join([str(site), str(REPOSITORY)])
    return {**os.environ, "PYTHONPATH": path, "AIIO_CONFIG_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_example_is_at_most_30_lines() -> None:
    assert len((EXAMPLE / "line_provider.py").read_text().splitlines()) <= 30


def test_it_is_found_by_its_entry_point_and_keeps_the_laws_of_every_dialect(
    installed: dict[str, str],
) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.examples.check_line_provider"],
        cwd=REPOSITORY,
        env=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    report: dict[str, Any] = json.loads(found.stdout)
    assert Path(report["found_in"]).parent == Path(installed["PYTHONPATH"].split(os.pathsep)[0])
    assert report["answers"] == 4
    assert report["cuts"] > 50
    assert report["unknown_verb"] == ["malformed", "Half"]
    turns = [{"type": 2, "content": [{"type": "text", "text": "Hello"}]}]
    assert report["request"] == ["POST", "/line", f"Bearer {KEY}", {"model": "m", "turns": turns}]


async def test_the_command_line_speaks_it_too(installed: dict[str, str], tmp_path: Path) -> None:
    said = b"".join(lines([])[:-1]) + b'say "Hi "\nsay "there."\n' + lines([])[-1]
    async with serve(head(200, LINES), chunk(said), last_chunk()) as server:
        (tmp_path / "config.toml").write_text(
            f'[providers.toy]\nprovider = "line"\nurl = "{server.url}"\n[toy.auth]\ntoken = "{KEY}"\n'
        )
        environment = {**installed, "AIIO_CONFIG_DIR": str(tmp_path)}
        environment.pop("AIIO_NO_CONFIG", None)
        ended = await trio.run_process(
            [sys.executable, "-m", "aiio.cli", "ask", "--model", "toy/m", "Hello?"],
            env=environment,
            stdin=b"",
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout.decode().strip()) == (0, "Hi there."), ended.stderr.decode()
        (request,) = server.requests
        assert request.headers["authorization"] == f"Bearer {KEY}"
