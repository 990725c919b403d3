from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from aiio.env.auth import Secret
from aiio.env.scrub import Scrubber, is_secret_name

KEY = "sk-Canary/01+23='x\"é"
PLAIN = "sk-canary-0123456789abcd"


@pytest.fixture
def scrubber() -> Scrubber:
    found = Scrubber()
    found.add(Secret(KEY))
    found.add(PLAIN)
    return found


@pytest.mark.parametrize(
    "shown",
    [
        KEY,
        quote(KEY, safe=""),
        json.dumps({"a": KEY}),
        repr({"a": KEY}),
        base64.b64encode(KEY.encode()).decode(),
        f"before {PLAIN} after {PLAIN}",
        f"Incorrect API key provided: {PLAIN[:8]}************{PLAIN[-4:]}. You can find",
        f"key ...{PLAIN[-4:]} is not valid",
        f"key {PLAIN[:9]}\u2026",
    ],
)
def test_K1_a_known_credential_is_masked_in_every_form(scrubber: Scrubber, shown: str) -> None:
    scrubbed = scrubber.text(shown)
    assert "***" in scrubbed
    for piece in (PLAIN, PLAIN[:9], PLAIN[-4:], "Canary", base64.b64encode(KEY.encode()).decode()):
        assert piece not in scrubbed


@pytest.mark.parametrize(
    ("shown", "scrubbed"),
    [
        ("Authorization: Bearer abc.DEF-1", "Authorization: Bearer ***"),
        ("authorization=Basic dXNlcjpwYXNz", "authorization=Basic ***"),
        ("{'x-api-key': 'abc'}", "{'x-api-key': '***'}"),
        ('{"api-key":"abc","a":1}', '{"api-key":"***","a":1}'),
        ("(b'x-goog-api-key', b'abc')", "(b'x-goog-api-key', b'***')"),
        ("GET https://h/v1?key=abc&alt=sse HTTP", "GET https://h/v1?key=***&alt=sse HTTP"),
        ("https://h/?a=1&access_token=abc#f", "https://h/?a=1&access_token=***#f"),
        ("h?sig=a%2Bb", "h?sig=***"),
        ("h?a=b&signature=abc", "h?a=b&signature=***"),
        ("h?auth=abc", "h?auth=***"),
        ("password: abc", "password: ***"),
        ("Set-Cookie: abc=1; x", "Set-Cookie: ***; x"),
        ("Cookie: a=b; session=abc, then", "Cookie: ***, then"),
        ('"set-cookie": ["a=b; c"]', '"set-cookie": ["***; c"]'),
        ("Authorization: Token abc", "Authorization: Token ***"),
        ("Authorization: Odd abcdefgh1j done", "Authorization: *** done"),
        (
            "authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature=c",
            "authorization: AWS4-HMAC-SHA256 ***",
        ),
        ("OPENAI_API_KEY=abc", "OPENAI_API_KEY=***"),
        ('{"my_api_key": "abc"}', '{"my_api_key": "***"}'),
        ("X-Vault-Token: abcdefg", "X-Vault-Token: ***"),
        ("CF-Access-Client-Secret: abc", "CF-Access-Client-Secret: ***"),
        ("x-portkey-virtual-key: abc", "x-portkey-virtual-key: ***"),
        ("h?subscription-key=abc&code=def&page=2", "h?subscription-key=***&code=***&page=2"),
        ("http://me:a@b@host/ failed", "http://***@host/ failed"),
        ("proxy http://me:pw@proxy:3128/ failed", "proxy http://***@proxy:3128/ failed"),
        ("sent Bearer abcdefgh1j to", "sent Bearer *** to"),
        ("you gave sk-abc***wxyz", "you gave ***"),
        ("you gave gsk_abc****", "you gave ***"),
    ],
)
def test_K1_a_credential_is_masked_by_the_place_it_stands_in(shown: str, scrubbed: str) -> None:
    assert Scrubber().text(shown) == scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "the key to success: basic research, input_tokens=5, monkey=3",
        "a **bold*** word... and so on\u2026 wait***",
        "see https://host/path?page=2&tokens=5 or mail me@host.org",
        "sk-... is how keys begin",
        "max_tokens: 5, bearer of news",
        "max_token=100, the authorization failed, cookies: 3, status_code=404, cache_key=abc",
        "",
    ],
)
def test_ordinary_text_stays(scrubber: Scrubber, text: str) -> None:
    assert scrubber.text(text) == text


def test_placeholders_and_short_values_are_left_to_the_names() -> None:
    scrubber = Scrubber()
    for value in ("ollama", "EMPTY", "none", "abc", "not-needed"):
        scrubber.add(value)
    assert scrubber.text("none of the abc in ollama, EMPTY or not-needed") == (
        "none of the abc in ollama, EMPTY or not-needed"
    )


def test_a_longer_secret_is_masked_whole() -> None:
    scrubber = Scrubber()
    scrubber.add("secret-one")
    scrubber.add("secret-one-and-more")
    scrubber.add("secret-one")
    assert scrubber.text("x secret-one-and-more y") == "x *** y"


