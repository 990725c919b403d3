from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from aiio.env.durations import parse_duration, try_duration

GOOD: list[tuple[Any, float | None]] = [
    (None, None),
    (250, 0.25),
    (1.5, 0.0015),
    ("500", 0.5),
    ("500ms", 0.5),
    ("2s", 2.0),
    (" 30 S ", 30.0),
    ("17m", 1020.0),
    ("1.5h", 5400.0),
    ("never", math.inf),
    (" Never ", math.inf),
    (math.inf, math.inf),
    (timedelta(minutes=2), 120.0),
    (1_048_575, 1048.575),
]
BAD: list[tuple[Any, type[Exception]]] = [
    (0, ValueError),
    (-1, ValueError),
    (math.nan, ValueError),
    ("0s", ValueError),
    ("-1s", ValueError),
    ("soon", ValueError),
    ("", ValueError),
    ("1d", ValueError),
    ("9" * 400, ValueError),
    (10**400, ValueError),
    (timedelta(0), ValueError),
    (True, TypeError),
    ([1], TypeError),
    ({}, TypeError),
]


@pytest.mark.parametrize(("value", "seconds"), GOOD)
def test_a_duration_comes_out_in_seconds(value: Any, seconds: float | None) -> None:
    assert parse_duration(value) == seconds
    assert try_duration(value) == seconds


@pytest.mark.parametrize(("value", "error"), BAD)
def test_a_bad_duration_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_duration(value)
    assert try_duration(value) is None


def test_the_error_quotes_the_value_and_shows_how_it_is_written() -> None:
    with pytest.raises(ValueError, match=r"'soon'.*30s"):
        parse_duration("soon")
