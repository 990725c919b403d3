"""`aiio doctor`: every kind of trouble gets its own name, its likely cause, and what to do."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock

from aiio.cli.doctor import STEPS, Checkup, Finding, doctor
from aiio.cli.doctor_net import STEP_LIMIT, Place, connect, resolve_name, speak_tls
from aiio.cli.doctor_trouble import Trouble
from aiio.cli.exits import CliFault
from aiio.context.events import ErrorKind
from aiio.env.env import Env
from aiio.env.errors import ProviderError
from aiio.providers import define_provider
from tests.cli.printed import Printed
from tests.cli.processes import answer
from tests.serving import Authority, Exchange, Server, respond, serve, stall
from tests.transports.proxying import run_proxy

CANARY = "sk-canary-0123456789abcdef"
JSON = {"content-type": "application/json"}
LIST = b'{"data": [{"id": "m"}]}'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def good(exchange: Exchange) -> None:
    """Answer as a model server does."""
    assert exchange.request is not None
    if exchange.request.method == "GET":
        await respond(LIST, headers=JSON)(exchange)
    else:
        for step in answer("OK"):
            await step(exchange)


def env_of(url: str, **settings: Any) -> Env:
    policy = {"url": url, **settings.pop("policy", {})}
    return Env({"providers": {"mine": policy}, "mine": {"auth": CANARY}, **settings}, environ={})


async def examine(env: Env, name: str = "mine", model: str | None = None) -> Checkup:
    """Run all steps and return what was found."""
    checkup = Checkup(env=env, endpoint=name, model=model)

    async def report(finding: Finding) -> None:
        assert finding is checkup.findings[-1]

    async with env:
        await checkup.run(report)
    assert [finding.step for finding in checkup.findings] == list(STEPS)
    shown = checkup.verdict + repr(checkup.findings) + repr(checkup)
    assert CANARY not in shown
    return checkup


def failed_at(checkup: Checkup) -> tuple[str, str, ErrorKind]:
    """Return (step, name of the trouble, kind)."""
    (failed,) = [finding for finding in checkup.findings if finding.outcome == "failed"]
    after = checkup.findings[checkup.findings.index(failed) + 1 :]
    assert all(finding.outcome == "skipped" for finding in after)
    assert checkup.trouble is not None
    return failed.step, checkup.trouble.name, checkup.trouble.kind


# --- a good server ---


async def test_a_good_server_works() -> None:
    async with serve(good) as server:
        checkup = await examine(env_of(server.url))
    assert checkup.trouble is None
    assert checkup.verdict == "mine works"
    assert [(finding.step, finding.outcome, finding.detail) for finding in checkup.findings[:-1]] == [
        ("settings", "ok", "dialect openai_chat, no settings files"),
        ("credential", "ok", f"the program's own settings, {len(CANARY)} characters"),
        ("proxy", "ok", "none: the connection is direct"),
        ("dns", "ok", "127.0.0.1"),
        ("tcp", "ok", f"connected to 127.0.0.1:{server.port}"),
        ("tls", "skipped", "the URL is no https URL"),
        ("http", "ok", "the server answers (status 200)"),
        ("models", "ok", "1 model"),
    ]
    assert checkup.findings[-1].outcome == "ok"
    assert checkup.findings[-1].detail.startswith("mine/m answered, ")
    assert server.requests[-1].json()["model"] == "m"


async def test_a_good_server_behind_tls_works(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with serve(good, tls=context) as server:
        checkup = await examine(env_of(server.url, ca_file=str(tmp_path / "ca.pem")))
    assert checkup.trouble is None
    tls = checkup.findings[5]
    assert tls.outcome == "ok"
    assert "TLSv1.3, certificate good until" in tls.detail


async def test_a_good_server_behind_a_proxy_works() -> None:
    async with serve(good) as server, run_proxy() as proxy:
        checkup = await examine(env_of(server.url, proxy=proxy.url))
    assert checkup.trouble is None
    assert checkup.findings[2].detail == f"through {proxy.url}"
    assert checkup.findings[5].detail == "the proxy carries it"


async def test_no_model_is_asked_for_that_may_cost_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiio.cli.doctor_net.is_loopback", lambda url: False)
    async with serve(good) as server:
        checkup = await examine(env_of(server.url))
        assert checkup.findings[-1].detail == "name a model to try one: aiio doctor mine/MODEL"
        checkup = await examine(env_of(server.url), model="other")
    assert checkup.findings[-2].outcome == "note"
    assert checkup.findings[-2].detail == "1 model, 'other' is not among them"
    assert checkup.findings[-1].outcome == "ok"


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_without_a_list_works_all_the_same(status: int) -> None:
    async with serve(respond(b"{}", status=status)) as server:
        checkup = await examine(env_of(server.url))
    assert checkup.trouble is None
    assert checkup.findings[6].detail == f"the server answers (status {status})"
    assert checkup.findings[7].detail == "the server publishes no list"


@pytest.mark.parametrize(
    "step",
    [respond(b"{}", status=400), respond(b"hello", headers={"content-type": "text/plain"}), respond(LIST)],
)
async def test_a_dialect_without_a_list_is_asked_for_anything(
    step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiio.providers.listing.OpenAIListing.models_request", lambda *args: None)
    async with serve(step) as server:
        checkup = await examine(env_of(server.url))
    assert checkup.trouble is None
    assert checkup.findings[7].outcome == "skipped"


async def test_the_dialect_tries_the_connection_its_own_way() -> None:
    async def test_connection(cls: Any, access: Any) -> Any:
        found = await access.fetch_json(f"{access.url}/health")
        if found != {"ok": True}:
            raise KeyError("a bug")
        return None

    hook = {"test_connection": classmethod(test_connection)}
    async with serve(respond(b'{"ok": true}', headers=JSON)) as server:
        for answer, outcome in ((b'{"ok": true}', "ok"), (b"{}", "failed")):
            server.script_next(respond(answer, headers=JSON))
            env = env_of(server.url, policy={"provider": "own"})
            env.register_provider(define_provider(type("Own", (), hook), name="own", dialect="chat"))
            checkup = await examine(env)
            assert (checkup.findings[6].step, checkup.findings[6].outcome) == ("http", outcome)
    assert failed_at(checkup) == ("http", "provider", ErrorKind.PROVIDER)
    assert "a bug" in checkup.verdict


# --- before the network ---


async def test_a_missing_credential() -> None:
    env = Env(environ={})
    checkup = await examine(env, "openai")
    assert failed_at(checkup) == ("credential", "no_credential", ErrorKind.AUTH)
    assert checkup.verdict == (
        "openai: the credential is missing: OPENAI_API_KEY; "
        "set it in the environment, or run `aiio auth set openai`"
    )


async def test_a_credential_of_an_odd_shape_is_noted() -> None:
    async with serve(good) as server:
        env = Env(environ={"OPENAI_API_KEY": "pk-0123456789", "OPENAI_BASE_URL": server.url})
        checkup = await examine(env, "openai")
    assert checkup.findings[1].outcome == "note"
    assert "usually begin with sk-" in checkup.findings[1].detail
    assert checkup.trouble is None


async def test_settings_nothing_can_be_sent_with() -> None:
    env = Env(environ={"AZURE_OPENAI_API_KEY": "k-0123456"})
    assert failed_at(await examine(env, "azure")) == ("credential", "no_url", ErrorKind.PROVIDER)
    checkup = await examine(env_of("ftp://h"))
    assert failed_at(checkup) == ("proxy", "bad_url", ErrorKind.PROVIDER)
    checkup = await examine(env_of("http://h", policy={"proxy": "http://[x"}))
    assert failed_at(checkup) == ("proxy", "bad_url", ErrorKind.PROVIDER)
    assert "the proxy is no usable URL" in checkup.verdict
    async with serve(good) as server:
        checkup = await examine(env_of(server.url.replace("http", "https"), ca_file="/none.pem"))
        assert failed_at(checkup) == ("tls", "bad_ca_file", ErrorKind.NETWORK)
        checkup = await examine(env_of(server.url, policy={"provider": "nobody"}))
        assert failed_at(checkup) == ("http", "unknown_provider", ErrorKind.PROVIDER)
        checkup = await examine(env_of(server.url, policy={"extra_headers": 5}))
        assert failed_at(checkup)[0] == "http"


async def test_the_embedded_model_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(good) as server:
        env = Env({"providers": {"local": {"url": server.url}}, "local": {"auth": CANARY}}, environ={})
        endpoint = env.endpoint("local")
        embedded = type(endpoint)(name="local", embedded=True)
        monkeypatch.setattr(env, "endpoint", lambda name: embedded)
        checkup = await examine(env, "local")
    assert "one of its own" in checkup.findings[1].detail


# --- the network ---


async def test_nothing_listening() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        checkup = await examine(env_of(f"http://127.0.0.1:{taken.getsockname()[1]}"))
    assert failed_at(checkup) == ("tcp", "nothing_listening", ErrorKind.NETWORK)
    assert "nothing is listening at 127.0.0.1:" in checkup.verdict
    assert checkup.verdict.endswith("start the server, or correct the address")


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port that drops attempts to connect, as a firewall does: its queue is full and nobody accepts."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting: list[socket.socket] = []
        try:
            for _ in range(8):
                sock = socket.socket()
                waiting.append(sock)
                sock.settimeout(0.2)
                try:
                    sock.connect(("127.0.0.1", port))
                except TimeoutError:
                    break
            yield port
        finally:
            for sock in waiting:
                sock.close()


async def test_a_firewall_drop(autojump_clock: MockClock) -> None:
    with full_backlog() as port:
        checkup = await examine(env_of(f"http://127.0.0.1:{port}"))
    assert failed_at(checkup) == ("tcp", "firewall", ErrorKind.NETWORK)
    assert checkup.findings[4].seconds == STEP_LIMIT
    assert "no reply in 10 s; a firewall drops it" in checkup.verdict


async def test_a_name_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    fault: Exception = socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def lookup(*args: Any, **more: Any) -> Any:
        raise fault

    monkeypatch.setattr(trio.socket, "getaddrinfo", lookup)
    assert failed_at(await examine(env_of("http://nowhere"))) == ("dns", "no_such_host", ErrorKind.NETWORK)
    fault = UnicodeError("label too long")
    assert failed_at(await examine(env_of("http://nowhere")))[1] == "no_such_host"
    fault = socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
    assert failed_at(await examine(env_of("http://nowhere"))) == ("dns", "dns_silent", ErrorKind.NETWORK)


async def test_a_name_server_that_is_silent(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def lookup(*args: Any, **more: Any) -> Any:
        await trio.sleep_forever()

    monkeypatch.setattr(trio.socket, "getaddrinfo", lookup)
    with pytest.raises(Trouble, match="does not answer for nowhere"):
        await resolve_name(Place.of("http://nowhere", None))
    assert trio.current_time() == STEP_LIMIT


async def test_a_host_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 9))]
    fault = OSError(errno.ENETUNREACH, "Network is unreachable")

    async def lookup(*args: Any, **more: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return found

    class Unwilling:
        """A socket that can't connect."""

        def __init__(self, *args: Any) -> None: ...

        async def connect(self, address: Any) -> None:
            raise fault

        def close(self) -> None: ...

    monkeypatch.setattr(trio.socket, "getaddrinfo", lookup)
    monkeypatch.setattr(trio.socket, "socket", Unwilling)
    for error, name, advice in (
        (fault, "unreachable", "check that this machine is online, and the address"),
        (OSError(errno.ECONNREFUSED, "x"), "nothing_listening", "check the port, or correct the address"),
    ):
        fault = error
        with pytest.raises(Trouble) as caught:
            await connect(Place.of("http://far.example", None))
        assert (caught.value.name, caught.value.advice) == (name, advice)
    with pytest.raises(Trouble, match=r"\[::1\]:443"):
        await connect(Place.of("https://[::1]", None))


