"""One write: what goes in, what comes out, and what misuse does."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

import aiio
from aiio.context.callbacks import CALLBACK_NAMES
from aiio.context.events import Done, Error, ErrorKind, FinishReason, Placed, Working, as_event
from aiio.env.errors import HttpStatusError, ProviderError
from aiio.providers.base import WORKING, Provider, define_provider

from .scripted import (
    CONTEXT,
    HANG,
    MODEL,
    WILL_END,
    Fail,
    Head,
    Pause,
    Ping,
    Refuse,
    Scripted,
    ScriptedTransport,
    finish,
    frames,
    say,
    scripted,
)

USAGE = {"input_tokens": 5, "output_tokens": 7}


class Recorder:
    """All callbacks, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def callbacks(self) -> dict[str, Any]:
        return {aiio.callback_name(kind): self.events.append for kind in aiio.EventType}

    @property
    def types(self) -> list[str]:
        return [event.type.value for event in self.events]


async def test_events_in_order_and_one_terminal(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    script = (
        frames([{"type": "text_start", "content_index": 0}]),
        say("Hel"),
        frames(
            [
                {"type": "text_delta", "content_index": 0, "text": "lo"},
                {"type": "text_end", "content_index": 0},
            ]
        ),
        finish(usage=USAGE),
    )
    async with scripted(*script) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT, recorder.callbacks())
    assert recorder.types == ["start", "text_start", "text_delta", "text_delta", "text_end", "done"]
    assert recorder.events[-1] is terminal
    assert isinstance(terminal, Done)
    assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "Hello"}]}
    assert terminal.usage is not None
    assert (terminal.usage["total_tokens"], terminal.usage["source"]) == (12, "provider")
    assert recorder.events[2].content is terminal.message["content"][0]
    assert wire.requests[0].url == "scripted://peer"


async def test_a_live_block_grows_under_its_events(autojump_clock: MockClock) -> None:
    texts: list[str] = []
    async with scripted(say("a"), say("b"), say("c"), finish()) as (env, _):
        await aiio.IO(env=env, model=MODEL).write(
            CONTEXT, {"on_text_delta": lambda e: texts.append(e.content["text"])}
        )
    assert texts == ["a", "ab", "abc"]


async def test_events_that_are_made_as_structs_grow_a_block_as_dicts_do(autojump_clock: MockClock) -> None:
    class AsStructs(Scripted):
        name = "structs"

        def translate(self, native: Any, state: Any, io: Any) -> Any:
            return [as_event(one) for one in super().translate(native, state, io)]

    pieces = [{"type": "text_delta", "content_index": at, "text": text} for at, text in ((0, "a"), (0, ""))]
    more = [
        {"type": "text_delta", "content_index": at, "text": text}
        for at, text in ((0, "b"), (0, "c"), (1, "d"))
    ]
    texts: list[str] = []
    async with scripted(frames(pieces, more), finish()) as (env, _):
        env.register_provider(AsStructs)
        env.register_endpoint("typed", provider="structs", url="scripted://peer")
        terminal = await aiio.IO(env=env, model="typed/m").write(
            CONTEXT, {"on_text_delta": lambda e: texts.append(e.content["text"])}
        )
    assert texts == ["a", "ab", "abc", "d"]
    assert [block["text"] for block in (terminal.message or {})["content"]] == ["abc", "d"]


async def test_state_goes_through_sending_and_reading(autojump_clock: MockClock) -> None:
    async with scripted(Head(after=1), Pause(1), say("x"), finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        assert io.state == "idle"
        states: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(io.write, CONTEXT, {"on_start": lambda e: states.append(io.state.value)})
            await trio.sleep(0.5)
            states.append(io.state.value)
            assert list(env.active_io) == [io]
            assert io.request_scope is not None
            await trio.sleep(1)
            states.append(io.state.value)
        assert states == ["sending", "sending", "reading"]
        assert io.state == "idle"
        assert not env.active_io
        assert io.request_scope is None


async def test_write_while_busy_is_refused_and_disturbs_nothing(autojump_clock: MockClock) -> None:
    async with scripted(Pause(1), say("fine"), finish()) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        results: list[Any] = []

        async def first() -> None:
            results.append(await io.write(CONTEXT))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError, match="one IO runs one"):
                await io.write(CONTEXT)
        assert results[0].message["content"][0]["text"] == "fine"
        assert len(wire.requests) == 1


