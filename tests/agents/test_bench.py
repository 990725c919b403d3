"""The bench rows of agents: every agent is accounted for, ticks count whoever sleeps through them."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

import aiio
from scripts.benchmarks import do_agents
from scripts.benchmarks.do_agents import run_fleet
from scripts.benchmarks.figures import Cell, Told
from scripts.benchmarks.lateness import TICK, Lateness, percentile, tick
from scripts.benchmarks.loads import Load, pieces
from scripts.benchmarks.measuring import measure
from scripts.benchmarks.rows import ROWS
from tests.io.scripted import finish, say

from .peer import peer

LOAD = Load(events=3, batch=1, streams=3, period_ms=1)


def test_the_rows_are_figures_of_a_thousand_agents() -> None:
    rows = [row for row in ROWS if row.name.startswith("agents-")]
    assert [row.ratio for row in rows] == [
        Told(cell=rows[0].cells()[0], name="late_p99_ms"),
        Told(cell=rows[0].cells()[0], name="kb_per_agent"),
    ]
    assert rows[0].cells()[0].load.streams == 1000
    assert rows[0].quick().cells()[0].load.streams == 4


def test_agents_are_measured_against_the_real_server() -> None:
    cell = Cell(contender="agents", load=LOAD, rounds=1, passes=1)
    results = measure([cell], lambda text: None)
    assert results.faults == []
    late = results.value(Told(cell=cell, name="late_p99_ms"))
    longest = results.value(Told(cell=cell, name="late_max_ms"))
    weight = results.value(Told(cell=cell, name="kb_per_agent"))
    assert None not in (late, longest, weight)
    assert 0 <= late <= longest  # type: ignore[operator]  # not None, see above
    assert results.value(Told(cell=cell, name="clock_late_p99_ms")) >= late  # type: ignore[operator]
    results[cell].fault = "it fell over"
    assert results.value(Told(cell=cell, name="late_p99_ms")) is None


async def test_an_agent_that_fails_is_no_measurement() -> None:
    text = "".join(pieces(LOAD))
    async with peer([say(text), finish()], [say(text), finish()], [say(text)]) as (env, _):
        env.register_endpoint("bench", provider="agent-scripted", url="peer://x")
        with pytest.raises(RuntimeError, match="failed"):
            await run_fleet(env, LOAD)


async def test_a_terminal_that_is_missing_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer([say("x"), finish()]) as (env, _):
        env.register_endpoint("bench", provider="agent-scripted", url="peer://x")
        assert await run_fleet(env, LOAD) == ["x"] * 3
        monkeypatch.setattr(env, "on_event", lambda fn: aiio.Env.on_event(env, lambda event: None))
        with pytest.raises(RuntimeError, match="3 agents, 0 began, 0 ended"):
            await run_fleet(env, LOAD)


async def test_a_stall_counts_for_every_tick_in_it(mock_clock: MockClock) -> None:
    late, used = Lateness(), iter([0.0, 2.5 * TICK])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick, late, lambda: next(used))
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(5 * TICK)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert late.clock == pytest.approx([4 * TICK, 3 * TICK, 2 * TICK, TICK, 0])
    assert late.ours == pytest.approx([2.5 * TICK, 2.5 * TICK, 2 * TICK, TICK, 0])


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.99), percentile(values, 1), percentile([7.0], 0.5)) == (100, 100, 7)
    assert do_agents.largest_kb() > 1000
