"""Which servers run here: what the dialects look for, and within which limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from aiio.env import Env, Search
from aiio.env.detect import is_loopback
from aiio.providers.base import Provider
from tests.serving import Exchange, respond, serve, stall

JSON = {"content-type": "application/json"}
CANARY = "sk-canary-0123456789"
ANSWERS = {
    "/api/tags": b'{"models": [{"name": "qwen3:0.6b"}, {"name": 5}, "odd"]}',
    "llamacpp": b'{"data": [{"id": "m.gguf", "owned_by": "llamacpp"}, {"id": "x"}, 5]}',
    "vllm": b'{"data": [{"id": "Qwen/Q", "owned_by": "vllm", "max_model_len": 4096}]}',
}
NOWHERE = {name: {"url": "http://192.0.2.1:9"} for name in ("ollama", "llamacpp", "vllm")}  # not asked


def env_of(**urls: str) -> Env:
    given = {name: {"url": url} for name, url in urls.items()}
    return Env({"providers": {**NOWHERE, **given}}, environ={})


async def answer(exchange: Exchange) -> None:
    """Answer as three servers do, each under its own name."""
    assert exchange.request is not None
    name = exchange.request.headers["host"].partition(":")[0]
    key = exchange.request.target if exchange.request.target == "/api/tags" else name
    names = {"127.0.0.1": "llamacpp", "localhost": "vllm"}
    await respond(ANSWERS[names.get(key, key)], headers=JSON)(exchange)


class Looks(Provider):
    """A dialect that looks for something; `what` is what it finds."""

    name = "looks"
    what: Any = {}

    def request(self, context: Any, io: Any) -> Any:
        return {}, None

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        return ()

    @classmethod
    async def detect_endpoints(cls, search: Search) -> Mapping[str, Mapping[str, Any]]:
        await trio.lowlevel.checkpoint()
        if isinstance(cls.what, Exception):
            raise cls.what
        found: Mapping[str, Mapping[str, Any]] = cls.what(search) if callable(cls.what) else cls.what
        return found


def looking(what: Any, name: str = "looks") -> type[Looks]:
    return type("Looking", (Looks,), {"what": staticmethod(what) if callable(what) else what, "name": name})


async def test_servers_that_run_are_found_with_their_models() -> None:
    async with serve(answer) as server:
        local = f"http://localhost:{server.port}/v1"
        urls = {"ollama": server.url, "llamacpp": f"{server.url}/v1", "vllm": local}
        async with env_of(**urls, mine=f"{local}/chat/completions") as env:
            with trio.testing.assert_checkpoints():
                found = await env.detect_endpoints("5s")
            assert found == {
                "ollama": {"provider": "ollama", "url": server.url, "models": {"qwen3:0.6b": {}}},
                "llamacpp": {
                    "provider": "openai_chat",
                    "url": f"{server.url}/v1",
                    "models": {"m.gguf": {"owner": "llamacpp"}},
                },
                "vllm": {
                    "provider": "openai_chat",
                    "url": local,
                    "models": {"Qwen/Q": {"context_window": 4096, "owner": "vllm"}},
                },
                "mine": {
                    "provider": "openai_chat",
                    "url": f"{local}/chat/completions",
                    "models": {"Qwen/Q": {"context_window": 4096, "owner": "vllm"}},
                },
            }
            assert env.context_window("vllm/Qwen/Q") == 4096
            assert not any("authorization" in request.headers for request in server.requests)
            before = len(server.requests)
            assert list(await env.models("ollama")) == ["qwen3:0.6b"]
            assert len(server.requests) == before
            assert not env.is_dynamic("ollama")


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b'{"models": 5}', b'{"data": [{"id": "x", "owned_by": "me"}]}', b"<html>", b'{"data": 5}'],
)
async def test_who_is_something_else_is_not_found(body: bytes) -> None:
    async with (
        serve(respond(body, headers=JSON)) as server,
        env_of(**dict.fromkeys(NOWHERE, server.url)) as env,
    ):
        assert await env.detect_endpoints("5s") == {}


async def test_A12_nobody_is_waited_for_longer_than_300_ms(autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with serve(stall()) as server, env_of(ollama=server.url, vllm=server.url) as env:
        assert await env.detect_endpoints() == {}
        assert 0.25 < trio.current_time() <= 0.3
        await server.wait_idle()


async def test_A12_each_dialect_has_300_ms_and_what_fails_or_is_late_finds_nothing(
    autojump_clock: MockClock,
) -> None:
    class Slow(Looks):
        name = "slow"

        @classmethod
        async def detect_endpoints(cls, search: Search) -> Mapping[str, Mapping[str, Any]]:
            await trio.sleep(0.31)
            return {"late": {"url": "http://127.0.0.1:1"}}

    env = env_of()
    env.register_provider(Slow)
    env.register_provider(looking(KeyError(CANARY), "broken"))
    for place, bad in enumerate(({"x": {"url": "no url"}}, {"a/b": {"url": "http://h"}}, {"x": {}}, 5)):
        env.register_provider(looking(bad, f"bad{place}"))
    env.register_provider(looking({"box": {"url": "http://127.0.0.1:2"}}, "good"))
    with structlog.testing.capture_logs() as logs:
        assert await env.detect_endpoints() == {"box": {"provider": "good", "url": "http://127.0.0.1:2"}}
    assert trio.current_time() == pytest.approx(0.3)
    assert {(log["event"], log["provider"]) for log in logs} == {
        ("detect.failed", name) for name in ("broken", "bad0", "bad1", "bad2", "bad3")
    }
    assert CANARY not in str(logs)


async def test_A15_what_is_found_is_an_endpoint_in_memory_below_all_that_is_configured() -> None:
    env = env_of(taken="http://127.0.0.1:5")
    facts = {"url": "http://127.0.0.1:2/", "auth": CANARY, "models": {"m": {"context_window": 9}}}
    env.register_provider(looking({"box": facts, "taken": {"url": "http://127.0.0.1:6"}}))
    with pytest.raises(ValueError, match="unknown endpoint 'box'"):
        env.endpoint("box")
    found = await env.detect_endpoints()
    assert found == {
        "box": {"provider": "looks", "url": "http://127.0.0.1:2/", "models": {"m": {"context_window": 9}}}
    }
    assert env.is_dynamic("box")
    assert env.endpoint("box").provider == "looks"
    assert "box" in env.endpoint_names()
    assert "box" in env.known_endpoints()
    assert env.credential("box") is not None
    assert env.scrub(CANARY) == "***"
    assert env.context_window("box/m") == 9
    assert env.endpoint("taken").url == "http://127.0.0.1:5"
    env.register_endpoint("box", url="http://h")
    assert env.endpoint("box").url == "http://h"
    assert not env.is_dynamic("box")


@pytest.mark.parametrize("auth", ["a\nb", 5])
async def test_a_credential_that_is_none_costs_its_own_find_only(auth: Any) -> None:
    env = env_of()
    found = {"bad": {"url": "http://127.0.0.1:1", "auth": auth}, "good": {"url": "http://127.0.0.1:2"}}
    env.register_provider(looking(found))
    assert list(await env.detect_endpoints()) == ["good"]
    assert "bad" not in env.endpoint_names()


async def test_A12_of_one_name_the_first_dialect_counts() -> None:
    env = env_of()
    env.register_provider(looking({"box": {"url": "http://127.0.0.1:1"}}, "first"))
    env.register_provider(looking({"box": {"url": "http://127.0.0.1:2", "provider": "x"}}, "second"))
    assert await env.detect_endpoints() == {"box": {"provider": "first", "url": "http://127.0.0.1:1"}}


async def test_a_dialect_sees_its_own_endpoints_the_settings_and_the_environment() -> None:
    seen: list[Search] = []

    def look(search: Search) -> dict[str, Any]:
        seen.append(search)
        return {}

    settings = {"providers": {**NOWHERE, "mine": {"provider": "looks", "url": "http://m"}}, "model": "mine/m"}
    env = Env({**settings, "mine": {"auth": CANARY}}, environ={"LOOKS_HOST": "here"})
    env.register_provider(looking(look))
    await env.detect_endpoints()
    (search,) = seen
    assert list(search.endpoints) == ["mine"]
    assert CANARY not in repr(search.endpoints)
    assert (search.settings["model"], search.environ["LOOKS_HOST"]) == ("mine/m", "here")


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