async def test_write_is_a_checkpoint(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        with assert_checkpoints():
            await io.write(CONTEXT)


async def test_a_write_that_is_cancelled_already_begins_nothing_and_ends_once(
    autojump_clock: MockClock,
) -> None:
    async with scripted(say("x"), finish()) as (env, wire):
        io, seen = aiio.IO(env=env, model=MODEL), list[str]()
        env.on_event(lambda event: seen.append(event.name))
        with trio.CancelScope() as outer:
            outer.cancel()
            await io.write(CONTEXT, {name: lambda event: seen.append(event.type) for name in CALLBACK_NAMES})
        assert outer.cancelled_caught
        assert (seen, wire.requests, list(env.active_io), io.state) == (["error"], [], [], "idle")


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ("no list", "list"),
        ([aiio.user_message("x"), {"content": []}], r"context\[1\]"),
        ([{"type": 2}], r"context\[0\]"),
    ],
)
async def test_an_invalid_context_is_misuse(context: Any, message: str, autojump_clock: MockClock) -> None:
    async with scripted(finish()) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(TypeError, match=message):
            await io.write(context)
        assert io.state == "idle"
        assert not wire.requests


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": "soon"}, ValueError),
        ({"connect_timeout": 0}, ValueError),
        ({"stuck_timeout": -1}, ValueError),
        ({"timeout": []}, TypeError),
        ({"model": ""}, ValueError),
        ({"model": 3}, ValueError),
        ({"callbacks": {"on_txt": print}}, TypeError),
        ({"callbacks": {"on_done": trio.sleep}}, TypeError),
    ],
)
async def test_bad_options_are_misuse(
    options: Any, error: type[Exception], autojump_clock: MockClock
) -> None:
    async with scripted(finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(error):
            await io.write(CONTEXT, **options)
        assert io.state == "idle"


@pytest.mark.parametrize("option", ["timeout", "connect_timeout", "stuck_timeout"])
async def test_the_constructor_names_a_bad_duration(option: str) -> None:
    async with aiio.open_env() as env:
        with pytest.raises(ValueError, match=f"{option}: not a duration: 'x'"):
            aiio.IO(env=env, model="local/smollm2", **{option: "x"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (3, TypeError, "3"),
        ("nowhere/x", ValueError, "nowhere"),
        ("noslash", ValueError, "noslash"),
        ("known/missing", ValueError, "has no model 'missing'; it has: open"),
        ("known/hidden", ValueError, "has no model 'hidden'"),
    ],
)
async def test_a_bad_selector_is_misuse(model: Any, error: type[Exception], message: str) -> None:
    async with aiio.open_env() as env:
        env.register_endpoint("known", url="http://x", models={"open": {}, "hidden": {"secret": True}})
        with pytest.raises(error, match=message):
            aiio.IO(env=env, model=model)
        with pytest.raises(TypeError):
            aiio.IO(env=None, model="known/open")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            aiio.IO(env=env, model="known/open", tools=3)  # type: ignore[arg-type]
        io = aiio.IO(env=env, model="known/open", settings="ignored")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="missing"):
            await io.write(CONTEXT, model="missing")


async def test_records_and_contentless_messages_stay_with_the_caller(autojump_clock: MockClock) -> None:
    """ACCEPTANCE 6."""
    record = {"type": "note", "text": "mine"}
    empty = aiio.assistant_message([{"type": "text", "text": ""}])
    context = [record, aiio.user_message("Hi"), empty, aiio.user_message("")]
    before = copy.deepcopy(context)
    async with scripted(say("x"), finish()) as (env, wire):
        await aiio.IO(env=env, model=MODEL).write(context)
    assert context == before
    assert wire.requests[0].body == b'{"messages":[{"type":2,"content":[{"type":"text","text":"Hi"}]}]}'


