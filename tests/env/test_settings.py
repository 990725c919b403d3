from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiio.env.auth import Secret
from aiio.env.errors import ProviderError
from aiio.env.settings import Settings, merge_layers, read_layer


def test_layers_merge_objects_join_lists_and_let_the_last_scalar_win() -> None:
    lower = {"a": {"x": 1, "y": [1]}, "b": 1, "c": {"d": 1}}
    upper = {"a": {"y": [2], "z": {"w": 3}}, "b": 2, "c": 5, "e": {"f": 1}}
    merged = merge_layers(lower, upper)
    assert merged == {"a": {"x": 1, "y": [1, 2], "z": {"w": 3}}, "b": 2, "c": 5, "e": {"f": 1}}
    merged["a"]["y"].append(3)
    assert lower["a"] == {"x": 1, "y": [1]}
    assert merge_layers({"c": 5}, {"c": {"d": 1}}) == {"c": {"d": 1}}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (["x"], "not list"),
        ({"providers": []}, "providers"),
        ({"providers": {"openai": "x"}}, "openai"),
    ],
)
def test_a_layer_of_the_wrong_shape_is_refused(layer: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Settings(layer)


def test_the_tree_is_a_live_mapping() -> None:
    changes: list[tuple[str, Any]] = []
    settings = Settings({"a": {"b": 1}}, on_change=lambda key, value: changes.append((key, value)))
    settings["c"] = 2
    settings["a"]["b"] = 3
    assert dict(settings) == {"a": {"b": 3}, "c": 2}
    assert len(settings) == 2
    del settings["c"]
    assert changes == [("c", 2), ("c", None)]
    assert repr(settings) == "<Settings: a>"
    quiet = Settings()
    quiet["x"] = 1
    del quiet["x"]
    assert repr(quiet) == "<Settings: empty>"


def test_a_policy_wins_over_the_record_and_credentials_come_from_the_record() -> None:
    settings = Settings(
        {
            "providers": {
                "e": {"url": "http://policy", "models": {"a": {"n": 1}, "b": {}}, "auth": {"token": "no"}}
            },
            "e": {
                "url": "http://record",
                "timeout": "1s",
                "auth": {"token": "yes"},
                "models": {"a": {"m": 2}},
            },
        }
    )
    merged = settings.endpoint_settings("e", {"url": "http://base", "quirks": {"q": 1}})
    assert merged == {
        "url": "http://policy",
        "quirks": {"q": 1},
        "timeout": "1s",
        "auth": {"token": "yes"},
        "models": {"a": {"n": 1, "m": 2}, "b": {}},
    }


def test_endpoint_settings_are_fresh_and_see_later_changes() -> None:
    settings = Settings({"providers": {"e": {"quirks": {"a": [1]}}}})
    first = settings.endpoint_settings("e", {})
    first["quirks"]["a"].append(2)
    first["quirks"]["b"] = 1
    assert settings.endpoint_settings("e", {}) == {"quirks": {"a": [1]}}
    settings["providers"]["e"]["timeout"] = "5s"
    assert settings.endpoint_settings("e", {})["timeout"] == "5s"


def test_A4_an_unset_value_in_the_overrides_hides_nothing() -> None:
    settings = Settings({"providers": {"e": {"timeout": "5s", "quirks": {"a": 1}}}})
    merged = settings.endpoint_settings(
        "e", {"timeout": "9s"}, {"timeout": None, "quirks": {"b": 2}, "new": None}
    )
    assert merged == {"timeout": "5s", "quirks": {"a": 1, "b": 2}, "new": None}
    assert settings.endpoint_settings("e", {}, {"quirks": 1})["quirks"] == 1
    assert settings.endpoint_settings("e", {"quirks": 1})["quirks"] == {"a": 1}


def test_names_come_from_policies_and_from_records_that_introduce_an_endpoint() -> None:
    settings = Settings(
        {
            "providers": {"a": {}},
            "b": {"provider": "openai_chat", "url": "http://b"},
            "c": {"auth": {"token": "x"}},
            "max_active": 5,
        }
    )
    assert settings.endpoint_names() == ["a", "b"]
    settings["providers"] = None
    assert settings.endpoint_names() == ["b"]
    assert settings.policy("a") == {}
    assert settings.record("max_active") == {}


def test_auth_is_set_by_text_by_flat_keys_and_by_an_object() -> None:
    settings = Settings()
    settings.set_auth("e", " key-1 \n")
    assert settings["e"] == {"auth": {"type": "api_key", "token": Secret("key-1")}}
    settings.set_auth("e", Secret("key-2"))
    settings.set_auth("e", {"type": "oauth", "access": "acc", "auth": {"refresh": "ref"}, "url": "http://e"})
    assert settings["e"] == {
        "auth": {
            "type": "oauth",
            "token": Secret("key-2"),
            "access": Secret("acc"),
            "refresh": Secret("ref"),
        },
        "url": "http://e",
    }
    settings.set_auth("e", {"token": None, "url": None})
    assert settings["e"]["auth"].keys() == {"type", "access", "refresh"}
    assert "url" not in settings["e"]
    settings.set_auth("e", {"auth": "key-3"})
    assert settings["e"]["auth"]["token"] == Secret("key-3")
    settings.set_auth("e", {"auth": None})
    assert settings["e"] == {}


def test_setting_auth_merges_objects_and_replaces_lists_and_models() -> None:
    settings = Settings({"e": {"models": {"a": {}}, "oauth": {"x": 1, "y": {"z": 1}}, "scopes": [1]}})
    settings.set_auth("e", {"models": {"b": {}}, "oauth": {"x": 2, "y": {"w": 2}}, "scopes": [2]})
    assert settings["e"] == {"models": {"b": {}}, "oauth": {"x": 2, "y": {"z": 1, "w": 2}}, "scopes": [2]}


def test_setting_auth_replaces_what_was_no_record() -> None:
    settings = Settings({"e": "odd", "f": {"auth": "bare"}})
    settings.set_auth("e", "key-1")
    settings.set_auth("f", {"expires": 5})
    assert settings["e"]["auth"]["token"] == Secret("key-1")
    assert settings["f"]["auth"] == {"expires": 5}


@pytest.mark.parametrize("data", [None, 5, True, ["key"], {"auth": 5}])
def test_setting_auth_to_something_else_is_refused(data: Any) -> None:
    settings = Settings()
    with pytest.raises(TypeError, match="credential"):
        settings.set_auth("e", data)
    assert "e" not in settings


def test_setting_a_bad_credential_changes_nothing() -> None:
    settings = Settings()
    with pytest.raises(ProviderError, match=r"settings\['e'\]\['auth'\]\['token'\] has a line break"):
        settings.set_auth("e", "a\nb")
    assert "e" not in settings


def test_a_layer_is_read_from_toml_and_json(tmp_path: Path) -> None:
    toml, other = tmp_path / "a.toml", tmp_path / "b.json"
    toml.write_text('[providers.e]\nurl = "http://e"\n')
    other.write_text('{"max_active": 3}')
    assert read_layer(toml) == {"providers": {"e": {"url": "http://e"}}}
    assert read_layer(str(other)) == {"max_active": 3}
    assert read_layer(None) == {}
    assert read_layer({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.toml", None, "No such file"),
        ("bad.toml", b"a = = 1", "can't parse"),
        ("bad.json", b"{", "can't parse"),
        ("list.json", b"[1]", "no object"),
        ("latin.toml", b"\xff", "not UTF-8"),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_layer(path)
    assert name in str(caught.value)
