"""What `scripts/coverage-of-faults` prints: for every row of the two lists, the tests that hold it, by name.

A row of field-faults.md has a letter and a number, and so have its tests: `test_A1_...`. The rows of
ACCEPTANCE.md are sentences of several claims: `CLAIMS` has each in the page's own words, with its tests.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from tests.providers.manifest import REPOSITORY, recordings_folder

CLAIMS: dict[int, dict[str, tuple[str, ...]]] = {
    1: {
        "append merges consecutive same-type text with a blank line": (
            "consecutive_user_texts_become_one_with_a_blank_line",
        ),
        "`draft` metadata blocks merging": ("what_differs_does_not_merge",),
        "tool results never merge": ("what_differs_does_not_merge",),
        "records pass through": ("records_are_pushed_untouched",),
        "empty append does not change the list": ("an_empty_append_warns_and_changes_nothing",),
    },
    2: {
        "assembler survives index gaps": ("acceptance_2_index_gaps_are_closed_up",),
        "repeated starts": ("acceptance_2_repeated_starts_lose_nothing",),
        "malformed tool JSON (raw kept)": ("acceptance_2_malformed_tool_json_is_kept_raw",),
        "authoritative `text_end`": ("acceptance_2_text_end_is_authoritative",),
    },
    3: {
        "`write` while busy rejects without disturbing the running request": (
            "acceptance_3_write_while_busy_is_refused_and_disturbs_nothing",
        ),
        "`kill` during connect, read, and idle": ("acceptance_3_kill_works_in_every_phase_and_twice",),
        "second `kill` is a no-op": ("acceptance_3_kill_works_in_every_phase_and_twice",),
        "state ends `closed`": ("acceptance_3_kill_works_in_every_phase_and_twice",),
    },
    4: {
        "three timeouts fire independently": ("acceptance_4_each_limit_fires_by_itself",),
        "stuck is reset by every frame": ("acceptance_4_stuck_is_reset_by_every_frame",),
        "connect grows by 1 ms per body byte": ("acceptance_4_connect_grows_by_one_ms_per_body_byte",),
    },
    5: {
        "auth failure before any content + rotated credentials → exactly one resend": (
            "auth_resend_with_rotated_credentials",
        ),
        "two `start` events, one terminal": ("auth_resend_with_rotated_credentials",),
        "with unchanged credentials → one error": ("auth_failure_with_unchanged_credentials_is_one_error",),
    },
    6: {
        "records and contentless messages never reach a provider": (
            "records_and_contentless_messages_stay_with_the_caller",
        ),
        "yet stay in the caller's list and session file": (
            "acceptance_6_what_is_not_sent_stays_in_the_list_and_in_the_session_file",
        ),
    },
    7: {
        "session: append fast path": ("a_new_tail_is_appended_and_everything_else_replaces_the_file",),
        "torn last line": ("a_file_cut_at_every_byte_of_its_last_300_opens",),
        "rename": ("rename_changes_id_and_name_and_moves_the_file",),
        "name derivation once": ("the_name_is_derived_once",),
        "System-only leaves no file": ("only_system_messages_leave_no_file",),
        "reserved ids refused": ("reserved_and_broken_ids_are_refused",),
    },
    8: {
        "abort reaches grandchildren, not parents": (
            "abort_reaches_grandchildren_not_parents_nor_siblings_and_the_first_reason_wins",
        ),
        "late children start aborted": (
            "an_abort_without_a_reason_is_attributed_and_late_children_start_aborted",
        ),
        "blocked recv with timeout 0 rejects": (
            "blocked_recv_with_timeout_0_and_parked_send_are_refused_on_abort",
        ),
        "first reason wins": (
            "abort_reaches_grandchildren_not_parents_nor_siblings_and_the_first_reason_wins",
        ),
        "cancel tears down bottom-up": ("cancel_tears_down_bottom_up_and_waits_for_it",),
    },
    9: {
        "queue at capacity parks FIFO, promotes on recv and tryRecv": (
            "queue_at_capacity_parks_fifo_and_promotes_on_recv_and_try_recv",
        ),
        "times out at 30 s without delivering": ("a_parked_send_times_out_at_30_s_without_delivering",),
        "external send drops the oldest": ("external_send_never_blocks_and_drops_the_oldest",),
        "value mode wakes all waiters": ("value_wakes_all_waiters_and_reading_does_not_consume",),
        "topic tryRecv is null": ("topic_reaches_who_waits_and_try_recv_is_none",),
    },
    10: {
        "restore + replay: loop iterations and parallel siblings keep separate ledger entries": (
            "loop_iterations_keep_separate_entries",
            "parallel_siblings_keep_separate_entries_whatever_settles_first",
        ),
        "failed steps re-run": ("failed_steps_run_again_and_ended_ones_tell_step_replayed_only_and_count",),
        "changed step id discards its subtree": ("a_changed_step_id_discards_its_subtree",),
        "oversized output re-runs": (
            "an_output_that_is_too_big_or_would_not_come_back_as_it_was_runs_again",
        ),
        "billed cost 0 after restore": (
            "restoring_brings_back_tokens_step_count_cost_and_items_but_not_elapsed_and_billed",
            "a_restored_run_bills_nothing_for_replayed_steps_and_rounds",
        ),
    },
    11: {
        "anchoring: prefix byte-identical across turns while a layer churns": (
            "the_prefix_is_identical_across_30_turns_while_a_layer_churns",
            "a_request_prefix_is_byte_identical_while_a_layer_churns",
        ),
        "retract repeats": ("retract_repeats_and_an_addition_is_told_mid_epoch",),
        "addition mid-epoch": ("retract_repeats_and_an_addition_is_told_mid_epoch",),
        "pressure re-anchors with no update message": ("pressure_reanchors_with_no_update_message",),
        "blind provider after three misses": ("a_miss_reanchors_and_the_third_in_a_row_is_blind",),
        "steering retry judged once": ("what_the_provider_says_is_judged_once_per_assembly",),
        "child has its own epoch": ("a_child_has_its_own_epoch",),
    },
    12: {
        "budgets: shares sum to the pool": ("shares_sum_to_the_pool_and_keep_their_limits",),
        "minimums scale": ("overcommitted_minimums_scale_down_and_the_history_gets_nothing",),
        "NaN raises": ("nonsense_raises",),
    },
    13: {
        "builder: order preserved": ("messages_come_in_the_order_of_the_definitions",),
        "over-budget raises with usage attached": (
            "what_is_exactly_as_large_passes_and_more_raises_with_the_usage",
        ),
        "audit catches a changed trust field": ("the_audit_catches_a_changed_field",),
        "mutable id allows a value change only": (
            "a_value_may_change_where_that_is_allowed_and_nowhere_else",
        ),
    },
}
"""The claims of each row of ACCEPTANCE.md, in its words and order, and the tests of each.