async def test_model_and_settings_of_one_write_are_gone_after_it(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), finish()) as (env, wire):
        io = aiio.IO(env=env, model=MODEL, settings={"a": 1})
        seen: list[Any] = []
        await io.write(
            CONTEXT,
            {"on_start": lambda e: seen.append((io.current_model, io.settings["a"], io.settings["b"]))},
            model="other",
            settings={"a": 2, "b": 3},
        )
        assert seen == [("other", 2, 3)]
        assert (io.current_model, io.settings["a"], io.settings.get("b")) == ("m", 1, None)
        io.set_option("a", 5)
        io.set_option("b", 6)
        io.set_option("b", None)
        io.set_option("never", None)
        assert (io.settings["a"], io.settings.get("b")) == (5, None)
        assert "script/m" in repr(io)
        assert wire.requests[0].headers["x-model"] == "other"


async def test_readouts(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), finish(usage=USAGE)) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        assert (io.context_usage, io.plan_usage) == ({}, None)
        await io.write(CONTEXT)
        assert io.context_usage == {"used": 12}
        io.set_context_usage(used=3.7, total=100)
        io.set_context_usage(used=True, total="x")
        io.set_context_usage(used=-1, total=0)
        io.set_context_usage(used=10**400)
        assert io.context_usage == {"used": 3, "total": 100}
        assert env.context_window(MODEL) == 100
        io.set_plan_usage()
        assert io.plan_usage == {"quotas": {}}
        io.set_plan_usage(
            label="Pro", quotas={"requests": {"total": 5, "used": float("nan"), "reset": "", "x": "y"}}
        )
        io.set_plan_usage(label="", quotas={"requests": {"remaining": 4}, "bad": 3})
        io.set_plan_usage(quotas=[1])
        assert io.plan_usage == {
            "label": "Pro",
            "quotas": {"requests": {"total": 5, "x": "y", "remaining": 4}},
        }


async def test_usage_the_provider_set_itself_is_kept(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), finish(usage=USAGE)) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        await io.write(CONTEXT, {"on_text_delta": lambda e: io.set_context_usage(used=99)})
        assert io.context_usage == {"used": 99}


async def test_without_usage_it_is_estimated_and_says_so(autojump_clock: MockClock) -> None:
    async with scripted(say("four words of text"), finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT)
        assert terminal.usage is not None
        assert terminal.usage["source"] == "estimate"
        assert io.context_usage == {}


@pytest.mark.parametrize("reason", ["stop", "length"])
async def test_an_empty_answer_is_an_error(reason: str, autojump_clock: MockClock) -> None:
    async with scripted(frames([{"type": "text_start", "content_index": 0}]), finish(reason)) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.error) == (ErrorKind.PROVIDER, f"empty response ({reason})")
    assert terminal.message is None


async def test_an_empty_answer_without_a_reason(autojump_clock: MockClock) -> None:
    async with scripted(frames([{"type": "done"}])) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert terminal.error == "empty response"


async def test_an_intended_silence_is_an_answer(autojump_clock: MockClock) -> None:
    async with scripted(finish("refusal", finish="refusal")) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Done)
    assert (terminal.message, terminal.finish) == (None, FinishReason.REFUSAL)


async def test_a_stream_without_an_end_signal_is_a_network_error_with_the_partial(
    autojump_clock: MockClock,
) -> None:
    async with scripted(say("Half")) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.retryable, terminal.emitted) == (ErrorKind.NETWORK, True, True)
    assert not terminal.safe_to_retry
    assert terminal.message is not None
    assert terminal.message["content"] == [{"type": "text", "text": "Half"}]
    assert terminal.message["error"] == terminal.error
    assert terminal.request_id == "req-1"


async def test_late_usage_is_taken(autojump_clock: MockClock) -> None:
    script = (say("x"), frames(WILL_END), Pause(0.9), frames({"usage": USAGE}), HANG)
    async with scripted(*script) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert isinstance(terminal, Done)
        assert terminal.usage is not None
        assert terminal.usage["total_tokens"] == 12
        assert trio.current_time() == 1.0


@pytest.mark.parametrize("end", [Fail(ProviderError("network", "reset")), finish("late"), Ping()])
async def test_after_the_end_signal_nothing_can_spoil_the_answer(end: Any, autojump_clock: MockClock) -> None:
    async with scripted(say("x"), frames(WILL_END), end) as (env, _):
        assert isinstance(await aiio.IO(env=env, model=MODEL).write(CONTEXT), Done)


