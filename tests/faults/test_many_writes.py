"""Two thousand writes on one Env, half of them cut short at random moments: nothing of them is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ENDINGS = ("cancelled", "cancelled with a partial", "connect", "stuck", "overall")
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc, to count what is held")
def test_2000_writes_half_of_them_cut_short_leave_nothing_behind() -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.faults.many_writes", "20261130"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert not found.stderr
    report: dict[str, Any] = json.loads(found.stdout)
    assert report["wrong"] == []
    assert report["ledger"] == [0, 0]
    ended = report["ended"]
    assert sum(ended.values()) == 2000
    assert min(ended[how] for how in ENDINGS) > 20
    assert ended["done"] >= 1000
    before, after = report["before"], report["after"]
    grown = after.pop("resident") / before.pop("resident") - 1
    assert after == before
    assert grown < 0.05
