"""Scripts: what they may hold, what they become in each dialect, and the scripted provider's time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints

import aiio
from aiio.context.types import Message
from aiio.testing import (
    Step,
    add_script,
    call,
    fail,
    finish,
    hang,
    head,
    load_scripts,
    mock_server,
    pause,
    ping,
    raw,
    say,
    scripted,
    think,
)
from aiio.testing.actions import Begin, Refuse, Renderer, Reset, Silence, script_actions
from aiio.testing.dialects import DIALECTS, dialect, dialect_of
from aiio.testing.event_dialect import EventRenderer
from aiio.testing.playbook import Playbook
from aiio.testing.script_files import parse_script
from aiio.testing.script_provider import ScriptedProvider
from aiio.testing.steps import check_script
from aiio.transports.base import TransportRequest

CONTEXT: list[Message] = [aiio.user_message("Hello")]
NAMES = ["script", *DIALECTS]


async def ask(name: str, *steps: Step, **limits: Any) -> aiio.Done | aiio.Error:
    """Play *steps* to an IO that speaks *name*: a dialect over loopback, or `script` without a socket."""
    if name == "script":
        async with scripted(*steps) as peer:
            terminal = await aiio.IO(env=peer.env, model=peer.model, **limits).write(CONTEXT)
            assert peer.open == 0
            return terminal
    async with aiio.Env(config=False, environ={}) as env, mock_server(*steps, env=env) as server:
        terminal = await aiio.IO(env=env, model=server.model(name), **limits).write(CONTEXT)
        await server.loopback.wait_idle()
        return terminal


def blocks(terminal: aiio.Done | aiio.Error) -> list[tuple[Any, ...]]:
    """What the terminal event's message holds, without what a dialect adds."""
    message = terminal.message or {"content": []}
    return [
        (block["type"], block["name"], block["arguments"])
        if block["type"] == "tool_call"
        else (block["type"], block["text"])
        for block in message["content"]
    ]


@pytest.mark.parametrize("name", NAMES)
async def test_every_dialect_says_the_same_script(name: str) -> None:
    steps: list[Step] = [
        think("h"),
        think("m"),
        say("Let "),
        say("me."),
        call("look", {"at": [1, 2, "drei"]}),
        call("wait"),
    ]
    terminal = await ask(name, *steps, finish(input_tokens=5, output_tokens=3))
    assert isinstance(terminal, aiio.Done)
    assert blocks(terminal) == [
        ("thinking", "hm"),
        ("text", "Let me."),
        ("tool_call", "look", {"at": [1, 2, "drei"]}),
        ("tool_call", "wait", {}),
    ]
    assert terminal.finish is aiio.FinishReason.TOOL_USE
    assert terminal.usage is not None
    assert (terminal.usage["input_tokens"], terminal.usage["output_tokens"]) == (5, 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reason", ["stop", "length", "refusal"])
async def test_every_dialect_ends_for_the_reason_given(name: str, reason: Any) -> None:
    terminal = await ask(name, say("Hi"), finish(reason))
    if reason == "refusal" and name == "ollama":
        reason = "stop"  # there is no other word for it
    assert isinstance(terminal, aiio.Done)
    assert terminal.finish.value == reason


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_that_is_cut_is_never_a_whole_call(name: str) -> None:
    terminal = await ask(name, say("Let me."), call("look", '{"at": "Ber', cut=True), fail())
    assert isinstance(terminal, aiio.Error)
    assert terminal.kind is aiio.ErrorKind.NETWORK
    found = terminal.message or {}
    assert all(block.get("partial") for block in found["content"] if block["type"] == "tool_call")
    assert found["content"][0]["text"] == "Let me."
    kept = [block for block in found["content"] if block["type"] == "tool_call"]
    assert len(kept) == (0 if name in ("gemini", "ollama") else 1)


@pytest.mark.parametrize(
    ("renderer", "end"),
    [
        (DIALECTS["anthropic"].renderer("m"), b"content_block_stop"),
        (DIALECTS["responses"].renderer("m"), b".done"),
        (EventRenderer("m"), b"tool_call_end"),
    ],
)
def test_a_dialect_that_closes_calls_does_not_close_one_that_is_cut(renderer: Renderer, end: bytes) -> None:
    assert end not in b"".join(renderer.call(call("look", "{}", call_id="c", cut=True)))
    assert end in b"".join(renderer.call(call("look", "{}", call_id="d")))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "auth"), (404, "provider"), (429, "provider"), (500, "provider"), (529, "provider")],
)
async def test_every_dialect_says_no_before_the_answer(name: str, status: int, kind: str) -> None:
    terminal = await ask(name, fail(status, "No way.", retry_after="2s"))
    assert isinstance(terminal, aiio.Error)
    assert (terminal.status, terminal.kind.value) == (status, kind)
    assert "No way." in terminal.error
    assert terminal.retryable is (status in (429, 500, 529))
    assert terminal.retry_after_ms == 2000
    assert not terminal.emitted


