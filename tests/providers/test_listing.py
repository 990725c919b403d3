"""Lists of models: where each dialect asks, with what, and what it makes of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from aiio.env.registry import BUILTIN_PROVIDERS, load_object
from aiio.providers.anthropic import Anthropic
from aiio.providers.base import Provider, below
from aiio.providers.openai_chat import OpenAIChat
from aiio.providers.openai_responses import OpenAIResponses

KEY = "sk-0123456789"
REQUESTS: dict[str, tuple[type[Provider], str, dict[str, Any], str | None, str, dict[str, str]]] = {
    "openai": (
        OpenAIChat,
        "https://h/v1/",
        {},
        KEY,
        "https://h/v1/models",
        {"Authorization": f"Bearer {KEY}", "Accept": "application/json"},
    ),
    "azure": (
        OpenAIChat,
        "https://h/openai/v1?api-version=1",
        {"quirks": {"auth_header": "api-key"}},
        KEY,
        "https://h/openai/v1/models?api-version=1",
        {"api-key": KEY, "Accept": "application/json"},
    ),
    "a whole path": (
        OpenAIChat,
        "http://h/v1/chat/completions",
        {"extra_headers": {"X": "1"}},
        None,
        "http://h/v1/models",
        {"Accept": "application/json", "X": "1"},
    ),
    "responses": (
        OpenAIResponses,
        "http://h/v1/responses",
        {},
        None,
        "http://h/v1/models",
        {"Accept": "application/json"},
    ),
    "anthropic": (
        Anthropic,
        "https://h/v1/messages?x=1",
        {"extra_headers": {"X": "1"}},
        KEY,
        "https://h/v1/models?limit=1000&x=1",
        {"anthropic-version": "2023-06-01", "x-api-key": KEY, "X": "1"},
    ),
    "anthropic with a token": (
        Anthropic,
        "https://h",
        {"auth_header": "bearer"},
        KEY,
        "https://h/v1/models?limit=1000",
        {"anthropic-version": "2023-06-01", "Authorization": f"Bearer {KEY}"},
    ),
}


@pytest.mark.parametrize(
    ("cls", "url", "settings", "token", "target", "headers"), REQUESTS.values(), ids=REQUESTS.keys()
)
def test_where_a_list_is_asked_for(
    cls: type[Provider],
    url: str,
    settings: dict[str, Any],
    token: str | None,
    target: str,
    headers: dict[str, str],
) -> None:
    assert cls.models_request(url, settings, token) == (target, headers)


def test_the_next_page_is_asked_for() -> None:
    page = {"data": [{"id": "a"}], "has_more": True, "last_id": "a"}
    assert Anthropic.next_models(page) == "a"
    asked = Anthropic.models_request("https://h", {}, None, "a")
    assert asked is not None
    assert asked[0] == "https://h/v1/models?limit=1000&after_id=a"
    assert Anthropic.read_models(page) == {"a": {}}
    assert OpenAIChat.next_models(page) is None


@pytest.mark.parametrize("key", sorted(BUILTIN_PROVIDERS))
def test_every_dialect_has_a_list_and_refuses_what_is_none(key: str) -> None:
    cls = load_object(BUILTIN_PROVIDERS[key])
    assert cls.models_request("http://h", {}, KEY) is not None
    for junk in (5, None, "x", {"data": 5, "models": 5}):
        with pytest.raises(ValueError, match="list of models"):
            cls.read_models(junk)


def test_a_dialect_has_none_by_default() -> None:
    assert Provider.models_request("http://h", {}, None) is None
    with pytest.raises(ValueError, match="reads no list"):
        Provider.read_models({})
    assert Provider.next_models({}) is None
    assert below("http://h/?a=1", "/x") == "http://h/x?a=1"
