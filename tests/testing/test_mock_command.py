"""`aiio mock`: a provider from the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner

import aiio
from aiio.cli import mock_commands
from aiio.cli.exits import CliFault
from aiio.cli.mock import MockOptions, mock
from aiio.cli.session import Session
from aiio.context.types import Message
from aiio.testing import MockServer

CONTEXT: list[Message] = [aiio.user_message("Hello")]


class Printed:
    """An output that remembers."""

    def __init__(self) -> None:
        self.said = ""
        self.came = trio.Event()

    async def text(self, text: str) -> None:
        await trio.lowlevel.checkpoint()
        self.said += text
        self.came.set()


async def talk(env: aiio.Env, options: MockOptions, *, writes: int = 1) -> tuple[str, list[Any], int]:
    """Run the command, ask it over what it prints, stop it; return what it printed, the answers, its code."""
    out, codes, answers = Printed(), list[int](), list[Any]()
    session = Session(env)

    async def run() -> None:
        codes.append(await mock(session, out, options))  # type: ignore[arg-type]  # as good as an Output

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await out.came.wait()
        base = re.findall(r"chat +(\S+)", out.said)[0]
        env.register_endpoint("mocked", url=base, proxy="direct", auth="any-key")
        io = aiio.IO(env=env, model="mocked/any")
        answers += [await io.write(CONTEXT) for _ in range(writes)]
        session.on_stop()
    return out.said, answers, codes[0]


def text_of(terminal: Any) -> str:
    return "".join(block["text"] for block in (terminal.message or {"content": []})["content"])


async def test_it_greets_and_says_how_to_use_it(aiio_env: aiio.Env) -> None:
    said, (answer,), code = await talk(aiio_env, MockOptions())
    assert code == 0
    assert "no model behind it" in text_of(answer)
    assert re.search(r'try: aiio ask "Hello" -m vllm/mock --set url=http://127\.0\.0\.1:\d+/v1\n', said)
    for dialect in ("chat", "responses", "anthropic", "gemini", "ollama"):
        assert re.search(rf"^  {dialect} +http", said, re.MULTILINE)


async def test_it_plays_scripts(aiio_env: aiio.Env, tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text('[{"say": "one"}, "finish"]\n[{"fail": 503}]\n[{"say": "last"}, "finish"]\n')
    _, answers, _ = await talk(aiio_env, MockOptions(script=str(path)), writes=4)
    assert [text_of(answer) for answer in answers] == ["one", "", "last", "last"]


async def test_it_plays_recordings(aiio_env: aiio.Env) -> None:
    path = Path(__file__).parents[1] / "fixtures" / "http-openai-401.http.json"
    _, (answer,), _ = await talk(aiio_env, MockOptions(recordings=(str(path),), speed=10))
    assert answer.kind is aiio.ErrorKind.AUTH


async def test_it_breaks_connections(aiio_env: aiio.Env) -> None:
    _, (answer,), _ = await talk(aiio_env, MockOptions(faults=("latency=1ms", "reset@300")))
    assert answer.kind is aiio.ErrorKind.NETWORK


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"script": "a", "recordings": ("b",)}, "can't be used together"),
        ({"script": "/nowhere/s.jsonl"}, r"/nowhere/s\.jsonl: No such file"),
        ({"recordings": ("/nowhere/r.sse",)}, r"/nowhere/r\.sse: No such file"),
        ({"faults": ("burn",)}, "not a fault: 'burn'"),
        ({"speed": 0.0, "recordings": ("/dev/null",)}, "speed"),
    ],
)
async def test_what_cannot_be_used_is_said_in_a_sentence(
    aiio_env: aiio.Env, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(CliFault, match=why) as found:
        await mock(Session(aiio_env), Printed(), MockOptions(**options))  # type: ignore[arg-type]  # see above
    assert found.value.code == 5


async def test_a_port_that_is_taken_is_said_in_a_sentence(
    aiio_env: aiio.Env, aiio_server: MockServer
) -> None:
    with pytest.raises(CliFault, match=r"can't listen: .*in use"):
        await mock(Session(aiio_env), Printed(), MockOptions(port=aiio_server.port))  # type: ignore[arg-type]


def test_the_command_takes_its_options() -> None:
    works: list[Any] = []

    def execute(work: Any, more: dict[str, Any]) -> int:
        works.append(work)
        return 0

    @click.group()
    def cli() -> None: ...

    mock_commands.add_commands(cli, lambda function: function, execute)
    ended = CliRunner().invoke(cli, ["mock", "--faults", "stall@4", "--faults", "eof", "--port", "0"])
    assert ended.exit_code == 0, ended.output
    (work,) = works
    with pytest.raises(AttributeError):  # the session it gets is none
        trio.run(work, None)
    assert "aiio mock --recording incident.jsonl" in CliRunner().invoke(cli, ["mock", "--help"]).output