@pytest.mark.parametrize("name", NAMES)
async def test_every_dialect_says_no_in_the_middle(name: str) -> None:
    terminal = await ask(name, say("Half"), fail(429, "Slow down.", code="my_code", retry_after="1s"))
    assert isinstance(terminal, aiio.Error)
    assert terminal.kind is aiio.ErrorKind.PROVIDER
    assert "Slow down." in terminal.error
    assert blocks(terminal) == [("text", "Half")]
    if name != "ollama":
        assert terminal.code == "my_code"


@pytest.mark.parametrize("name", NAMES)
async def test_an_end_without_an_end_signal_is_a_network_error(name: str) -> None:
    terminal = await ask(name, say("Half"))
    assert isinstance(terminal, aiio.Error)
    assert terminal.kind is aiio.ErrorKind.NETWORK
    assert blocks(terminal) == [("text", "Half")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [[fail()], [head(), fail()], [say("Half"), fail()]])
async def test_a_reset_is_a_network_error_wherever_it_comes(name: str, steps: Sequence[Step]) -> None:
    terminal = await ask(name, *steps)
    assert isinstance(terminal, aiio.Error)
    assert terminal.kind is aiio.ErrorKind.NETWORK
    assert terminal.retryable


@pytest.mark.parametrize("name", NAMES)
async def test_garbage_is_malformed(name: str) -> None:
    garbage = b"data: {nonsense\n\n" if name not in ("script", "ollama") else b"{nonsense\n"
    terminal = await ask(name, say("Half"), raw(garbage), finish())
    assert isinstance(terminal, aiio.Error)
    assert terminal.kind is aiio.ErrorKind.MALFORMED
    assert blocks(terminal) == [("text", "Half")]


async def test_a_frame_that_is_no_list_of_events_is_malformed() -> None:
    terminal = await ask("script", raw(b"7"))
    assert isinstance(terminal, aiio.Error)
    assert terminal.kind is aiio.ErrorKind.MALFORMED


@pytest.mark.parametrize("name", NAMES)
async def test_pings_are_no_progress(name: str, aiio_clock: MockClock) -> None:
    beats: list[Step] = [step for _ in range(8) for step in (pause("1s"), ping())]
    terminal = await ask(name, say("Half"), *beats, finish(), stuck_timeout="5s")
    assert isinstance(terminal, aiio.Error)
    assert terminal.limit == "stuck"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("steps", "limit"),
    [
        ([hang()], "connect"),
        ([pause("20s"), say("Hi"), finish()], "connect"),
        ([head({"x-more": "1"}), hang()], "stuck"),
        ([say("Hi"), hang()], "stuck"),
        ([say("Hi"), pause("never"), finish()], "stuck"),
    ],
)
async def test_silence_ends_by_the_limit_it_meets(
    name: str, steps: Sequence[Step], limit: str, aiio_clock: MockClock
) -> None:
    terminal = await ask(name, *steps, connect_timeout="10s", stuck_timeout="10s")
    assert isinstance(terminal, aiio.Error)
    assert terminal.limit == limit


async def test_the_scripted_provider_keeps_exact_time(autojump_clock: MockClock) -> None:
    async with scripted(pause("2s"), say("Hi"), pause(1500), say("!"), pause("3m"), finish()) as peer:
        heard: list[float] = []
        io = aiio.IO(env=peer.env, model=peer.model, stuck_timeout="1h")
        start = trio.current_time()
        terminal = await io.write(
            CONTEXT, {"on_text_delta": lambda event: heard.append(trio.current_time() - start)}
        )
    assert isinstance(terminal, aiio.Done)
    assert heard == [2.0, 3.5]
    assert trio.current_time() - start == pytest.approx(183.5)


async def test_a_cancelled_receive_loses_no_time_and_no_frame(autojump_clock: MockClock) -> None:
    async with scripted(say("Hi"), pause("10s"), say("!"), finish()) as peer, trio.open_nursery() as nursery:
        transport = peer.env.transport(peer.env.endpoint("script").url or "")
        connection = await transport.open(TransportRequest(url="scripted://peer"), nursery)
        with assert_checkpoints():
            assert len(await connection.receive()) == 2
        start = trio.current_time()
        with trio.move_on_after(4) as scope:
            await connection.receive()
        assert scope.cancelled_caught
        assert len(await connection.receive()) == 1
        assert trio.current_time() - start == 10
        for _ in range(2):
            await connection.aclose()
        assert peer.open == 0


