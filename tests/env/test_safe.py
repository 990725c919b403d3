"""`env.safe`, and single calls of tools (spec/io.md A15)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio

from aiio.env import Env, ProviderError, SafeEnv
from aiio.io import IO


def look(place: str) -> str:
    """Look at a place."""
    return f"seen {place}, in the main thread: {threading.current_thread() is threading.main_thread()}"


async def wipe() -> str:
    """Wipe it all."""
    await trio.lowlevel.checkpoint()
    return "wiped"


@pytest.fixture
def env() -> Env:
    env = Env(environ={})
    env.register_tool(look, safe=True)
    env.register_tool(wipe)
    env.register_tool(wipe, name="hide", safe=True, secret=True)
    env.register_tool(look, name="later", safe=True, available=lambda env: env.settings.get("ready"))
    return env


async def test_A15_a_tool_is_called_by_name(env: Env) -> None:
    assert await env.call_tool("look", {"place": "here"}) == "seen here, in the main thread: False"
    assert await env.call_tool("wipe") == "wiped"
    with pytest.raises(ValueError, match="there is no tool 'nothing'"):
        await env.call_tool("nothing")
    with pytest.raises(TypeError, match="tool 'look': missing a required argument: 'place'"):
        await env.call_tool("look")


async def test_A15_availability_is_asked_anew_at_a_call(env: Env) -> None:
    with pytest.raises(ProviderError, match="'later' is not available now") as caught:
        await env.call_tool("later", {"place": "x"})
    assert caught.value.code == "tool_unavailable"
    env.settings["ready"] = True
    assert (await env.call_tool("later", {"place": "x"})).startswith("seen x")
    env.settings["ready"] = 1
    with pytest.raises(ProviderError):
        await env.safe.call_tool("later", {"place": "x"})


async def test_A15_the_safe_view_has_safe_tools_only(env: Env) -> None:
    safe = env.safe
    assert isinstance(safe, SafeEnv)
    assert safe is env.safe
    assert safe.safe is safe
    assert [schema["name"] for schema in safe.tool_schemas()] == ["look"]
    assert [schema["name"] for schema in env.tool_schemas()] == ["look", "wipe"]
    assert safe.tool_schemas(["wipe", "nothing"]) == []
    assert [schema["name"] for schema in safe.tool_schemas(include_secret=True)] == ["look", "hide"]
    assert [schema["name"] for schema in env.tool_schemas(include_secret=True)] == ["look", "wipe", "hide"]
    assert safe.tool("wipe") is None
    assert safe.tool("nothing") is None
    assert safe.tool("look") is env.tool("look")
    assert (await safe.call_tool("look", {"place": "here"})).startswith("seen here")
    with pytest.raises(PermissionError, match="'wipe' is not safe"):
        await safe.call_tool("wipe")
    with pytest.raises(ValueError, match="there is no tool"):
        await safe.call_tool("nothing")
    assert "safe view" in repr(safe)


async def test_A15_the_rest_of_the_safe_view_is_the_env_and_nothing_is_set_there(env: Env) -> None:
    safe: Any = env.safe
    assert safe.settings is env.settings
    assert safe.ledger is env.ledger
    assert safe.endpoint_names() == env.endpoint_names()
    with pytest.raises(AttributeError, match="set 'max_active' at the Env"):
        safe.max_active = 1
    with pytest.raises(TypeError, match="register tools at the Env"):
        safe.register_tool(wipe, name="more")
    with pytest.raises(TypeError, match="register tools at the Env"):
        safe.tools.register(wipe)
    with pytest.raises(AttributeError):
        _ = safe.nothing
    env.settings["ready"] = True
    safe.tools.refresh_availability(env)
    assert [schema["name"] for schema in safe.tool_schemas()] == ["look", "later"]
    assert [tool["name"] for tool in IO(env=safe, model="openai/m").tools()] == ["look", "later"]
