"""F1, F3, G1: tool calls are told apart, never guessed, and odd chunks and counters hurt nobody."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import pytest
from trio.testing import MockClock

import aiio
from tests.providers.strict_chat import check_chat_body
from tests.serving import drop, head, last_chunk, respond, serve, sse, stall

from .peer import CONTEXT, DONE, GOOD, MODEL, call, chunk_json, events, peer, stop, text, usage, write

# --- F1: which call a piece belongs to ------------------------------------------------------------

Call: TypeAlias = "tuple[str | None, str, Any]"
"""Id (None: made up by us), name and arguments."""

A, B = {"city": "Oslo"}, {"tz": "CET"}
TWO: list[Call] = [("call_a", "weather", A), ("call_b", "time", B)]


def pieces(*entries: dict[str, Any]) -> bytes:
    """One chunk with several entries of `tool_calls`."""
    return chunk_json({"tool_calls": list(entries)})


def entry(arguments: str | None = None, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**fields, "function": function}


ROUTES: dict[str, tuple[list[bytes], list[Call]]] = {
    "all-index-0-two-ids": (
        [
            call("", index=0, id="call_a", name="weather"),
            call('{"city": "Oslo"}', index=0),
            call("", index=0, id="call_b", name="time"),
            call('{"tz": ', index=0),
            call('"CET"}', index=0),
        ],
        TWO,
    ),
    "all-index-0-two-ids-in-one-chunk": (
        [
            pieces(
                entry('{"city": "Oslo"}', index=0, id="call_a", name="weather"),
                entry('{"tz": "CET"}', index=0, id="call_b", name="time"),
            )
        ],
        TWO,
    ),
    "no-index": (
        [
            call("", index=None, id="call_a", name="weather"),
            call('{"city": ', index=None),
            call('"Oslo"}', index=None),
            call('{"tz": "CET"}', index=None, id="call_b", name="time"),
        ],
        TWO,
    ),
    "no-index-no-id": (
        [
            pieces(entry('{"city": "Oslo"}', name="weather")),
            pieces(entry('{"tz": ', name="time")),
            pieces(entry('"CET"}')),
        ],
        [(None, "weather", A), (None, "time", B)],
    ),
    "null-index": (
        [
            pieces(entry("", index=None, id="call_a", name="weather")),
            pieces(entry('{"city": "Oslo"}', index=None)),
            pieces(entry('{"tz": "CET"}', index=None, id="call_b", name="time")),
        ],
        TWO,
    ),
    "index-0-then-1-for-one-id": (
        [
            call("", index=0, id="call_a", name="weather"),
            call('{"city": ', index=0, id="call_a"),
            call('"Oslo"}', index=1, id="call_a"),
        ],
        TWO[:1],
    ),
    "interleaved": (
        [
            call("", index=0, id="call_a", name="weather"),
            call("", index=1, id="call_b", name="time"),
            call('{"city"', index=0),
            call('{"tz": "C', index=1),
            call(': "Oslo"}', index=0),
            call('ET"}', index=1),
        ],
        TWO,
    ),
    "index-from-1": (
        [
            call("", index=1, id="call_a", name="weather"),
            call('{"city": "Oslo"}', index=1),
            call("", index=2, id="call_b", name="time"),
            call('{"tz": "CET"}', index=2),
        ],
        TWO,
    ),
    "index-with-holes": (
        [
            call('{"city": "Oslo"}', index=7, id="call_a", name="weather"),
            call('{"tz": "CET"}', index=3, id="call_b", name="time"),
        ],
        TWO,
    ),
    "interleaved-by-id-only": (
        [
            call("", index=0, id="call_a", name="weather"),
            call("", index=0, id="call_b", name="time"),
            call('{"city": "Oslo"}', index=0, id="call_a"),
            call('{"tz": "CET"}', index=0, id="call_b"),
        ],
        TWO,
    ),
    "id-and-name-repeated": (
        [
            call('{"city"', index=0, id="call_a", name="weather"),
            call(': "Oslo"', index=0, id="call_a", name="weather"),
            call("}", index=0, id="", name=""),
            call('{"tz": "CET"}', index=1, id="call_b", name="time"),
        ],
        TWO,
    ),
    "whole-list-in-the-finish-chunk": (
        [
            chunk_json(
                {
                    "tool_calls": [
                        entry('{"city": "Oslo"}', id="call_a", name="weather"),
                        entry('{"tz": "CET"}', id="call_b", name="time"),
                    ]
                },
                "tool_calls",
            )
        ],
        TWO,
    ),
}


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
@pytest.mark.parametrize("said_before", [False, True], ids=["bare", "after-text"])
@pytest.mark.parametrize("route", list(ROUTES))
async def test_F1_parallel_calls_are_told_apart(
    patient_clock: MockClock, route: str, said_before: bool, finish: str
) -> None:
    frames, expected = ROUTES[route]
    before = [text("I look.")] if said_before else []
    async with (
        serve(respond(sse(*before, *frames, stop(finish), usage(), DONE))) as server,
        peer(server) as env,
    ):
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert seen.done.finish == "tool_use"
        got = [(one["call_id"], one["name"], one["arguments"]) for one in seen.calls()]
        assert [one[1:] for one in got] == [one[1:] for one in expected]
        for (given, _, _), (wanted, _, _) in zip(got, expected, strict=True):
            assert given == wanted or (wanted is None and given)
        assert len({one[0] for one in got}) == len(got)
        starts = [one.content_index for one in seen.events if isinstance(one, aiio.ToolCallStart)]
        assert starts == list(range(int(said_before), int(said_before) + len(expected)))
        assert seen.text == ("I look." if said_before else "")


# --- F3: a call that was cut ----------------------------------------------------------------------

ARGUMENTS = json.dumps(
    {"path": "src/größe.py", "edits": [{"line": n, "text": f'say("{n}\\n")'} for n in range(6)], "ok": True},
    ensure_ascii=False,
)
ARGUMENTS += " " * (300 - len(ARGUMENTS.encode()))
"""300 bytes of JSON; the value is whole some bytes before the end."""
WHOLE_AT = len(ARGUMENTS.rstrip())
CUTS = sorted({*range(12), *range(0, len(ARGUMENTS), 7), *range(WHOLE_AT - 4, len(ARGUMENTS) + 1)})
"""Where it is cut on the whole way through; at every byte it is in `tests/providers/test_chat_stream.py`."""


def test_F3_the_example_is_what_it_says() -> None:
    assert 280 <= len(ARGUMENTS) <= 300
    json.loads(ARGUMENTS[:WHOLE_AT])


@pytest.mark.parametrize("reason", ["length", "tool_calls", None])
async def test_F3_arguments_cut_anywhere_stay_raw_and_are_not_callable(
    patient_clock: MockClock, reason: str | None
) -> None:
    async with serve() as server, peer(server) as env:
        io = aiio.IO(env=env, model=MODEL)
        for cut in CUTS:
            sent = ARGUMENTS[:cut]
            begun = events(call(id="c1", name="edit"), *([call(sent)] if sent else []))
            end = [drop()] if reason is None else [events(stop(reason), DONE), last_chunk()]
            server.script(head(), begun, *end)
            seen = await write(io)
            (found,) = seen.calls()
            if reason is None:
                assert seen.error.kind is aiio.ErrorKind.NETWORK
            else:
                assert seen.done.done_reason == reason
                assert seen.done.finish == ("length" if reason == "length" else "tool_use")
            callable_now = not found.get("partial")
            if cut == 0 and reason == "tool_calls":
                assert (callable_now, found["arguments"]) == (True, {})  # a call of a tool without parameters
            elif cut < WHOLE_AT or reason is None:
                assert not callable_now, f"cut at {cut}: {found}"
                assert found["arguments"] == sent
            else:
                assert (callable_now, found["arguments"]) == (True, json.loads(ARGUMENTS))
            if cut % 29 == 0:
                await check_replay(env, server, seen.terminal.message, found, callable_now)


async def check_replay(env: aiio.Env, server: Any, message: Any, found: Any, callable_now: bool) -> None:
    """Send the answer back, with a result for the call: a strict server takes it."""
    result = aiio.tool_result_message(found["call_id"], "edit", "edited")
    server.script(respond(sse(*GOOD)))
    seen = await write(aiio.IO(env=env, model=MODEL), [*CONTEXT, message, result])
    assert seen.text == "Hi"
    body = server.requests[-1].json()
    check_chat_body(body)
    assert any("tool_calls" in one for one in body["messages"]) == callable_now


@pytest.mark.parametrize("reason", ["length", "tool_calls", "stop"])
async def test_F3_an_agent_does_not_make_a_call_that_was_cut(patient_clock: MockClock, reason: str) -> None:
    made: list[Any] = []

    def edit(path: str) -> str:
        """Edit a file."""
        made.append(path)
        return "edited"

    half = sse(call(id="c1", name="edit"), call('{"path": "src/'), stop(reason), DONE)
    async with serve(respond(sse(*GOOD))) as server, peer(server) as env:
        server.script_next(respond(half))
        agent = aiio.Agent(env=env, model=MODEL, tools=[edit])
        await agent.run("Edit it.")
        assert made == []
        await agent.run("And now?")
        check_chat_body(server.requests[-1].json())


# --- G1: chunks without choices, usage of any shape -----------------------------------------------

COUNTS = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
PROVIDED = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18, "source": "provider"}
NULLS = {
    **COUNTS,
    "prompt_tokens_details": None,
    "completion_tokens_details": {"reasoning_tokens": None, "audio_tokens": None},
}
TEXTS = (text("Hi "), text("you"))


def last(value: Any) -> bytes:
    """The usage chunk: no choices, and *value*."""
    return chunk_json(choices=[], usage=value)


def without_choices() -> bytes:
    chunk = json.loads(chunk_json())
    del chunk["choices"]
    return json.dumps(chunk).encode()


def counting(value: bytes) -> bytes:
    """A usage chunk with *value*, which Python's JSON writer would not write, for the completion tokens."""
    return last({"prompt_tokens": 11, "completion_tokens": 7}).replace(b":7}", b":" + value + b"}")


