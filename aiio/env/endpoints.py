"""Endpoints: named addresses of model servers, and the ones everybody knows.

An endpoint is a URL that speaks a dialect. What differs between servers of one dialect is data, under
`policy["quirks"]`; the dialect's provider reads it, and no code branches on an endpoint's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from .auth import Secret

DEFAULT_PROVIDER = "openai_chat"
"""The dialect of an endpoint that does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address, as the settings have it at the moment it is looked up."""

    name: str
    """The part of a selector before its first slash."""
    provider: str = DEFAULT_PROVIDER
    """Registry key of its dialect."""
    url: str | None = field(default=None, repr=False)
    """Base URL; None: known only when it is resolved (the embedded model), or still to be configured."""
    auth: Secret | None = None
    """The credential in the settings, unchecked; None: look into the environment."""
    env_keys: tuple[str, ...] = ()
    """Environment variables that may hold the credential, first found wins."""
    key_required: bool = False
    """Whether a request without a credential is pointless."""
    embedded: bool = False
    """Whether the server is a child process of ours."""
    models: Mapping[str, Any] | None = None
    """Model ids and what is known about each; None or empty: unknown, any id goes."""
    policy: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All settings of the endpoint, credentials left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEndpoint:
    """What is known about an endpoint without any configuration."""

    url: str | None = None
    provider: str = DEFAULT_PROVIDER
    label: str = ""
    """Its name for people; empty: the name it is known by."""
    env_keys: tuple[str, ...] = ()
    key_prefix: str = ""
    """How its keys usually begin: a hint for people, other forms exist."""
    url_env: tuple[str, ...] = ()
    """Environment variables that may hold the URL."""
    url_suffix: str = ""
    """Appended to a URL from the environment that does not end in it."""
    port: int | None = None
    """Port for a URL from the environment that may be a bare host; None: it is a whole URL."""
    bearer_keys: tuple[str, ...] = ()
    """Those of `env_keys` that hold a bearer token where a key has a header of its own."""
    key_required: bool = True
    embedded: bool = False
    quirks: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further policy: `oauth`, `secret`, limits."""

    def policy(self) -> dict[str, Any]:
        """Return this as the lowest layer of the endpoint's settings."""
        return {"provider": self.provider, "url": self.url, "quirks": dict(self.quirks), **self.more}


# The quirks of the dialect openai_chat; what is absent is as OpenAI has it.
#   max_tokens_field         the name of the field
#   stream_options           True, False, or "obfuscation" where the field of that name is known too
#   system_role              "system" or "developer"
#   auth_header              "bearer" or "api-key"
#   reasoning_replay         "reasoning_content", "reasoning_details", "thinking_parts"
#   empty_content            "null", "omit" or "empty", beside tool calls
#   tool_id                  "mistral9": ids of nine letters and digits
#   reasoning_in_completion  False where completion tokens leave reasoning tokens out
#   finish_optional          True where an answer may end without a finish reason
#   files                    "part", or "inline" where there are no file parts
#   system_first             True where one system message, in front, is all that is taken
#   tool_then_user           False where a user message may not follow a tool result directly
#   refusal                  "field", or "text" where messages have no such field
_COMPATIBLE = {"max_tokens_field": "max_tokens", "stream_options": True, "files": "inline", "refusal": "text"}
_SELF_HOSTED = {**_COMPATIBLE, "system_first": True}

LOCAL_CONTEXT_WINDOW = 2048
"""Tokens a slot of the embedded server holds unless `settings["local"]["context_window"]` says more."""