def test_K1_a_credential_that_was_cut_off_is_masked() -> None:
    scrubber = Scrubber()
    scrubber.add(PLAIN)
    scrubber.add("token-" + "x" * 5000)  # tokens of an OAuth server are long
    for end in range(len(PLAIN) // 2, len(PLAIN)):
        assert scrubber.text(f"key {PLAIN[:end]}") == "key ***"
        assert scrubber.text(f"key {PLAIN[:end]} and more") == "key *** and more"
    assert scrubber.text("token-" + "x" * 4000) == "***"
    assert scrubber.text("token-" + "x" * 5000 + "x") == "***x"
    text = "key sk-canary and token-xxx"
    assert scrubber.text(text) is text


def test_half_a_surrogate_pair_is_no_reason_to_fail() -> None:
    scrubber = Scrubber()
    scrubber.add("sk-\ud800-0123456789")
    assert scrubber.text("x sk-\ud800-0123456789 y") == "x *** y"


def test_a_settings_tree_teaches_its_credentials() -> None:
    scrubber = Scrubber()
    scrubber.learn(
        {
            "providers": {"mine": {"url": "http://me:url-password@h", "api_key": "key-by-name", "n": 5}},
            "mine": {"auth": "auth-as-text"},
            "other": {"anything": Secret("as-a-secret"), "note": "no credential"},
        }
    )
    shown = "url-password key-by-name auth-as-text as-a-secret no credential"
    assert scrubber.text(shown) == "*** *** *** *** no credential"


def test_a_url_teaches_its_credentials() -> None:
    scrubber = Scrubber()
    scrubber.add_url("http://me:pass-word-1@host/?key=query-key-1&page=page-value")
    scrubber.add_url("http://host/")
    scrubber.add_url("http://me:broken-word@[broken")
    assert scrubber.text("pass-word-1 query-key-1 page-value") == "*** *** page-value"


def test_K1_what_a_url_teaches_is_known_as_it_is_sent() -> None:
    scrubber = Scrubber()
    scrubber.add_url("http://me:p%40ss%2Fw0rd@host/")
    scrubber.add_url("http://token-as-a-user-name@host/")
    scrubber.add_url("http://short@host/")
    basic = base64.b64encode(b"me:p@ss/w0rd").decode()
    assert scrubber.text(f"p@ss/w0rd {basic} token-as-a-user-name short") == "*** *** *** short"


def test_K1_a_cookie_teaches_its_values() -> None:
    scrubber = Scrubber()
    scrubber.learn({"extra_headers": {"Cookie": "lang=en; session=cookie-value-1"}})
    assert scrubber.text("en cookie-value-1") == "en ***"


def test_K1_a_credential_is_masked_as_servers_write_it() -> None:
    scrubber = Scrubber()
    scrubber.add("se/cret&value+1234==")
    for shown in ("se\\/cret&value+1234==", "se/cret&amp;value+1234==", "se%2fcret%26value%2b1234%3d%3d"):
        assert scrubber.text(f"<{shown}>") == "<***>"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("X-Vault-Token", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("helicone-auth", True),
        ("apiKey", True),
        ("sessionToken", True),
        ("continuationToken", False),
        ("next_page_token", False),
        ("max_tokens", False),
        ("prompt_cache_key", False),
        ("key", False),
        ("token", True),
        ("x" * 100_000 + "_token", True),
        (5, False),
    ],
)
def test_K1_a_name_tells_a_credential_by_its_end(name: object, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_data_is_scrubbed_deeply(scrubber: Scrubber) -> None:
    data = {
        "message": f"bad {PLAIN}",
        "X-Api-Key": "abc",
        "token": None,
        "list": [PLAIN, 1, None, (True,), {2.5}],
        "secret-object": Secret(PLAIN),
        "bytes": PLAIN.encode(),
        PLAIN: "as a key",
        "input_tokens": 7,
    }
    assert scrubber.data(data) == {
        "message": "bad ***",
        "X-Api-Key": "***",
        "token": None,
        "list": ["***", 1, None, [True], [2.5]],
        "secret-object": "***",
        "bytes": "***",
        "***": "as a key",
        "input_tokens": 7,
    }


def test_data_of_any_depth_ends() -> None:
    data: list[object] = []
    for _ in range(10_000):
        data = [data]
    assert "\u2026" in repr(Scrubber().data(data))


def test_names_of_secrets() -> None:
    assert is_secret_name("Proxy-Authorization")
    assert is_secret_name("X_API_KEY")
    assert not is_secret_name("input_tokens")
    assert not is_secret_name(5)


def test_scrubbers_are_joined_for_secrets_that_begin_alike() -> None:
    one, two = Scrubber(), Scrubber()
    one.add("sk-canary-1111")
    two.add("sk-canary-2222")
    joint = Scrubber.joining([one, two])
    assert joint.text("a sk-canary-2222 b sk-canary-1111 c") == "a *** b *** c"
    assert one.text("sk-canary-2222") != "***"
    assert Scrubber.joining([]).text("plain sk-canary-1111 ?key=abc") == "plain sk-canary-1111 ?key=***"
