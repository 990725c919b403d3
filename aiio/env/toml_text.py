"""Writing TOML: what the standard library reads and does not write. For files that programs keep.

Comments and layout of an existing file are not kept; what a person edits is written by other means.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tree: Mapping[str, Any]) -> str:
    """Return *tree* as a TOML document; a None is left out.

    Raises:
      TypeError: a value that TOML has no form for; the text names its type only.
      ValueError: text with half a surrogate pair, which no file can hold.
    """
    text = "\n".join(_table(tree, ()))
    text.encode("utf-8")
    return f"{text}\n" if text else ""


def _table(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in tree.items() if isinstance(value, Mapping)}
    values = {key: value for key, value in tree.items() if key not in tables and value is not None}
    if path and (values or not tables):
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in values.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, table in tables.items():
        yield from _table(table, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case float() if not math.isfinite(value):
            return "nan" if math.isnan(value) else f"{'-' if value < 0 else ''}inf"
        case int() | float():
            return repr(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() | tuple():
            return f"[{', '.join(_value(item) for item in value if item is not None)}]"
        case Mapping():
            items = (f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
            return f"{{{', '.join(items)}}}"
        case _:
            raise TypeError(f"TOML has no form for a {type(value).__name__}")


def _text(text: str) -> str:
    # A JSON string is a basic string of TOML, but for DEL, which JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