async def test_a_provider_error_event_is_completed(autojump_clock: MockClock) -> None:
    error = {"type": "error", "error": "overloaded", "code": "529", "retryable": True, "retry_after_ms": 1500}
    async with scripted(say("Half"), frames([error, {"type": "done"}])) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.code, terminal.retryable) == (ErrorKind.PROVIDER, "529", True)
    assert terminal.message is not None
    assert terminal.message["error"] == {"message": "overloaded", "retry": 1500}


async def test_a_terminal_message_replaces_what_was_assembled(autojump_clock: MockClock) -> None:
    whole = aiio.assistant_message([aiio.text_content("Whole")])
    async with scripted(say("W"), finish(message=whole)) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert terminal.message == whole
    error = {"type": "error", "error": "late", "message": whole}
    async with scripted(say("W"), frames([error])) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert terminal.message == {**whole, "error": "late"}


async def test_a_start_event_of_the_provider_sets_the_message_and_is_not_repeated(
    autojump_clock: MockClock,
) -> None:
    begun = aiio.assistant_message([aiio.text_content("Once")])
    recorder = Recorder()
    script = (
        frames([{"type": "start", "message": begun}], [{"type": "start"}, None]),
        say(" upon"),
        finish(),
    )
    async with scripted(*script) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT, recorder.callbacks())
    assert recorder.types.count("start") == 1
    assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "Once upon"}]}


# -- faults -------------------------------------------------------------------------------------------


async def test_faults_before_the_head(autojump_clock: MockClock) -> None:
    async with scripted(Refuse(ProviderError("network", "connection refused"))) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT)
        assert isinstance(terminal, Error)
        assert (terminal.kind, terminal.error, terminal.safe_to_retry) == (
            "network",
            "connection refused",
            True,
        )
        assert (io.state, len(wire.requests), wire.open) == ("idle", 1, 0)


async def test_an_http_status_is_classified_by_the_provider(autojump_clock: MockClock) -> None:
    async with scripted(Refuse(HttpStatusError(503, "Unavailable", "busy"))) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.status, terminal.retryable) == ("provider", 503, True)


async def test_unreadable_frames_are_malformed_and_keep_the_partial(autojump_clock: MockClock) -> None:
    async with scripted(say("Half"), frames(b"{no json")) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert terminal.kind == "malformed"
    assert terminal.message is not None


@pytest.mark.parametrize(
    "native", [[{"type": "nope"}], [3], [{"type": "text_delta", "content_index": -1, "text": "x"}], 5]
)
async def test_a_plug_in_that_misbehaves_ends_its_write_as_malformed(
    native: Any, autojump_clock: MockClock
) -> None:
    async with scripted(frames(native)) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert terminal.kind == "malformed"
    assert "scripted" in terminal.error or "script" in terminal.error


def broken(hook: str, error: Exception) -> type[Provider]:
    """A scripted provider whose *hook* raises."""

    def fail(self: Any, *args: Any) -> Any:
        raise error

    base: Any = Scripted
    cls: Any = type("Broken", (base,), {hook: property(fail) if hook == "url" else fail})
    return define_provider(cls, name="broken")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("hook", "kind"),
    [
        ("__init__", "malformed"),
        ("request", "malformed"),
        ("new_state", "malformed"),
        ("url", "malformed"),
        ("translate", "malformed"),
        ("finish", "malformed"),
        ("classify_error", "provider"),
        ("report_plan_usage", "done"),
        ("abandon", "network"),
    ],
)
async def test_a_hook_that_raises_harms_only_its_own_write(
    hook: str, kind: str, autojump_clock: MockClock
) -> None:
    script: tuple[Any, ...] = (say("Half"),)
    if hook == "classify_error":
        script = (Refuse(HttpStatusError(500)),)
    if hook == "report_plan_usage":
        script = (say("Half"), finish())
    async with scripted(*script) as (env, wire):
        env.register_provider(broken(hook, KeyError("k")))
        env.register_endpoint("bad", provider="broken", url="scripted://peer")
        io = aiio.IO(env=env, model="bad/m")
        terminal = await io.write(CONTEXT)
        if kind == "done":
            assert isinstance(terminal, Done)
        else:
            assert isinstance(terminal, Error)
            assert terminal.kind == kind
        assert (io.state, wire.open, len(env.active_io)) == ("idle", 0, 0)


