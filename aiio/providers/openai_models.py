"""Model listings of OpenAI and the servers that imitate it: `GET /models`, and what it says of each model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .chat_options import extra_of

# Where servers publish the size of the context window (FORMATS 11), and the longest answer. OpenAI itself,
# Azure, DeepSeek and Moonshot publish neither. llama.cpp lists what the model was trained with
# (`meta.n_ctx_train`), which is not what is served; what a slot holds is `meta.n_ctx`, and where that is not
# listed yet, `/props` says it.
_WINDOW = (
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "context_window",
    "max_context_length",
)
_OUTPUT = ("max_completion_tokens", "max_output_tokens")


def models_request(settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the path below the base URL, and headers, the credential excepted. ValueError: bad settings."""
    return "/models", {"Accept": "application/json", **extra_of(settings, "extra_headers")}


def read_models(data: object) -> dict[str, dict[str, Any]]:
    """Return what a listing says of each model: `context_window`, `max_output`, `name`, `owner`, where known.

    Understood: `{"data": [...]}`, `{"models": [...]}`, and a bare list. Entries without an id are left out.

    Raises:
      ValueError: it is no listing.
    """
    entries = data
    if isinstance(data, Mapping):
        entries = data.get("data") if isinstance(data.get("data"), list) else data.get("models")
    if not isinstance(entries, list):
        raise ValueError(f"not a list of models: {str(data)[:80]!r}")  # noqa: TRY004  # bad bytes, not misuse
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str) and entry["id"]:
            found[entry["id"]] = _facts(entry)
    return found


def props_url(url: str) -> str:
    """Return where a llama.cpp server of the base *url* tells its properties: beside `/v1`."""
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/').removesuffix('/v1')}/props{mark}{query}"


def wants_props(models: Mapping[str, Any]) -> bool:
    """Tell whether a llama.cpp server listed *models* and left the window of one out."""
    ours = (facts for facts in models.values() if facts.get("owner") == "llamacpp")
    return any("context_window" not in facts for facts in ours)


def read_props(data: object, models: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what `/props` says of the one model it speaks of: `context_window`, what a slot holds.

    ValueError: it says nothing of it.
    """
    served = data.get("default_generation_settings") if isinstance(data, Mapping) else None
    window = _first([served], ("n_ctx",)) if isinstance(served, Mapping) else None
    if not isinstance(data, Mapping) or window is None:
        raise ValueError(f"no properties of a server: {str(data)[:80]!r}")
    model = next(iter(models)) if len(models) == 1 else str(data.get("model_alias"))
    return {model: {"context_window": window}} if model in models else {}


def _facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    provider = entry.get("top_provider")  # OpenRouter: what the server chosen first can do
    sources = [provider, entry] if isinstance(provider, Mapping) else [entry]
    meta = entry.get("meta")
    served = _first([meta], ("n_ctx",)) if isinstance(meta, Mapping) else None
    facts: dict[str, Any] = {
        "context_window": _first(sources, _WINDOW) or served,
        "max_output": _first(sources, _OUTPUT),
        "name": _text(entry.get("name")) or _text(entry.get("display_name")),
        "owner": _text(entry.get("owned_by")),
    }
    return {key: value for key, value in facts.items() if value is not None}


def _first(sources: list[Mapping[str, Any]], names: tuple[str, ...]) -> int | None:
    for source in sources:
        for name in names:
            value = source.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
