"""Every row of the two lists has a test; and the row of ACCEPTANCE.md that no other room holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import aiio
from aiio.context.store import Context
from scripts import fault_coverage
from scripts.fault_coverage import CLAIMS, main, named_tests, of_acceptance, of_faults, pages
from tests.io.scripted import MODEL, finish, say, scripted
from tests.providers.manifest import NO_RECORDINGS, REPOSITORY

TESTS = named_tests(REPOSITORY / "tests")

FAULTS = """
| id | source | symptom | root cause |
| --- | --- | --- | --- |
| A1 | somebody | It hangs. | No timer. |
| B2 | somebody | It breaks. | A scope. |
"""


def test_every_row_of_both_lists_has_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    if pages() is None:
        pytest.skip(NO_RECORDINGS)
    code = main(["--quiet"])
    assert code == 0, capsys.readouterr().out


def test_every_test_that_a_claim_names_is_there() -> None:
    named = {name for claims in CLAIMS.values() for names in claims.values() for name in names}
    assert [name for name in named if not any(one.endswith(f"_{name}") for one in TESTS)] == []


def test_a_fault_is_held_by_tests_that_bear_its_id() -> None:
    tests = {
        "test_A1_x": ["io/test_a.py", "env/test_b.py"],
        "test_acceptance_2": ["c.py"],
        "test_A16_x": ["d.py"],
    }
    assert of_faults(FAULTS, tests) == {
        "A1  It hangs.": ["env/test_b.py::test_A1_x", "io/test_a.py::test_A1_x"],
        "B2  It breaks.": [],
    }


def test_the_runs_count_by_another_list() -> None:
    assert of_faults(FAULTS, {"test_B2_x": ["runs/test_a.py"]})["B2  It breaks."] == []


@pytest.mark.parametrize(
    ("page", "without"),
    [
        ("12. budgets: shares sum to the pool, minimums scale, NaN raises.", []),
        ("12. budgets: shares sum to the pool, NaN raises.", ["12  minimums scale"]),
        (
            "12. budgets: shares sum to the pool, minimums scale, NaN raises; infinity is allowed.",
            ["12  (no test is named for) , , ; infinity is allowed."],
        ),
        ("99. something new", ["99  (no test is named for) something new"]),
    ],
)
def test_a_claim_without_a_test_and_words_without_a_claim_are_found(page: str, without: list[str]) -> None:
    assert [row for row, names in of_acceptance(page, TESTS).items() if not names] == without


def test_a_test_that_went_away_leaves_its_claim_bare() -> None:
    tests = {name: files for name, files in TESTS.items() if not name.endswith("_nonsense_raises")}
    page = "12. budgets: shares sum to the pool, minimums scale, NaN raises."
    assert of_acceptance(page, tests)["12  NaN raises"] == []


@pytest.mark.parametrize("read", [of_faults, of_acceptance])
def test_a_page_without_rows_is_no_page(read: Any) -> None:
    with pytest.raises(ValueError, match="no rows"):
        read("nothing here", TESTS)


def test_without_the_lists_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("AIIO_RECORDINGS", str(tmp_path / "nowhere"))
    assert main([]) == 2
    assert "Nothing was checked" in capsys.readouterr().out


def test_a_row_without_a_test_fails_and_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    faults, acceptance = tmp_path / "field-faults.md", tmp_path / "ACCEPTANCE.md"
    faults.write_text(FAULTS.replace("B2", "Z9"))
    acceptance.write_text("12. budgets: shares sum to the pool, minimums scale, NaN raises.\n")
    monkeypatch.setattr(fault_coverage, "pages", lambda: (faults, acceptance))
    assert main(["--quiet"]) == 1
    shown = capsys.readouterr().out
    assert "field-faults.md: 1 of 2 rows have tests" in shown
    assert "Z9  It breaks.\n      NO TEST" in shown
    assert "It hangs" not in shown


async def test_acceptance_6_what_is_not_sent_stays_in_the_list_and_in_the_session_file(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    record: dict[str, Any] = {"type": "note", "text": "mine"}
    failed = {**aiio.assistant_message([]), "error": "no answer came"}
    entries: list[Any] = [record, aiio.user_message("Hi"), failed]
    with Context("work", dir=tmp_path) as session:
        for entry in entries:
            session.append(entry)
        session.flush()
        context = session.messages()
        async with scripted(say("x"), finish()) as (env, wire):
            await aiio.IO(env=env, model=MODEL).write(context)
        assert wire.requests[0].body == b'{"messages":[{"type":2,"content":[{"type":"text","text":"Hi"}]}]}'
        assert context == session.messages() == entries
    assert Context.resume("work", tmp_path, save=False).messages() == entries
