from __future__ import annotations

from typing import Any

import pytest

from aiio.env.auth import Secret
from aiio.env.directory import Directory
from aiio.env.endpoints import KNOWN_ENDPOINTS, checked_name, split_selector
from aiio.env.errors import ErrorKind, ProviderError
from aiio.env.presets import Presets
from aiio.env.settings import Settings


def credential_of(found: Directory, name: str, overrides: Any = None) -> Secret | None:
    return found.credential(found.endpoint(name, overrides))


def url_of(found: Directory, name: str) -> str:
    return found.url(found.endpoint(name))


def directory(settings: dict[str, Any] | None = None, **environ: str) -> Directory:
    return Directory(Settings(settings or {}), environ, Presets())


def test_a_selector_is_cut_at_the_first_slash() -> None:
    assert split_selector("openrouter/openai/gpt-5") == ("openrouter", "openai/gpt-5")
    assert split_selector("local/smollm2") == ("local", "smollm2")


@pytest.mark.parametrize(
    "selector", ["", "openai", "/gpt", "openai/", "openai/ ", " openai/gpt", "openai /x", "a/b "]
)
def test_a_malformed_selector_is_quoted(selector: str) -> None:
    with pytest.raises(ValueError) as caught:
        split_selector(selector)
    assert repr(selector) in str(caught.value)


@pytest.mark.parametrize("selector", [None, 5, ["a", "b"], b"a/b"])
def test_a_selector_that_is_no_text_is_a_type_error(selector: object) -> None:
    with pytest.raises(TypeError):
        split_selector(selector)


def test_names_that_cannot_be_endpoints() -> None:
    assert checked_name("my-vllm.2") == "my-vllm.2"
    for name in ("", "a/b", " a", "providers", "max_active", "-a"):
        with pytest.raises(ValueError):
            checked_name(name)
    with pytest.raises(TypeError):
        checked_name(None)


def test_the_known_endpoints_need_only_the_key_people_have() -> None:
    keys = {name: known.env_keys for name, known in KNOWN_ENDPOINTS.items()}
    assert keys == {
        "openai": ("OPENAI_API_KEY",),
        "azure": ("AZURE_OPENAI_API_KEY",),
        "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "ollama": ("OLLAMA_API_KEY",),
        "openrouter": ("OPENROUTER_API_KEY",),
        "deepseek": ("DEEPSEEK_API_KEY",),
        "groq": ("GROQ_API_KEY",),
        "mistral": ("MISTRAL_API_KEY",),
        "xai": ("XAI_API_KEY",),
        "vllm": ("VLLM_API_KEY",),
        "llamacpp": ("LLAMA_API_KEY",),
        "local": (),
    }
    assert credential_of(directory(OPENAI_API_KEY="sk-1\n"), "openai") == Secret("sk-1")


def test_quirks_are_data() -> None:
    known = directory()
    assert known.settings("openai")["quirks"] == {
        "max_tokens_field": "max_completion_tokens",
        "stream_options": "obfuscation",
        "files": "part",
    }
    assert known.settings("azure", {"url": "https://x"})["quirks"]["auth_header"] == "api-key"
    assert known.settings("mistral")["quirks"]["tool_id"] == "mistral9"
    assert known.settings("xai")["quirks"]["reasoning_in_completion"] is False
    assert known.settings("deepseek")["quirks"]["reasoning_replay"] == "reasoning_content"
    known.settings("local")["quirks"]["files"] = "changed"
    assert known.settings("local")["quirks"]["files"] == "inline"


def test_an_unknown_endpoint_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'opnai'.*openai, azure.*mine.*register_endpoint") as caught:
        directory({"providers": {"mine": {"url": "http://m"}}}).endpoint("opnai")
    assert caught.type is ValueError


def test_an_endpoint_is_read_from_policy_record_and_table() -> None:
    found = directory(
        {
            "providers": {"mine": {"url": "http://m/v1", "models": {"a": {}}, "timeout": "5s"}},
            "mine": {"auth": {"token": "k"}},
            "intro": {"provider": "other", "url": "http://i", "auth": "bare"},
        }
    )
    mine = found.endpoint("mine")
    assert (mine.provider, mine.url, mine.auth, mine.models) == (
        "openai_chat",
        "http://m/v1",
        Secret("k"),
        {"a": {}},
    )
    assert not mine.key_required
    assert mine.policy["timeout"] == "5s"
    assert "auth" not in mine.policy
    assert "k" not in repr(mine).split("auth=")[1].split(",")[0]
    assert found.endpoint("intro").provider == "other"
    assert found.endpoint("intro").auth == Secret("bare")
    assert found.endpoint("openai").models is None
    assert found.names()[-2:] == ["mine", "intro"]


def test_the_local_endpoint_is_embedded_until_it_gets_a_url() -> None:
    assert directory().endpoint("local").embedded
    assert not directory().endpoint("vllm").embedded
    assert not directory({"providers": {"local": {"url": "http://l"}}}).endpoint("local").embedded


