"""Look up the vulnerabilities known of what is installed here: pip-audit, and a check that it really asked.

pip-audit alone ends well, with "no known vulnerabilities found", when an index knows none of the names, or a
mirror answers without that part. So a release that is known to be vulnerable is always asked about too:
where nothing is said of it, nothing that was said counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

CLEAN, FOUND, SKIPPED = 0, 1, 3

CONTROL = ("django", "1.8.0")
"""A release of 2015, of which several vulnerabilities are known (CVE-2015-2316 and later)."""

SERVICES = ("pypi", "osv")
"""Asked in turn, until one answers."""

OURS = frozenset({"aiio-runtime"})

ACCEPTED: dict[str, str] = {}
"""Vulnerabilities that do not concern us: id, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of it."""

    code: int
    lines: tuple[str, ...] = field(default=())


def installed() -> dict[str, str]:
    """Return what is installed in this interpreter: version by name."""
    found = {dist.metadata["Name"].lower().replace("_", "-"): dist.version for dist in distributions()}
    return {name: version for name, version in sorted(found.items()) if name not in OURS}


Answer = list[dict[str, Any]]
"""What pip-audit tells of each release."""


def ask(tool: Sequence[str], releases: Mapping[str, str], service: str) -> tuple[Answer | None, str]:
    """Return what *service* knows of *releases*, as pip-audit tells it; None: no answer, and why."""
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder, "asked.txt"), Path(folder, "told.json")
        asked.write_text("".join(f"{name}=={version}\n" for name, version in releases.items()))
        options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "20"]
        command = [*tool, "-r", str(asked), *options, "-s", service, "-f", "json", "-o", str(told)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            answer = json.loads(told.read_text())["dependencies"]
        except FileNotFoundError as exc:
            missing = exc.filename == command[0]
            return None, "pip-audit is not installed" if missing else _last_line(ended.stderr)
        except subprocess.TimeoutExpired:
            return None, "no answer in ten minutes"
        except (ValueError, KeyError, TypeError):
            return None, "pip-audit wrote no report"
    return answer, ""


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "it ended without a word"


def verdict(answer: Answer, accepted: Mapping[str, str] = ACCEPTED) -> Verdict:
    """Return what *answer*, a report of pip-audit on all that is installed and the control, comes to."""
    known = {entry["name"].lower(): entry for entry in answer}
    if not known.pop(CONTROL[0], {}).get("vulns"):
        why = f"it knows nothing of {'=='.join(CONTROL)}, which is vulnerable: it is no vulnerability service"
        return Verdict(code=SKIPPED, lines=(why,))
    lines: list[str] = []
    met: set[str] = set()
    code = CLEAN
    for name, entry in known.items():
        if "skip_reason" in entry:
            lines.append(f"{name}: not looked up: {entry['skip_reason']}")
            code = code or SKIPPED
        for flaw in entry.get("vulns", ()):
            ids = {flaw["id"], *flaw.get("aliases", ())}
            met |= ids
            reasons = [accepted[id] for id in sorted(ids & accepted.keys())]
            fixed = ", ".join(flaw.get("fix_versions", ())) or "no version"
            said = f"{name} {entry['version']}: {', '.join(sorted(ids))}, mended in {fixed}"
            lines.append(f"{said}; accepted: {reasons[0]}" if reasons else said)
            code = code if reasons else FOUND
    lines += [f"{id} is accepted and not found any more: take it out" for id in accepted if id not in met]
    return Verdict(code=code, lines=tuple(lines))


def audit(tool: Sequence[str], releases: Mapping[str, str]) -> Verdict:
    """Ask the services in turn about *releases*; the first answer that can be relied on counts."""
    lines: list[str] = []
    for service in SERVICES:
        answer, why = ask(tool, {**releases, CONTROL[0]: CONTROL[1]}, service)
        found = Verdict(code=SKIPPED, lines=(why,)) if answer is None else verdict(answer)
        if found.code != SKIPPED:
            return found
        lines += [f"{service}: {line}" for line in found.lines]
    return Verdict(code=SKIPPED, lines=tuple(lines))


def main(arguments: Sequence[str]) -> int:
    """Audit this interpreter with the pip-audit named in *arguments*; return the exit code."""
    releases = installed()
    found = audit(arguments, releases)
    print(*found.lines, sep="\n", end="\n" if found.lines else "")
    words = {
        CLEAN: f"{len(releases)} releases looked up: no vulnerability is known",
        FOUND: "VULNERABLE: see above; raise the version, or say in scripts/audit_dependencies.py why not",
        SKIPPED: "SKIPPED: not all of it could be looked up; this is no statement about vulnerabilities",
    }
    print(words[found.code])
    return found.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
