"""OpenAI's Responses over a WebSocket: the same events as over SSE, one JSON object a message (FORMATS 4).

One request is one `response.create` on a socket of its own. With the setting `ws_keep` an IO keeps its
socket, and a context that goes on exactly where the last answer ended is sent as what is new of it, with
`previous_response_id`; a server that has forgotten the response gets the whole of it on the same socket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from aiio.context.events import Done, Error, Send
from aiio.context.text import sent_json
from aiio.context.types import Message
from aiio.env.errors import HttpStatusError, ProviderError

from .base import Events, Provider, ProviderIO
from .chat_options import audio_mimetype
from .chat_wire import End
from .narrow import dict_of, text_of
from .openai_responses import OpenAIResponses
from .openai_responses_ws_chain import Chain, digest_of
from .responses_plan import quota_of
from .responses_stream import Answer
from .responses_wire import Delta, Event, read_frame

FORGOTTEN = "previous_response_not_found"
TOO_OLD = "websocket_connection_limit_reached"
"""The socket has lived its hour. The same request succeeds on a new one."""

_REFUSED_ANYWAY = (401, 403, 429)  # over whatever transport
_NOT_OVER_A_SOCKET = ("stream", "stream_options", "background")


class SocketAnswer(Answer):
    """One answer over a socket, and what a request that continues it must begin with."""

    def __init__(self, audio: str, chain: Chain) -> None:
        super().__init__(audio)
        self.chain = chain
        self.begun = False
        """The server has begun a response: an error from now on may be followed by `response.failed`."""


class OpenAIResponsesWS(OpenAIResponses):
    """The Responses dialect over a WebSocket.

    Settings of its own, beside those of `openai_responses`: `ws_keep` (bool), and `ws_fallback` ("sse": a
    handshake that is refused for another reason than credentials or rate limits is followed by one request
    over SSE).
    """

    name: ClassVar[str] = "openai_responses_ws"
    label: ClassVar[str] = "OpenAI Responses over WebSocket"

    def __init__(self, url: str, io: ProviderIO) -> None:
        super().__init__(url, io)
        self._chain = Chain()

    @property
    def url(self) -> str:
        """Where this request goes: `http` in the base URL becomes `ws`."""
        return socket_url(super().url)

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, the first message). ValueError: it names what can't be sent."""
        if io.settings.get("ws_fallback") not in (None, "sse"):
            raise ValueError(f"setting ws_fallback must be 'sse', not {io.settings['ws_fallback']!r}")
        headers, body = super().request(context, io)
        left_out = ("Content-Type", "Accept")
        whole = {key: value for key, value in body.items() if key not in _NOT_OVER_A_SOCKET}
        self._chain = Chain({"type": "response.create", **whole})
        return (
            {name: value for name, value in headers.items() if name not in left_out},
            self._chain.continued(io.kept or {}),
        )

    def decode(self, frame: bytes) -> Delta | Event | End:
        """Return the native message in *frame*. ValueError: unreadable, or binary."""
        no_binary(frame)
        return read_frame(frame)

    def new_state(self) -> SocketAnswer:
        """Return the empty answer."""
        return SocketAnswer(audio_mimetype(self.io.settings), self._chain)

    def translate(self, native: Delta | Event | End, state: Answer, io: ProviderIO) -> Events:
        """Return the events that *native* stands for."""
        if not isinstance(native, dict):
            return state.take(native, self.now)
        assert isinstance(state, SocketAnswer)  # as `new_state` made it
        match native["type"]:
            case "response.created":
                state.begun = True
            case "response.output_item.done":
                state.chain.received.append(digest_of(dict_of(native, "item")))
            case "codex.rate_limits":
                self._report_plan(native, io)
            case "error":
                return self._error(native, state, io)
        events = state.take(native, self.now)
        if state.ended:
            _finished(events, state, io)
        return events

    def _error(self, native: Event, state: SocketAnswer, io: ProviderIO) -> Events:
        code = text_of(dict_of(native, "error"), "code") or text_of(native, "code")
        if code == FORGOTTEN and not state.begun and (whole := state.chain.fall_back()):
            io.repaired("context_sent_whole", why="the server no longer knows the response it continues")
            return (Send(sent_json(whole)),)
        self._report_headers(native, io)
        state.take(native, self.now)
        if state.begun:
            return ()
        events = state.finish(self.now)
        for event in events:
            if isinstance(event, Error) and code == TOO_OLD:
                event.retryable = True
        return events

    def _report_headers(self, native: Event, io: ProviderIO) -> None:
        headers = {str(name).lower(): str(value) for name, value in dict_of(native, "headers").items()}
        self.report_plan_usage(headers, io)

    def _report_plan(self, native: Event, io: ProviderIO) -> None:
        windows = dict_of(native, "rate_limits")
        quotas = {name: quota_of(dict_of(windows, name), self.now()) for name in windows}
        io.set_plan_usage(
            label=text_of(native, "plan_type") or None,
            quotas={name: quota for name, quota in quotas.items() if quota},
        )

    def fallback(self, error: ProviderError) -> type[Provider] | None:
        """See `Provider`: server-sent events, when the setting asks for it and the handshake was refused."""
        refused = isinstance(error.__cause__, HttpStatusError) and error.status not in _REFUSED_ANYWAY
        return OverSSE if refused and self.io.settings.get("ws_fallback") == "sse" else None

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]]:
        """See `Provider`. The list comes over HTTP, whatever the base URL's scheme."""
        return super().models_request(plain_url(url), settings, token, after)


class OverSSE(OpenAIResponses):
    """The same request over server-sent events, at the address of a WebSocket."""

    name: ClassVar[str] = OpenAIResponses.name

    @property
    def url(self) -> str:
        """Where this request goes: `ws` in the base URL becomes `http`."""
        return plain_url(super().url)


def _finished(events: Events, state: SocketAnswer, io: ProviderIO) -> None:
    """Have the socket kept after a whole answer, with what a request must know to continue it."""
    if any(isinstance(event, Done) for event in events):
        io.keep(state.chain.memory(text_of(state.facts, "id")))


def socket_url(url: str) -> str:
    """Return *url* with the WebSocket's scheme in the place of HTTP's."""
    return f"ws{url.removeprefix('http')}" if url.startswith(("http://", "https://")) else url


def plain_url(url: str) -> str:
    """Return *url* with HTTP's scheme in the place of the WebSocket's."""
    return f"http{url.removeprefix('ws')}" if url.startswith(("ws://", "wss://")) else url


def no_binary(frame: bytes) -> None:
    """Raise ValueError for a binary message, of which OpenAI's protocols have none."""
    if getattr(frame, "name", None) == "binary":
        raise ValueError(f"a binary message of {len(frame)} bytes, where only text is spoken")
