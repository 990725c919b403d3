"""Run by test_line_provider.py in a process where the example is installed: prints what it found, as JSON.

Nothing here names the example's module: aiio finds it by its entry point.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import trio

import aiio
from aiio.context.events import Start
from aiio.context.types import Message
from tests.providers.conformance import check_events
from tests.providers.dialects import DIALECTS
from tests.providers.test_all_dialects import ANSWERS, plain
from tests.providers.wires import INPUT, OUTPUT, Answer, Call, Text, Thinking, pieces
from tests.serving import Server, Step, chunk, head, last_chunk, serve

KEY = "sk-line-0123456789"
LINES = {"content-type": "application/x-lines"}
CONTEXT: list[Message] = [aiio.user_message("Hello")]


def lines(answer: Answer, *, length: bool = False) -> list[bytes]:
    """Return *answer* in the invented protocol."""
    said: list[tuple[str, Any]] = []
    for part in answer:
        match part:
            case Thinking(text):
                said += (("think", piece) for piece in pieces(text))
            case Text(text):
                said += (("say", piece) for piece in pieces(text))
            case Call(call_id, name, arguments):
                said.append(("call", {"call_id": call_id, "name": name}))
                said += (("args", piece) for piece in pieces(json.dumps(arguments)))
    called = any(isinstance(part, Call) for part in answer)
    finish = "length" if length else "tool_use" if called else "stop"
    usage = {"input_tokens": INPUT, "output_tokens": OUTPUT}
    said.append(("end", {"finish": finish, "done_reason": finish, "usage": usage}))
    return [f"{verb} {json.dumps(value, ensure_ascii=False)}\n".encode() for verb, value in said]


async def written(server: Server, *steps: Step) -> tuple[Any, list[Any]]:
    """Answer one write with *steps*; return its terminal event, and what the provider made of the answer."""
    server.script(head(200, LINES), *steps)
    heard: list[Any] = []
    async with aiio.Env(environ={}) as env:
        env.register_endpoint("toy", provider="line", url=server.url, auth=KEY)
        io = aiio.IO(env=env, model="toy/m", on_data=heard.append)
        terminal = await io.write(CONTEXT)
    assert [one for one in heard if isinstance(one, aiio.Done | aiio.Error)] == [terminal]
    return terminal, [one for one in heard if not isinstance(one, Start)]


async def check_answer(server: Server, answer: Answer, length: bool) -> None:
    """Assert what is asked of every dialect for a whole answer, in one piece and in pieces of one byte."""
    data = b"".join(lines(answer, length=length))
    for size in (len(data), 1):
        cut = [chunk(data[at : at + size]) for at in range(0, len(data), size)]
        terminal, events = await written(server, *cut, last_chunk())
        assert isinstance(terminal, aiio.Done), terminal
        content = (terminal.message or {})["content"]
        check_events(events, content)
        assert plain(content) == answer
        called = any(isinstance(part, Call) for part in answer)
        assert terminal.finish == ("length" if length else "tool_use" if called else "stop")
        usage = terminal.usage or {}
        assert (usage["input_tokens"], usage["output_tokens"], usage["source"]) == (INPUT, OUTPUT, "provider")


async def check_cuts(server: Server, answer: Answer) -> int:
    """Assert that the answer cut after any line is an error whose partial goes to any dialect."""
    whole = lines(answer)
    for count in range(len(whole)):
        terminal, _ = await written(
            server, chunk(b"".join(whole[:count])) if count else pass_on, last_chunk()
        )
        assert (terminal.type, terminal.kind, terminal.retryable) == ("error", "network", True)
        context: Sequence[Message] = [*CONTEXT, *([terminal.message] if terminal.message else []), *CONTEXT]
        for other in DIALECTS.values():
            other.body(context)
    return len(whole)


async def pass_on(exchange: Any) -> None:
    """A step that does nothing."""


async def check() -> dict[str, Any]:
    assert "line_provider" not in sys.modules
    cuts = 0
    async with serve() as server:
        for answer in ANSWERS.values():
            for length in (False, True):
                await check_answer(server, answer, length)
            cuts += await check_cuts(server, answer)
        bad, _ = await written(server, chunk(b'say "Half"\nshout "!"\n'), last_chunk())
        asked = server.requests[0]
        return {
            "found_in": sys.modules["line_provider"].__file__,
            "answers": len(ANSWERS),
            "cuts": cuts,
            "unknown_verb": [bad.kind, bad.message["content"][0]["text"]],
            "request": [asked.method, asked.target, asked.headers["authorization"], asked.json()],
        }


if __name__ == "__main__":
    print(json.dumps(trio.run(check)))
