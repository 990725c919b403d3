"""What dialects do about their servers beside requests: the defaults, the contract, and the built-in ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from aiio.env import Access, Env, ErrorKind, KnownEndpoint, ProviderError, Question, Secret
from aiio.env.access import DETAILS_LIMIT
from aiio.env.registry import BUILTIN_PROVIDERS, load_object
from aiio.providers.base import Provider, check_provider, define_provider
from aiio.providers.ollama import Ollama
from aiio.providers.openai_chat import OpenAIChat
from aiio.providers.openai_models import read_models, read_props
from tests.model import RealModel, real_model
from tests.serving import Exchange, Server, respond, serve

__all__ = ["real_model"]

KEY = "sk-canary-0123456789"
JSON = {"content-type": "application/json"}


class Own(Provider):
    """A dialect with two functions and no list of models."""

    name = "own"

    def request(self, context: Any, io: Any) -> Any:
        return {}, None

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        return ()


def env_of(server: Server, provider: str = "openai_chat", path: str = "/v1", **policy: Any) -> Env:
    policy = {"url": f"{server.url}{path}", "provider": provider, **policy}
    env = Env({"providers": {"mine": policy}, "mine": {"auth": KEY}}, environ={})
    env.register_provider(Own)
    return env


def by_target(answers: Mapping[str, Any]) -> Any:
    """Answer each target with its JSON value, in order where it is a list of them; else with 404."""

    async def answer(exchange: Exchange) -> None:
        assert exchange.request is not None
        found = answers.get(exchange.request.target)
        if callable(found):
            found = found(exchange.request)
        if found is None:
            await respond(b'{"error": "no"}', status=404, headers=JSON)(exchange)
        else:
            await respond(json.dumps(found).encode(), headers=JSON)(exchange)

    return answer


# --- the contract ---


def hooks(**changed: Any) -> type[Provider]:
    return type("Broken", (Own,), changed)


async def wrong_async(cls: Any, *args: Any) -> Any:
    return {}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"login": classmethod(lambda cls, given, access: {})}, "login must be async"),
        ({"test_connection": 5}, "test_connection must be callable"),
        ({"detect_endpoints": wrong_async}, "detect_endpoints must be a class method"),
        ({"read_models": classmethod(wrong_async)}, "read_models must be a plain function"),
        ({"model_questions": classmethod(lambda cls: ())}, r"must take \(url, settings, token, models\)"),
        ({"known_endpoints": lambda self: {}}, "known_endpoints must be a class method"),
        ({"known_endpoints": classmethod(lambda cls: 5)}, "known_endpoints must return endpoints by name"),
        ({"known_endpoints": classmethod(lambda cls: {"a": {}})}, "must return a KnownEndpoint for 'a', not"),
        ({"known_endpoints": classmethod(lambda cls: {"a/b": 5})}, "'a/b' can't be an endpoint's name"),
    ],
)
def test_A12_a_hook_that_breaks_the_contract_is_refused_at_registration_by_its_name(
    broken: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError, match=says) as caught:
        Env(environ={}).register_provider(hooks(**broken))
    assert "'own'" in str(caught.value)


def test_a_hook_may_be_a_static_method() -> None:
    async def detect_endpoints(search: Any) -> Any:
        return {}

    check_provider(hooks(detect_endpoints=staticmethod(detect_endpoints)))


@pytest.mark.parametrize("key", sorted(BUILTIN_PROVIDERS))
def test_A12_every_dialect_has_every_hook(key: str) -> None:
    cls = load_object(BUILTIN_PROVIDERS[key])
    check_provider(cls)
    assert all(isinstance(known, KnownEndpoint) for known in cls.known_endpoints().values())
    assert not cls.secret


def test_A12_a_dialect_knows_no_endpoint_by_default() -> None:
    assert Own.known_endpoints() == {}
    assert "openai" in OpenAIChat.known_endpoints()
    assert list(Ollama.known_endpoints()) == ["ollama"]
    mine = define_provider(type("Mine", (), {}), name="mine", dialect="chat")
    assert mine.known_endpoints() == {}


# --- log-in ---


async def test_A12_log_in_is_with_an_api_key_by_default() -> None:
    env = Env(environ={})
    with trio.testing.assert_checkpoints():
        await env.login("openai", f" {KEY}\n")
    assert env.settings.record("openai")["auth"] == {"type": "api_key", "token": Secret(KEY)}
    await env.login("openai", {"type": "oauth", "access": KEY, "expires": 5})
    assert env.credential("openai") == Secret(KEY)
    for bad in ("", "a\nb", 5, None):
        with pytest.raises(ProviderError, match="the credential in the log-in to 'openai'") as caught:
            await env.login("openai", bad)
        assert caught.value.kind is ErrorKind.AUTH
    with pytest.raises(ValueError, match="unknown endpoint"):
        await env.login("nobody", KEY)


class Exchanges(Own):
    """Log-in with a password, which its server turns into a token."""

    name = "exchanges"

    @classmethod
    async def login(cls, given: Any, access: Access) -> Any:
        if given == "bug":
            raise KeyError("bug")
        if given == "nothing":
            return None
        answer = await access.fetch_json(f"{access.url}/token", {"X-A": "1"}, body={"password": given})
        return {"type": "oauth", "access": answer["token"], "refresh": None}


async def test_A12_a_dialect_may_exchange_what_it_is_given() -> None:
    async with serve(by_target({"/v1/token": {"token": KEY}})) as server:  # noqa: SIM117
        async with env_of(server, "exchanges") as env:
            env.register_provider(Exchanges)
            await env.login("mine", "hush")
            request = server.requests[0]
            assert (request.method, request.json()) == ("POST", {"password": "hush"})
            assert request.headers["content-type"] == "application/json"
            assert request.headers["x-a"] == "1"
            assert "authorization" not in request.headers
            assert env.scrub(KEY) == "***"
            with pytest.raises(ProviderError, match="'exchanges' returned no credential but NoneType"):
                await env.login("mine", "nothing")
            with pytest.raises(ProviderError, match="bug"):
                await env.login("mine", "bug")
            env.register_endpoint("mine", url=f"{server.url}/elsewhere")
            with pytest.raises(ProviderError, match="404"):
                await env.login("mine", "hush")
            assert env.credential("mine") == Secret(KEY)


# --- trying a connection ---


async def test_A12_a_connection_is_tried_by_the_list_of_models() -> None:
    async with serve(by_target({"/v1/models": {"data": [{"id": "a"}]}})) as server, env_of(server) as env:
        with trio.testing.assert_checkpoints():
            assert await env.test_connection("mine") == {"a": {}}
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert repr(await env.access("mine")) == "<Access to 'mine'>"


@pytest.mark.parametrize(
    ("step", "kind", "code"),
    [
        (respond(b"{}", status=401, headers=JSON), ErrorKind.AUTH, None),
        (respond(b"{}", status=404, headers=JSON), ErrorKind.PROVIDER, None),
        (respond(b"{}", headers=JSON), ErrorKind.MALFORMED, "bad_listing"),
    ],
)
async def test_A12_and_strictly(step: Any, kind: ErrorKind, code: str | None) -> None:
    async with serve(step) as server, env_of(server) as env:
        with pytest.raises(ProviderError) as caught:
            await env.test_connection("mine")
        assert (caught.value.kind, caught.value.code) == (kind, code)


@pytest.mark.parametrize("status", [200, 404, 401, 500])
async def test_a_dialect_without_a_list_must_be_answered(status: int) -> None:
    async with serve(respond(b"{}", status=status, headers=JSON)) as server, env_of(server, "own") as env:
        if status in (200, 404):
            assert await env.test_connection("mine") is None
        else:
            with pytest.raises(ProviderError):
                await env.test_connection("mine")
        server.script(respond(b"hello", headers=JSON))
        assert await env.test_connection("mine") is None


# --- what a list does not say ---

SHOW = {
    "qwen3": {"model_info": {"general.x": 1, "qwen3.context_length": 40960}, "capabilities": ["tools"]},
    "tuned": {
        "model_info": {"llama.context_length": 8192},
        "parameters": 'stop  "x"\nnum_ctx                        4096\ntemperature 1',
    },
    "loaded": {"model_info": {"llama.context_length": 131072}},
}
OLLAMA = {
    "/api/tags": {"models": [{"model": name} for name in (*SHOW, "odd", "gone")]},
    "/api/show": lambda request: {**SHOW, "odd": 5}.get(request.json()["model"]),
    "/api/ps": {"models": [{"model": "loaded", "context_length": 16384}, {"model": "other"}]},
}


async def test_G5_ollama_is_asked_what_its_models_take(tmp_path: Path) -> None:
    async with serve(by_target(OLLAMA)) as server, env_of(server, "ollama", path="") as env:
        models = await env.models("mine")
        assert models == {
            "qwen3": {"trained_window": 40960, "capabilities": ["tools"]},
            "tuned": {"trained_window": 8192, "context_window": 4096},
            "loaded": {"trained_window": 131072, "context_window": 16384},
            "odd": {},
            "gone": {},
        }
        windows = {name: env.context_window(f"mine/{name}") for name in models}
        assert windows == {"qwen3": 40960, "tuned": 4096, "loaded": 16384, "odd": None, "gone": None}
        asked = server.requests[1:]
        assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in asked)
        assert {request.method for request in asked} == {"GET", "POST"}
        env.register_endpoint("mine", num_ctx=2048)
        assert env.context_window("mine/loaded") == 2048


PROPS = {"default_generation_settings": {"n_ctx": 2048}, "model_alias": "m"}


def llama_cpp(*ids: str, **facts: Any) -> dict[str, Any]:
    return {"data": [{"id": name, "owned_by": "llamacpp", **facts} for name in ids]}


@pytest.mark.parametrize(
    ("listed", "props", "windows"),
    [
        (llama_cpp("a"), PROPS, {"a": 2048}),
        (llama_cpp("a", "m"), PROPS, {"a": None, "m": 2048}),
        (llama_cpp("a", "b"), PROPS, {"a": None, "b": None}),
        (llama_cpp("a", meta={"n_ctx": 512, "n_ctx_train": 9999}), None, {"a": 512}),
        (llama_cpp("a", meta={"n_ctx_train": 9999}), None, {"a": None}),
        (llama_cpp("a"), {"default_generation_settings": 5}, {"a": None}),
        ({"data": [{"id": "a", "owned_by": "me"}]}, PROPS, {"a": None}),
    ],
)
async def test_G5_a_llama_cpp_server_is_asked_what_a_slot_holds(
    listed: Any, props: Any, windows: dict[str, int | None]
) -> None:
    async with serve(by_target({"/v1/models": listed, "/props": props})) as server, env_of(server) as env:
        await env.models("mine")
        assert {name: env.context_window(f"mine/{name}") for name in windows} == windows
        for request in server.requests:
            assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_where_the_properties_are() -> None:
    models = {"a": {"owner": "llamacpp"}}
    for url in ("http://h/sub/v1/chat/completions", "http://h/sub/v1/", "http://h/sub"):
        (question,) = OpenAIChat.model_questions(url, {"quirks": {"auth_header": "api-key"}}, KEY, models)
        assert (question.url, question.headers) == ("http://h/sub/props", {"api-key": KEY})
        assert KEY not in repr(question)
    (question,) = OpenAIChat.model_questions("http://h/v1?x=1", {}, None, models)
    assert (question.url, question.headers) == ("http://h/props?x=1", {})
    with pytest.raises(ValueError, match="no properties"):
        read_props([], models)


async def test_G5_no_window_is_asked_for_by_a_request_or_a_look(autojump_clock: MockClock) -> None:
    """Only a list that is fetched asks; `context_window` answers from what is there."""
    asked: list[str] = []

    class Wire:
        async def open(self, request: Any, nursery: Any) -> Any:
            asked.append(request.url)
            raise OSError("no")

        async def aclose(self) -> None: ...

    env = Env({"providers": {"mine": {"url": "wire://h", "provider": "ollama"}}}, environ={})
    env.register_transport("wire", Wire())
    assert env.context_window("mine/m") is None
    assert asked == []
    assert await env.models("mine") == {}
    assert asked == ["wire://h/api/tags"]


class Curious(Own):
    """A dialect with a list, and questions that go wrong in many ways."""

    name = "curious"
    questions: Any = ()

    @classmethod
    def models_request(cls, url: str, settings: Any, token: str | None, after: str | None = None) -> Any:
        return f"{url}/models", {}

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        return {"m": {"n": 0}}

    @classmethod
    def model_questions(cls, url: str, settings: Any, token: str | None, models: Any) -> Any:
        return cls.questions(url)


def bug(data: Any) -> Any:
    raise KeyError(KEY)


async def test_what_fails_is_left_out_and_the_list_stays() -> None:
    async with serve(by_target({"/v1/models": 1, "/v1/1": 1, "/v1/2": 2})) as server:  # noqa: SIM117
        async with env_of(server, "curious") as env:

            def ask(url: str) -> list[Question]:
                return [
                    Question(url=f"{url}/2", headers={}, read=bug),
                    Question(url=f"{url}/404", headers={}, read=lambda data: {"m": {"n": 404}}),
                    Question(url=f"{url}/1", headers={}, read=lambda data: {"m": {"n": data}, "x": {}}),
                    Question(url=f"{url}/2", headers={}, read=lambda data: {"m": {"n": data}}),
                ]

            env.register_provider(type("Asks", (Curious,), {"questions": staticmethod(ask)}))
            with structlog.testing.capture_logs() as logs:
                assert await env.models("mine") == {"m": {"n": 2}}
                env.register_provider(type("Asks", (Curious,), {"questions": staticmethod(bug)}))
                assert await env.models("mine", refresh=True) == {"m": {"n": 0}}
            assert [(log["event"], log["errors"]) for log in logs] == [
                ("models.details_missing", ("KeyError", "ProviderError")),
                ("models.details_missing", ("KeyError",)),
            ]
            assert KEY not in str(logs)


async def test_details_are_bounded_in_time_and_number(autojump_clock: MockClock) -> None:
    at_once, most, asked, pause = 0, 0, 0, 0.1

    class Wire:
        """A transport that lists at once and answers nothing else."""

        async def open(self, request: Any, nursery: Any) -> Any:
            nonlocal at_once, most, asked
            if request.url.endswith("models"):
                return Answer()
            at_once, asked = at_once + 1, asked + 1
            most = max(most, at_once)
            try:
                await trio.sleep(pause)
            finally:
                at_once -= 1
            raise OSError("no")

        async def aclose(self) -> None: ...

    class Answer:
        frames: list[bytes | None]

        def __init__(self) -> None:
            self.frames = [b"{}", None]

        async def receive(self) -> list[bytes] | None:
            await trio.lowlevel.checkpoint()
            frame = self.frames.pop(0)
            return None if frame is None else [frame]

        async def aclose(self) -> None: ...

    def ask(url: str) -> list[Question]:
        return [Question(url=f"{url}/{n}", headers={}, read=bug) for n in range(1000)]

    env = Env({"providers": {"mine": {"url": "wire://h", "provider": "curious"}}}, environ={})
    env.register_transport("wire", Wire())
    env.register_provider(type("Asks", (Curious,), {"questions": staticmethod(ask)}))
    assert await env.models("mine") == {"m": {"n": 0}}
    assert trio.current_time() == pytest.approx(200 / 8 * 0.1)
    assert (most, asked) == (8, 200)
    pause = 1.0
    await env.models("mine", refresh=True)
    assert trio.current_time() == pytest.approx(200 / 8 * 0.1 + DETAILS_LIMIT)


@pytest.mark.model
async def test_G5_the_real_server_says_what_a_slot_holds(real_model: RealModel) -> None:
    settings = {"providers": {"real": {"url": real_model.url}}, "real": {"auth": real_model.key}}
    async with Env(settings, environ={}) as env:
        access = await env.access("real")
        listed = await access.fetch_json(
            f"{real_model.url}/models", {"Authorization": f"Bearer {real_model.key}"}
        )
        for entry in listed["data"]:
            entry["meta"] = {}  # as servers answer that are older
        models = read_models(listed)
        (question,) = OpenAIChat.model_questions(access.url, {}, access.token, models)
        answer = await access.fetch_json(question.url, question.headers)
        assert question.read(answer) == {real_model.model: {"context_window": 2048}}
        assert await env.test_connection("real") == {
            real_model.model: {"context_window": 2048, "owner": "llamacpp"}
        }
        await env.models("real")
        assert env.context_window(f"real/{real_model.model}") == 2048