# Key prefixes: the providers' pages on API keys, read 2026-11-30.
KNOWN_ENDPOINTS: dict[str, KnownEndpoint] = {
    "openai": KnownEndpoint(
        url="https://api.openai.com/v1",
        env_keys=("OPENAI_API_KEY",),
        key_prefix="sk-",
        url_env=("OPENAI_BASE_URL",),
        quirks={
            "max_tokens_field": "max_completion_tokens",
            "stream_options": "obfuscation",
            "files": "part",
        },
    ),
    "azure": KnownEndpoint(
        env_keys=("AZURE_OPENAI_API_KEY",),
        url_env=("AZURE_OPENAI_ENDPOINT",),
        url_suffix="/openai/v1",
        quirks={
            "max_tokens_field": "max_completion_tokens",
            "stream_options": True,
            "auth_header": "api-key",
            "files": "part",
        },
    ),
    "anthropic": KnownEndpoint(
        url="https://api.anthropic.com",
        provider="anthropic",
        env_keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        key_prefix="sk-ant-",
        url_env=("ANTHROPIC_BASE_URL",),
        bearer_keys=("ANTHROPIC_AUTH_TOKEN",),
    ),
    "gemini": KnownEndpoint(
        url="https://generativelanguage.googleapis.com/v1beta",
        provider="gemini",
        env_keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_prefix="AI",
    ),
    "ollama": KnownEndpoint(
        url="http://127.0.0.1:11434",
        provider="ollama",
        env_keys=("OLLAMA_API_KEY",),
        url_env=("OLLAMA_HOST",),
        port=11434,
        key_required=False,
    ),
    "openrouter": KnownEndpoint(
        url="https://openrouter.ai/api/v1",
        env_keys=("OPENROUTER_API_KEY",),
        key_prefix="sk-or-",
        quirks={**_COMPATIBLE, "reasoning_replay": "reasoning_details", "files": "part"},
    ),
    "deepseek": KnownEndpoint(
        url="https://api.deepseek.com",
        env_keys=("DEEPSEEK_API_KEY",),
        key_prefix="sk-",
        quirks={**_COMPATIBLE, "reasoning_replay": "reasoning_content"},
    ),
    "groq": KnownEndpoint(
        url="https://api.groq.com/openai/v1",
        env_keys=("GROQ_API_KEY",),
        key_prefix="gsk_",
        quirks={**_COMPATIBLE},
    ),
    "mistral": KnownEndpoint(
        url="https://api.mistral.ai/v1",
        env_keys=("MISTRAL_API_KEY",),
        quirks={
            **_COMPATIBLE,
            "stream_options": False,  # unknown fields are a 400, and usage comes in the finish chunk anyway
            "reasoning_replay": "thinking_parts",
            "empty_content": "empty",
            "tool_id": "mistral9",
            "tool_then_user": False,
            "system_first": True,
        },
    ),
    "xai": KnownEndpoint(
        url="https://api.x.ai/v1",
        env_keys=("XAI_API_KEY",),
        key_prefix="xai-",
        quirks={**_COMPATIBLE, "reasoning_in_completion": False},
    ),
    "vllm": KnownEndpoint(
        url="http://127.0.0.1:8000/v1", env_keys=("VLLM_API_KEY",), key_required=False, quirks=_SELF_HOSTED
    ),
    "llamacpp": KnownEndpoint(
        url="http://127.0.0.1:8080/v1",
        env_keys=("LLAMA_API_KEY",),
        key_required=False,
        quirks={**_SELF_HOSTED, "empty_content": "empty"},
    ),
    "local": KnownEndpoint(
        key_required=False,
        embedded=True,
        quirks={**_SELF_HOSTED, "empty_content": "empty"},
        more={"context_window": LOCAL_CONTEXT_WINDOW},
    ),
}
"""Endpoints that work once their key is in the environment; the table a new dialect adds to."""

RESERVED_NAMES = frozenset(
    {
        "providers",
        "projects",
        "tools",
        "mcp",
        "provider_paths",
        "extensions",
        "sessions",
        "max_active",
        "model",
        "ca_file",
        "proxy",
        "agents",
        "credential_store",
    }
)
"""Top-level settings that are not endpoints."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def split_selector(selector: object) -> tuple[str, str]:
    """Return (endpoint, model) of `"endpoint/model"`, cut at the first slash.

    Raises:
      TypeError: not a string.
      ValueError: no slash, a blank half, or whitespace around a half; the text quotes it.
    """
    if not isinstance(selector, str):
        raise TypeError(f'a model is selected by "endpoint/model", not by {selector!r}')
    name, slash, model = selector.partition("/")
    if not slash or not name or not model or name != name.strip() or model != model.strip():
        raise ValueError(f'a model is selected by "endpoint/model", not by {selector!r}')
    return name, model


def checked_name(name: object) -> str:
    """Return *name* if an endpoint can have it. TypeError: not text. ValueError: not usable; quotes it."""
    if not isinstance(name, str):
        raise TypeError(f"an endpoint's name is text, not {name!r}")
    if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise ValueError(f"{name!r} can't be an endpoint's name")
    return name


def environment_url(known: KnownEndpoint, environ: Mapping[str, str]) -> str | None:
    """Return the URL that the environment gives for *known*; None: it gives none."""
    for variable in known.url_env:
        url = environ.get(variable, "").strip().rstrip("/")
        if url and known.port is not None:
            url = _whole_url(url, known.port)
        if url:
            return url if url.endswith(known.url_suffix) else url + known.url_suffix
    return None


def _whole_url(host: str, port: int) -> str:
    """Return `host`, `host:port`, `:port` or a URL as a URL to connect to; junk comes back as it is."""
    url = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(url)
        name, given = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        return url
    if name in ("0.0.0.0", "::"):  # where a server listens, not where it is
        name = "127.0.0.1"
    if given is None:
        given = port if "://" not in host else {"http": 80, "https": 443}.get(parts.scheme, port)
    if ":" in name:
        name = f"[{name}]"
    return urlunsplit((parts.scheme, f"{name}:{given}", parts.path, "", ""))
