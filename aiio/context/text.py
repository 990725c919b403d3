"""Text as it may be stored: strict JSON, and strings that any encoder takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

MAX_DEPTH = 500
"""Nesting that every decoder here reads back."""

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


def parse_json(text: str) -> Any:
    """Return the JSON value in *text*; lone surrogates in escapes are read, NaN and infinities refused.

    ValueError: not JSON, a number that is no finite float, or nested too deep to be read.
    """
    try:
        return _decoder.decode(text)
    except RecursionError as exc:
        raise ValueError("JSON nested too deep") from exc
    except ValueError:  # of DecodeError, and of UnicodeEncodeError for a surrogate in *text* itself
        pass
    # The fast decoder refuses lone surrogates, which history files hold; nothing else may pass here.
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as exc:
        raise ValueError("JSON nested too deep") from exc


def parse_json_at(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value that begins at *start*, and where it ends. ValueError: none begins there."""
    try:
        return _prefix_decoder.raw_decode(text, start)
    except RecursionError as exc:
        raise ValueError("JSON nested too deep") from exc


def compact_json(value: object) -> str:
    """Return *value* as JSON without spaces. NaN and infinities are never written: they are null, or refused.

    TypeError, ValueError: it is not JSON data.
    """
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError as exc:
        raise ValueError("data nested too deep for JSON") from exc


def json_line(value: object, at: str) -> bytes:
    """Return *value* as one line of JSON that `parse_json` reads back as it was, with its line end.

    Lone surrogates are written as escapes. (Two that stand side by side come back as the one character they
    make, and tuples as lists.)

    Args:
      value: JSON data.
      at: where it stands, for the text of an exception.

    Raises:
      TypeError: it holds what JSON has no word for (bytes, a set, a key that is no string).
      ValueError: it holds NaN or an infinity, or is nested deeper than 500 (or in itself).
    """
    _check_json(value, at)
    try:
        return _encoder.encode(value) + b"\n"
    except (TypeError, ValueError, OverflowError):
        # Lone surrogates have no UTF-8, and some subclasses and numbers are only known to the standard
        # encoder.
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def sent_json(value: object) -> bytes:
    """Return *value* as compact UTF-8 JSON, to be sent: lone surrogates become U+FFFD and pairs are joined.

    TypeError, ValueError: it is not JSON data.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_without_surrogates(value))


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


def clean_text(text: str) -> str:
    """Return *text* with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"not JSON: {constant}")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"not a finite number: {number:.40}")
    return value


def _check_json(value: object, at: str) -> None:
    """Raise what `json_line` says. The encoders would write NaN as null, bytes as base64, and so on."""
    pending: list[tuple[object, str, int]] = [(value, at, 0)]
    while pending:
        value, where, depth = pending.pop()
        if value is None or isinstance(value, str | bool | int):
            continue
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{where}: {value} can't be written as JSON")
        elif depth > MAX_DEPTH:
            raise ValueError(f"{at}: data nested deeper than {MAX_DEPTH} can't be written as JSON")
        elif isinstance(value, dict):
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{where}: the key {key!r} is no string")
                pending.append((inner, f"{where}[{key!r:.40}]" if depth < 8 else where, depth + 1))
        elif isinstance(value, list | tuple):
            pending += [(inner, where, depth + 1) for inner in value]
        else:
            raise TypeError(f"{where}: a {type(value).__name__} can't be written as JSON")


_prefix_decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
