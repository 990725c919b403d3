"""The budgets of `aiio run`: what stops it, what is said, and that the rest can be done later."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import trio
from rich.console import Console
from trio.testing import MockClock

import aiio.cli.run as run_module
from aiio.cli.allowance import Allowance
from aiio.cli.app import invoke
from aiio.cli.exits import OUT_OF_BUDGET, CliFault
from aiio.cli.progress import Tally, table
from aiio.cli.run import RunOptions
from aiio.cli.session import Session
from aiio.context.types import assistant_message, text_content, user_message
from aiio.env.errors import ErrorKind, ProviderError
from tests.io.scripted import HANG, Pause, Refuse, Step, finish, say, scripted, scripts

from .test_run import Bench, lines


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def answer(**usage: Any) -> list[Step]:
    return [Pause(1), say("x"), finish(usage={"input_tokens": 6, "output_tokens": 4, **usage})]


async def test_tokens_that_are_used_up_start_no_more_prompts(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(*"abcdef")
    async with scripted(*answer()) as (env, wire):
        assert await bench.run(env, agents=2, max_tokens=30) == OUT_OF_BUDGET
        assert len(wire.requests) == 4  # the fourth was in flight when the third had used it up
        err = capsys.readouterr().err
        assert "4 of 6 done, 0 failed, 2 not sent" in err
        assert "stopped by --max-tokens 30; the same command run again does the rest" in err
        assert await bench.run(env, agents=2, max_tokens=30) == 0
        assert len(wire.requests) == 6
    assert "stopped" not in capsys.readouterr().err


async def test_cost_is_the_providers_figure_and_is_said(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(*"abc")
    async with scripted(*answer(cost=0.25)) as (env, wire):
        assert await bench.run(env, agents=1, max_cost=0.5) == OUT_OF_BUDGET
        assert len(wire.requests) == 2
    err = capsys.readouterr().err
    assert "8 output tokens, $0.5 in 0:02" in err
    assert "stopped by --max-cost 0.5" in err
    assert "the price of script/m is not known" in err


async def test_an_unknown_price_stops_nothing_and_is_said(
    bench: Bench,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    bench.write(*"abc")
    async with scripted(*answer()) as (env, _):
        assert await bench.run(env, max_cost=1e-9) == 0
        assert "cost unknown (3 requests have no known price)" in capsys.readouterr().err
        bench.out.unlink()
        assert await bench.run(env) == 0
    assert "known price" not in capsys.readouterr().err  # nobody has asked for it


async def test_time_that_is_up_cuts_what_runs_and_keeps_what_had_come(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(*"abcd")
    slow: list[Step] = [say("Half"), HANG]
    async with scripts(answer(), slow, slow) as (env, wire):
        assert await bench.run(env, agents=2, max_time="10s") == OUT_OF_BUDGET
        assert (len(wire.requests), wire.open) == (3, 0)
    assert trio.current_time() == 10
    ended = [line["terminal"] for line in lines(bench.out)]
    assert [terminal["type"] for terminal in ended] == ["done", "error", "error"]
    assert ended[1]["error"] == "cancelled: --max-time 10s is over"
    assert [line["message"]["content"][0]["text"] for line in lines(bench.out)] == ["x", "Half", "Half"]
    err = capsys.readouterr().err
    assert "1 of 4 done, 2 failed (2 cancelled), 1 not sent" in err
    assert "stopped by --max-time 10s" in err


async def test_results_are_written_while_others_are_still_being_started(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.write(*map(str, range(200)))
    seen: list[int] = []
    async with scripted(say("x"), finish()) as (env, _):
        env.on_event(
            lambda event: (
                seen.append(len(bench.out.read_bytes().splitlines())) if event.name == "agent_added" else None
            )
        )
        assert await bench.run(env, agents=200) == 0
    assert seen[-1] > 10


async def test_what_failed_decides_the_exit_code_before_a_budget_does(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.write(*"abc")
    refused = ProviderError(ErrorKind.PROVIDER, "no such model", status=404)
    async with scripts([Refuse(refused)], answer()) as (env, _):
        assert await bench.run(env, agents=1, max_tokens=10) == 4


async def test_a_budget_that_the_last_prompt_uses_up_stopped_nothing(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.write("a")
    async with scripted(*answer()) as (env, _):
        assert await bench.run(env, max_tokens=1) == 0


async def test_requests_that_were_refused_use_nothing(bench: Bench, autojump_clock: MockClock) -> None:
    bench.write(*"abc")
    refused = ProviderError(ErrorKind.NETWORK, "connection refused")
    async with scripted(Refuse(refused)) as (env, wire):
        assert await bench.run(env, agents=1, max_tokens=1) == 3
        assert len(wire.requests) == 3


async def test_a_time_that_is_none_is_refused_before_anything_is_sent(bench: Bench) -> None:
    bench.write("a")
    async with scripted(*answer()) as (env, wire):
        with pytest.raises(CliFault, match="--max-time: not a duration: 'soon'"):
            await bench.run(env, max_time="soon")
        assert wire.requests == []
    assert Allowance().deadline == math.inf


async def test_the_cost_is_shown_where_it_is_known() -> None:
    tally = Tally(total=3)
    for cost, shown in ((None, False), (0.25, True)):
        tally.cost = cost
        console = Console(file=io.StringIO(), width=100)
        console.print(table(tally))
        assert ("$0.25" in console.file.getvalue()) is shown  # type: ignore[attr-defined]  # a StringIO


async def test_a_prompt_that_fills_the_window_is_asked_as_it_is(
    bench: Bench, autojump_clock: MockClock
) -> None:
    said = [user_message("word " * 90), assistant_message([text_content("Yes.")]), user_message("Which?")]
    bench.write({"context": said})
    async with scripted(*answer()) as (env, wire):
        env.register_endpoint("script", context_window=100)
        assert await bench.run(env) == 0
    assert [json.loads(request.body or b"")["messages"] for request in wire.requests] == [said]


def test_the_options_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[RunOptions] = []

    async def take(session: Session, options: RunOptions) -> int:
        given.append(options)
        return 0

    monkeypatch.setattr(run_module, "run", take)
    budgets = ["--max-cost", "2.5", "--max-tokens", "1000", "--max-time", "30m"]
    assert invoke(["run", "p.jsonl", "-o", "x", *budgets]) == 0
    assert invoke(["run", "p.jsonl", "-o", "x"]) == 0
    assert [(one.max_cost, one.max_tokens, one.max_time) for one in given] == [
        (2.5, 1000, "30m"),
        (None, None, None),
    ]
    assert invoke(["run", "p.jsonl", "-o", "x", "--max-cost", "0"]) == 5
