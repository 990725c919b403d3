"""OpenAI's Realtime over a WebSocket, and the servers that speak it (xAI, Azure): one response per write.

A write is a session of its own: `session.update`, and when that was taken, the context as conversation items
and one `response.create`. Nothing outlives the socket, so a request that is killed leaves no half a turn
behind. The events of the response are those of Responses, under their own names or older ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from aiio.context.events import Send
from aiio.context.text import sent_json
from aiio.context.types import Message

from .base import Events, ProviderIO
from .chat_options import extra_of
from .chat_wire import End
from .checks import TEXT, TEXTS, checked
from .history import paired_history
from .narrow import dict_of, list_of, text_of
from .openai_realtime_items import realtime_items, realtime_tools
from .openai_responses import OpenAIResponses
from .openai_responses_ws import no_binary, plain_url, socket_url
from .options import merged
from .quirks import Quirks
from .responses_input import Ways, response_input
from .responses_options import responses_options
from .responses_stream import Answer
from .responses_wire import Delta, Event, read_frame

PCM = "audio/pcm;rate=24000"
"""What spoken output is unless the session says otherwise."""

_STYLES = ("ga", "beta")


class Spoken(Answer):
    """One answer in a session, and what is still to be said to get it."""

    def __init__(self, script: Sequence[bytes]) -> None:
        super().__init__(PCM)
        self.script: list[bytes] = list(script)
        """Messages to send once the session is set up."""
        self.begun = False
        """The response was created: an error from now on need not be about it."""

    def hears(self, mimetype: str) -> None:
        """Take note of what spoken output will be."""
        self._audio.mimetype = mimetype


class OpenAIRealtime(OpenAIResponses):
    """The Realtime dialect.

    Settings of its own, beside those of `openai_responses` that the wire has a form for (`max_tokens`,
    `tool_choice`): `modalities` (`["text"]`, the default, or `["audio"]`), `voice`, `session_style` ("ga", or
    "beta" for servers with the older session object). `extra_body` is laid over the session.
    """

    name: ClassVar[str] = "openai_realtime"
    label: ClassVar[str] = "OpenAI Realtime"
    path: ClassVar[str] = "/realtime"

    def __init__(self, url: str, io: ProviderIO) -> None:
        super().__init__(url, io)
        self._script: list[bytes] = []

    @property
    def url(self) -> str:
        """Where this request goes: a WebSocket, the model in the query unless there is one already."""
        url = socket_url(super().url)
        base, mark, query = url.partition("?")
        if any(part.startswith(("model=", "call_id=")) for part in query.split("&")):
            return url
        return f"{base}?{query}{'&' if mark else ''}model={quote(self.io.current_model, safe='')}"

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, the message that sets the session up). ValueError: it names what can't be sent."""
        settings = io.settings
        quirks = Quirks.of(settings.get("quirks") or {})
        history = paired_history(context, io)
        ways = Ways.of({**settings, "system_as": "instructions", "replay_reasoning": False}, quirks)
        instructions, items = response_input(history, ways, io)
        creations = ({"type": "conversation.item.create", "item": item} for item in realtime_items(items, io))
        self._script = [*map(sent_json, creations), b'{"type":"response.create"}']
        session = merged(self._session(instructions, quirks, io), extra_of(settings, "extra_body"))
        headers: dict[str, Any] = {}
        if io.token is not None:
            bearer = quirks.auth_header == "bearer"
            headers["Authorization" if bearer else "api-key"] = f"Bearer {io.token}" if bearer else io.token
        headers.update(extra_of(settings, "extra_headers"))
        return headers, {"type": "session.update", "session": session}

    def _session(self, instructions: str, quirks: Quirks, io: ProviderIO) -> dict[str, Any]:
        settings = io.settings
        style = checked(settings, "session_style", TEXT) or _STYLES[0]
        if style not in _STYLES:
            raise ValueError(f"setting session_style must be one of {', '.join(_STYLES)}, not {style!r}")
        known = {**settings, "modalities": None, "audio": None}
        options = responses_options(known, io.tools(), quirks, io)
        modalities = list(checked(settings, "modalities", TEXTS) or ["text"])
        voice = checked(settings, "voice", TEXT)
        session: dict[str, Any] = {"instructions": instructions} if instructions else {}
        for key in ("tool_choice", "max_output_tokens"):
            if key in options:
                session[key] = options[key]
        if tools := realtime_tools(options.get("tools", ())):
            session["tools"] = tools
        if style == "beta":
            more = {"modalities": modalities, "turn_detection": None, **({"voice": voice} if voice else {})}
            return {**session, **more}
        audio: dict[str, Any] = {"input": {"turn_detection": None}}
        if voice:
            audio["output"] = {"voice": voice}
        return {"type": "realtime", "output_modalities": modalities, "audio": audio, **session}

    def decode(self, frame: bytes) -> Delta | Event | End:
        """Return the native message in *frame*. ValueError: unreadable, or binary."""
        no_binary(frame)
        return read_frame(frame)

    def new_state(self) -> Spoken:
        """Return the empty answer."""
        return Spoken(self._script)

    def translate(self, native: Delta | Event | End, state: Answer, io: ProviderIO) -> Events:
        """Return the events that *native* stands for."""
        if not isinstance(native, dict):
            return state.take(native, self.now)
        assert isinstance(state, Spoken)  # as `new_state` made it
        match native["type"]:
            case "session.updated":
                return self._set_up(dict_of(native, "session"), state)
            case "response.created":
                state.begun = True
            case "rate_limits.updated":
                self._report_limits(native, io)
                return ()
            case "error":
                if state.begun:  # the session's, or about something else: `response.done` tells how it ended
                    return ()
                state.take(native, self.now)
                return state.finish(self.now)
        return state.take(native, self.now)

    def _set_up(self, session: Event, state: Spoken) -> Events:
        sound = dict_of(dict_of(dict_of(session, "audio"), "output"), "format")
        if kind := text_of(sound, "type"):
            rate = sound.get("rate")
            state.hears(f"{kind};rate={rate}" if isinstance(rate, int) else kind)
        script, state.script = state.script, []
        return [Send(message) for message in script]

    def _report_limits(self, native: Event, io: ProviderIO) -> None:
        quotas: dict[str, dict[str, Any]] = {}
        for limit in list_of(native, "rate_limits"):
            if name := text_of(limit, "name"):
                quota = {"total": _count(limit.get("limit")), "remaining": _count(limit.get("remaining"))}
                if (seconds := _count(limit.get("reset_seconds"))) is not None:
                    quota["reset"] = self.now() + seconds
                quotas[name] = {key: value for key, value in quota.items() if value is not None}
        io.set_plan_usage(quotas=quotas)

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]]:
        """See `Provider`. The list comes over HTTP, whatever the base URL's scheme."""
        return super().models_request(plain_url(url), settings, token, after)


def _count(value: object) -> int | float | None:
    """Return *value* if it is a number that counts something; None: it is none, or far too large."""
    return value if isinstance(value, int | float) and abs(value) < 1 << 63 else None
