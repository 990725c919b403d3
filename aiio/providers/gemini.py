"""Google's Gemini: `streamGenerateContent` of the Gemini API and of Vertex AI, as server-sent events.

The parts: `gemini_contents.py` and `gemini_options.py` make the request, `gemini_wire.py` decodes frames,
`gemini_stream.py` turns them into events, `gemini_args.py` puts arguments together that come in pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from aiio.context.events import TextDelta, ThinkingDelta
from aiio.context.types import Message
from aiio.env.errors import HttpStatusError, ProviderError

from .base import Capabilities, Events, ProviderIO, decode_json
from .chat_options import extra_of
from .dialect import AnswerDialect
from .faults import quota_violations, status_fault
from .gemini_contents import Ways, gemini_contents
from .gemini_options import gemini_options, without_cached
from .gemini_stream import SIGNATURE, Answer
from .gemini_wire import NO_USAGE, NULL_USAGE, Chunk, read_frame, read_plain
from .history import paired_history
from .narrow import dict_of, list_of, text_of
from .options import merged
from .retry import parse_reset

_METHOD = ":streamGenerateContent"
_AUTH = ("x-goog-api-key", "bearer")


class Gemini(AnswerDialect):
    """The Gemini dialect.

    The base URL ends with the version (`.../v1beta`), or, on Vertex AI, with `.../publishers/google`.
    Settings of its own, beside those all dialects have: `thinking_budget`, `efforts` (levels a model takes),
    `server_tools` (entries for `tools`, as they are), `safety_settings`, `cached_content`, `top_k`,
    `speech_config`, `image_config`, `media_resolution`, `replay_reasoning`, and
    `quirks: {"auth_header": "bearer"}` for Vertex AI. `extra_body` is merged mapping by mapping.
    """

    name: ClassVar[str] = "gemini"
    label: ClassVar[str] = "Google Gemini"
    capabilities: ClassVar[Capabilities] = Capabilities(tools=True, thinking=True)

    @property
    def url(self) -> str:
        """Where this request goes; a base URL that names the method already is taken as it is."""
        base, _, query = self.base_url.partition("?")
        base = base.rstrip("/")
        if _METHOD not in base:
            base = f"{base}{model_path(self.io.current_model)}{_METHOD}"
        wanted = [] if "alt=" in query else ["alt=sse"]
        return f"{base}?{'&'.join([*filter(None, [query]), *wanted])}"

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, body). ValueError: it names the setting or file that can't be sent."""
        settings = io.settings
        ways = Ways.of(settings, io.current_model)
        history = paired_history(context, io, signed=SIGNATURE if ways.replay_reasoning else None)
        system, contents = gemini_contents(history, ways, io)
        body: dict[str, Any] = {"contents": contents}
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        body.update(gemini_options(settings, io.tools(), io))
        body = merged(without_cached(body, io), extra_of(settings, "extra_body"))
        headers: dict[str, Any] = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        headers.update(credential_of(settings, io.token))
        headers.update(extra_of(settings, "extra_headers"))
        return headers, body

    def decode(self, frame: bytes) -> list[Chunk]:
        """Return the native messages in *frame*. ValueError: unreadable."""
        return read_frame(frame)

    def new_state(self) -> Answer:
        """Return the empty answer."""
        return Answer()

    def translate(self, native: list[Chunk], state: Answer, io: ProviderIO) -> Events:
        """Return the events that *native* stands for."""
        events = state.take(native, self.now)
        if state.fault is not None:
            _report_quotas(state.fault, self.now(), io)
        return events

    def translate_all(self, frames: Iterable[bytes], state: Answer, io: ProviderIO) -> Events:
        """Return the events of all *frames*; one that only adds text costs one decoding and one event."""
        for frame in frames:
            if state.open_at >= 0 and frame.__class__ is bytes:
                try:
                    plain = read_plain(frame)
                except (ValueError, RecursionError):
                    pass
                else:
                    part = plain.candidates[0].content.parts[0]
                    if part.thought is state.open_thought:
                        if (usage := plain.usageMetadata) is not NO_USAGE and usage != NULL_USAGE:
                            state.raw_usage = usage
                        if text := part.text:
                            state.length += len(text)
                            yield (ThinkingDelta if part.thought else TextDelta)(state.open_at, text)
                        continue
            yield from self.translate(read_frame(frame), state, io)

    def ending(self, state: Answer) -> bool:
        """Tell whether a finish reason was seen; only usage may follow."""
        return state.reason is not None

    def classify_error(self, error: Exception) -> ProviderError:
        """Return *error* with the provider's own message, code and retry delay, when it is an HTTP answer.

        Gemini has no rate-limit headers: quotas are known only when one is used up, from the error, and are
        reported to the IO here.
        """
        if not isinstance(error, HttpStatusError):
            return super().classify_error(error)
        try:
            body = decode_json(error.body.encode("utf-8", "surrogatepass"))
        except ValueError:
            body = None
        _report_quotas(body, self.now(), self.io)
        return status_fault(error, endpoint=self.io.endpoint_name, now=self.now())

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]]:
        """See `Provider`. The base URL may name a model's method."""
        path, headers = models_request(settings, after)
        base, mark, query = url.partition("?")
        base = base.partition("/models/")[0] if _METHOD in base else base
        return f"{base.rstrip('/')}{path}{'&' if mark else ''}{query}", {
            **credential_of(settings, token),
            **headers,
        }

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        """See `Provider`."""
        return read_models(data)

    @classmethod
    def next_models(cls, data: Any) -> str | None:
        """See `Provider`."""
        return next_page(data)