async def test_a_proxy_that_refuses() -> None:
    async with serve(good) as server, run_proxy() as proxy:
        for refusal in (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 407 No\r\n\r\n"):
            proxy.refusal = refusal
            url = server.url.replace("http", "https")
            checkup = await examine(env_of(url, proxy=proxy.url))
            assert failed_at(checkup) == ("http", "proxy_refuses", ErrorKind.NETWORK)
            assert "the proxy refuses" in checkup.verdict
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"http://me:{CANARY}@127.0.0.1:{taken.getsockname()[1]}"
        checkup = await examine(env_of("http://h", proxy=gone))
    assert failed_at(checkup)[:2] == ("tcp", "nothing_listening")
    assert "start the proxy" in checkup.verdict


# --- TLS ---


async def tls_trouble(server: Server, context: ssl.SSLContext) -> Trouble:
    with pytest.raises(Trouble) as caught:
        await speak_tls(Place.of(server.url, None), context)
    assert caught.value.kind is ErrorKind.NETWORK
    return caught.value


async def test_a_wrong_name_and_an_expired_certificate() -> None:
    authority = Authority()
    ours = authority.client_context()
    async with serve(good, tls=authority.server_context("elsewhere.example")) as server:
        trouble = await tls_trouble(server, ours)
        assert trouble.name == "wrong_name"
        assert "is for another name" in trouble.verdict
    async with serve(good, tls=authority.server_context("elsewhere.example")) as server:
        server.url = server.url.replace("127.0.0.1", "localhost")
        assert (await tls_trouble(server, ours)).name == "wrong_name"
    async with serve(good, tls=authority.server_context(expired=True)) as server:
        trouble = await tls_trouble(server, ours)
        assert trouble.name == "expired"
        assert "is expired" in trouble.verdict
        assert "clock" in trouble.advice
    async with serve(good, tls=authority.server_context()) as server:
        trouble = await tls_trouble(server, Authority().client_context())
        assert trouble.name == "untrusted"
        assert "ca_file" in trouble.advice


async def test_what_is_no_tls(autojump_clock: MockClock) -> None:
    context = Authority().client_context()
    async with serve(respond(b"x"), read="nothing") as server:
        server.url = server.url.replace("http", "https")
        assert (await tls_trouble(server, context)).name == "no_tls"
    autojump_clock.autojump_threshold = 0.02
    async with serve(stall(), read="nothing") as server:
        server.url = server.url.replace("http", "https")
        assert (await tls_trouble(server, context)).name == "tls_silent"

    async def hang_up(exchange: Exchange) -> None:
        await exchange.stream.receive_some(1)

    async with serve(hang_up, read="nothing") as server:
        server.url = server.url.replace("http", "https")
        assert (await tls_trouble(server, context)).name == "tls_failed"


# --- HTTP ---

CAPTIVE = "<html><title>Hotel</title>Please log in"
ANSWERS: dict[str, tuple[Any, str, str, ErrorKind, str]] = {
    "captive page": (
        respond(CAPTIVE.encode(), headers={"content-type": "text/html"}),
        "http",
        "captive_page",
        ErrorKind.PROVIDER,
        "log in to the network",
    ),
    "redirect": (
        respond(b"", status=302, headers={"location": "http://login.hotel/"}),
        "http",
        "captive_page",
        ErrorKind.PROVIDER,
        "redirects (status 302)",
    ),
    "511": (respond(b"x", status=511), "http", "captive_page", ErrorKind.PROVIDER, "HTML page"),
    "401": (
        respond(b'{"error": {"message": "bad key"}}', status=401, headers=JSON),
        "http",
        "unauthorized",
        ErrorKind.AUTH,
        "bad key; make a new key",
    ),
    "429": (
        respond(b'{"error": {"message": "slow down"}}', status=429, headers={**JSON, "retry-after": "7"}),
        "http",
        "rate_limited",
        ErrorKind.PROVIDER,
        "try again in 7 s",
    ),
    "402": (respond(b"{}", status=402), "http", "rate_limited", ErrorKind.PROVIDER, "try again later"),
    "500": (respond(b"<html>oops", status=502), "http", "server_error", ErrorKind.PROVIDER, "status page"),
    "400": (respond(b"{}", status=400), "http", "provider", ErrorKind.PROVIDER, "check the settings"),
    "no json": (respond(b"{", headers=JSON), "http", "malformed", ErrorKind.MALFORMED, "dialect"),
    "no list": (
        respond(b"{}", headers=JSON),
        "models",
        "malformed",
        ErrorKind.MALFORMED,
        "no list of models",
    ),
}


@pytest.mark.parametrize(("step", "at", "name", "kind", "says"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_a_server_answers(step: Any, at: str, name: str, kind: ErrorKind, says: str) -> None:
    async with serve(step) as server:
        checkup = await examine(env_of(server.url))
    assert failed_at(checkup) == (at, name, kind)
    assert says in checkup.verdict
    assert checkup.verdict.startswith("mine: ")
    assert "\n" not in checkup.verdict


def listing_then(step: Any) -> Any:
    """Answer the question for models well, and a request with *step*."""

    async def either(exchange: Exchange) -> None:
        assert exchange.request is not None
        await (respond(LIST, headers=JSON) if exchange.request.method == "GET" else step)(exchange)

    return either


async def test_a_request_that_fails_is_named_too() -> None:
    refused = respond(b'{"error": {"message": "no"}}', status=401, headers=JSON)
    limited = respond(b'{"error": {"message": "no credit"}}', status=429, headers=JSON)
    async with serve(listing_then(refused)) as server:
        checkup = await examine(env_of(server.url))
        assert failed_at(checkup) == ("request", "unauthorized", ErrorKind.AUTH)
        server.script(listing_then(limited))
        checkup = await examine(env_of(server.url))
        assert failed_at(checkup) == ("request", "rate_limited", ErrorKind.PROVIDER)
        checkup = await examine(env_of(server.url, policy={"models": {"x": {}}}), model="m")
        assert failed_at(checkup)[0] == "request"
        assert "'m'" in checkup.verdict


def test_trouble_without_a_pattern_keeps_its_words() -> None:
    trouble = Trouble.of(KeyError("bug"), "mine")
    assert (trouble.name, trouble.kind) == ("provider", ErrorKind.PROVIDER)
    trouble = Trouble.of(ProviderError("network", "gone.", code="too_slow"), "mine")
    assert (trouble.name, trouble.verdict) == ("too_slow", "gone")


# --- the command ---


async def test_the_command_prints_steps_and_verdict(tmp_path: Path) -> None:
    async with serve(good) as server:
        settings = {"providers": {"mine": {"url": server.url}}, "model": "mine/m"}
        with Printed(tmp_path, settings) as printed:
            async with printed.env:
                assert await doctor(printed.session, printed.out, None) == 0
            lines = printed.text().splitlines()
            assert [line.split()[:2] for line in lines[:2]] == [["ok", "settings"], ["ok", "credential"]]
            assert " ms  " in lines[0]
            assert lines[-1] == "mine works"
            with pytest.raises(CliFault, match="unknown endpoint 'nobody'"):
                await doctor(printed.session, printed.out, "nobody/m")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        settings = {"providers": {"mine": {"url": f"http://127.0.0.1:{taken.getsockname()[1]}"}}}
        with Printed(tmp_path, settings) as printed:
            assert await doctor(printed.session, printed.out, "mine", json_lines=True) == 3
            rows = printed.rows()
    assert rows[-1]["outcome"] == "nothing_listening"
    assert [row["step"] for row in rows] == [*STEPS, "verdict"]


async def test_ctrl_c_stops_the_examination(tmp_path: Path) -> None:
    async with serve(stall()) as server:
        with Printed(tmp_path, {"providers": {"mine": {"url": server.url}}}) as printed:

            async def interrupt() -> None:
                await server.wait_open(1)
                while not server.requests:
                    await trio.sleep(0.001)
                printed.session.stopped_by = 2
                printed.session.on_stop()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(interrupt)
                assert await doctor(printed.session, printed.out, "mine", json_lines=True) == 130
            await printed.env.aclose()
            assert "verdict" not in printed.text()