async def test_a_hook_may_raise_a_provider_error_of_its_own(autojump_clock: MockClock) -> None:
    for hook in ("request", "translate", "finish"):
        async with scripted(say("x")) as (env, _):
            env.register_provider(broken(hook, ProviderError("provider", "not supported here", code="nope")))
            env.register_endpoint("bad", provider="broken", url="scripted://peer")
            terminal = await aiio.IO(env=env, model="bad/m").write(CONTEXT)
            assert isinstance(terminal, Error)
            assert (terminal.kind, terminal.code) == ("provider", "nope")


async def test_what_a_provider_holds_back_comes_out_when_it_is_cut(autojump_clock: MockClock) -> None:
    class Holding(Scripted):
        def abandon(self, state: Any, io: Any) -> Any:
            held = aiio.TextDelta(0, " held")
            return [Working(), held, Placed(1, {"type": "image", "content": "AA=="})]

    recorder = Recorder()
    async with scripted(say("Half"), frames({"usage": USAGE})) as (env, _):
        env.register_provider(define_provider(Holding, name="holding"))
        env.register_endpoint("hold", provider="holding", url="scripted://peer")
        terminal = await aiio.IO(env=env, model="hold/m").write(CONTEXT, recorder.callbacks())
    assert recorder.types == ["start", "text_delta", "text_delta", "text_end", "error"]
    assert terminal.message is not None
    assert terminal.message["content"][0]["text"] == "Half held"
    assert terminal.usage is not None
    assert terminal.usage["source"] == "provider"


async def test_open_blocks_are_closed_before_the_error(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    script = (
        say("Text"),
        frames(
            [{"type": "thinking_delta", "content_index": 1, "text": "Hm"}],
            [{"type": "tool_call_start", "content_index": 2, "call_id": "c", "name": "f"}],
            [{"type": "tool_call_delta", "content_index": 2, "arguments": '{"a":'}],
        ),
    )
    async with scripted(*script) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT, recorder.callbacks())
    assert recorder.types[-4:] == ["text_end", "thinking_end", "tool_call_end", "error"]
    assert terminal.message is not None
    call = terminal.message["content"][2]
    assert (call["arguments"], call["partial"]) == ('{"a":', True)
    assert recorder.events[-2].content is call


async def test_a_crashing_transport_is_malformed(autojump_clock: MockClock) -> None:
    async with scripted(say("x"), Fail(KeyError("bug"))) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT)
        assert isinstance(terminal, Error)
        assert (terminal.kind, io.state, wire.open) == ("malformed", "idle", 0)


# -- callbacks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["on_start", "on_text_delta", "on_done"])
async def test_what_a_callback_raises_comes_out_as_itself(where: str, autojump_clock: MockClock) -> None:
    recorder = Recorder()

    def fail(event: Any) -> None:
        raise KeyError("mine")

    async with scripted(say("x"), finish()) as (env, wire):
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(KeyError, match="mine"):
            await io.write(CONTEXT, {**recorder.callbacks(), where: fail})
        assert (io.state, wire.open, len(env.active_io)) == ("idle", 0, 0)
        terminals = [event for event in recorder.events if event.type in ("done", "error")]
        if where == "on_done":
            assert terminals == []
        else:
            assert [(event.kind, event.cancelled) for event in terminals] == [("cancelled", True)]
            assert "KeyError" in terminals[0].error
        assert isinstance(await io.write(CONTEXT), Done)


async def test_keyboard_interrupt_in_a_callback_is_not_wrapped(autojump_clock: MockClock) -> None:
    def interrupt(event: Any) -> None:
        raise KeyboardInterrupt

    async with scripted(say("x"), finish()) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(KeyboardInterrupt):
            await io.write(CONTEXT, {"on_text_delta": interrupt})
        assert io.state == "idle"


async def test_a_second_failing_callback_does_not_hide_the_first(autojump_clock: MockClock) -> None:
    def fail(event: Any) -> None:
        raise ValueError(event.type.value)

    async with scripted(say("x"), finish()) as (env, _):
        with pytest.raises(ValueError, match="text_delta"):
            await aiio.IO(env=env, model=MODEL).write(CONTEXT, {"on_text_delta": fail, "on_error": fail})


