"""Which local servers run here."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from aiio.env import Env
from aiio.env.detect import LOCAL_SERVERS, is_loopback
from tests.serving import Exchange, respond, serve, stall

JSON = {"content-type": "application/json"}
ANSWERS = {
    "/api/tags": b'{"models": [{"name": "qwen3:0.6b"}, {"name": 5}, "odd"]}',
    "llamacpp": b'{"data": [{"id": "m.gguf", "owned_by": "llamacpp"}, {"id": "x"}, 5]}',
    "vllm": b'{"data": [{"id": "Qwen/Q", "owned_by": "vllm", "max_model_len": 4096}]}',
}


def env_of(**urls: str) -> Env:
    nowhere = {server.endpoint: {"url": "http://192.0.2.1:9"} for server in LOCAL_SERVERS}  # not asked
    given = {name: {"url": url} for name, url in urls.items()}
    return Env({"providers": {**nowhere, **given}}, environ={})


async def answer(exchange: Exchange) -> None:
    """Answer as three servers do, each under its own name."""
    assert exchange.request is not None
    name = exchange.request.headers["host"].partition(":")[0]
    key = exchange.request.target if exchange.request.target == "/api/tags" else name
    names = {"127.0.0.1": "llamacpp", "localhost": "vllm"}
    await respond(ANSWERS[names.get(key, key)], headers=JSON)(exchange)


async def test_servers_that_run_are_found_with_their_models() -> None:
    async with serve(answer) as server:
        local = f"http://localhost:{server.port}"
        async with env_of(ollama=server.url, llamacpp=f"{server.url}/v1", vllm=f"{local}/v1") as env:
            found = await env.detect_endpoints("5s")
            assert found == {
                "ollama": {"qwen3:0.6b": {}},
                "llamacpp": {"m.gguf": {}},
                "vllm": {"Qwen/Q": {"context_window": 4096}},
            }
            assert env.context_window("vllm/Qwen/Q") == 4096
            before = len(server.requests)
            assert list(await env.models("ollama")) == ["qwen3:0.6b"]
            assert len(server.requests) == before


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b'{"models": 5}', b'{"data": [{"id": "x", "owned_by": "me"}]}', b"<html>", b'{"data": 5}'],
)
async def test_who_is_something_else_is_not_found(body: bytes) -> None:
    everywhere = ("ollama", "llamacpp", "vllm")
    async with (
        serve(respond(body, headers=JSON)) as server,
        env_of(**dict.fromkeys(everywhere, server.url)) as env,
    ):
        assert await env.detect_endpoints("5s") == {}


async def test_nobody_is_waited_for(autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with serve(stall()) as server, env_of(ollama=server.url, vllm=server.url) as env:
        assert await env.detect_endpoints() == {}
        assert trio.current_time() == pytest.approx(0.3)
        await server.wait_idle()


async def test_only_this_machine_is_asked() -> None:
    asked: list[Any] = []

    class Wire:
        async def open(self, request: Any, nursery: Any) -> Any:
            asked.append(request)

        async def aclose(self) -> None: ...

    env = env_of()
    env.register_transport("http", Wire())
    assert await env.detect_endpoints() == {}
    assert asked == []


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000", True),
        ("https://localhost", True),
        ("http://10.0.0.1", False),
        ("http://example.org", False),
        ("http://[broken", False),
        ("", False),
    ],
)
def test_what_loopback_is(url: str, here: bool) -> None:
    assert is_loopback(url) is here