def test_a_url_may_come_from_the_environment() -> None:
    azure = directory(AZURE_OPENAI_ENDPOINT="https://res.openai.azure.com/")
    assert url_of(azure, "azure") == "https://res.openai.azure.com/openai/v1"
    assert url_of(directory(AZURE_OPENAI_ENDPOINT="https://r/openai/v1"), "azure") == "https://r/openai/v1"
    assert url_of(directory(OPENAI_BASE_URL="http://gw/v1"), "openai") == "http://gw/v1"
    assert url_of(directory(OPENAI_BASE_URL=" "), "openai") == "https://api.openai.com/v1"
    configured = directory({"providers": {"openai": {"url": "http://set"}}}, OPENAI_BASE_URL="http://gw/v1")
    assert url_of(configured, "openai") == "http://set"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("box:8080", "http://box:8080"),
        (":9000", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::]:1234", "http://127.0.0.1:1234"),
        ("[::1]", "http://[::1]:11434"),
        ("http://box", "http://box:80"),
        ("https://ollama.com/", "https://ollama.com:443"),
        ("http://box:1/sub", "http://box:1/sub"),
        ("[broken", "http://[broken"),
    ],
)
def test_a_host_of_ollama_is_read_as_ollama_does(host: str, url: str) -> None:
    assert url_of(directory(OLLAMA_HOST=host), "ollama") == url


def test_a_token_of_anthropic_goes_as_a_bearer_token() -> None:
    assert "auth_header" not in directory(ANTHROPIC_API_KEY="k").settings("anthropic")
    both = directory(ANTHROPIC_API_KEY="k", ANTHROPIC_AUTH_TOKEN="t")
    assert credential_of(both, "anthropic") == Secret("k")
    assert "auth_header" not in both.settings("anthropic")
    token = directory(ANTHROPIC_API_KEY=" ", ANTHROPIC_AUTH_TOKEN="t")
    assert credential_of(token, "anthropic") == Secret("t")
    assert token.settings("anthropic")["auth_header"] == "bearer"
    recorded = directory({"anthropic": {"auth": "r"}}, ANTHROPIC_AUTH_TOKEN="t")
    assert "auth_header" not in recorded.settings("anthropic")
    assert credential_of(directory(GOOGLE_API_KEY="g"), "gemini") == Secret("g")
    assert credential_of(directory(), "ollama") is None


def test_openai_may_be_spoken_to_in_responses() -> None:
    found = directory({"providers": {"openai": {"provider": "openai_responses"}}}).endpoint("openai")
    assert (found.provider, found.url) == ("openai_responses", "https://api.openai.com/v1")


def test_a_missing_url_says_where_to_put_it() -> None:
    with pytest.raises(ProviderError, match=r"AZURE_OPENAI_ENDPOINT.*providers.*azure.*url") as caught:
        url_of(directory(), "azure")
    assert caught.value.kind is ErrorKind.PROVIDER
    assert not caught.value.retryable


def test_credentials_are_ranked() -> None:
    record = {"openai": {"auth": {"token": "record"}}}
    assert credential_of(directory(record, OPENAI_API_KEY="env"), "openai") == Secret("record")
    assert credential_of(directory(record), "openai", {"auth": "override"}) == Secret("override")
    assert credential_of(directory(record), "openai", {"auth": {"access": "acc", "token": None}}) == Secret(
        "record"
    )
    assert credential_of(directory({"openai": {"auth": {"access": "acc"}}}), "openai") == Secret("acc")
    assert credential_of(
        directory({"openai": {"auth": {"type": "x"}}}, OPENAI_API_KEY="env"), "openai"
    ) == Secret("env")


def test_a_missing_credential_says_where_to_put_it() -> None:
    with pytest.raises(ProviderError, match=r"'groq'.*GROQ_API_KEY.*settings\['groq'\]\['auth'\]") as caught:
        credential_of(directory(), "groq")
    assert caught.value.kind is ErrorKind.AUTH
    bare = directory({"providers": {"mine": {"url": "http://m", "key_required": True}}})
    with pytest.raises(ProviderError, match=r"set settings\['mine'\]\['auth'\]"):
        credential_of(bare, "mine")


def test_an_endpoint_may_name_its_own_variable() -> None:
    settings = {"providers": {"mine": {"url": "http://m", "env_keys": ["MY_KEY"], "key_required": True}}}
    assert credential_of(directory(settings, MY_KEY="k"), "mine") == Secret("k")


def test_self_hosted_servers_need_no_key() -> None:
    assert credential_of(directory(), "vllm") is None
    assert credential_of(directory(VLLM_API_KEY=""), "vllm") is None
    assert credential_of(directory(VLLM_API_KEY="k"), "vllm") == Secret("k")


def test_H1_an_empty_or_broken_key_is_an_auth_error_that_names_its_setting() -> None:
    with pytest.raises(ProviderError, match="OPENAI_API_KEY is empty"):
        credential_of(directory(OPENAI_API_KEY=""), "openai")
    with pytest.raises(ProviderError, match="OPENAI_API_KEY has a line break") as caught:
        credential_of(directory(OPENAI_API_KEY="sk-canary\nx: y"), "openai")
    assert "canary" not in str(caught.value)
    with pytest.raises(ProviderError, match=r"settings\['openai'\]\['auth'\] is empty"):
        credential_of(directory({"openai": {"auth": {"token": " "}}}), "openai")


def test_settings_hold_secrets_masked() -> None:
    found = directory(
        {"openai": {"auth": {"type": "api_key", "token": "sk-canary", "expires": 5}}, "vllm": {"auth": 7}}
    )
    auth = found.settings("openai")["auth"]
    assert auth == {"type": "api_key", "token": Secret("sk-canary"), "expires": 5}
    assert "canary" not in repr(found.settings("openai"))
    assert found.settings("vllm")["auth"] == 7
    assert credential_of(found, "vllm") is None