A test is named without `test_` and the id of the row of another list that may follow it (`B12_`).
"""

_FAULT = re.compile(r"^\| ([A-Z]\d+) \| [^|]* \| ([^|]*) \|", re.MULTILINE)
_ROW = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)
_NAMED = re.compile(r"_([A-Z]\d+)(?=_)")
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
_OTHER_IDS = ("runs/",)  # its tests bear the ids of spec/runs.md
_BETWEEN = re.compile(r"[\s,;.]*")


def named_tests(folder: Path) -> dict[str, list[str]]:
    """Return the files, relative to *folder*, in which each test function is."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        for name in _TEST.findall(path.read_text("utf-8")):
            found[name].append(path.relative_to(folder).as_posix())
    return dict(found)


def of_faults(page: str, tests: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the tests of each row of field-faults.md, under the row's id and symptom.

    ValueError: the page has no rows.
    """
    rows = _FAULT.findall(page)
    if not rows:
        raise ValueError("field-faults.md has no rows that can be read")
    by_id: dict[str, list[str]] = defaultdict(list)
    for name, files in tests.items():
        for row in set(_NAMED.findall(name)):
            by_id[row] += [
                f"{file}::{name}" for file in files if not file.startswith("runs/")
            ]  # other lists'
    return {f"{row}  {symptom.strip()}": sorted(by_id[row]) for row, symptom in rows}


def of_acceptance(page: str, tests: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the tests of each claim of ACCEPTANCE.md; one that `CLAIMS` lacks has none.

    ValueError: the page has no rows.
    """
    rows = _ROW.findall(page)
    if not rows:
        raise ValueError("ACCEPTANCE.md has no rows that can be read")
    found: dict[str, list[str]] = {}
    for number, text in rows:
        rest = text
        for claim, names in CLAIMS.get(int(number), {}).items():
            here = claim in rest
            rest = rest.replace(claim, "", 1)
            held = [_called(name, tests) for name in names]
            found[f"{number}  {claim}"] = list(chain(*held)) if here and all(held) else []
        if not _BETWEEN.fullmatch(rest):
            found[f"{number}  (no test is named for) {rest.strip()}"] = []
    return found


def _called(words: str, tests: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tests whose names are *words* behind whatever ids they bear."""
    found = [name for name in tests if name.endswith(f"_{words}")]
    return [f"{file}::{name}" for name in found for file in tests[name]]


def pages() -> tuple[Path, Path] | None:
    """Return field-faults.md and ACCEPTANCE.md, which lie near the recordings; None: they are not here."""
    folder = recordings_folder()
    if folder is None:
        return None
    shared = folder.resolve().parents[1]
    found = shared / "field-faults.md", shared / "spec" / "ACCEPTANCE.md"
    return found if all(page.is_file() for page in found) else None


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows; return the exit code: 0 when each has a test, 1 when not, 2 when there are no lists."""
    parser = argparse.ArgumentParser(
        prog="scripts/coverage-of-faults",
        description="Every row of field-faults.md and ACCEPTANCE.md, with the tests that hold it.",
    )
    parser.add_argument("--quiet", action="store_true", help="only the counts, and rows without a test")
    quiet = parser.parse_args(argv).quiet
    here = pages()
    if here is None:
        print(
            "The lists are not here: field-faults.md and spec/ACCEPTANCE.md belong to the folder of the"
            " recordings, which is not beside this repository and not named by AIIO_RECORDINGS."
            " Nothing was checked."
        )
        return 2
    tests = named_tests(REPOSITORY / "tests")
    without = 0
    for page, read in zip(here, (of_faults, of_acceptance), strict=True):
        rows = read(page.read_text("utf-8"), tests)
        print(f"{page.name}: {sum(map(bool, rows.values()))} of {len(rows)} rows have tests")
        for row, names in rows.items():
            without += not names
            if not quiet or not names:
                print(f"  {row:.110}", *(names or ["NO TEST"]), sep="\n      ")
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main())
