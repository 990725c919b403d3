"""URLs taken apart: the plain ones that are read here are read as httpx reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiio.transports.target import _parsed_by_httpx, _plain, target_of

PLAIN = (
    "http://127.0.0.1:8000/v1/chat/completions",
    "https://api.openai.com/v1/chat/completions",
    "http://localhost/api/chat",
    "https://generativelanguage.googleapis.com/v1beta/models/gemini-3:streamGenerateContent?alt=sse",
    "http://h:1//a",
    "http://255.249.199.9/",
    "http://a-.b-1.c/~x_y-z.",
)
NOT_PLAIN = (
    "http://h",  # no path
    "http://H/",
    "HTTP://h/",
    "http://u:p@h/",
    "http://[::1]/",
    "http://h:0/",
    "http://h:65536/",
    "http://h:080/",
    "http://1.2.3/",
    "http://1.2.3.4.5/",
    "http://01.2.3.4/",
    "http://256.1.1.1/",
    "http://1.2.3.4:/",
    "http://xn--bcher-kva.test/",
    "http://a.xn--p1ai/",
    "http://bücher.test/",
    "http://h./",
    "http://h/a/../b",
    "http://h/./b",
    "http://h//a/.",
    "http://h/%41",
    "http://h/a b",
    "http://h/é",
    "http://h/?",
    "http://h/#f",
    "http://h/\n",
    "http://h/?k=a/b",
    "ftp://h/",
    "ws://h/",
    "h/x",
    "",
)

_OF_URLS = st.one_of(
    st.text("htps:/.127aAzxn-@?=#%[]_~ é\n\t", max_size=30),
    st.from_regex(
        r"https?://[a-z0-9.-]{1,12}(:[0-9]{1,6})?(/[a-zA-Z0-9._~:%-]{0,6}){0,3}(\?[a-z=&.%]{0,6})?"
    ),
)


@pytest.mark.parametrize("url", PLAIN)
def test_a_plain_url_is_read_without_httpx_and_to_the_same_end(url: str) -> None:
    assert _plain(url, "http") == target_of(url, "http") == _parsed_by_httpx(url, "http")


@pytest.mark.parametrize("url", NOT_PLAIN)
def test_what_may_need_more_is_left_to_httpx(url: str) -> None:
    assert _plain(url, "http") is None


@given(_OF_URLS)
def test_what_is_plain_is_the_same_to_httpx(url: str) -> None:
    plain = _plain(url, "http")
    assert plain is None or plain == _parsed_by_httpx(url, "http")


def test_a_scheme_of_the_other_kind_is_not_plain() -> None:
    assert _plain("wss://h/", "http") is None
    assert _plain("wss://h/x", "ws") == target_of("wss://h/x", "ws")
