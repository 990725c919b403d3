from __future__ import annotations

import enum
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import pytest

from aiio.env import registry
from aiio.env.env import Env
from aiio.env.errors import ProviderError
from aiio.env.tool_schema import derive_schema
from aiio.env.tools import ToolCatalog


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


def paint(
    what: str,
    colour: Colour = Colour.RED,
    *,
    layers: int = 1,
    thickness: float | None = None,
    spots: list[tuple[int, int]] | None = None,
) -> str:
    """Not derivable: a list of tuples."""
    return what


def weather(city: str, days: int = 3, unit: Literal["c", "f"] = "c", places: list[str] | None = None) -> str:
    """Tell the weather
    of a city.

    Longer words that stay out.

    Args:
      city: the name of the city,
        in any language
      days (int): how many days ahead

      places: where to look

    Returns:
      city: not an argument any more.
    """
    return city


def test_a_schema_is_derived_from_signature_and_docstring() -> None:
    assert derive_schema(weather) == {
        "description": "Tell the weather of a city.",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "the name of the city, in any language"},
                "days": {"type": "integer", "default": 3, "description": "how many days ahead"},
                "unit": {"enum": ["c", "f"], "default": "c"},
                "places": {
                    "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                    "description": "where to look",
                },
            },
            "required": ["city"],
        },
    }


def test_all_simple_types_have_a_schema() -> None:
    def tool(
        a: bool,
        b: float,
        c: dict[str, int],
        d: dict,  # type: ignore[type-arg]
        e: Sequence[Any],
        f: list,  # type: ignore[type-arg]
        g: Any,
        h: None,
        i: Colour,
        j: object,
    ) -> None:
        pass

    del tool.__annotations__["j"]

    assert derive_schema(tool)["input_schema"]["properties"] == {
        "a": {"type": "boolean"},
        "b": {"type": "number"},
        "c": {"type": "object", "additionalProperties": {"type": "integer"}},
        "d": {"type": "object", "additionalProperties": True},
        "e": {"type": "array", "items": {}},
        "f": {"type": "array", "items": {}},
        "g": {},
        "h": {"type": "null"},
        "i": {"type": "string", "enum": ["red", "blue"]},
        "j": {},
    }
    assert derive_schema(tool)["description"] == ""


