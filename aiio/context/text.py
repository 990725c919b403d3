"""Text as it may be stored: strict JSON, and strings that any encoder takes."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import msgspec

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
