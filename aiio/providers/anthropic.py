"""Anthropic Messages, and the servers that speak it.

The parts: `anthropic_messages.py` and `anthropic_options.py` make the request, `anthropic_wire.py` decodes
frames, `anthropic_stream.py` and `anthropic_blocks.py` turn them into events. Settings beyond the common
ones: `anthropic_version`, `betas`, `prompt_cache`, `server_tools`, `thinking_display`, `later_system`,
`foreign_thinking`, `prefill`, and `auth_header` (`"x-api-key"` or `"bearer"`).

A message or block with `cache_control` passes its prompt-cache mark on. A message with a true `cache_point`
says that what stands up to here will be sent again: it gets a mark as `prompt_cache` has it, none if that is
False. Other dialects make nothing of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from aiio.context.types import Message

from .anthropic_messages import Ways, anthropic_messages, limit_marks, parts_of
from .anthropic_options import EFFORTS, VERSION, anthropic_options
from .anthropic_stream import Answer
from .anthropic_wire import BlockDelta, Native, read_frame
from .base import Capabilities, Events, ProviderIO
from .chat_options import extra_of
from .checks import TEXT, TEXT_OR_TEXTS, Check, checked
from .dialect import AnswerDialect
from .history import paired_history
from .narrow import dict_of, list_of
from .plan_usage import quotas_of

MAX_CACHE_MARKS = 4
_OAUTH_TOKEN = "sk-ant-oat"  # what tokens of a subscription begin with; they go as bearer tokens only
_AUTH_HEADER: Check = (lambda value: value in ("x-api-key", "bearer"), "'x-api-key' or 'bearer'")


class Anthropic(AnswerDialect):
    """The Anthropic Messages dialect."""

    name: ClassVar[str] = "anthropic"
    label: ClassVar[str] = "Anthropic Messages"
    path: ClassVar[str] = "/v1/messages"
    capabilities: ClassVar[Capabilities] = Capabilities(tools=True, thinking=True)

    @property
    def url(self) -> str:
        """Where this request goes. The base URL may hold `/v1`, or the whole path, and a query."""
        base, mark, query = self.base_url.partition("?")
        base = base.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        return f"{base}{self.path}{mark}{query}"

    def request(self, context: Sequence[Message], io: ProviderIO) -> tuple[Mapping[str, Any], Any]:
        """Return (headers, body). ValueError: it names the setting or file that can't be sent."""
        settings = io.settings
        system, turns = anthropic_messages(paired_history(context, io), Ways.of(settings), io)
        options = anthropic_options(settings, turns, io)
        body: dict[str, Any] = {"model": io.current_model}
        if system:
            marked = len(system) > 1 or system[0].keys() != {"type", "text"}
            body["system"] = system if marked else system[0]["text"]
        body.update(messages=turns, stream=True, **options)
        free = MAX_CACHE_MARKS - ("cache_control" in body)
        limit_marks([*parts_of(turns), *system, *options.get("tools", ())], free, io)
        body.update(extra_of(settings, "extra_body"))
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            **request_headers(settings, io.token),
            **extra_of(settings, "extra_headers"),
        }
        return headers, body

    def decode(self, frame: bytes) -> Native:
        """Return the native message in *frame*. ValueError: unreadable."""
        return read_frame(frame)

    def new_state(self) -> Answer:
        """Return the empty answer."""
        return Answer()

    def translate_all(self, frames: Iterable[bytes], state: Answer, io: ProviderIO) -> Events:
        """Return the events of all *frames*; a piece of an open block costs one decoding and one event."""
        now = self.now
        for frame in frames:
            native = read_frame(frame)
            if native.__class__ is BlockDelta:
                block, piece = state.open.get(native.index), native.delta
                if block is not None and block.direct and block.takes is piece.__class__ and piece.text:
                    yield block.delta(block.index, piece.text)
                    continue
            yield from state.take(native, now)

    def report_plan_usage(self, headers: Mapping[str, str], io: ProviderIO) -> None:
        """Report the rate limits and plan windows in *headers*, if there are any."""
        if quotas := quotas_of(headers, self.now()):
            io.set_plan_usage(quotas=quotas)

    @classmethod
    def models_request(
        cls, url: str, settings: Mapping[str, Any], token: str | None, after: str | None = None
    ) -> tuple[str, Mapping[str, str]]:
        """See `Provider`. The base URL may hold `/v1`, or the whole path of a request, and a query."""
        path, _ = models_request(settings, after)
        base, mark, query = url.partition("?")
        base = base.rstrip("/").removesuffix("/messages").removesuffix("/v1")
        headers = {**request_headers(settings, token), **extra_of(settings, "extra_headers")}
        return f"{base}{path}{'&' if mark else ''}{query}", headers

    @classmethod
    def read_models(cls, data: Any) -> dict[str, dict[str, Any]]:
        """See `Provider`. ValueError: it is no list of models."""
        if not isinstance(data, dict) or not isinstance(data.get("data"), list):
            raise ValueError(f"not a list of models: {str(data)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
        return read_models(data)

    @classmethod
    def next_models(cls, data: Any) -> str | None:
        """See `Provider`."""
        return next_page(data)


def request_headers(settings: Mapping[str, Any], token: str | None) -> dict[str, str]:
    """Return the headers of this dialect: version, betas, the credential. ValueError: a bad setting."""
    headers = {"anthropic-version": checked(settings, "anthropic_version", TEXT) or VERSION}
    if betas := checked(settings, "betas", TEXT_OR_TEXTS):
        headers["anthropic-beta"] = betas if isinstance(betas, str) else ",".join(betas)
    way = checked(settings, "auth_header", _AUTH_HEADER)
    if token is not None:
        bearer = way == "bearer" or (way is None and token.startswith(_OAUTH_TOKEN))
        headers["Authorization" if bearer else "x-api-key"] = f"Bearer {token}" if bearer else token
    return headers


def models_request(settings: Mapping[str, Any], after: str | None = None) -> tuple[str, dict[str, str]]:
    """Return (path, headers) that list the models; the credential is for `request_headers` to add.

    Args:
      after: what `next_page` said of the page before; None: the first page.
    """
    return "/v1/models?limit=1000" + (f"&after_id={after}" if after else ""), request_headers(settings, None)


def next_page(data: object) -> str | None:
    """Return what to ask for after the page *data*; None: it was the last one."""
    last = data.get("last_id") if isinstance(data, dict) and data.get("has_more") is True else None
    return last if isinstance(last, str) and last else None


def read_models(data: object) -> dict[str, dict[str, Any]]:
    """Return what one page says about its models, by id; what it does not say is absent.

    Keys: `label`, `context_window` and `max_output` in tokens, `lifecycle`, and as far as a model's abilities
    are published `thinking` (types it takes), `efforts`, `images`, `files`, `structured_output`.
    """
    models: dict[str, dict[str, Any]] = {}
    for entry in list_of(data, "data"):
        if isinstance(entry, dict) and isinstance(model := entry.get("id"), str) and model:
            models[model] = {key: value for key, value in _described(entry) if value is not None}
    return models


def _described(entry: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for key, name in (("label", "display_name"), ("lifecycle", "lifecycle")):
        yield key, entry[name] if isinstance(entry.get(name), str) else None
    for key, name in (("context_window", "max_input_tokens"), ("max_output", "max_tokens")):
        yield key, entry[name] if type(entry.get(name)) is int and entry[name] > 0 else None
    able = dict_of(entry, "capabilities")
    if thinking := dict_of(dict_of(able, "thinking"), "types"):
        yield "thinking", [kind for kind in thinking if _supported(thinking, kind)]
    if effort := dict_of(able, "effort"):
        yield "efforts", [level for level in EFFORTS if _supported(effort, level)]
    for key, name in (
        ("images", "image_input"),
        ("files", "pdf_input"),
        ("structured_output", "structured_outputs"),
    ):
        if name in able:
            yield key, _supported(able, name)


def _supported(able: Mapping[str, Any], name: str) -> bool:
    found = able.get(name)
    return found.get("supported") is True if isinstance(found, dict) else found is True