def test_what_has_no_schema_says_which_parameter() -> None:
    def positional(a: int, /) -> None:
        pass

    def many(*rest: int) -> None:
        pass

    def keyed(a: dict[int, str]) -> None:
        pass

    def unresolved(a: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    for tool, what in (
        (paint, "spots"),
        (positional, "'a' can't"),
        (many, "rest"),
        (keyed, "'a'"),
        (unresolved, "Miss"),
    ):
        with pytest.raises(TypeError, match=rf"{what}.*schema="):
            derive_schema(tool)


def test_tools_are_published_in_order_of_registration_as_fresh_dicts() -> None:
    catalog = ToolCatalog()
    catalog.register(weather)
    catalog.register(paint, schema={"type": "object", "properties": {}}, safe=True, storage={"a": 1})
    catalog.register(len, name="count", schema={"description": "Count.", "strict": True})
    schemas = catalog.schemas()
    assert [schema["name"] for schema in schemas] == ["weather", "paint", "count"]
    assert schemas[1] == {
        "name": "paint",
        "description": "",
        "input_schema": {"type": "object", "properties": {}},
    }
    assert schemas[2] == {
        "name": "count",
        "description": "Count.",
        "strict": True,
        "input_schema": {"type": "object", "properties": {}},
    }
    schemas[1]["input_schema"]["properties"]["x"] = {}
    assert catalog.schemas(["paint"])[0]["input_schema"]["properties"] == {}
    tool = catalog.get("paint")
    assert tool is not None
    assert tool.safe
    assert tool.metadata == {"storage": {"a": 1}}
    assert catalog.get("nobody") is None


def test_a_selection_is_an_intersection_in_the_given_order() -> None:
    catalog = ToolCatalog()
    for name in "abc":
        catalog.register(len, name=name, schema={})
    catalog.register(len, name="hidden", schema={}, secret=True)

    def names(selection: object, **options: bool) -> list[str]:
        return [schema["name"] for schema in catalog.schemas(selection, **options)]

    assert names(None) == names(["*"]) == ["a", "b", "c"]
    assert names([]) == []
    assert names(["c", "nobody", "a", "c"]) == ["c", "a"]
    assert names(("b",)) == ["b"]
    assert names(["hidden"]) == []
    assert names(["hidden", "a"], include_secret=True) == ["hidden", "a"]
    wrong: list[object] = ["a", {"a"}, 5, [5], True]
    for selection in wrong:
        with pytest.raises(TypeError, match="selected by"):
            names(selection)


def test_availability_is_asked_at_refresh_and_only_true_counts() -> None:
    answers: dict[str, Any] = {"yes": True, "truthy": 1, "no": False}
    seen: list[object] = []

    def broken(env: object) -> bool:
        raise RuntimeError("broken")

    catalog = ToolCatalog()
    catalog.register(len, name="always", schema={})
    catalog.register(len, name="broken", schema={}, available=broken)

    def answer(env: object, name: str) -> Any:
        seen.append(env)
        return answers[name]

    for name in answers:
        catalog.register(len, name=name, schema={}, available=partial(answer, name=name))
    assert [schema["name"] for schema in catalog.schemas()] == ["always"]
    catalog.refresh_availability("the env")
    assert [schema["name"] for schema in catalog.schemas()] == ["always", "yes"]
    assert seen == ["the env"] * 3
    answers.update(yes=False, no=True)
    catalog.refresh_availability("the env")
    assert [schema["name"] for schema in catalog.schemas()] == ["always", "no"]


async def _asynchronous(env: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("fn", "options", "error", "message"),
    [
        (5, {}, TypeError, "callable"),
        (len, {"name": ""}, ValueError, "1 to 64"),
        (len, {"name": "a b"}, ValueError, "'a b'"),
        (lambda: None, {}, ValueError, "<lambda>"),
        (weather, {"name": "taken"}, ValueError, "'taken' already"),
        (weather, {"colour": 1, "zoo": 2}, TypeError, "colour, zoo"),
        (weather, {"available": 5}, TypeError, "available must be callable"),
        (weather, {"detect": 5}, TypeError, "detect"),
        (weather, {"on_timeout": 5}, TypeError, "on_timeout"),
        (weather, {"available": _asynchronous}, TypeError, "plain function"),
        (weather, {"schema": []}, TypeError, "schema is an object"),
        (weather, {"schema": {"input_schema": 5}}, TypeError, "input_schema is an object"),
        (paint, {}, TypeError, "spots"),
    ],
)
def test_a_bad_registration_is_refused(
    fn: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    catalog = ToolCatalog()
    catalog.register(len, name="taken", schema={})
    with pytest.raises(error, match=message):
        catalog.register(fn, **options)
    assert [schema["name"] for schema in catalog.schemas()] == ["taken"]


def installed(name: str) -> Any:
    """What stands in for the entry points."""

    def lookup(city: str) -> str:
        """Look a city up."""
        return city

    def secretly() -> None:
        """Nothing."""

    secretly.aiio_tool = {"secret": True, "available": lambda env: True}  # type: ignore[attr-defined]
    return {"lookup": lookup, "secretly": secretly, "broken": 3}.get(name)


def test_an_installed_tool_is_found_by_name_and_never_offered_unasked() -> None:
    catalog = ToolCatalog(installed)
    assert catalog.schemas() == []
    assert [schema["name"] for schema in catalog.schemas(["lookup", "nowhere"])] == ["lookup"]
    assert catalog.get("nowhere") is None
    secret = catalog.get("secretly")
    assert secret is not None
    assert (secret.secret, secret.eligible) == (True, False)
    with pytest.raises(ProviderError, match="'broken' can't be used: a tool is callable"):
        catalog.get("broken")
    assert catalog.get("broken") is None  # said once


def test_tools_are_an_entry_point_group(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def none_installed(*, group: str, name: str) -> list[Any]:
        asked.append((group, name))
        return []

    monkeypatch.setattr(registry, "entry_points", none_installed)
    env = Env(environ={})
    assert (env.tool("x"), env.tool("x")) == (None, None)
    assert asked == [("aiio.tools", "x")]
