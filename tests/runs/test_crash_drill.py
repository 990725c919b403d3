"""A workflow that is killed 30 times gives what one gives that is left alone, and the bills add up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def drill(folder: Path, seed: int, kills: int) -> dict[str, Any]:
    root = Path(__file__).parents[2]
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-m", "tests.runs.drill", str(folder), str(seed), str(kills)],
        check=True,
        cwd=root,
        env={**os.environ, "AIIO_NO_CONFIG": "1"},
    )
    found: dict[str, Any] = json.loads((folder / "end").read_text())
    return found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a drill forks")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_workflow_killed_at_30_random_moments_resumes_each_time(tmp_path: Path, seed: int) -> None:
    calm = drill(tmp_path / "calm", 0, 0)
    assert calm["steps"] >= 40
    found = drill(tmp_path / "drill", seed, 30)
    assert found["died"] >= 20
    assert found["output"] == calm["output"]
    assert not (tmp_path / "drill" / "again").exists()  # a step that was recorded never began again
    assert found["billed"] == pytest.approx(found["bills_now"])
    assert found["before"] <= found["bills"] + 1e-9
    assert found["before"] + found["held"] >= found["bills"] - 1e-9  # held bounds what was cut off
    assert found["cost"] == pytest.approx(found["bills"])
    assert found["held_after"] == 0
    assert calm["cost"] == pytest.approx(calm["bills"])
