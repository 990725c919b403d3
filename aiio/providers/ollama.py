"""Ollama: `/api/chat`, lines of JSON.

The parts: `ollama_messages.py` and `ollama_options.py` make the request, `ollama_wire.py` decodes lines,
`ollama_stream.py` turns them into events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from aiio.context.events import TextDelta, ThinkingDelta
from aiio.context.types import Message
from aiio.env.access import Question

from .base import Capabilities, Events, ProviderIO, below
from .chat_options import extra_of
from .dialect import AnswerDialect
from .history import paired_history
from .ollama_messages import FOREIGN, ollama_messages
from .ollama_options import ollama_options
from .ollama_stream import Answer
from .ollama_wire import Line, read_line, read_plain
from .options import merged

if TYPE_CHECKING:
    from aiio.env.detect import Search

# Source: Ollama's API page, "Show Model Information": `parameters` is text, a name and a value a line.
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


class Ollama(AnswerDialect):
    """The Ollama dialect.

    Settings of its own, beside those all dialects have: `num_ctx`, `truncate`, `shift`, `keep_alive`,
    `options` (laid over those made here), `top_k`, `min_p`, `repeat_penalty`, `efforts` (the levels a model
    takes). `extra_body` is merged mapping by mapping.
    """

    name: ClassVar[str] = "ollama"
    label: ClassVar[str] = "Ollama"
    path: ClassVar[str] = "/api/chat"
    framing: ClassVar[Literal["sse", "ndjson"]] = "ndjson"
    capabilities: ClassVar[Capabilities] = Capabilities(tools=True, thinking=True)

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, body). ValueError: it names the setting or file that can't be sent."""
        settings = io.settings
        foreign = settings.get("foreign_thinking") or FOREIGN[0]
        if foreign not in FOREIGN:
            raise ValueError(f"setting foreign_thinking must be one of {', '.join(FOREIGN)}, not {foreign!r}")
        body: dict[str, Any] = {
            "model": io.current_model,
            "messages": ollama_messages(paired_history(context, io), io, foreign_thinking=foreign),
            "stream": True,
            **ollama_options(settings, io.tools(), io),
        }
        body = merged(body, extra_of(settings, "extra_body"))
        headers: dict[str, Any] = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        if io.token is not None:
            headers["Authorization"] = f"Bearer {io.token}"
        headers.update(extra_of(settings, "extra_headers"))
        return headers, body

    def decode(self, frame: bytes) -> Line:
        """Return the native message in *frame*. ValueError: unreadable."""
        return read_line(frame)

    def new_state(self) -> Answer:
        """Return the empty answer."""
        return Answer()

    def translate_all(self, frames: Iterable[bytes], state: Answer, io: ProviderIO) -> Events:
        """Return the events of all *frames*; one that only adds text costs one decoding and one event."""
        now = self.now
        open_at, thinking = state.open_at, state.open_thinking
        for frame in frames:
            if open_at >= 0:
                try:
                    plain = read_plain(frame)
                except (ValueError, RecursionError):
                    pass
                else:
                    message = plain.message
                    text, other = message.content, message.thinking
                    if thinking:
                        text, other = other, text
                    if not (other or plain.done):
                        if text:
                            yield ThinkingDelta(open_at, text) if thinking else TextDelta(open_at, text)
                        continue
            yield from state.take(read_line(frame), now)
            open_at, thinking = state.open_at, state.open_thinking

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]]:
        """See `Provider`. The base URL may hold the path of a request."""
        path, headers = models_request(settings)
        return cls._place(url, path), {**_credential(token), **headers}

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        """See `Provider`."""
        return read_models(data)

    @classmethod
    def model_questions(
        cls, url: str, settings: Mapping[str, Any], token: str | None, models: Mapping[str, Any]
    ) -> Sequence[Question]:
        """See `Provider`: what each model is, and then with which window those are served that are loaded."""
        headers = {"Accept": "application/json", **_credential(token)}
        questions = []
        for model in models:
            path, body = show_request(model)
            questions.append(
                Question(url=cls._place(url, path), headers=headers, body=body, read=partial(_show_of, model))
            )
        return [*questions, Question(url=cls._place(url, "/api/ps"), headers=headers, read=read_models)]

    @classmethod
    async def detect_endpoints(cls, search: Search) -> Mapping[str, Mapping[str, Any]]:
        """See `Provider`."""
        asked = {
            name: cls._place(str(settings["url"]), "/api/tags")
            for name, settings in search.endpoints.items()
            if settings["url"]
        }
        answers = await search.ask(asked.values())
        found: dict[str, dict[str, Any]] = {}
        for name, url in asked.items():
            try:
                models = read_models(answers.get(url))
            except ValueError:
                continue
            found[name] = {"url": search.endpoints[name]["url"], "models": models}
        return found

    @classmethod
    def _place(cls, url: str, path: str) -> str:
        """Return *path* below the base *url*, which may hold the path of a request."""
        base, mark, query = url.partition("?")
        return below(f"{base.rstrip('/').removesuffix(cls.path)}{mark}{query}", path)


def _credential(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _show_of(model: str, data: object) -> dict[str, dict[str, Any]]:
    return {model: read_show(data)}


def models_request(settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the path below the base URL, and headers, the credential excepted. ValueError: bad settings.

    The listing has no windows: `/api/ps` has those of the models that are loaded (`read_models` reads it,
    too), and `show_request` asks about one model.
    """
    return "/api/tags", {"Accept": "application/json", **extra_of(settings, "extra_headers")}


def show_request(model: str) -> tuple[str, dict[str, Any]]:
    """Return path and body (to be posted) of the question about one model; `read_show` reads the answer."""
    return "/api/show", {"model": model}


def read_models(data: object) -> dict[str, dict[str, Any]]:
    """Return what a listing says of each model: `context_window`, `family`, `parameters`, where known.

    The window is the one in effect, known of models that are loaded. ValueError: it is no listing.
    """
    entries = data.get("models") if isinstance(data, Mapping) else None
    if not isinstance(entries, list):
        raise ValueError(f"not a list of models: {str(data)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, Mapping):
            continue
        name = entry.get("model") or entry.get("name")
        if isinstance(name, str) and name:
            details = entry.get("details")
            details = details if isinstance(details, Mapping) else {}
            found[name] = _known(
                context_window=_count(entry.get("context_length")),
                family=_text(details.get("family")),
                parameters=_text(details.get("parameter_size")),
            )
    return found


def read_show(data: object) -> dict[str, Any]:
    """Return what the answer to `show_request` says: windows and `capabilities`, where known.

    `context_window` is the model's own `num_ctx`. What it was trained with is more than what is served, which
    depends on `num_ctx` and the server's memory; so it goes under a name of its own, `trained_window`.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"not a description of a model: {str(data)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    info, can, own = data.get("model_info"), data.get("capabilities"), data.get("parameters")
    num_ctx = _NUM_CTX.search(own) if isinstance(own, str) else None
    info = info if isinstance(info, Mapping) else {}
    windows = [_count(value) for key, value in info.items() if str(key).endswith(".context_length")]
    return _known(
        context_window=_count(int(num_ctx[1])) if num_ctx else None,
        trained_window=next((window for window in windows if window is not None), None),
        capabilities=[one for one in can if isinstance(one, str)] if isinstance(can, list) else None,
    )


def _known(**facts: Any) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