async def test_defaults_go_to_on_data_and_on_log(autojump_clock: MockClock) -> None:
    data: list[Any] = []
    lines: list[str] = []
    async with scripted(say("x")) as (env, _):
        io = aiio.IO(env=env, model=MODEL, on_data=data.append, on_log=lines.append)
        await io.write(CONTEXT, {"on_text_delta": None})
    assert [event.type.value for event in data] == ["start", "text_end", "error"]
    assert lines == [data[-1].error]


async def test_empty_deltas_are_no_events(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    empty = frames(
        [{"type": "text_delta", "content_index": 0, "text": ""}],
        [{"type": "tool_call_start", "content_index": 0, "call_id": "c", "name": "f"}],
        [{"type": "tool_call_delta", "content_index": 0, "arguments": ""}],
        [{"type": "tool_call_end", "content_index": 0}],
    )
    async with scripted(empty, finish()) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT, recorder.callbacks())
    assert recorder.types == ["start", "tool_call_start", "tool_call_end", "done"]
    assert terminal.message is not None
    assert terminal.message["content"][0]["arguments"] == {}


# -- credentials --------------------------------------------------------------------------------------


class Rotating(ScriptedTransport):
    """Refuses the first request with 401, and has the credential changed meanwhile."""

    def __init__(self, env: aiio.Env, *scripts: Any) -> None:
        super().__init__(*scripts)
        self._env = env

    async def open(self, request: Any, nursery: trio.Nursery) -> Any:
        await self._env.auth_set("script", "new-key-0002")
        return await super().open(request, nursery)


async def test_auth_resend_with_rotated_credentials(autojump_clock: MockClock) -> None:
    """ACCEPTANCE 5: exactly one resend, two `start` events, one terminal."""
    for second, types in (
        ((say("in"), finish()), ["start", "start", "text_delta", "done"]),
        ((Refuse(HttpStatusError(401)),), ["start", "start", "error"]),
    ):
        recorder = Recorder()
        async with scripted(finish(), auth="old-key-0001") as (env, _):
            transport = Rotating(env, (Refuse(HttpStatusError(401)),), second)
            env.register_transport("scripted", transport)
            await aiio.IO(env=env, model=MODEL).write(CONTEXT, recorder.callbacks())
            assert recorder.types == types
            assert len(transport.wire.requests) == 2


async def test_a_missing_credential_is_an_auth_error_before_any_connection(autojump_clock: MockClock) -> None:
    async with scripted(finish(), key_required=True) as (env, wire):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert isinstance(terminal, Error)
        assert (terminal.kind, len(wire.requests)) == ("auth", 0)


async def test_auth_failure_with_unchanged_credentials_is_one_error(autojump_clock: MockClock) -> None:
    async with scripted(Refuse(HttpStatusError(401, "no", "bad key old-key-0001")), auth="old-key-0001") as (
        env,
        wire,
    ):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert isinstance(terminal, Error)
        assert (terminal.kind, len(wire.requests)) == ("auth", 1)
        assert "old-key-0001" not in terminal.error


async def test_io_start_and_io_done_are_heard_on_the_env(autojump_clock: MockClock) -> None:
    heard: list[Any] = []
    async with scripted(say("x"), finish()) as (env, _):
        handle = env.on_event(heard.append)
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT)
        assert [event.name for event in heard] == ["io_start", "io_done"]
        assert heard[0].data == {"io": io, "context": CONTEXT, "url": None}
        assert (heard[1].data["io"], heard[1].data["terminal"]) == (io, terminal)
        assert heard[1].data["trace"].admitted_at == trio.current_time()
        assert env.off_event(handle)


# -- transports that break their contract -------------------------------------------------------------


class Crashing(ScriptedTransport):
    """A transport whose task in the write's nursery raises."""

    def __init__(self, error: BaseException, *scripts: Any) -> None:
        super().__init__(*scripts)
        self._error = error

    async def open(self, request: Any, nursery: trio.Nursery) -> Any:
        async def task() -> None:
            await trio.sleep(1)
            raise self._error

        nursery.start_soon(task)
        return await super().open(request, nursery)


