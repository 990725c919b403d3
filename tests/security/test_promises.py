"""SECURITY.md names a test for each promise; they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE), test


def test_each_promise_names_its_test() -> None:
    promised = TEXT.partition("## What is promised")[2].partition("## What is not promised")[0]
    paragraphs = [one for one in re.split(r"\n\n|\n- ", promised) if one.strip()][1:]
    headings = ("**Credentials stay here.**", "**A provider can end a request, and nothing else.**")
    without = [one for one in paragraphs if "::test_" not in one and one.strip() not in headings]
    assert len(paragraphs) > 12
    assert without == []


def test_everything_of_the_security_suite_is_named_by_file() -> None:
    files = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name}
    assert files <= {Path(file).name for file, _ in NAMED}
