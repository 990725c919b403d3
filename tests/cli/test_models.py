"""Which model is meant."""

from __future__ import annotations

import pytest

from aiio.cli.exits import CliFault
from aiio.cli.models import EMBEDDED, check_model, chosen_model, make_io, parse_settings
from aiio.env.env import Env
from aiio.env.errors import ProviderError


def test_the_named_model_then_the_configured_then_the_embedded(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen_model(Env({"model": "a/b"}, environ={}), "c/d") == "c/d"
    assert chosen_model(Env({"model": "a/b"}, environ={}), None) == "a/b"
    assert capsys.readouterr().err == ""
    assert chosen_model(Env(environ={}), None) == EMBEDDED == "local/smollm2"
    (line,) = capsys.readouterr().err.splitlines()
    assert EMBEDDED in line
    assert "--model" in line


def test_a_selector_no_request_could_use_is_refused_early() -> None:
    env = Env(environ={"OPENAI_API_KEY": "sk-x"})
    check_model(env, "openai/gpt-5")
    with pytest.raises(ValueError, match="'nosuch'"):
        check_model(env, "nosuch/model")
    with pytest.raises(ProviderError, match="GROQ_API_KEY"):
        check_model(env, "groq/llama")
    check_model(env, "groq/llama", {"auth": "gsk-y"})
    with pytest.raises(CliFault, match="'gpt-5'"):
        make_io(env, "gpt-5")
    with pytest.raises(CliFault, match="'soon'"):
        make_io(env, "openai/gpt-5", timeout="soon")


def test_settings_are_json_or_text() -> None:
    pairs = ["temperature=0.2", "stop=[1]", "url=http://h/?a=b", " quirks ={}", "empty="]
    assert parse_settings(pairs) == {
        "temperature": 0.2,
        "stop": [1],
        "url": "http://h/?a=b",
        "quirks": {},
        "empty": "",
    }
    for wrong in ("temperature", "=1"):
        with pytest.raises(CliFault, match="KEY=VALUE"):
            parse_settings([wrong])
