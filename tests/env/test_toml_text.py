from __future__ import annotations

import datetime
import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.env.toml_text import toml_text

KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.dates()
    | st.times()
    | st.datetimes(timezones=st.just(datetime.UTC) | st.none())
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_is_read_back(tree: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(tree)) == tree


def test_a_document_looks_as_people_write_it() -> None:
    tree = {
        "model": "a/b",
        "none": None,
        "openai": {"auth": {"type": "api_key", "token": "k\x7f"}, "list": [1, None, {"x": None, "y": (2,)}]},
        "empty": {},
        "odd key": {"é": math.inf, "low": -math.inf, "nan": math.nan},
    }
    assert toml_text(tree) == (
        'model = "a/b"\n[openai]\nlist = [1, {y = [2]}]\n'
        '[openai.auth]\ntype = "api_key"\ntoken = "k\\u007f"\n'
        '[empty]\n["odd key"]\n"é" = inf\nlow = -inf\nnan = nan\n'
    )
    assert toml_text({}) == ""


def test_what_has_no_form_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="bytes") as caught:
        toml_text({"a": [b"secret"]})
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="surrogates"):
        toml_text({"a": "\ud800"})