async def test_a_transport_task_that_crashes_is_malformed_and_no_group(autojump_clock: MockClock) -> None:
    async with scripted(finish()) as (env, _):
        transport = Crashing(KeyError("bug"), (say("Half"), HANG))
        env.register_transport("scripted", transport)
        io = aiio.IO(env=env, model=MODEL)
        terminal = await io.write(CONTEXT)
        assert isinstance(terminal, Error)
        assert (terminal.kind, terminal.error) == ("malformed", "transport failed: KeyError: 'bug'")
        assert terminal.message is not None
        assert (io.state, transport.wire.open) == ("idle", 0)


async def test_what_a_transport_leaves_running_ends_with_the_write(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    class Lingering(ScriptedTransport):
        async def open(self, request: Any, nursery: trio.Nursery) -> Any:
            async def task() -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    ended.append("cancelled")

            nursery.start_soon(task)
            return await super().open(request, nursery)

    async with scripted(finish()) as (env, _):
        env.register_transport("scripted", Lingering((say("Whole"), finish())))
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
        assert (terminal.type, ended) == ("done", ["cancelled"])


async def test_a_crash_and_an_outer_cancel_in_the_same_tick_goes_on_as_cancelled(
    autojump_clock: MockClock,
) -> None:
    terminals: list[Any] = []
    async with scripted(finish()) as (env, _):
        env.register_transport("scripted", Crashing(KeyError("bug"), (say("Half"), HANG)))
        with trio.move_on_after(1) as outer:
            await aiio.IO(env=env, model=MODEL).write(CONTEXT, {"on_error": terminals.append})
            pytest.fail("the write returned, although a scope around it was cancelled")
        assert outer.cancelled_caught
        assert len(terminals) == 1


@pytest.mark.parametrize(("first", "timeout"), [("kill", "9s"), ("limit", "1s")])
async def test_B2_what_is_cancelled_from_outside_beside_a_kill_or_a_limit_goes_on_as_cancelled(
    first: str, timeout: str, autojump_clock: MockClock
) -> None:
    terminals: list[Any] = []
    async with scripted(say("Half"), HANG) as (env, _):
        io = aiio.IO(env=env, model=MODEL)
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await trio.sleep(1)
                if first == "kill":
                    io.kill_nowait("enough")
                outer.cancel()

            with trio.CancelScope() as outer:
                nursery.start_soon(stop)
                await io.write(CONTEXT, {"on_error": terminals.append}, timeout=timeout)
                pytest.fail("the write returned, although a scope around it was cancelled")
    assert outer.cancelled_caught
    assert [(terminal.cancelled, terminal.limit) for terminal in terminals] == [
        (True, None) if first == "kill" else (False, "overall")
    ]


async def test_keyboard_interrupt_in_a_transport_task_comes_out_as_itself(autojump_clock: MockClock) -> None:
    terminals: list[Any] = []
    async with scripted(finish()) as (env, _):
        env.register_transport("scripted", Crashing(KeyboardInterrupt(), (say("Half"), HANG)))
        io = aiio.IO(env=env, model=MODEL)
        with pytest.raises(KeyboardInterrupt):
            await io.write(CONTEXT, {"on_error": terminals.append})
        assert [terminal.message["content"][0]["text"] for terminal in terminals] == ["Half"]
        assert io.state == "idle"


async def test_late_frames_that_end_it_are_taken(autojump_clock: MockClock) -> None:
    late = {"type": "error", "error": "after all"}
    async with scripted(say("x"), frames(WILL_END), frames([late])) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert terminal.error == "after all"


async def test_placed_blocks_are_progress_and_no_events(autojump_clock: MockClock) -> None:
    class Drawing(Scripted):
        def translate(self, native: Any, state: Any, io: Any) -> Any:
            if native == ["image"]:
                return [Placed(0, {"type": "image", "content": "AA=="})]
            return native

    recorder = Recorder()
    steps = [step for _ in range(3) for step in (Pause(2), frames(["image"]))]
    async with scripted(*steps, finish()) as (env, _):
        env.register_provider(define_provider(Drawing, name="drawing"))
        env.register_endpoint("draw", provider="drawing", url="scripted://peer")
        terminal = await aiio.IO(env=env, model="draw/m").write(
            CONTEXT, recorder.callbacks(), stuck_timeout="3s"
        )
    assert recorder.types == ["start", "done"]
    assert terminal.message == {"type": 3, "content": [{"type": "image", "content": "AA=="}]}


async def test_work_that_is_reported_is_progress_and_no_event(autojump_clock: MockClock) -> None:
    class Toiling(Scripted):
        def translate(self, native: Any, state: Any, io: Any) -> Any:
            return WORKING if native == ["searching"] else native

    recorder = Recorder()
    steps = [step for _ in range(3) for step in (Pause(2), frames(["searching"]))]
    async with scripted(*steps, say("x"), finish()) as (env, _):
        env.register_provider(define_provider(Toiling, name="toiling"))
        env.register_endpoint("toil", provider="toiling", url="scripted://peer")
        await aiio.IO(env=env, model="toil/m").write(CONTEXT, recorder.callbacks(), stuck_timeout="3s")
    assert recorder.types == ["start", "text_delta", "done"]


async def test_what_the_provider_tells_io_and_what_it_reads(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    class Asking(Scripted):
        def request(self, context: Any, io: Any) -> Any:
            seen.extend([io.token, io.tools(), io.endpoint_name])
            io.repaired("dropped", index=1)
            return {}, None

    def lookup(city: str) -> str:
        """Look a city up."""
        return city

    async with scripted(say("x"), finish()) as (env, wire):
        env.register_tool(lookup)
        env.register_provider(define_provider(Asking, name="asking"))
        env.register_endpoint("ask", provider="asking", url="scripted://peer", auth="key-000001")
        io = aiio.IO(env=env, model="ask/m", url="scripted://elsewhere", tools=["lookup"])
        with capture_logs() as lines:
            await io.write(CONTEXT)
        assert (seen[0], seen[1][0]["name"], seen[2]) == ("key-000001", "lookup", "ask")
        assert io.token is None
        assert {"event": "context.repaired", "what": "dropped", "index": 1}.items() <= lines[0].items()
        assert (wire.requests[0].url, wire.requests[0].body) == ("scripted://elsewhere", None)
        await io.auth_set("key-000002")
        await io.write(CONTEXT)
        assert seen[3] == "key-000002"


async def test_native_detail_of_a_fault_is_kept_and_scrubbed(autojump_clock: MockClock) -> None:
    fault = ProviderError(
        "provider",
        "no",
        native={"echo": ["key-000001"], "n": 1},
        phase="head",
        bytes_received=3,
        code="key-000001",
        retry_after_ms=5,
    )
    async with scripted(Refuse(fault), auth="key-000001") as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Error)
    assert terminal.native == {"phase": "head", "bytes_received": 3, "error": {"echo": ["***"], "n": 1}}
    assert (terminal.code, terminal.retry_after_ms) == ("***", 5)


async def test_a_dialect_may_say_that_the_end_of_the_stream_is_the_end(autojump_clock: MockClock) -> None:
    class Closing(Scripted):
        def finish(self, state: Any, io: Any) -> Any:
            return [Done(done_reason="closed")]

    async with scripted(say("x")) as (env, _):
        env.register_provider(define_provider(Closing, name="closing"))
        env.register_endpoint("close", provider="closing", url="scripted://peer")
        terminal = await aiio.IO(env=env, model="close/m").write(CONTEXT)
        assert isinstance(terminal, Done)
        assert terminal.done_reason == "closed"


@pytest.mark.parametrize(("finish_reason", "refused"), [("refusal", True), ("length", None)])
async def test_a_refused_answer_is_marked(
    finish_reason: str, refused: bool | None, autojump_clock: MockClock
) -> None:
    async with scripted(say("Half"), finish("content_filter", finish=finish_reason)) as (env, _):
        terminal = await aiio.IO(env=env, model=MODEL).write(CONTEXT)
    assert isinstance(terminal, Done)
    assert terminal.message is not None
    assert terminal.message.get("refused") is refused


async def test_thinking_of_which_only_the_signature_came_is_sent(autojump_clock: MockClock) -> None:
    signed = {"type": 3, "content": [{"type": "thinking", "text": "", "signature": "s"}]}
    async with scripted(say("Hi"), finish()) as (env, wire):
        await aiio.IO(env=env, model=MODEL).write([*CONTEXT, signed])
    body = json.loads(wire.requests[0].body or b"")
    assert body == {"messages": [*CONTEXT, signed]}
