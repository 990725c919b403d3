"""`aiio chat` at a real terminal: keys, signals, and what is on disk by then."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import trio

from aiio.context.store import Context
from tests.cli.processes import MODEL, aiio, answer, delta, end_of, environment, set_event, start
from tests.cli.typing_at import CTRL_C, CTRL_D, TAB, UP, at_terminal
from tests.serving import Server, head, serve, stall

PROMPT = "> "


def chat(server: Server, folder: Path, *more: str) -> Any:
    return at_terminal(
        "chat", "-m", MODEL, "--session", "talk", "--dir", str(folder), *more, env=environment(server)
    )


def on_disk(folder: Path, name: str = "talk") -> list[tuple[int, str]]:
    """The messages of a session, as another process finds them: (type, text)."""
    return [
        (entry["type"], entry["content"][0]["text"]) for entry in Context.resume(name, folder, save=False)
    ]


def sent(server: Server, at: int = -1) -> list[str]:
    return [message["content"] for message in server.requests[at].json()["messages"]]


async def test_a_conversation_at_the_prompt(tmp_path: Path) -> None:
    async with serve(*answer("Tit, w\x1b[31mren.")) as server, chat(server, tmp_path) as person:
        await person.see("session talk, openai/gpt-test; Ctrl-D or /quit leaves")
        await person.see(PROMPT)
        person.enter("Name two birds.")
        await person.see("Tit, w^[[31mren.\r\n")
        await person.see(PROMPT)
        assert on_disk(tmp_path) == [(2, "Name two birds."), (3, "Tit, w\x1b[31mren.")]
        server.script(*answer("Owl."))
        person.enter("And a third.")
        await person.see("Owl.")
        await person.see(PROMPT)
        assert sent(server) == ["Name two birds.", "Tit, w\x1b[31mren.", "And a third."]
        person.type(CTRL_D)
        await person.see("to go on: aiio chat --session talk")
        assert await person.end() == 0
    assert len(on_disk(tmp_path)) == 4


async def test_ctrl_c_stops_the_answer_and_keeps_what_had_come(tmp_path: Path) -> None:
    said = trio.Event()
    async with (
        serve(head(), delta("Half an"), set_event(said), stall()) as server,
        chat(server, tmp_path) as person,
    ):
        for turn in (1, 2):
            await person.see(PROMPT)
            person.enter("Go.")
            await person.see("Half an")
            person.type(CTRL_C)
            await person.see("aiio: stopped; what had arrived is kept")
            await server.wait_idle()
            assert on_disk(tmp_path) == [(2, "Go."), (3, "Half an")] * turn
        await person.see(PROMPT)
        server.script(*answer("Whole."))
        person.enter("/retry")
        await person.see("Whole.")
        await person.see(PROMPT)
        person.enter("/quit")
        assert await person.end() == 0
    assert on_disk(tmp_path) == [(2, "Go."), (3, "Half an"), (2, "Go."), (3, "Whole.")]


async def test_ctrl_c_at_the_prompt_gives_up_the_line_and_says_how_to_leave(tmp_path: Path) -> None:
    async with serve(*answer("Yes.")) as server, chat(server, tmp_path) as person:
        await person.see(PROMPT)
        person.type("some words" + CTRL_C)
        await person.see("some words^C")
        assert "leaves" not in await person.see(PROMPT)
        person.type(CTRL_C)
        await person.see("^C")
        await person.see("aiio: Ctrl-D or /quit leaves")
        await person.see(PROMPT)
        person.send_signal(signal.SIGINT)  # from elsewhere: the same
        await person.see("leaves")
        person.enter("Still there?")
        await person.see("Yes.")
        await person.see(PROMPT)
        person.type(CTRL_D)
        assert await person.end() == 0
    assert [text for _, text in on_disk(tmp_path)] == ["Still there?", "Yes."]


async def test_history_and_completion(tmp_path: Path) -> None:
    with Context("talk", dir=tmp_path) as context:
        context.append({"type": 2, "content": [{"type": "text", "text": "said before"}]})
    async with serve(*answer("Yes.")) as server, chat(server, tmp_path) as person:
        await person.see("1 message so far")
        await person.see(PROMPT)
        person.type("/he" + TAB)
        await person.see("/help")
        person.type("\r")
        await person.see("/rename NAME")
        await person.see(PROMPT)
        person.type("given up" + CTRL_C)
        await person.see(PROMPT)
        person.type("/model opena" + TAB)
        await person.see("openai/")
        person.type("\x15" + UP + UP)
        await person.see("said before")
        person.type("\r")
        await person.see("Yes.")
        await person.see(PROMPT)
        person.type(CTRL_D)
        assert await person.end() == 0
    assert sent(server) == ["said before"]


@pytest.mark.parametrize("moment", ["at the prompt", "in mid-answer"])
async def test_sigterm_leaves_with_all_that_had_come(moment: str, tmp_path: Path) -> None:
    async with serve(head(), delta("Half an"), stall()) as server, chat(server, tmp_path) as person:
        await person.see(PROMPT)
        person.enter("Go.")
        await person.see("Half an")
        if moment == "at the prompt":
            person.type(CTRL_C)
            await person.see(PROMPT)
            person.type("half a line")
            await person.see("half a line")
        person.send_signal(signal.SIGTERM)
        assert await person.end() == 143
        assert person.terminal == person.found
        assert "Traceback" not in person.shown
    assert on_disk(tmp_path) == [(2, "Go."), (3, "Half an")]


async def test_after_kill_9_in_mid_answer_the_conversation_goes_on(tmp_path: Path) -> None:
    said = trio.Event()
    async with serve(*answer("Well.")) as server:
        async with chat(server, tmp_path) as person:
            await person.see(PROMPT)
            person.enter("First.")
            await person.see("Well.")
            await person.see(PROMPT)
            server.script(head(), delta("Half an"), set_event(said), stall())
            person.enter("Second.")
            await person.see("Half an")
            person.send_signal(signal.SIGKILL)
            assert await person.end() == -9
        assert on_disk(tmp_path) == [(2, "First."), (3, "Well."), (2, "Second.")]
        server.script(*answer("Whole."))
        async with chat(server, tmp_path) as person:
            await person.see("3 messages so far")
            await person.see(PROMPT)
            person.enter("Second.")
            await person.see("Whole.")
            await person.see(PROMPT)
            person.type(CTRL_D)
            assert await person.end() == 0
    assert sent(server) == ["First.", "Well.", "Second."]
    assert on_disk(tmp_path)[2:] == [(2, "Second."), (3, "Whole.")]


async def test_a_session_in_use_is_told_by_name_and_process(tmp_path: Path) -> None:
    async with serve(*answer("Yes.")) as server, chat(server, tmp_path) as person:
        await person.see(PROMPT)
        person.enter("Hello")
        await person.see("Yes.")
        for command in (["chat"], ["ask", "Hi"]):
            options = ["-m", MODEL, "--session", "talk", "--dir", str(tmp_path)]
            ended = await aiio(*command, *options, env=environment(server))
            assert ended.code == 5
            assert ended.err.startswith("aiio: the session file ")
            assert "talk.jsonl is in use by process" in ended.err
        assert server.connections == 1
        shown = await aiio("sessions", "show", "talk", "--dir", str(tmp_path), env=environment(server))
        assert shown.out == b"[0] user\nHello\n\n[1] assistant\nYes.\n\n"


async def test_without_a_terminal_lines_are_read_from_stdin(tmp_path: Path) -> None:
    async with serve(*answer("Yes.")) as server:
        options = ["chat", "-m", MODEL, "--session", "talk", "--dir", str(tmp_path)]
        ended = await aiio(
            *options, env=environment(server), stdin=b"One.\n/undo\nTwo.\r\n\n/sessions\nThree."
        )
        assert (ended.code, ended.out) == (0, b"Yes.\nYes.\nYes.\n")
        assert "undone: One." in ended.err
        assert [text for _, text in on_disk(tmp_path)] == ["Two.", "Yes.", "Three.", "Yes."]


async def test_ask_goes_on_in_a_session_and_keeps_a_killed_answer(tmp_path: Path) -> None:
    said = trio.Event()
    options = ["--session", "talk", "--dir", str(tmp_path), "-m", MODEL]
    async with serve(*answer("Tit.")) as server:
        env = environment(server)
        assert (await aiio("ask", "A bird.", "-s", "Be brief.", *options, env=env)).out == b"Tit.\n"
        server.script(head(), delta("Ow"), set_event(said), stall())
        process = start("ask", "Another.", *options, env=env)
        await said.wait()
        assert process.stdout is not None
        with trio.fail_after(30):
            await trio.lowlevel.wait_readable(process.stdout.fileno())
        process.send_signal(signal.SIGINT)
        ended = await end_of(process)
        assert (ended.code, ended.out) == (130, b"Ow\n")
        assert on_disk(tmp_path) == [
            (1, "Be brief."),
            (2, "A bird."),
            (3, "Tit."),
            (2, "Another."),
            (3, "Ow"),
        ]
        server.script(*answer("Wren."))
        assert (await aiio("ask", "A third.", "-s", "Be gentle.", *options[:4], env=env)).out == b"Wren.\n"
    assert sent(server) == ["Be gentle.", "A bird.", "Tit.", "Another.", "Ow", "A third."]


async def test_kill_9_of_ask_in_mid_answer_keeps_what_was_asked(tmp_path: Path) -> None:
    said = trio.Event()
    options = ["ask", "Hello", "-m", MODEL, "--session", "talk", "--dir", str(tmp_path)]
    async with serve(head(), delta("Half"), set_event(said), stall()) as server:
        process = start(*options, env=environment(server))
        await said.wait()
        process.kill()
        await end_of(process)
        assert on_disk(tmp_path) == [(2, "Hello")]
        server.script(*answer("Whole."))
        assert (await aiio(*options, env=environment(server))).out == b"Whole.\n"
        assert sent(server) == ["Hello"]
    assert on_disk(tmp_path) == [(2, "Hello"), (3, "Whole.")]
