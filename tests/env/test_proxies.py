from __future__ import annotations

import pytest

from aiio.env.proxies import proxy_from_environment, with_scheme

BOTH = {"HTTPS_PROXY": "http://secure:1", "HTTP_PROXY": "plain:2"}


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://api.openai.com/v1", BOTH, "http://secure:1"),
        ("http://gateway/v1", BOTH, "http://plain:2"),
        ("wss://api.openai.com/v1", BOTH, "http://secure:1"),
        ("ws://gateway/v1", BOTH, "http://plain:2"),
        ("https://a.b", {"https_proxy": "http://lower", **BOTH}, "http://lower"),
        ("https://a.b", {"ALL_PROXY": "socks5://all"}, "socks5://all"),
        ("http://a.b", {"all_proxy": "http://all"}, "http://all"),
        ("https://a.b", {"HTTPS_PROXY": " "}, None),
        ("https://a.b", {}, None),
        ("file:///etc", BOTH, None),
        ("https:///nohost", BOTH, None),
        ("http://a.b", {"HTTP_PROXY": "http://evil", "REQUEST_METHOD": "GET"}, None),
        ("http://a.b", {"http_proxy": "http://good", "REQUEST_METHOD": "GET"}, "http://good"),
        ("https://a.b", {"REQUEST_METHOD": "GET", **BOTH}, "http://secure:1"),
        ("http://127.0.0.1:8080/v1", BOTH, None),
        ("http://127.9.9.9/v1", BOTH, None),
        ("http://[::1]:8080/v1", BOTH, None),
        ("http://localhost/v1", BOTH, None),
        ("http://a.localhost/v1", BOTH, None),
    ],
)
def test_the_proxy_comes_from_the_usual_variables(
    url: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_from_environment(url, environ) == proxy


@pytest.mark.parametrize(
    ("url", "no_proxy", "direct"),
    [
        ("https://api.openai.com", "*", True),
        ("https://api.openai.com", "openai.com", True),
        ("https://api.openai.com", ".openai.com", True),
        ("https://api.openai.com", "*.openai.com", True),
        ("https://api.openai.com.", "OPENAI.com", True),
        ("https://openai.com", "openai.com", True),
        ("https://notopenai.com", "openai.com", False),
        ("https://api.openai.com", "other.com, openai.com", True),
        ("https://api.openai.com", "other.com openai.com", True),
        ("https://api.openai.com", "openai.com:443", True),
        ("https://api.openai.com", "openai.com:8443", False),
        ("https://api.openai.com:8443", "openai.com:8443", True),
        ("http://host", "host:80", True),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3", "192.168.0.0/16", False),
        ("https://10.1.2.3", "host", False),
        ("https://10.1.2.3:99", "10.1.2.3:99", True),
        ("https://[fd00::1]", "[fd00::1]", True),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://api.openai.com", "", False),
        ("https://api.openai.com", ",", False),
        ("https://api.openai.com", ".", False),
    ],
)
def test_no_proxy_lists_exceptions(url: str, no_proxy: str, direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        proxy = proxy_from_environment(url, {"ALL_PROXY": "http://p", name: no_proxy})
        assert (proxy is None) is direct


def test_a_bare_address_is_an_http_proxy() -> None:
    assert with_scheme("host:3128") == "http://host:3128"
    assert with_scheme("https://host") == "https://host"
