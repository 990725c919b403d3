"""Gemini's Live API over a WebSocket: one turn per write, answered in text or in sound.

A write is a session of its own: `setup`, and when that was taken, the whole context as one `clientContent`.
The answer's parts are those of `generateContent`; `gemini_live_stream.py` adds what only a session says.
Messages may come as binary ones with JSON in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from aiio.context.events import Send
from aiio.context.text import sent_json
from aiio.context.types import Message

from .base import Events, ProviderIO
from .chat_options import extra_of
from .checks import TEXTS, checked
from .gemini import Gemini, credential_of, model_path
from .gemini_contents import Ways, gemini_contents
from .gemini_live_stream import LiveAnswer
from .gemini_options import gemini_options
from .gemini_stream import SIGNATURE, Answer
from .gemini_wire import Chunk
from .history import paired_history
from .openai_responses_ws import plain_url, socket_url
from .options import merged

_METHOD = "BidiGenerateContent"
_SERVICE = "google.ai.generativelanguage.{version}.GenerativeService." + _METHOD
_VERSION = "v1beta"
_IN_SETUP = ("generationConfig", "tools")


class GeminiLive(Gemini):
    """The Live dialect.

    The base URL is that of the `gemini` dialect (`.../v1beta`), or a whole one that names the method.
    Settings of its own, beside those of `gemini` that a setup has a form for: `modalities` (`["TEXT"]`, the
    default, or `["AUDIO"]`: then the words come too, as a transcript). `extra_body` is laid over the setup.
    """

    name: ClassVar[str] = "gemini_live"
    label: ClassVar[str] = "Google Gemini Live"

    def __init__(self, url: str, io: ProviderIO) -> None:
        super().__init__(url, io)
        self._turn = b""

    @property
    def url(self) -> str:
        """Where this request goes."""
        base, mark, query = socket_url(self.base_url).partition("?")
        base = base.rstrip("/")
        if _METHOD not in base:
            root, version = base, _VERSION
            if (found := re.search(r"/(v\d\w*)$", base)) is not None:
                root, version = base[: found.start()], found[1]
            base = f"{root}/ws/{_SERVICE.format(version=version)}"
        return f"{base}{mark}{query}"

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, the setup). ValueError: it names the setting or file that can't be sent."""
        settings = io.settings
        ways = Ways.of(settings, io.current_model)
        history = paired_history(context, io, signed=SIGNATURE if ways.replay_reasoning else None)
        system, contents = gemini_contents(history, ways, io)
        self._turn = sent_json({"clientContent": {"turns": contents, "turnComplete": True}})
        modalities = [word.upper() for word in checked(settings, "modalities", TEXTS) or ["TEXT"]]
        options = gemini_options({**settings, "modalities": None}, io.tools(), io)
        setup: dict[str, Any] = {"model": model_path(io.current_model).removeprefix("/")}
        setup.update({key: options[key] for key in _IN_SETUP if key in options})
        for key in options.keys() - set(_IN_SETUP):
            io.repaired("field_dropped", field=key, why="a Live session has no such option")
        setup = merged(setup, {"generationConfig": {"responseModalities": modalities}})
        if system:
            setup["systemInstruction"] = {"parts": [{"text": system}]}
        if "AUDIO" in modalities:
            setup["outputAudioTranscription"] = {}
        headers = {**credential_of(settings, io.token), **extra_of(settings, "extra_headers")}
        return headers, {"setup": merged(setup, extra_of(settings, "extra_body"))}

    def new_state(self) -> LiveAnswer:
        """Return the empty answer."""
        return LiveAnswer()

    def translate(self, native: list[Chunk], state: Answer, io: ProviderIO) -> Events:
        """Return the events that *native* stands for."""
        assert isinstance(state, LiveAnswer)  # as `new_state` made it
        if any("setupComplete" in message for message in native) and not state.asked:
            state.asked = True
            return (Send(self._turn),)
        return state.hear(native, self.now)

    def ending(self, state: Answer) -> bool:
        """Never: a turn says itself when it is over."""
        return False

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]]:
        """See `Provider`. The list comes over HTTP; a URL that names the method has its version in it."""
        base, mark, query = plain_url(url).partition("?")
        if _METHOD in base:
            root, _, service = base.partition("/ws/")
            base = f"{root}/{service.removeprefix('google.ai.generativelanguage.').partition('.')[0]}"
        return super().models_request(f"{base}{mark}{query}", settings, token, after)