def model_path(model: str) -> str:
    """Return the path of *model* below the base URL; a name with a collection (`tunedModels/x`) keeps it."""
    named = model if "/" in model else f"models/{model}"
    if any(part in (".", "..") for part in named.split("/")):
        raise ValueError(f"a model's name has no path of dots: {model!r:.80}")
    return f"/{quote(named, safe='/@-._~')}"


def credential_of(settings: Mapping[str, Any], token: str | None) -> dict[str, str]:
    """Return the header with *token*. ValueError: the quirk that says which is none."""
    quirks = settings.get("quirks") or {}
    found = quirks.get("auth_header", _AUTH[0]) if isinstance(quirks, Mapping) else None
    if found not in _AUTH:
        raise ValueError(f"quirk 'auth_header' must be one of {', '.join(_AUTH)}, not {found!r}")
    if token is None:
        return {}
    return {"Authorization": f"Bearer {token}"} if found == "bearer" else {_AUTH[0]: token}


# -- quotas


def _report_quotas(value: object, now: float, io: ProviderIO) -> None:
    if quotas := error_quotas(value, now):
        io.set_plan_usage(quotas=quotas)


def error_quotas(value: object, now: float) -> dict[str, dict[str, Any]]:
    """Return the quotas that an error object says are used up: `{quotaId: {total, remaining, used, reset}}`.

    `reset` is epoch seconds; that of a quota by day is unknown: the delay Google gives with it is too short.
    """
    if isinstance(value, list) and value:
        value = value[0]
    error = dict_of(value, "error")
    details = [one for one in list_of(error, "details") if isinstance(one, dict)]
    delays = [parse_reset(one.get("retryDelay"), now) for one in details]
    delay = next((one for one in delays if one is not None), None)
    quotas: dict[str, dict[str, Any]] = {}
    for violation in quota_violations(error):
        name = violation["quotaId"]
        quota: dict[str, Any] = {"remaining": 0}
        quotas[name] = quota
        limit = str(violation.get("quotaValue"))
        if limit.isascii() and limit.isdigit():
            quota["total"] = quota["used"] = int(limit)
        if delay is not None and "PerDay" not in name:
            quota["reset"] = now + delay
    return quotas


# -- models


def models_request(settings: Mapping[str, Any], page: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the path below the base URL, and headers, the credential excepted. ValueError: bad settings.

    Args:
      page: what `next_page` said of the listing before.
    """
    path = "/models?pageSize=1000" + (f"&pageToken={quote(page, safe='')}" if page else "")
    return path, {"Accept": "application/json", **extra_of(settings, "extra_headers")}


def next_page(data: object) -> str | None:
    """Return the mark of the page that follows a listing; None: it was the last."""
    return text_of(data, "nextPageToken") or None


def read_models(data: object) -> dict[str, dict[str, Any]]:
    """Return what a listing says of each model: `context_window`, `max_output`, `name`, where known.

    Models that make no content (embeddings) are left out. ValueError: it is no listing.
    """
    if not isinstance(data, dict) or not isinstance(data.get("models", []), list):
        raise ValueError(f"not a list of models: {str(data)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    found: dict[str, dict[str, Any]] = {}
    for entry in list_of(data, "models"):
        methods = list_of(entry, "supportedGenerationMethods")
        if (name := text_of(entry, "name").removeprefix("models/")) and (
            not methods or "generateContent" in methods
        ):
            facts = {
                "context_window": _count(entry.get("inputTokenLimit")),
                "max_output": _count(entry.get("outputTokenLimit")),
                "name": text_of(entry, "displayName") or None,
                "thinking": entry.get("thinking") if isinstance(entry.get("thinking"), bool) else None,
            }
            found[name] = {key: value for key, value in facts.items() if value is not None}
    return found


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
