"""One value, one line of JSON, whatever the value is: a log line must not fail because of what it tells."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

_DEEPEST = 64

_encoder = msgspec.json.Encoder()


def encode_line(value: object) -> bytes:
    """Return *value* as JSON with a line feed at its end. Never raises.

    JSON data and msgspec Structs come out as they are, lone surrogates as escapes, NaN and infinities as
    null. What JSON can't hold becomes its `repr`; what is nested deeper than 64 is cut off, unless the fast
    encoder takes the whole.
    """
    try:
        return _encoder.encode(value) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError):  # ValueError: a lone surrogate
        return json.dumps(plain(value), separators=(",", ":")).encode() + b"\n"


def plain(value: object) -> Any:
    """Return a copy of *value* made of JSON data only: see `encode_line`. Never raises."""
    return _plain(value, _DEEPEST)


def _plain(value: object, levels: int) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return str(value)  # of an enum: its value
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case _ if levels == 0:
            return "\u2026"
        case msgspec.Struct():
            return _plain(_fields(value), levels)
        case Mapping():
            return {_key(key): _plain(item, levels - 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item, levels - 1) for item in value]
        case _:
            return _shown(value)


def _key(key: object) -> str:
    return str(key) if isinstance(key, str | int | float) else _shown(key)


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    """Return a Struct as the encoder would write it: tag first, defaults left out where it says so."""
    config = type(value).__struct_config__
    shown: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    for field in msgspec.structs.fields(value):
        item = getattr(value, field.name)
        if not (config.omit_defaults and item == field.default):
            shown[field.encode_name] = item
    return shown


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception as exc:  # noqa: BLE001  # somebody's __repr__ must not cost the line
        return f"<{type(value).__name__}: repr raised {type(exc).__name__}>"
