"""OpenAI's Responses over server-sent events, and the servers that speak it.

The parts: `responses_input.py` and `responses_options.py` make the request, `responses_wire.py` decodes
events, `responses_stream.py` and `responses_blocks.py` turn them into ours. None of them knows what carries
the events, so that the same answers come over a WebSocket. Nothing is stored at the provider unless the
setting `store` says so: reasoning goes back as ciphertext.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from aiio.context.types import Message

from .base import Capabilities, Events, ProviderIO
from .chat_options import audio_mimetype, extra_of
from .chat_wire import End
from .history import paired_history
from .listing import OpenAIListing
from .openai_models import models_request, read_models
from .options import merged
from .plan_usage import quotas_of
from .quirks import Quirks
from .responses_input import Ways, response_input
from .responses_options import responses_options
from .responses_plan import plan_of
from .responses_stream import Answer
from .responses_wire import Delta, Event, read_frame

__all__ = ["OpenAIResponses", "models_request", "read_models"]


class OpenAIResponses(OpenAIListing):
    """The Responses dialect.

    Settings of its own, beside those every dialect has: `system_as` ("instructions", "system", "developer"),
    `store`, `include`, `encrypted_reasoning`, `replay_reasoning`, `reasoning_summary`, `efforts` (those the
    model supports), `server_tools` (entries for `tools`, as they are), `input_audio`.
    """

    name: ClassVar[str] = "openai_responses"
    label: ClassVar[str] = "OpenAI Responses"
    path: ClassVar[str] = "/responses"
    capabilities: ClassVar[Capabilities] = Capabilities(tools=True, thinking=True)

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, body). ValueError: it names the setting, quirk or file that can't be sent."""
        settings = io.settings
        quirks = _quirks(settings)
        body = merged({**self.response_body(context, io), "stream": True}, extra_of(settings, "extra_body"))
        headers: dict[str, Any] = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if io.token is not None:
            bearer = quirks.auth_header == "bearer"
            headers["Authorization" if bearer else "api-key"] = f"Bearer {io.token}" if bearer else io.token
        headers.update(extra_of(settings, "extra_headers"))
        return headers, body

    def response_body(self, context: Sequence[Message], io: ProviderIO) -> dict[str, Any]:
        """Return the body without what belongs to the way it is sent. ValueError: as `request`."""
        settings = io.settings
        quirks = _quirks(settings)
        history = paired_history(context, io, free_text=True)
        instructions, items = response_input(history, Ways.of(settings, quirks), io)
        return {
            "model": io.current_model,
            **({"instructions": instructions} if instructions else {}),
            "input": items,
            **responses_options(settings, io.tools(), quirks, io),
        }

    def decode(self, frame: bytes) -> Delta | Event | End:
        """Return the native message in *frame*. ValueError: unreadable."""
        return read_frame(frame)

    def new_state(self) -> Answer:
        """Return the empty answer."""
        return Answer(audio_mimetype(self.io.settings))

    def finish(self, state: Answer, io: ProviderIO) -> Events:
        """Return the last events; without a terminal one the answer was cut."""
        return state.finish(self.now)

    def report_plan_usage(self, headers: Mapping[str, str], io: ProviderIO) -> None:
        """Report the rate limits and plan allowances in *headers*, if there are any."""
        now = self.now()
        label, plan = plan_of(headers, now)
        if quotas := {**quotas_of(headers, now), **plan}:
            io.set_plan_usage(label=label, quotas=quotas)


def _quirks(settings: Mapping[str, Any]) -> Quirks:
    return Quirks.of(settings.get("quirks") or {})
