"""`scripts/audit` says clean only when somebody who would know was asked about everything."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import audit_dependencies
from scripts.audit_dependencies import CLEAN, CONTROL, FOUND, SKIPPED, audit, installed, main, verdict

FLAW = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.0"], "description": "-"}
VULNERABLE = {"name": "Django", "version": CONTROL[1], "vulns": [FLAW]}
SOUND = {"name": "trio", "version": "1.0", "vulns": []}
BROKEN = {"name": "h11", "version": "1.0", "vulns": [FLAW]}
UNKNOWN = {"name": "odd", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ([VULNERABLE, SOUND], CLEAN),
        ([VULNERABLE, SOUND, BROKEN], FOUND),
        ([VULNERABLE, UNKNOWN, BROKEN], FOUND),
        ([VULNERABLE, SOUND, UNKNOWN], SKIPPED),
        ([SOUND], SKIPPED),
        ([{**VULNERABLE, "vulns": []}, SOUND], SKIPPED),
        ([{"name": "django", "skip_reason": "not found"}, SOUND], SKIPPED),
        ([{**VULNERABLE, "vulns": []}, BROKEN], SKIPPED),
    ],
)
def test_clean_is_said_only_when_the_service_knows_the_control_and_everything(answer: Any, code: int) -> None:
    assert verdict(answer, {}).code == code


def test_an_accepted_flaw_is_told_and_one_that_is_gone_too() -> None:
    found = verdict([VULNERABLE, BROKEN], {"CVE-1": "not reached", "CVE-2": "old"})
    assert found.code == CLEAN
    assert found.lines == (
        "h11 1.0: CVE-1, PYSEC-1, mended in 2.0; accepted: not reached",
        "CVE-2 is accepted and not found any more: take it out",
    )


def tool(folder: Path, script: str) -> list[str]:
    """A stand-in for pip-audit: it is given *told*, where it must write, and *service*."""
    path = folder / "pip_audit.py"
    head = "import json, sys\ntold = sys.argv[sys.argv.index('-o') + 1]\n"
    head += "service = sys.argv[sys.argv.index('-s') + 1]\n"
    head += "asked = open(sys.argv[sys.argv.index('-r') + 1]).read()\n"
    path.write_text(head + script)
    return [sys.executable, str(path)]


def test_a_service_that_can_not_be_reached_is_skipped_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tool(tmp_path, "sys.exit('ConnectionError: no such host')")) == SKIPPED
    out = capsys.readouterr().out
    assert out.count("ConnectionError: no such host") == 2
    assert "SKIPPED" in out


@pytest.mark.parametrize("script", ["open(told, 'w').write('no JSON')", "open(told, 'w').write('{}')"])
def test_a_report_that_can_not_be_read_is_no_clean_one(tmp_path: Path, script: str) -> None:
    assert audit(tool(tmp_path, script), {"trio": "1.0"}).code == SKIPPED


def test_without_the_tool_it_is_skipped(tmp_path: Path) -> None:
    found = audit([str(tmp_path / "none")], {"trio": "1.0"})
    assert (found.code, found.lines[0]) == (SKIPPED, "pypi: pip-audit is not installed")


def test_the_second_service_is_asked_when_the_first_knows_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = json.dumps({"dependencies": [VULNERABLE, SOUND]})
    script = f"assert 'django==1.8.0' in asked\nif service == 'osv': open(told, 'w').write({report!r})\n"
    script += "else: open(told, 'w').write('{\"dependencies\": []}')"
    assert main(tool(tmp_path, script)) == CLEAN
    assert "no vulnerability is known" in capsys.readouterr().out


def test_what_is_installed_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    found = installed()
    assert {"trio", "httpx", "h11", "msgspec", "structlog"} <= found.keys()
    assert not found.keys() & audit_dependencies.OURS
