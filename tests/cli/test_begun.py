"""What began and did not end in a run that died is known to the next one."""

from __future__ import annotations

from pathlib import Path

from aiio.cli.begun import Begun, opened
from aiio.context.events import Done
from aiio.scale import Ended


def ended(key: str, unknown: int = 0) -> Ended:
    return Ended(key=key, worker="w", terminal=Done(), unknown_billed=unknown)


def test_what_did_not_end_is_counted_once_for_each_run_that_died(tmp_path: Path) -> None:
    out = str(tmp_path / "out.jsonl")
    file = tmp_path / "out.jsonl.begun"
    first = Begun(out)
    for key in ("a", "b", 'c"ü'):
        first.begin(key)
    first.end("a")
    assert first.counted(ended("b")).unknown_billed == 0
    # It dies: nothing is closed, and the last line is torn.
    file.write_bytes(file.read_bytes() + b'+"to')

    second = Begun(out)
    assert second.lost == {"b": 1, 'c"ü': 1}
    assert second.counted(ended("b", 1)).unknown_billed == 2
    second.begin("b")
    second.begin("d")

    with opened(out) as third:
        assert third.lost == {"b": 2, 'c"ü': 1, "d": 1}
        for key in ("b", "d"):
            third.begin(key)
            third.end(key)
        assert third.counted(ended("b")).unknown_billed == 0
    assert file.exists()  # one is open still
    with opened(out) as fourth:
        assert fourth.lost == {'c"ü': 1}
        fourth.begin("late")
    with opened(out, done={"late"}) as fifth:  # its result was the last that was written
        assert fifth.lost == {'c"ü': 1}
        fifth.end('c"ü')
    assert not file.exists()


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path) -> None:
    for place in (None, str(tmp_path / "nowhere" / "out.jsonl")):
        with opened(place) as begun:
            begun.begin("a")
            begun.end("a")
            assert begun.counted(ended("a", 1)).unknown_billed == 1
    assert list(tmp_path.iterdir()) == []
