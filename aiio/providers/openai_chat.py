"""OpenAI's Chat Completions, and the many servers that speak it.

What a server does differently is data in its setting `quirks` (`quirks.py`); nothing here knows a vendor's
name. The parts: `chat_messages.py` and `chat_options.py` make the request, `chat_wire.py` decodes frames,
`chat_stream.py` turns them into events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aiio.context.events import TextDelta
from aiio.context.types import Message

from .base import Capabilities, Events, ProviderIO
from .chat_messages import chat_messages
from .chat_options import audio_mimetype, chat_options, extra_of
from .chat_stream import Answer
from .chat_wire import Chunk, End, read_frame, read_plain
from .history import paired_history
from .listing import OpenAIListing
from .plan_usage import quotas_of
from .quirks import Quirks

if TYPE_CHECKING:
    from aiio.env.detect import Search


class OpenAIChat(OpenAIListing):
    """The Chat Completions dialect."""

    name: ClassVar[str] = "openai_chat"
    label: ClassVar[str] = "OpenAI Chat Completions"
    path: ClassVar[str] = "/chat/completions"
    capabilities: ClassVar[Capabilities] = Capabilities(tools=True, thinking=True)

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, body). ValueError: it names the setting, quirk or file that can't be sent."""
        settings = io.settings
        quirks = self._quirks(settings)
        tools = io.tools()
        body: dict[str, Any] = {
            "model": io.current_model,
            "messages": chat_messages(paired_history(context, io), quirks, io, self.now()),
            "stream": True,
            **chat_options(settings, tools, quirks),
            **extra_of(settings, "extra_body"),
        }
        headers: dict[str, Any] = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if io.token is not None:
            bearer = quirks.auth_header == "bearer"
            headers["Authorization" if bearer else "api-key"] = f"Bearer {io.token}" if bearer else io.token
        headers.update(extra_of(settings, "extra_headers"))
        return headers, body

    def decode(self, frame: bytes) -> Chunk | End:
        """Return the native message in *frame*. ValueError: unreadable."""
        return read_frame(frame)

    def new_state(self) -> Answer:
        """Return the empty answer."""
        settings = self.io.settings
        return Answer(self._quirks(settings), audio_mimetype(settings))

    def translate_all(self, frames: Iterable[bytes], state: Answer, io: ProviderIO) -> Events:
        """Return the events of all *frames*; one that only adds text costs one decoding and one event."""
        now = self.now
        text_at = state.text_at
        repeated_text = state.repeated.text
        for frame in frames:
            if text_at >= 0 and frame.__class__ is bytes:
                text = repeated_text(frame)
                if text is None:
                    try:
                        text = read_plain(frame)
                    except (ValueError, RecursionError):
                        pass
                    else:
                        state.repeated.learn(frame)
                if text is not None:
                    if text:
                        yield TextDelta(text_at, text)
                    continue
            yield from state.take(read_frame(frame), now)
            text_at = state.text_at

    def report_plan_usage(self, headers: Mapping[str, str], io: ProviderIO) -> None:
        """Report the rate limits in *headers*, if there are any."""
        if quotas := quotas_of(headers, self.now()):
            io.set_plan_usage(quotas=quotas)

    @classmethod
    async def detect_endpoints(cls, search: Search) -> Mapping[str, Mapping[str, Any]]:
        """See `Provider`. A server on the port of a known one must say that it is that: ports are shared."""
        asked = {
            name: str(cls.models_request(str(settings["url"]), {}, None)[0])
            for name, settings in search.endpoints.items()
            if settings["url"]
        }
        answers = await search.ask(asked.values())
        found: dict[str, dict[str, Any]] = {}
        for name, url in asked.items():
            try:
                models = cls.read_models(answers.get(url))
            except ValueError:
                continue
            if name in cls.known_endpoints():
                models = {key: facts for key, facts in models.items() if facts.get("owner") == name}
            if models:
                found[name] = {"url": search.endpoints[name]["url"], "models": models}
        return found

    def _quirks(self, settings: Mapping[str, Any]) -> Quirks:
        return Quirks.of(settings.get("quirks") or {})