VARIANTS: dict[str, tuple[list[bytes], dict[str, Any] | None]] = {
    "openai": ([*TEXTS, stop(), last(COUNTS)], PROVIDED),
    "empty-choices-anywhere": (
        [chunk_json(choices=[]), TEXTS[0], chunk_json(choices=[]), TEXTS[1], stop(), last(COUNTS)],
        PROVIDED,
    ),
    "null-choices-anywhere": (
        [chunk_json(choices=None), TEXTS[0], chunk_json(choices=None), TEXTS[1], stop(), last(COUNTS)],
        PROVIDED,
    ),
    "no-choices-anywhere": (
        [without_choices(), TEXTS[0], without_choices(), TEXTS[1], stop(), last(COUNTS)],
        PROVIDED,
    ),
    "null-delta": (
        [*TEXTS, chunk_json(choices=[{"index": 0, "delta": None, "finish_reason": "stop"}]), last(COUNTS)],
        PROVIDED,
    ),
    "null-usage-everywhere": (
        [chunk_json({"content": "Hi you"}, usage=None), chunk_json({}, "stop", usage=None)],
        None,
    ),
    "null-members": ([*TEXTS, stop(), last(NULLS)], PROVIDED),
    "usage-on-every-chunk": (
        [
            chunk_json({"content": "Hi "}, usage={**COUNTS, "completion_tokens": 1, "total_tokens": 12}),
            chunk_json({"content": "you"}, usage={**COUNTS, "completion_tokens": 2, "total_tokens": 13}),
            chunk_json({}, "stop", usage=COUNTS),
        ],
        PROVIDED,
    ),
    "usage-before-content": ([last(COUNTS), *TEXTS, stop()], PROVIDED),
    "usage-on-the-finish-chunk": ([*TEXTS, chunk_json({}, "stop", usage=COUNTS)], PROVIDED),
    "usage-after-the-end-reason-twice": ([*TEXTS, stop(), last(None), last(COUNTS)], PROVIDED),
    "usage-in-the-choice": (
        [*TEXTS, chunk_json(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": COUNTS}])],
        PROVIDED,
    ),
    "never": ([*TEXTS, stop()], None),
    "empty": ([*TEXTS, stop(), last({})], None),
    "half-a-pair": ([*TEXTS, stop(), last({"prompt_tokens": 11})], None),
    "the-other-half": ([*TEXTS, stop(), last({"completion_tokens": 7})], None),
    "bool": ([*TEXTS, stop(), counting(b"true")], None),
    "string": ([*TEXTS, stop(), counting(b'"7"')], None),
    "negative": ([*TEXTS, stop(), counting(b"-7")], None),
    "nan": ([*TEXTS, stop(), counting(b"NaN")], None),
    "infinity": ([*TEXTS, stop(), counting(b"Infinity")], None),
    "list": ([*TEXTS, stop(), counting(b"[7]")], None),
    "usage-is-text": ([*TEXTS, stop(), last("7 tokens")], None),
    "usage-is-a-list": ([*TEXTS, stop(), last([11, 7])], None),
    "zero-is-a-count": (
        [*TEXTS, stop(), last({"prompt_tokens": 0, "completion_tokens": 7, "total_tokens": 7})],
        {"input_tokens": 0, "output_tokens": 7, "total_tokens": 7, "source": "provider"},
    ),
    "other-choices": (
        [
            chunk_json(choices=[{"index": 1, "delta": {"content": "No"}, "finish_reason": "stop"}]),
            *TEXTS,
            stop(),
            last(COUNTS),
        ],
        PROVIDED,
    ),
}


@pytest.mark.parametrize("variant", list(VARIANTS))
async def test_G1_odd_chunks_and_counters_hurt_nobody(patient_clock: MockClock, variant: str) -> None:
    frames, expected = VARIANTS[variant]
    async with serve(respond(sse(*frames, DONE))) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert isinstance(seen.terminal, aiio.Done), seen.terminal
        assert seen.text == "Hi you"
        counts = seen.done.usage or {}
        if expected is not None:
            assert {key: counts[key] for key in expected} == expected
        else:
            assert counts["source"] == "estimate"
            assert 0 < counts["input_tokens"] < 11
            assert 0 < counts["output_tokens"] < 7
        for absent in ("reasoning_tokens", "cached_tokens", "cost"):
            assert absent not in counts, "unknown is not 0"


async def test_G1_usage_of_an_answer_that_ends_in_an_error_is_not_lost(patient_clock: MockClock) -> None:
    async with serve(head(), events(*TEXTS, last(COUNTS)), drop()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert {key: (seen.error.usage or {})[key] for key in PROVIDED} == PROVIDED


async def test_G1_usage_that_never_comes_is_waited_for_one_second_at_most(patient_clock: MockClock) -> None:
    async with serve(head(), events(*TEXTS, stop()), stall()) as server, peer(server) as env:
        seen = await write(aiio.IO(env=env, model=MODEL))
        assert isinstance(seen.terminal, aiio.Done)
        assert seen.took <= 1.001
