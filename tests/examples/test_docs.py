"""What the documents show is what the tests run; test_docs_pages.py runs all other pages."""

from __future__ import annotations

import re
from pathlib import Path

from aiio.env.endpoints import KNOWN_ENDPOINTS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "examples" / "line_provider"


def test_the_worked_example_is_shown_word_for_word() -> None:
    page = (ROOT / "docs" / "write-a-provider.md").read_text("utf-8")
    for name in ("line_provider.py", "pyproject.toml"):
        assert (EXAMPLE / name).read_text("utf-8") in page, f"docs/write-a-provider.md shows another {name}"


def test_the_worked_example_has_at_most_thirty_lines() -> None:
    lines = (EXAMPLE / "line_provider.py").read_text("utf-8").splitlines()
    assert len(lines) <= 30


def test_the_websocket_example_is_shown_word_for_word() -> None:
    page = (ROOT / "docs" / "write-a-provider.md").read_text("utf-8")
    assert (EXAMPLE.parent / "parrot_provider.py").read_text("utf-8") in page


def test_a_link_in_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / "README.md").read_text("utf-8"))
    assert len(links) > 15
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_names_every_endpoint_that_is_known() -> None:
    _, _, section = (ROOT / "README.md").read_text("utf-8").partition("## Endpoints, settings, credentials\n")
    named, _, _ = section.partition(" are known by name")
    assert set(re.findall(r"`([\w-]+)`", named)) == set(KNOWN_ENDPOINTS)
