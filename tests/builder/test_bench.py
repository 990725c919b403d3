"""The bench row of the builder: what it assembles is what went in, and its goal is the one that is set."""

from __future__ import annotations

import pytest

from scripts.benchmarks.contenders import CONTENDERS
from scripts.benchmarks.do_builder import REPEATS, assemble, make_builder, text_of
from scripts.benchmarks.loads import Load, stream_pieces
from scripts.benchmarks.reading import Meter
from scripts.benchmarks.rows import ROWS


@pytest.mark.parametrize("fragments", [1, 70])
def test_the_text_assembled_is_the_text_of_the_fragments(fragments: int) -> None:
    load, meter = Load(content="fragments", events=fragments), Meter()
    assert assemble(load, meter) == "".join(stream_pieces(load))
    assert len(meter.cpu_s) == 1
    assert REPEATS > 1


def test_half_of_the_texts_join_the_one_before() -> None:
    built = make_builder(8).build(input=list("abcdefgh"))
    assert len(built.messages) == 4
    assert text_of(built) == "a\n\nbc\n\nde\n\nfg\n\nh"


def test_the_row_compares_twice_as_many_fragments_with_the_whole_cost() -> None:
    (row,) = (row for row in ROWS if row.name == "builder-growth")
    small, large = sorted(cell.load.events for cell in row.cells())
    assert (small, large) == (1000, 2000)
    assert (row.goal, row.at_least) == (2.3, False)
    assert {CONTENDERS[cell.contender].module for cell in row.cells()} == {"do_builder"}
