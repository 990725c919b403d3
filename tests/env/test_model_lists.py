"""Lists of models: asked of a server, kept, and what becomes of one that does not answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from aiio.env import Env, ErrorKind, ProviderError
from aiio.env.access import FETCH_LIMIT
from aiio.env.fetch import fetch_json
from aiio.env.model_lists import FRESH_FOR, over
from aiio.providers.base import Provider
from aiio.transports.base import TransportRequest
from tests.serving import Server, drop, respond, serve, stall

KEY = "sk-canary-0123456789"
JSON = {"content-type": "application/json"}


def listing(*ids: str, **facts: Any) -> bytes:
    return json.dumps({"data": [{"id": name, **facts} for name in ids]}, indent=1).encode()


def env_of(server: Server, cache: Path | None = None, **policy: Any) -> Env:
    environ = {} if cache is None else {"AIIO_CONFIG_DIR": str(cache), "AIIO_CACHE_DIR": str(cache)}
    policy = {"url": f"{server.url}/v1", **policy}
    return Env({"providers": {"mine": policy}, "mine": {"auth": KEY}}, environ=environ)


async def test_a_list_is_asked_once_and_again_when_wanted() -> None:
    async with serve(respond(listing("a", "b", context_length=9), headers=JSON)) as server:  # noqa: SIM117
        async with env_of(server, models={"a": {"context_window": 5, "note": 1}, "c": {}}) as env:
            with trio.testing.assert_checkpoints():
                models = await env.models("mine")
            assert models == {
                "a": {"context_window": 9, "note": 1},
                "b": {"context_window": 9},
                "c": {},
            }
            models["a"]["context_window"] = 0
            assert (await env.models("mine"))["a"]["context_window"] == 9
            assert len(server.requests) == 1
            assert env.context_window("mine/b") == 9
            await env.models("mine", refresh=True)
    assert len(server.requests) == 2
    request = server.requests[0]
    assert (request.method, request.target, request.body) == ("GET", "/v1/models", b"")
    assert request.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain; charset=utf-8", ""])
async def test_a_list_may_come_under_another_type(content_type: str) -> None:
    step = respond(listing("a"), headers={"content-type": content_type})
    async with serve(step) as server, env_of(server) as env:
        assert await env.models("mine") == {"a": {}}


FAULTS: dict[str, tuple[Any, ErrorKind]] = {
    "refused": (respond(b'{"error": {"message": "no"}}', status=401, headers=JSON), ErrorKind.AUTH),
    "cut": (drop(), ErrorKind.NETWORK),
    "not json": (respond(b"{", headers=JSON), ErrorKind.MALFORMED),
    "no list": (respond(b"{}", headers=JSON), ErrorKind.MALFORMED),
    "html": (respond(b"<html>Log in", headers={"content-type": "text/html"}), ErrorKind.PROVIDER),
    "deep": (respond(b"[" * 100_000, headers=JSON), ErrorKind.MALFORMED),
}


@pytest.mark.parametrize(("step", "kind"), FAULTS.values(), ids=FAULTS.keys())
async def test_a_server_that_does_not_answer_leaves_what_was_known(step: Any, kind: ErrorKind) -> None:
    async with serve(respond(listing("a"), headers=JSON)) as server, env_of(server, models={"c": {}}) as env:
        server.script_next(step)
        with structlog.testing.capture_logs() as logs:
            assert await env.models("mine") == {"c": {}}
        assert [(log["event"], log["kind"]) for log in logs] == [("models.not_fetched", kind.value)]
        assert await env.models("mine") == {"a": {}, "c": {}}
        server.script_next(step)
        assert await env.models("mine", refresh=True) == {"a": {}, "c": {}}
        server.script_next(step)
        with pytest.raises(ProviderError) as caught:
            await env.model_lists.fetch("mine")
        assert caught.value.kind is kind


async def test_waiting_for_a_list_is_bounded() -> None:
    async with serve(stall()) as server, env_of(server) as env:
        with trio.testing.assert_checkpoints(), pytest.raises(ProviderError, match=r"0\.05 s"):
            await fetch_json(env, server.url, {}, endpoint="mine", limit=0.05)
        await server.wait_idle()
    assert FETCH_LIMIT <= 20


class Pages(Provider):
    """A dialect with pages, and faults on demand."""

    name = "pages"
    fault: Exception | None = None

    @classmethod
    def models_request(cls, url: str, settings: Any, token: str | None, after: str | None = None) -> Any:
        if cls.fault is not None:
            raise cls.fault
        return f"{url}/{after or 'first'}", {}

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        return {name: {} for name in data["names"]}

    @classmethod
    def next_models(cls, data: Any) -> str | None:
        found: str | None = data.get("next")
        return found

    def request(self, context: Any, io: Any) -> Any:
        return {}, None

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        return ()


async def test_all_pages_are_read_and_no_more_than_20(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(respond(b'{"names": ["c"]}', headers=JSON)) as server:  # noqa: SIM117
        async with env_of(server, provider="pages") as env:
            env.register_provider(Pages)
            server.script_next(respond(b'{"names": ["a", "b"], "next": "second"}', headers=JSON))
            assert list(await env.models("mine")) == ["a", "b", "c"]
            assert [request.target for request in server.requests] == ["/v1/first", "/v1/second"]
            server.script(respond(b'{"names": ["a"], "next": "again"}', headers=JSON))
            await env.models("mine", refresh=True)
            assert len(server.requests) == 22
            monkeypatch.setattr(Pages, "fault", KeyError("bug"))
            with pytest.raises(ProviderError, match="can't ask 'mine' for its models: KeyError"):
                await env.model_lists.fetch("mine")


async def test_a_dialect_without_a_list_says_so() -> None:
    env = Env({"providers": {"mine": {"url": "http://m", "provider": "bare"}}}, environ={})
    bare = {"name": "bare", "request": Pages.request, "translate": Pages.translate}
    env.register_provider(type("Bare", (Provider,), bare))
    with pytest.raises(ProviderError, match="'bare' of endpoint 'mine' has no list") as caught:
        await env.model_lists.fetch("mine")
    assert caught.value.code == "no_listing"
    assert await env.models("mine") == {}
    with pytest.raises(ValueError, match="unknown endpoint"):
        await env.models("nobody")
    with pytest.raises(ValueError, match="reads no list"):
        Provider.read_models({})
    assert Provider.next_models({}) is None


# --- between runs ---


async def test_a_list_is_kept_between_runs_until_it_is_a_day_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with serve(respond(listing("a", max_model_len=7), headers=JSON)) as server:
        async with env_of(server, tmp_path) as env:
            await env.models("mine")
        assert KEY not in (tmp_path / "models" / "mine.json").read_text()
        async with env_of(server, tmp_path) as env:
            assert env.context_window("mine/a") == 7
            assert await env.models("mine") == {"a": {"context_window": 7}}
            assert len(server.requests) == 1
            old = env.model_lists._clock
            monkeypatch.setattr(env.model_lists, "_clock", lambda: old() + FRESH_FOR)
            await env.models("mine")
            assert len(server.requests) == 2
        async with env_of(server, tmp_path, url="http://elsewhere/v1") as env:
            assert env.model_lists.cached("mine") == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"models": {}}', "[" * 100_000])
def test_a_kept_list_that_is_broken_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "vllm.json").write_text(text)
    env = Env(environ={"AIIO_CONFIG_DIR": str(tmp_path), "AIIO_CACHE_DIR": str(tmp_path)})
    assert env.model_lists.cached("vllm") == {}
    assert env.context_window("vllm/m") is None


async def test_a_name_that_is_no_file_name_and_a_disk_that_refuses_are_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").write_text("in the way")
    async with serve(respond(listing("a"), headers=JSON)) as server, env_of(server, tmp_path) as env:
        assert await env.models("mine") == {"a": {}}
        env.settings["providers"]["../evil"] = dict(env.settings["providers"]["mine"])
        assert await env.models("../evil") == {"a": {}}
    assert [path.name for path in tmp_path.iterdir()] == ["models"]  # noqa: ASYNC240


def test_of_two_lists_the_fetched_lies_on_top() -> None:
    assert over({"a": {"x": 1}, "b": None}, {"a": {"x": 2}}) == {"a": {"x": 2}, "b": {}}
    assert over(5, {}) == {}


# --- all at once ---


async def test_all_endpoints_are_asked_side_by_side(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    class Wire:
        """A transport that answers after a while."""

        async def open(self, request: TransportRequest, nursery: trio.Nursery) -> Any:
            asked.append(request.url)
            await trio.sleep(1 if "fast" in request.url else 100)
            return Answer()

        async def aclose(self) -> None: ...

    class Answer:
        frames = [listing("a"), None]

        async def receive(self) -> list[bytes] | None:
            await trio.lowlevel.checkpoint()
            frame = self.frames[0] if isinstance(self.frames[0], bytes) else None
            self.frames = self.frames[1:]
            return None if frame is None else [frame]

        async def aclose(self) -> None: ...

    settings = {
        "providers": {
            "fast": {"url": "wire://fast"},
            "slow": {"url": "wire://slow"},
            "keyless": {"url": "wire://fast", "key_required": True},
            "broken": {"url": "nowhere://x"},
            "nourl": {"provider": "openai_chat"},
        }
    }
    env = Env(settings, environ={"AZURE_OPENAI_API_KEY": "k"})
    env.register_transport("wire", Wire())
    for name in ("vllm", "llamacpp", "ollama"):
        env.settings["providers"][name] = {"url": "wire://slow"}
    assert await env.refresh_models() == {"fast": {"a": {}}}
    assert trio.current_time() == 2
    assert "wire://fast/models" in asked
    assert await env.refresh_models("1s") == {}
