"""Writes over a WebSocket that goes wrong: silence, pings, closes, refusals. Rows B4, I1, I3."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import aiio
from aiio.context.events import Done, Error, ErrorKind, Send, TextDelta
from aiio.providers.base import Provider
from tests.serving import hang
from tests.ws_serving import Socket, serve_ws

from .ws_peers import CONTEXT, CREATED, DIALECTS, answer, delta, independent, peer, say

each_dialect = pytest.mark.parametrize("provider", DIALECTS)


async def half_an_answer(socket: Socket) -> None:
    """Say half an answer of Responses."""
    await socket.accept()
    await socket.message()
    await say(socket, CREATED, delta("Half"))


# -- silence


@pytest.mark.parametrize(
    ("moment", "pings"),
    [("during the handshake", False), ("before the first frame", False), ("before the first frame", True)],
)
async def test_the_connect_budget_ends_with_the_first_frame(
    moment: str, pings: bool, autojump_clock: MockClock
) -> None:
    async def script(socket: Socket) -> None:
        if moment == "before the first frame":
            await socket.accept()
            while pings:
                await socket.ping()
                await trio.sleep(0.5)
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url, connect_timeout="3s") as io:
        terminal = await io.write(CONTEXT)
        assert trio.current_time() == pytest.approx(3, abs=0.6)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.limit, terminal.emitted) == (ErrorKind.NETWORK, "connect", False)


@pytest.mark.parametrize("whose", ["ours", "the server's"])
async def test_I3_pings_and_pongs_do_not_keep_a_stuck_answer_alive(
    whose: str, autojump_clock: MockClock
) -> None:
    async def script(socket: Socket) -> None:
        await half_an_answer(socket)
        while whose != "ours":
            await trio.sleep(10)
            await socket.ping()
        await socket.until_gone()

    limits = {"stuck_timeout": "58s", "ws_ping_interval": "10s" if whose == "ours" else "never"}
    async with serve_ws(script) as server, peer(server.url, **limits) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.limit, terminal.native) == ("stuck", {"keepalives": 5})
    assert terminal.message is not None
    assert terminal.message["content"] == [{"type": "text", "text": "Half"}]
    assert trio.current_time() == pytest.approx(58, abs=0.6)


@pytest.mark.parametrize(
    ("options", "limit", "code", "at"),
    [({}, None, "ping_timeout", 90), ({"timeout": "3s"}, "overall", None, 3)],
    ids=["no limit", "overall"],
)
async def test_a_server_that_stops_reading_before_the_request_is_whole(
    options: dict[str, Any], limit: str | None, code: str | None, at: float, autojump_clock: MockClock
) -> None:
    """The connect budget grows with what is sent, a millisecond a byte: others notice before it."""

    async def script(socket: Socket) -> None:
        await socket.accept()
        await hang()(socket.exchange)

    huge = [aiio.user_message("x" * (8 << 20))]
    async with serve_ws(script) as server, peer(server.url) as io:
        terminal = await io.write(huge, **options)
        assert trio.current_time() == pytest.approx(at, abs=0.6)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.limit, terminal.code) == (ErrorKind.NETWORK, limit, code)
    assert terminal.message is None


class Talkative(Provider):
    """Says a lot in the middle of an answer."""

    name = "talkative"

    def request(self, context: Any, io: Any) -> tuple[dict[str, str], Any]:
        return {}, "go"

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        return [TextDelta(0, "Half"), Send(b"x" * (8 << 20))]


async def test_a_server_that_stops_reading_in_mid_answer_is_stuck(autojump_clock: MockClock) -> None:
    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await socket.text("{}")
        await hang()(socket.exchange)

    async with serve_ws(script) as server, aiio.open_env() as env:
        env.register_provider(Talkative)
        env.register_endpoint("peer", provider="talkative", url=server.url)
        terminal = await aiio.IO(env=env, model="peer/m", stuck_timeout="20s").write(CONTEXT)
        assert trio.current_time() == pytest.approx(20, abs=0.6)
    assert isinstance(terminal, Error)
    assert (terminal.limit, terminal.emitted) == ("stuck", True)
    assert terminal.message == {
        "type": 3,
        "content": [{"type": "text", "text": "Half"}],
        "error": terminal.error,
    }


# -- the end before the end


@pytest.mark.parametrize("moment", ["in the set-up", "before the first delta", "after it"])
@pytest.mark.parametrize(("code", "kind"), [(1000, "network"), (1008, "provider"), (1011, "provider")])
@each_dialect
async def test_I1_a_close_before_the_terminal_message_is_an_error_with_the_partial(
    provider: str, code: int, kind: str, moment: str
) -> None:
    dialect = DIALECTS[provider]

    async def script(socket: Socket) -> None:
        await socket.accept()
        if moment == "in the set-up":
            await socket.message()
        else:
            await dialect.session(socket)
        if moment == "after it":
            await say(socket, *dialect.half)
        await socket.close(code, "because")

    async with serve_ws(script) as server, peer(server.url, provider=provider) as io:
        terminal = await io.write(CONTEXT)
        await server.http.wait_idle()
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.status) == (kind, code)
    assert type(terminal.status) is int
    assert f": {code} (" in terminal.error
    assert terminal.error.endswith("): because")
    after = moment == "after it"
    assert terminal.emitted is after
    assert terminal.safe_to_retry is (code != 1008 and not after)
    half = {"type": 3, "content": [{"type": "text", "text": "Half"}], "error": terminal.error}
    assert terminal.message == (half if after else None)


@pytest.mark.parametrize("provider", ["openai_responses_ws", "openai_realtime"])
async def test_a_binary_message_of_openai_is_malformed(provider: str) -> None:
    dialect = DIALECTS[provider]

    async def script(socket: Socket) -> None:
        await socket.accept()
        await dialect.session(socket)
        await say(socket, *dialect.half)
        await socket.binary(b"{}")
        await socket.until_gone()

    async with serve_ws(script) as server, peer(server.url, provider=provider) as io:
        terminal = await io.write(CONTEXT)
        await server.http.wait_idle()
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.emitted) == (ErrorKind.MALFORMED, True)


# -- one plain terminal


async def test_B4_a_refused_handshake_is_one_plain_terminal() -> None:
    async def script(socket: Socket) -> None:
        await socket.refuse(401, b'{"error":{"message":"Incorrect API key","code":"invalid_api_key"}}')

    async with serve_ws(script) as server, peer(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.status, terminal.code) == (ErrorKind.AUTH, 401, "invalid_api_key")
    assert terminal.error == "Incorrect API key [peer]"


async def test_B4_a_callback_that_raises_while_the_socket_breaks_raises_as_itself() -> None:
    def on_text_delta(event: Any) -> None:
        raise ValueError("mine")

    async with serve_ws(half_an_answer) as server, peer(server.url) as io:
        with pytest.raises(ValueError, match=r"^mine$"):
            await io.write(CONTEXT, {"on_text_delta": on_text_delta})
        assert io.state == "idle"


# -- a peer that nobody here wrote


async def test_an_independent_server_gets_what_it_needs() -> None:
    async with independent(*answer("Hi é😀")) as server, peer(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Done)
    assert terminal.message == {"type": 3, "content": [{"type": "text", "text": "Hi é😀"}]}
    assert [server.asked[0]["type"], server.asked[1]] == ["response.create", 1000]


async def test_I1_an_independent_server_that_closes_too_early() -> None:
    async with independent(CREATED, delta("Half"), close=1012) as server, peer(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.status, terminal.retryable) == (ErrorKind.NETWORK, 1012, True)
    assert server.asked[1:] == [1012]


async def test_B4_an_independent_server_that_refuses() -> None:
    async with independent(refusal=403) as server, peer(server.url) as io:
        terminal = await io.write(CONTEXT)
    assert isinstance(terminal, Error)
    assert (terminal.kind, terminal.status, server.asked) == (ErrorKind.AUTH, 403, [])


# -- sending in mid-answer


class SlowlyTaken(Provider):
    """Says a lot after the answer has begun."""

    name = "slowly-taken"

    def request(self, context: Any, io: Any) -> tuple[dict[str, str], Any]:
        return {}, "go"

    def translate(self, native: Any, state: Any, io: Any) -> Any:
        if native == "more":
            return [Send(b"x" * (8 << 20)), Send(b"y")]
        return [TextDelta(0, native), *([Done(done_reason="stop")] if native == "!" else [])]


async def test_a_send_is_not_cut_by_a_deadline_that_has_moved(patient_clock: MockClock) -> None:
    """The limit is not re-armed for every read; before a send it is, since half a message is lost."""

    async def script(socket: Socket) -> None:
        await socket.accept()
        await socket.message()
        await trio.sleep(1)
        await socket.text('"Half"')
        await trio.sleep(8)
        await socket.text('" an hour"', '"more"')
        await trio.sleep(5)  # past the limit that the first word set
        assert len(await socket.message()) == 8 << 20
        assert await socket.message() == "y"
        await socket.text('"!"')
        await socket.until_gone()

    async with serve_ws(script) as server, aiio.open_env() as env:
        env.register_provider(SlowlyTaken)
        env.register_endpoint("peer", provider="slowly-taken", url=server.url)
        terminal = await aiio.IO(env=env, model="peer/m", stuck_timeout="10s").write(CONTEXT)
    assert isinstance(terminal, Done), terminal
