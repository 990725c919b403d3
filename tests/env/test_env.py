from __future__ import annotations

import math
import ssl
import traceback
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

import aiio.env
from aiio.env import Env, EnvEvent, ErrorKind, ProviderError, Secret, embedded, open_env
from aiio.env import env as env_module
from aiio.env.local_process import ServerSpec

KEY = "sk-canary-0123456789"


class Pipe:
    """A transport."""

    def __init__(self, fault: Exception | None = None, *, stalls: bool = False) -> None:
        self.closed, self.fault, self.stalls = 0, fault, stalls

    async def open(self, request: object, nursery: object) -> None: ...

    async def aclose(self) -> None:
        self.closed += 1
        if self.stalls:
            await trio.sleep_forever()
        if self.fault is not None:
            raise self.fault


async def crash(error: BaseException) -> None:
    raise error


def test_the_room_exports_what_it_names() -> None:
    assert all(hasattr(aiio.env, name) for name in aiio.env.__all__)


# --- life ---


async def test_an_env_closes_what_it_owns() -> None:
    pipe, ended = Pipe(), list[str]()

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("child")

    async with open_env() as env:
        env.register_transport("pipe", pipe)
        env.nursery.start_soon(child)
        await wait_all_tasks_blocked()
    assert ended == ["child"]
    assert pipe.closed == 1
    with pytest.raises(RuntimeError, match="async with"):
        _ = env.nursery
    with pytest.raises(RuntimeError, match="once"):
        await env.__aenter__()


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("mine"), KeyboardInterrupt(), SystemExit(1)])
async def test_B4_what_the_body_raises_comes_out_as_itself(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with Env(environ={}) as env:
            env.nursery.start_soon(trio.sleep_forever)
            env.nursery.start_soon(crash, OSError("a child's"))
            await wait_all_tasks_blocked()
            raise error
    assert caught.value is error


async def test_B4_outer_cancellation_passes_through() -> None:
    pipe = Pipe()
    with trio.CancelScope() as scope:
        async with Env(environ={}) as env:
            env.register_transport("pipe", pipe)
            env.nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert pipe.closed == 1


async def test_a_crashed_child_is_logged_without_its_secrets() -> None:
    with structlog.testing.capture_logs() as logs:
        async with Env({"openai": {"auth": KEY}}, environ={}) as env:
            env.nursery.start_soon(crash, ValueError(f"bad {KEY}"))
            await wait_all_tasks_blocked()
    assert logs == [
        {"event": "env.task_crashed", "what": "crash", "error": "ValueError: bad ***", "log_level": "error"}
    ]


async def test_a_transport_that_fails_to_close_is_logged() -> None:
    with structlog.testing.capture_logs() as logs:
        async with Env(environ={}) as env:
            env.register_transport("pipe", Pipe(OSError("stuck")))
    assert [(log["event"], log["error"]) for log in logs] == [("env.close_failed", "OSError: stuck")]


async def test_closing_is_bounded(autojump_clock: MockClock) -> None:
    async with Env(environ={}) as env:
        env.register_transport("pipe", Pipe(stalls=True))
    assert trio.current_time() == 5


async def test_an_env_closes_in_mid_body_too() -> None:
    pipe = Pipe()
    async with Env(environ={}) as env, trio.open_nursery() as nursery:
        env.register_transport("pipe", pipe)
        env.nursery.start_soon(trio.sleep_forever)
        with trio.testing.assert_checkpoints():
            await env.aclose()
        nursery.cancel_scope.cancel()
    assert pipe.closed == 1


async def test_an_env_works_without_being_entered() -> None:
    env = Env({"max_active": 3}, environ={"OPENAI_API_KEY": KEY})
    address = await env.resolve("openai")
    assert (address.url, address.credential) == ("https://api.openai.com/v1", Secret(KEY))
    assert KEY not in repr(address)
    assert env.max_active == 3
    with pytest.raises(RuntimeError, match=r"async with aiio\.open_env"):
        _ = env.nursery
    await env.aclose()


# --- limits and settings ---


async def test_max_active_follows_the_settings_and_the_other_way_round() -> None:
    env = Env({"max_active": 3}, max_active=5, environ={})
    assert env.max_active == 5
    env.settings["max_active"] = 2
    assert env.ledger.max_active == 2
    env.max_active = 7
    assert env.settings["max_active"] == 7
    with pytest.raises(ValueError, match="max_active"):
        env.max_active = 0
    assert (env.max_active, env.settings["max_active"]) == (7, 7)
    del env.settings["max_active"]
    assert not env.ledger.max_active
    env.settings["other"] = 1
    await env.ledger.acquire("io")
    assert list(env.active_io) == ["io"]
    assert env.queued == 0


def test_settings_come_in_layers(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('max_active = 4\n[providers.mine]\nurl = "http://file"\ntimeout = "1s"\n')
    env = open_env({"providers": {"mine": {"url": "http://code"}}}, config=config)
    assert env.max_active == 4
    assert env.endpoint_settings("mine") == {
        "provider": "openai_chat",
        "url": "http://code",
        "timeout": "1s",
        "quirks": {},
    }
    with pytest.raises(TypeError, match="object"):
        open_env(["x"])  # type: ignore[arg-type]


def test_A4_no_override_of_none_disables_a_limit() -> None:
    env = Env({"providers": {"openai": {"stuck_timeout": "20s"}}}, environ={})
    assert env.endpoint_settings("openai", {"stuck_timeout": None})["stuck_timeout"] == "20s"
    env.settings["providers"]["openai"]["stuck_timeout"] = "30s"
    assert env.endpoint_settings("openai")["stuck_timeout"] == "30s"


# --- endpoints ---


async def test_an_endpoint_is_registered_with_all_it_needs() -> None:
    env = Env(environ={})
    endpoint = env.register_endpoint(
        "mine", url="http://mine/v1", auth=KEY + "\n", models={"a": {"context_window": 9}}, timeout="5s"
    )
    assert (endpoint.name, endpoint.provider, endpoint.url) == ("mine", "openai_chat", "http://mine/v1")
    assert endpoint.auth == Secret(KEY)
    assert env.endpoint("mine").policy["timeout"] == "5s"
    assert env.context_window("mine/a") == 9
    assert env.endpoint_names()[-1] == "mine"
    address = await env.resolve("mine")
    assert (address.url, address.credential) == ("http://mine/v1", Secret(KEY))
    assert env.scrub(f"key {KEY}") == "key ***"


def test_registering_a_known_endpoint_lays_over_it() -> None:
    env = Env(environ={})
    endpoint = env.register_endpoint("openai", url="http://proxy/v1", quirks={"files": "inline"})
    assert endpoint.url == "http://proxy/v1"
    assert endpoint.policy["quirks"]["max_tokens_field"] == "max_completion_tokens"
    assert endpoint.policy["quirks"]["files"] == "inline"
    assert endpoint.provider == "openai_chat"


@pytest.mark.parametrize("name", ["a/b", "", "providers"])
def test_a_name_no_selector_could_reach_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        Env(environ={}).register_endpoint(name, url="http://x")
    with pytest.raises(ValueError, match="absolute"):
        Env(environ={}).register_endpoint("mine", url="host:80")


async def test_auth_is_set_live() -> None:
    env = Env(environ={})
    with pytest.raises(ProviderError, match="OPENAI_API_KEY"):
        await env.resolve("openai")
    with trio.testing.assert_checkpoints():
        await env.auth_set("openai", KEY, scope="package")
    assert env.credential("openai") == Secret(KEY)
    assert env.scrub(KEY) == "***"
    await env.auth_set("openai", {"token": None})
    with pytest.raises(ProviderError):
        env.credential("openai")
    with pytest.raises(ValueError, match="scope"):
        await env.auth_set("openai", KEY, scope="everywhere")
    with pytest.raises(ValueError, match="name"):
        await env.auth_set("", KEY)
    with pytest.raises(TypeError, match="credential"):
        await env.auth_set("openai", 5)  # type: ignore[arg-type]


async def test_resolving_is_a_checkpoint() -> None:
    env = Env(environ={})
    with trio.testing.assert_checkpoints():
        assert (await env.resolve("vllm")).credential is None


def test_a_window_is_known_by_selector() -> None:
    env = Env(environ={})
    env.windows.report("vllm", "m", 4096)
    assert env.context_window("vllm/m") == 4096
    with pytest.raises(ValueError, match="selected"):
        env.context_window("vllm")


# --- plug-ins ---


def test_plug_ins_are_registered_on_the_env() -> None:
    env = Env(environ={})
    provider = env.provider("openai_chat")
    env.register_provider(provider)
    assert env.provider("openai_chat") is provider
    pipe = Pipe()
    env.register_transport("pipe", pipe)
    assert env.transport("pipe://x") is pipe


def test_tools_are_registered_on_the_env() -> None:
    env = Env(environ={})
    asked: list[object] = []

    def look(where: str) -> str:
        """Look."""
        return where

    def available(found: object) -> bool:
        asked.append(found)
        return True

    tool = env.register_tool(look, available=available, safe=True)
    assert env.tool("look") is tool
    assert env.tool_schemas() == []
    env.refresh_tool_availability()
    assert asked == [env]
    assert [schema["name"] for schema in env.tool_schemas(["look"])] == ["look"]
    env.register_tool(look, {"description": "Again"}, name="again")
    assert [schema["name"] for schema in env.tool_schemas()] == ["look", "again"]


# --- the network ---


def test_the_tls_context_is_made_once() -> None:
    env = Env(environ={})
    assert env.ssl_context is env.ssl_context
    assert env.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert env.ssl_context.check_hostname


def test_a_ca_file_adds_trust(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    trustme.CA(organization_name="ours").cert_pem.write_to_path(str(path))
    env = Env({"ca_file": str(path)}, environ={})
    assert any("ours" in repr(found["subject"]) for found in env.ssl_context.get_ca_certs())


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file"), ("no certificate", "certificate")])
def test_a_bad_ca_file_is_named(tmp_path: Path, content: str | None, reason: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ProviderError, match=rf"ca.pem.*ca_file.*{reason}") as caught:
        _ = Env({"ca_file": str(path)}, environ={}).ssl_context
    assert caught.value.kind is ErrorKind.NETWORK
    assert not caught.value.retryable


def test_a_python_without_certificates_gets_certifis(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = ssl.DefaultVerifyPaths(None, None, "", "", "", "")  # type: ignore[arg-type]
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    assert len(Env(environ={}).ssl_context.get_ca_certs()) > 50


def test_the_proxy_is_the_endpoints_then_ours_then_the_environments() -> None:
    env = Env({"proxy": "http://all"}, environ={"ALL_PROXY": "http://environment"})
    assert env.proxy_for("https://h", {"proxy": "endpoint:3128"}) == "http://endpoint:3128"
    assert env.proxy_for("https://h", {"proxy": None}) == "http://all"
    assert env.proxy_for("https://h") == "http://all"
    for direct in (False, "", "direct"):
        assert env.proxy_for("https://h", {"proxy": direct}) is None
    del env.settings["proxy"]
    assert env.proxy_for("https://h", {}) == "http://environment"
    assert Env(environ={}).proxy_for("https://h") is None


# --- what is said about it ---


def test_events_reach_listeners_until_they_are_taken_off() -> None:
    env = Env(environ={})
    heard: list[EnvEvent] = []

    def broken(event: EnvEvent) -> None:
        raise ValueError(f"bug {KEY}")

    env.scrubber.add(KEY)
    handle = env.on_event(heard.append)
    env.on_event(broken)
    with structlog.testing.capture_logs() as logs:
        env.emit("io_start", io="the io")
    assert heard == [EnvEvent("io_start", {"io": "the io"})]
    assert [(log["event"], log["error"]) for log in logs] == [("env.listener_failed", "ValueError: bug ***")]
    assert env.off_event(handle)
    assert not env.off_event(handle)


async def test_K1_the_scrubber_keeps_up_with_what_is_set_later() -> None:
    env = Env(environ={})
    env.settings["mine"] = {"url": "http://h", "provider": "openai_chat", "auth": {"token": f"{KEY}-later"}}
    assert env.scrub(f"{KEY}-later") == "***"
    del env.settings["mine"]
    await env.resolve("vllm", {"extra_headers": {"X-Api-Key": f"override-{KEY}"}})
    assert env.scrub(f"override-{KEY}") == "***"


async def test_K1_a_canary_shows_up_nowhere(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": KEY, "GROQ_API_KEY": f"{KEY}\nx", "ALL_PROXY": f"http://me:{KEY}@proxy:1"}
    settings: dict[str, Any] = {
        "providers": {
            "query": {"url": f"http://h/?key={KEY}-query"},
            "user": {"url": f"http://u:{KEY}-user@h"},
        },
        "xai": {"auth": {"token": f"{KEY}-record"}},
        "bare": {"auth": f"{KEY}-bare", "provider": "openai_chat", "url": "http://b"},
    }
    config = tmp_path / "broken.toml"
    config.write_text(f'token = "{KEY}"\n= broken')
    shown: list[str] = []

    def show(value: object) -> None:
        shown.extend([str(value), repr(value)])
        if isinstance(value, BaseException):
            shown.append("".join(traceback.format_exception(value)))

    with structlog.testing.capture_logs() as logs:
        env = Env(settings, environ=environ)
        for name in ("openai", "xai", "bare"):
            show(await env.resolve(name))
            show(env.endpoint(name))
            show(env.endpoint_settings(name))
        await env.auth_set("mistral", f"{KEY}-set")
        show(env.settings)
        show(env)
        proxy = env.proxy_for("https://h")
        for attempt in (
            lambda: env.credential("groq"),
            lambda: env.register_endpoint("vllm", auth=f"{KEY}\0"),
            lambda: Env(config=config),
        ):
            with pytest.raises((ProviderError, ValueError)) as caught:
                attempt()
            show(caught.value)
        for suffix in ("", "-query", "-user", "-record", "-bare", "-set"):
            show(env.scrub(f"the server said: {KEY}{suffix}, via {proxy}"))
        env.on_event(lambda event: env.credential("nobody " + KEY))
        env.emit("io_start")
    shown.append(repr(logs))
    assert len(shown) > 30
    assert [text for text in shown if KEY in text] == []


# --- the embedded model ---


class FakeServer:
    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        self.url, self.key, self.alive = "http://127.0.0.1:4711/v1", Secret("key-of-the-child"), True

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.alive = False


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[FakeServer]:
    started: list[FakeServer] = []

    async def start(spec: ServerSpec) -> FakeServer:
        await trio.lowlevel.checkpoint()
        started.append(FakeServer(spec))
        return started[-1]

    monkeypatch.setattr(embedded, "start_server", start)
    monkeypatch.setattr(embedded, "require_runtime", lambda: None)
    return started


async def test_the_local_endpoint_starts_its_server_and_the_env_ends_it(
    servers: list[FakeServer], tmp_path: Path
) -> None:
    weights = tmp_path / "mine.gguf"
    weights.touch()
    settings = {"local": {"weights": str(weights), "cache_dir": str(tmp_path), "slots": 2}}
    async with Env(settings, environ={}) as env:
        address = await env.resolve("local")
        assert (address.url, address.credential) == ("http://127.0.0.1:4711/v1", Secret("key-of-the-child"))
        assert env.scrub("key-of-the-child") == "***"
        await env.resolve("local")
        assert len(servers) == 1
        assert (servers[0].spec.weights, servers[0].spec.slots) == (weights, 2)
    assert not servers[0].alive


async def test_the_local_server_ends_when_idle_and_no_request_is_in_flight(
    servers: list[FakeServer], tmp_path: Path, autojump_clock: MockClock
) -> None:
    (tmp_path / "w").touch()
    settings = {"local": {"weights": str(tmp_path / "w"), "cache_dir": str(tmp_path), "idle_after": "1m"}}
    async with Env(settings, environ={}) as env:
        await env.resolve("local")
        await env.ledger.acquire("io")
        await trio.sleep(100)
        assert servers[0].alive
        env.ledger.release("io")
        await trio.sleep(121)
        assert not servers[0].alive


async def test_without_weights_or_entering_the_error_says_what_to_do(
    servers: list[FakeServer], tmp_path: Path
) -> None:
    settings = {"local": {"weights": str(tmp_path / "none"), "cache_dir": str(tmp_path)}}
    with pytest.raises(RuntimeError, match="async with"):
        await Env(settings, environ={}).resolve("local")
    async with Env(settings, environ={}) as env:
        with pytest.raises(ProviderError, match="weights"):
            await env.resolve("local")
    assert math.isinf(aiio.env.parse_duration("never") or 0)


async def test_a_local_endpoint_with_a_url_is_an_ordinary_one() -> None:
    env = Env({"providers": {"local": {"url": "http://127.0.0.1:1/v1"}}}, environ={})
    assert await env.resolve("local") == env_module.Address(url="http://127.0.0.1:1/v1")
