"""`aiio run` on a scripted provider: one line per prompt, nothing lost, taken up where it was left."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio.cli.run as run_module
from aiio.cli.exits import CliFault
from aiio.cli.run import RunOptions, run
from aiio.cli.session import Session
from aiio.context.types import user_message
from aiio.env.env import Env, open_env
from aiio.env.errors import ErrorKind, ProviderError
from aiio.scale import Timings
from tests.io.scripted import HANG, MODEL, Pause, Refuse, Step, finish, say, scripted, scripts

Line = dict[str, Any]


def lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


class Bench:
    """A prompts file, a results file, and a run over them."""

    def __init__(self, folder: Path) -> None:
        self.prompts = folder / "p.jsonl"
        self.out = folder / "out.jsonl"

    def write(self, *prompts: Any) -> None:
        self.prompts.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))

    async def run(self, env: Env, *, stop_after: float | None = None, **options: Any) -> int:
        session = Session(env)

        async def stop() -> None:
            await trio.sleep(stop_after or 0)
            session.stopped_by = signal.SIGINT
            session.on_stop()

        if stop_after is not None:
            env.nursery.start_soon(stop)
        given: dict[str, Any] = {
            "prompts": str(self.prompts),
            "out": str(self.out),
            "model": MODEL,
            **options,
        }
        return await run(session, RunOptions(**given))

    def results(self) -> dict[Any, Line]:
        return {line["key"]: line for line in lines(self.out)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def text_of(line: Line) -> str:
    return str(line["message"]["content"][0]["text"])


async def test_every_prompt_gets_its_line(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    context = [user_message("one"), user_message("two")]
    bench.write("Hi", {"prompt": "Hi", "key": "k", "system": "Be brief."}, {"context": context, "key": 7})
    async with scripted(Pause(1), say("Hel"), Pause(1), say("lo"), finish()) as (env, wire):
        assert await bench.run(env, agents=2, system="Default.") == 0
        assert env.max_active == 2
        bodies = [request.body for request in wire.requests]
    assert trio.current_time() == 4
    results = bench.results()
    assert list(results[1]) == ["key", "terminal", "message", "usage", "timings"]
    assert set(results) == {1, "k", 7}
    assert results[1]["terminal"] == {"type": "done", "done_reason": "stop"}
    assert text_of(results["k"]) == "Hello"
    assert results[1]["usage"]["output_tokens"] >= 1
    assert results[1]["timings"]["first_event_ms"] == 1000
    assert results[1]["timings"]["total_ms"] == 2000
    assert results[1]["timings"]["started_at"].endswith("+00:00")
    sent = sorted(json.dumps(json.loads(body)["messages"]) for body in bodies if body)
    assert sum("Default." in body for body in sent) == 2
    assert sum("Be brief." in body for body in sent) == 1
    assert sum("two" in body for body in sent) == 1
    err = capsys.readouterr().err
    assert "3 of 3 done, 0 failed; " in err
    assert str(bench.out) in err


FAULTS = {
    2: ProviderError(ErrorKind.AUTH, "forbidden", status=403),
    3: ProviderError(ErrorKind.NETWORK, "connection refused"),
    4: ProviderError(ErrorKind.PROVIDER, "no such model", status=404),
    5: ProviderError(ErrorKind.MALFORMED, "no JSON"),
}


async def test_failures_are_counted_by_kind_and_run_again_next_time(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write("a", "b", "c", "d")
    async with scripts(
        [Refuse(FAULTS[4])], [Refuse(FAULTS[3])], [Refuse(FAULTS[3])], [finish(), say("x")]
    ) as (
        env,
        _,
    ):
        assert await bench.run(env, agents=1) == 3
    err = capsys.readouterr().err
    assert "0 of 4 done, 4 failed (2 network, 2 provider)" in err
    assert (
        "network: connection refused; check the address and the network, then try again (key 2 and 1 more)"
        in err
    )
    assert "provider: no such model; check the model's name and the address (key 1 and 1 more)" in err
    async with scripted(say("x"), finish()) as (env, wire):
        assert await bench.run(env, keep_failed=True) == 0
        assert wire.requests == []
        assert "4 of 4 have a result" in capsys.readouterr().err
        assert await bench.run(env) == 0
        assert len(wire.requests) == 4
        assert await bench.run(env) == 0
        assert len(wire.requests) == 4
    assert len(lines(bench.out)) == 8
    assert {line["terminal"]["type"] for line in bench.results().values()} == {"done"}


async def test_a_torn_line_is_said_and_its_prompt_runs_again(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write("a", "b")
    bench.out.write_bytes(b'{"key":1,"terminal":{"type":"done"}}\n{"key":2,"termi')
    async with scripted(say("x"), finish()) as (env, wire):
        assert await bench.run(env) == 0
        assert len(wire.requests) == 1
    assert list(bench.results()) == [1, 2]
    err = capsys.readouterr().err
    assert "torn line" in err
    assert "1 of 2 have a result" in err


async def test_nothing_is_sent_when_the_input_is_bad(
    bench: Bench, tmp_path: Path, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scripted(say("x"), finish()) as (env, wire):
        bench.write("a", {"prompt": "b", "model": "nosuch/m"})
        with pytest.raises(CliFault, match=r"p\.jsonl:2: .*'nosuch'"):
            await bench.run(env)
        bench.write("a")
        with pytest.raises(CliFault, match="'alone'"):
            await bench.run(env, model="alone")
        with pytest.raises(CliFault, match="can't be written"):
            await bench.run(env, out=str(tmp_path))
        with pytest.raises(ProviderError, match="OPENAI_API_KEY"):
            await bench.run(Env(environ={}), model="openai/gpt-5")
        assert wire.requests == []
        bench.write("a", {"promt": "b"}, "c")
        assert await bench.run(env, skip_bad=True) == 0
        assert len(wire.requests) == 2
    assert "left out: " in capsys.readouterr().err


async def test_ctrl_c_writes_every_partial_and_sends_nothing_more(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(*"abcde")
    async with scripted(say("Half"), HANG) as (env, wire):
        assert await bench.run(env, agents=3, stop_after=5) == 130
        assert len(wire.requests) == 3
        assert wire.open == 0
    assert trio.current_time() == 5
    assert [line["terminal"]["kind"] for line in lines(bench.out)] == ["cancelled"] * 3
    assert {text_of(line) for line in lines(bench.out)} == {"Half"}
    err = capsys.readouterr().err
    assert "0 of 5 done, 3 failed (3 cancelled), 2 not sent" in err
    assert "the same command run again does the rest" in err


async def test_a_signal_while_the_embedded_model_starts_ends_the_run(
    bench: Bench, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("a")
    async with open_env() as env:

        async def never(name: str, overrides: Any = None) -> None:
            assert name == "local"
            await trio.sleep_forever()

        monkeypatch.setattr(env, "resolve", never)
        assert await bench.run(env, model=None, stop_after=2) == 130
    assert bench.out.read_bytes() == b""


@pytest.mark.parametrize(
    ("model", "agents", "expected"),
    [("local/smollm2", None, 4), (MODEL, None, 8), (MODEL, 3, 3), (None, None, 8)],
)
async def test_how_many_run_at_a_time(
    model: str | None, agents: int | None, expected: int, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write(*({"prompt": "x", "model": MODEL} if model is None else "x" for _ in range(9)))
    async with scripted(say("x"), finish()) as (env, _):

        async def nothing(session: Session, selectors: Any) -> None:
            session.stopped_by = signal.SIGTERM

        monkeypatch.setattr(run_module, "_start_embedded", nothing)
        assert await bench.run(env, model=model, agents=agents) == 143
        assert env.max_active == expected


async def test_a_full_disk_stops_the_run_and_rescues_what_came(
    bench: Bench,
    tmp_path: Path,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(rescue))
    bench.write(*"abcde")
    slow: list[Step] = [say("Half"), HANG]
    async with scripts([say("Whole"), finish()], slow, slow) as (env, wire):
        assert await bench.run(env, agents=3, out="/dev/full") == 5
        assert len(wire.requests) == 3
    (saved,) = rescue.iterdir()
    assert sorted(text_of(line) for line in lines(saved)) == ["Half", "Half", "Whole"]
    err = capsys.readouterr().err
    assert "2 not sent" in err
    assert f"/dev/full can't be written (No space left on device): 3 results are in {saved} instead" in err


async def test_a_full_disk_everywhere_leaves_stderr(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    bench.write("a")
    async with scripted(say("Whole"), finish()) as (env, _):
        assert await bench.run(env, out="/dev/full") == 5
    err = capsys.readouterr().err
    assert '"text":"Whole"' in err
    assert "1 results are above, on stderr instead" in err


async def test_a_key_that_was_refused_is_not_tried_again(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write(*"abcd")
    refused = ProviderError(ErrorKind.AUTH, "bad key", status=401)
    async with scripted(Refuse(refused)) as (env, wire):
        assert await bench.run(env, agents=1) == 2
        assert len(wire.requests) == 1
    err = capsys.readouterr().err
    assert "1 failed (1 auth), 3 not sent" in err
    assert "auth: bad key; check the key (key 1)" in err


async def test_an_agent_that_crashes_is_a_line_too(
    bench: Bench,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(self: Any, event: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Timings, "note_event", crash)
    bench.write("a")
    async with scripted(say("x"), finish()) as (env, _):
        assert await bench.run(env) == 5
    assert bench.results()[1]["terminal"]["error"] == "unexpected RuntimeError: a bug"


async def test_progress_can_be_turned_off(
    bench: Bench, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write("a")
    for progress in (True, False):
        async with scripted(Pause(15), say("x"), finish()) as (env, _):
            assert await bench.run(env, progress=progress, out=os.devnull) == 0
        assert ("1 in flight" in capsys.readouterr().err) is progress
