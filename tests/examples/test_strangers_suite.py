"""The worked example of aiio.testing: a stranger's suite of 20 lines, run with only the plug-in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SUITE = Path(__file__).parent / "stranger"
PLUGIN = "aiio.testing.pytest_plugin"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the stranger's project, outside of our repository and its settings."""
    for path in SUITE.glob("*.py"):
        shutil.copy(path, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\nfilterwarnings = error\n")
    return tmp_path


def run_pytest(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in *project* with pytest-trio and our plug-in, named if it is not installed with aiio."""
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    plugins = [] if installed else ["-p", PLUGIN]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugins, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_the_suite_is_at_most_20_lines_of_code() -> None:
    lines = [line for line in (SUITE / "test_my_agent.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 20


def test_a_strangers_suite_checks_a_stall_a_cut_call_and_a_429(project: Path) -> None:
    ended = run_pytest(project, "-q")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"\b3 passed", ended.stdout)


def test_the_suite_fails_where_the_agent_is_wrong(project: Path) -> None:
    agent = project / "my_agent.py"
    agent.write_text(
        agent.read_text().replace('limit="stuck"', 'limit="overall"').replace("status=429", "status=428")
    )
    ended = run_pytest(project, "-q")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert re.search(r"\b2 failed, 1 passed", ended.stdout)


def test_the_fixtures_are_listed_with_what_they_are(project: Path) -> None:
    ended = run_pytest(project, "--fixtures")
    for name in ("aiio_env", "aiio_server", "aiio_faults", "aiio_clock"):
        assert re.search(rf"^{name} -- .*\n\s+Give ", ended.stdout, re.MULTILINE), name
