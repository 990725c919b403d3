"""What one model may call, and calling it: for agents and runs alike."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio

from aiio.env.env import Env
from aiio.env.tool_calls import NO_OUTPUT, call_function, failure_message, misfit, result_message
from aiio.env.toolbox import Toolbox

SCHEMA = {"type": "object", "properties": {}}


def look(a: int = 1) -> str:
    """Look."""
    return f"seen {a} in {threading.current_thread() is threading.main_thread()}"


def names(box: Toolbox) -> list[str]:
    return [schema["name"] for schema in box.schemas()]


@pytest.fixture
def env() -> Env:
    found = Env(config=False, environ={})
    found.register_tool(look, name="shared", schema=SCHEMA)
    found.register_tool(look, name="look", schema=SCHEMA)
    found.register_tool(look, name="secret", schema=SCHEMA, secret=True)
    return found


def test_a_toolbox_has_the_envs_tools_its_own_or_a_choice_of_both(env: Env) -> None:
    assert names(Toolbox(env)) == ["shared", "look"]
    assert names(Toolbox(env, ["*"])) == ["shared", "look"]
    assert names(Toolbox(env, [])) == []
    mine = Toolbox(env, ["shared", look])
    assert names(mine) == ["shared", "look"]
    own = mine.find("look")
    assert own is not None
    assert own.schema["description"] == "Look."  # its own hides the Env's
    assert mine.find("shared") is not None
    assert Toolbox(env, ["shared"]).find("look") is None
    assert Toolbox(env).find("secret") is Toolbox(env).find(None) is Toolbox(env).find("unknown") is None
    assert names(Toolbox(None, [look])) == ["look"]
    assert Toolbox(None).find("look") is None


def test_a_toolbox_that_makes_no_sense_is_refused(env: Env) -> None:
    with pytest.raises(TypeError, match="a list of names and functions"):
        Toolbox(env, "look")
    with pytest.raises(ValueError, match="unknown tool 'x'; the Env has: shared, look"):
        Toolbox(env, ["x"])
    with pytest.raises(ValueError, match="the Env has: none"):
        Toolbox(None, ["x"])
    with pytest.raises(ValueError, match="two tools named 'look'"):
        Toolbox(env, ["look", look])


def test_availability_is_asked_anew(env: Env) -> None:
    available = [False]
    env.register_tool(look, name="late", schema=SCHEMA, available=lambda env: available[0])
    box = Toolbox(env)
    tool = box.find("late")
    assert tool is not None
    assert not tool.eligible
    available[0] = True
    assert box.find("late") is tool
    now: bool = tool.eligible
    assert now


async def test_functions_are_awaited_or_run_in_a_thread() -> None:
    async def later(a: int) -> int:
        await trio.lowlevel.checkpoint()
        return a

    class Both:
        async def __call__(self, a: int) -> int:
            return await later(a)

    def hidden(a: int) -> Any:
        return later(a)

    assert await call_function(look, {"a": 2}) == "seen 2 in False"
    assert [await call_function(fn, {"a": 3}) for fn in (later, Both(), hidden)] == [3, 3, 3]
    assert (misfit(look, {"a": 1}), misfit(look, {"b": 1})) == (
        None,
        "got an unexpected keyword argument 'b'",
    )
    assert misfit(dict, {"anything": 1}) is None  # nobody knows


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, NO_OUTPUT), ("", NO_OUTPUT), ("x", "x"), ({"a": 1}, '{"a":1}'), (1j, "1j"), ([], "[]")],
)
def test_a_value_becomes_a_result(value: object, text: str) -> None:
    message = result_message("c", "look", value)
    assert (message["content"][0]["text"], message["call_id"], message["name"]) == (text, "c", "look")
    assert "error" not in message


def test_blocks_stay_blocks_and_a_failure_is_told_without_its_traceback() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "content": "eA==", "mimetype": "image/png"}]
    assert result_message("c", "look", blocks)["content"] == blocks
    failed = failure_message("c", "look", ValueError("the key k-1"), lambda text: text.replace("k-1", "***"))
    assert failed["content"][0]["text"] == "the tool 'look' failed: ValueError: the key ***"
    assert failed["error"] is True
