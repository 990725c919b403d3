"""The embedded model itself: a real server, real weights, real cancellation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from aiio.env import Address, Env, ErrorKind, ProviderError
from aiio.env.local_process import ServerSpec, server_spec, start_server
from aiio.env.local_state import read_state, serve, stop_served
from aiio.env.weights import find_weights
from tests.model import RealModel, real_model

__all__ = ["real_model"]

pytestmark = pytest.mark.model


@asynccontextmanager
async def client(key: str) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as found:
        yield found


def chat(text: str, max_tokens: int = 16) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "smollm2", "messages": messages, "max_tokens": max_tokens, "stream": True}


async def stream_some(
    found: httpx.AsyncClient, url: str, body: dict[str, Any], most: int = 1000
) -> list[str]:
    """Return the data of the first *most* events of an answer."""
    lines: list[str] = []
    async with found.stream("POST", f"{url}/chat/completions", json=body) as response:
        response.raise_for_status()
        with trio.CancelScope() as scope:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    lines.append(line.removeprefix("data: "))
                if len(lines) == most:
                    scope.cancel()
    return lines


async def test_the_model_streams_an_answer(real_model: RealModel) -> None:
    async with client(real_model.key) as found:
        lines = await stream_some(found, real_model.url, chat("Name a bird."))
    assert lines[-1] == "[DONE]"
    text = "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines[:-2])
    assert text.strip()


async def test_the_server_wants_its_key(real_model: RealModel) -> None:
    async with client("wrong") as found:
        response = await found.get(f"{real_model.url.removesuffix('/v1')}/slots")
    assert response.status_code == 401


async def test_closing_the_socket_frees_the_slot(real_model: RealModel) -> None:
    async with client(real_model.key) as found:
        await stream_some(found, real_model.url, chat("Count to a thousand.", 1500), most=3)
    with trio.fail_after(5):
        while any(slot["is_processing"] for slot in await trio.to_thread.run_sync(real_model.slots)):
            await trio.sleep(0.02)


async def test_a_slot_holds_a_chat(real_model: RealModel) -> None:
    slots = await trio.to_thread.run_sync(real_model.slots)
    assert [slot["n_ctx"] for slot in slots] == [2048] * 4


TOOL = {
    "name": "get_weather",
    "description": "Tell the weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


async def test_the_model_calls_an_offered_tool_and_answers_with_its_result(real_model: RealModel) -> None:
    question = {"role": "user", "content": "What is the weather in Paris?"}
    body = {"model": "smollm2", "tools": [{"type": "function", "function": TOOL}], "temperature": 0}
    async with client(real_model.key) as found:

        async def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
            request = {**body, "messages": messages, "max_tokens": 60}
            response = await found.post(f"{real_model.url}/chat/completions", json=request)
            message: dict[str, Any] = response.raise_for_status().json()["choices"][0]["message"]
            return message

        called = await ask([question])
        (call,) = called["tool_calls"]
        assert call["function"]["name"] == "get_weather"
        assert set(json.loads(call["function"]["arguments"])) == {"city"}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "sunny, 21 degrees"}
        answered = await ask([question, called, result])
    assert answered["content"].strip()
    assert not answered.get("tool_calls")


async def test_an_env_starts_the_model_on_first_use_and_ends_it(
    real_model: RealModel, tmp_path: Path
) -> None:
    addresses: list[Address] = []
    async with Env(
        {"local": {"cache_dir": str(tmp_path), "weights": str(find_weights())}}, environ={}
    ) as env:

        async def user() -> None:
            addresses.append(await env.resolve("local"))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(user)
        assert len(set(addresses)) == 1
        credential = addresses[0].credential
        assert credential is not None
        async with client(credential.reveal()) as found:
            assert await stream_some(found, addresses[0].url, chat("Hi", 4))
    async with client(credential.reveal()) as found:
        with pytest.raises(httpx.ConnectError):
            await found.get(addresses[0].url)


async def test_weights_that_are_none_give_one_sentence(real_model: RealModel, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"no weights")
    with pytest.raises(ProviderError, match=r"did not start.*aiio local setup") as caught:
        await start_server(ServerSpec(weights=tmp_path / "bad.gguf"))
    assert caught.value.kind is ErrorKind.PROVIDER


async def test_a_server_by_hand_is_shared_and_stopped(real_model: RealModel, tmp_path: Path) -> None:
    codes: list[int] = []
    begun = trio.Event()

    async def run() -> None:
        spec = server_spec({}, find_weights())
        codes.append(await serve(spec, lambda server: begun.set(), cache=tmp_path))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await begun.wait()
        state = read_state(tmp_path)
        assert state is not None
        env = Env({"local": {"cache_dir": str(tmp_path)}}, environ={})  # not entered: it starts nothing
        address = await env.resolve("local")
        assert (address.url, address.credential) == (state.url, state.key)
        assert await stop_served(tmp_path)
    assert codes == [-15]
    assert read_state(tmp_path) is None


PARENT = """
import sys, trio
from aiio.env.local_process import ServerSpec, start_server
from pathlib import Path

async def main():
    server = await start_server(ServerSpec(weights=Path(sys.argv[1])))
    print(server.pid, flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


async def test_the_server_ends_when_its_parent_is_killed(real_model: RealModel) -> None:
    command = [sys.executable, "-c", PARENT, str(find_weights())]
    parent = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.receive_some())
    os.kill(pid, 0)
    parent.kill()
    await parent.wait()
    await parent.stdout.aclose()
    with trio.fail_after(5):
        while True:
            try:
                # Where nobody reaps orphans the process stays behind as a zombie, which is an end too.
                status = await trio.Path(f"/proc/{pid}/stat").read_text()
            except FileNotFoundError:
                break
            if status.rpartition(")")[2].split()[0] == "Z":
                break
            await trio.sleep(0.02)