async def test_scripts_follow_each_other_and_requests_are_seen() -> None:
    async with scripted(say("last"), finish()) as peer:
        io = aiio.IO(env=peer.env, model=peer.model)
        peer.play_next(say("first"), finish())
        peer.play_next(fail(503))
        answers = [await io.write(CONTEXT) for _ in range(4)]
        assert [blocks(answer) for answer in answers] == [
            [("text", "first")],
            [],
            [("text", "last")],
            [("text", "last")],
        ]
        assert [request["model"] for request in peer.requests] == ["mock"] * 4
        assert peer.requests[0]["messages"] == CONTEXT
        assert peer.requests[0]["tools"] == []


async def test_two_scripts_on_one_env_do_not_meet(aiio_env: aiio.Env) -> None:
    one = add_script(aiio_env, name="one")
    two = add_script(aiio_env, say("two"), finish(), name="two")
    answers = [await aiio.IO(env=aiio_env, model=peer.model).write(CONTEXT) for peer in (one, two)]
    assert [blocks(answer) for answer in answers] == [[("text", "Hello.")], [("text", "two")]]


async def test_a_status_without_a_name_is_sent_too() -> None:
    terminal = await ask("script", fail(599, "odd"))
    assert isinstance(terminal, aiio.Error)
    assert terminal.status == 599


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ([hang()], Silence()),
        ([fail()], Reset()),
        ([say("x"), fail()], Reset()),
        ([], None),
        ([fail(500)], Refuse),
    ],
)
def test_actions_end_with_what_ends_the_script(steps: list[Step], last: Any) -> None:
    *_, found = script_actions(steps, DIALECTS["chat"].renderer("m"))
    assert found == (Begin(200, {"content-type": "text/event-stream"}) if last is None else last) or (
        isinstance(last, type) and isinstance(found, last)
    )


async def test_the_scripted_provider_classifies_what_is_no_status_too(aiio_env: aiio.Env) -> None:
    io = aiio.IO(env=aiio_env, model=add_script(aiio_env).model)
    assert ScriptedProvider("scripted://peer", io).classify_error(OSError("gone")).kind == "network"


# --- misuse ---------------------------------------------------------------------------------------


def wrong(*steps: Any) -> None:
    check_script(steps)


@pytest.mark.parametrize(
    ("steps", "error", "why"),
    [
        (["say"], TypeError, "not a step"),
        ([finish(), say("more")], ValueError, "nothing can follow"),
        ([hang(), finish()], ValueError, "nothing can follow"),
        ([call("look", '{"a', cut=True), say("more")], ValueError, "only silence or an end"),
        ([call("look", '{"a', cut=True), finish()], ValueError, "only silence or an end"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused(steps: list[Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        wrong(*steps)


@pytest.mark.parametrize(
    "make",
    [
        lambda: pause(0),
        lambda: pause("soon"),
        lambda: finish("because"),  # type: ignore[arg-type]  # that is the point
        lambda: fail(200),
        lambda: fail(429, retry_after="-1s"),
        lambda: dialect("klingon"),
        lambda: Playbook(1).set_all([]),
    ],
)
def test_misuse_is_a_value_error(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


def test_a_pause_may_last_for_ever() -> None:
    assert pause("never").seconds == math.inf


def test_a_dialect_is_known_by_its_path() -> None:
    assert {name: dialect_of(f"/x{found.target}?a=b") for name, found in DIALECTS.items()} == DIALECTS
    assert dialect_of("/v1/embeddings") is None


# --- files ----------------------------------------------------------------------------------------


def test_scripts_are_read_from_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text(
        '[{"say": "Hi"}, {"call": "look", "arguments": {"at": 1}, "call_id": "c"}, "finish"]\n\n'
        '["head", {"raw": "x"}, "ping", {"pause": "2s"}, {"fail": 429, "retry_after": "2s"}]\n'
        '[{"think": "hm"}, {"finish": "length"}]\n'
        '["fail"]\n["hang"]\n'
    )
    assert load_scripts(path) == [
        [say("Hi"), call("look", {"at": 1}, call_id="c"), finish()],
        [head(), raw(b"x"), ping(), pause("2s"), fail(429, retry_after="2s")],
        [think("hm"), finish("length")],
        [fail()],
        [hang()],
    ]


@pytest.mark.parametrize(
    "line",
    ["{}", "[{}]", "[7]", '["sing"]', '[{"sing": 1}]', '[{"say": "x", "to": "me"}]', "[", '[{"raw": 7}]'],
)
def test_a_line_that_is_no_script_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text(f'["finish"]\n{line}\n')
    with pytest.raises(ValueError, match=r"script\.jsonl, line 2: "):
        load_scripts(path)


def test_a_file_without_a_script_is_none(tmp_path: Path) -> None:
    (tmp_path / "script.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no script"):
        load_scripts(tmp_path / "script.jsonl")
    assert parse_script([]) == []
