"""The page in a browser: what it shows, keys, mouse, a screen reader's view, and text that means harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiio.observe.page import timeline_page
from aiio.observe.timeline import read_timeline

from .chromium import Chromium, find_chromium
from .logs import log_file, settled, stamp

SCRIPT = "document.title='harmed'"
HARM = f'</script><script>{SCRIPT}</script><img src=x onerror="{SCRIPT}">&amp;\u2028$x'

LINES: list[dict[str, Any] | str] = [
    settled(
        3000,
        2500,
        write=1,
        agent="ada",
        queued_ms=500,
        prepare_ms=0,
        connect_ms=300,
        connect_budget_ms=31_234,
        body_bytes=1234,
        first_event_ms=600,
        longest_gap_ms=700,
        gaps=[[1500, 700]],
        stuck_budget_ms=120_000,
        overall_budget_ms=1_048_575,
        keepalives=2,
        text_chars=1200,
        thinking_chars=0,
        tool_calls=1,
    ),
    settled(9000, 6000, write=2, agent="bob", outcome="network", limit="stuck", error=HARM, keepalives=1),
    settled(4000, 800, write=3, agent=HARM, outcome="provider", error="no"),
    settled(9500, 200, write=4, outcome="cancelled", partial={"text": HARM}),
    settled(
        9600, 100, write=5, agent="ada", outcome="network", limit="connect", silence_ms=80, limit_budget_ms=80
    ),
    {"timestamp": stamp(3200), "event": "tool.settled", "agent": "ada", "tool": "f", "elapsed_ms": 150},
    "torn",
]


def page_of(path: Path, *lines: dict[str, Any] | str, name: str = "log.jsonl") -> Path:
    page = path / "page.html"
    page.write_bytes(timeline_page(read_timeline(log_file(path / "log", *lines)), name))
    return page


@pytest.fixture(scope="module")
def program() -> str:
    found = find_chromium()
    if found is None:
        pytest.skip("no chromium here")
    return found


@pytest.fixture(scope="module")
def started(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    profile = tmp_path_factory.mktemp("profile")
    with Chromium(program, profile, "--window-size=1300,1000") as opened:
        yield opened


@pytest.fixture
def browser(started: Chromium) -> Iterator[Chromium]:
    """The browser of this module, as it was when it started: to start one takes a second."""
    yield started
    started.ask("Emulation.setEmulatedMedia", features=[])
    started.ask("Emulation.clearDeviceMetricsOverride")
    started.open("about:blank")
    started.events.clear()


@pytest.fixture
def page(browser: Chromium, tmp_path: Path) -> Iterator[Chromium]:
    browser.open(page_of(tmp_path, *LINES, name=HARM).as_uri())
    yield browser
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("file:", "about:"))] == []
    complaints = {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"}
    assert [event for event in browser.events if event.get("method") in complaints] == []
    assert browser.run("document.title") == f"{HARM}: writes"


def text(browser: Chromium, selector: str) -> str:
    found = browser.run(f"document.querySelector({json.dumps(selector)}).textContent")
    assert isinstance(found, str)
    return found


def choose(browser: Chromium, name: str, value: str) -> None:
    browser.run(
        f"byId({name!r}).value = {value!r}; byId({name!r}).dispatchEvent(new Event('input'));"
        f"byId({name!r}).dispatchEvent(new Event('change'))"
    )


def listed(browser: Chromium) -> list[str]:
    found: list[str] = browser.run(
        "Array.from(document.querySelectorAll('#rows button'), (one) => one.textContent)"
    )
    return found


def test_the_markup_holds_no_text_of_others_and_loads_nothing(tmp_path: Path) -> None:
    markup = page_of(tmp_path, *LINES, name=HARM).read_text()
    assert "<img" not in markup
    assert markup.count("<script") == markup.count("</script") == 2
    assert "http:" not in markup
    assert "https:" not in markup
    assert "default-src &#x27;none&#x27;" in markup


def test_the_page_lists_the_stuck_and_slowest_first_and_filters(page: Chromium) -> None:
    assert text(page, "h1") == f"Writes in {HARM}"
    assert text(page, "#summary").startswith(
        "5 writes in 9.60 s from 2026-05-04 10:00:00 UTC; 4 not done; 4 lanes; 1 "
    )
    assert listed(page) == ["2", "5", "1", "3", "4"]
    choose(page, "outcome", "network")
    assert listed(page) == ["2", "5"]
    choose(page, "limit", "stuck")
    assert listed(page) == ["2"]
    assert text(page, "#shown") == "1 of 5 writes shown"
    choose(page, "agent", "ADA")
    assert listed(page) == []
    choose(page, "outcome", "")
    choose(page, "limit", "")
    assert listed(page) == ["5", "1"]
    choose(page, "agent", "")
    for order, first in ("begun", "ada"), ("worst", "bob"), ("name", "(no agent)"):
        choose(page, "order", order)
        assert page.run("laneNames[rows[0].lane]") == first


def test_a_write_shows_its_budget_arithmetic_gaps_and_partial(page: Chromium) -> None:
    page.run("document.querySelectorAll('#rows button')[2].click()")
    assert text(page, "#write-title") == "Write 1 of ada: done"
    body = page.run("byId('write-body').innerText")
    assert "30.0 s + 1,234 bytes \u00d7 1 ms = 31.2 s\t300 ms to the head\t30.9 s" in body
    assert "stuck\t2:00 min\t700 ms the longest gap\t119.3 s" in body
    assert "queued\t0 ms\t500 ms" in body
    assert "1.50 s\t700 ms" in body
    assert "2 keep-alives came, which are not progress." in body
    assert "1,200 characters of text, 0 of thinking, 1 tool call. The log does not keep content." in body
    page.press("Escape")
    assert page.run("document.querySelector('dialog').open") is False
    page.run("document.querySelectorAll('#rows button')[0].click()")
    assert text(page, "#write-body .error") == HARM
    assert text(page, "#write-title") == "Write 2 of bob: network, stuck limit"
    page.run("byId('close').click(); document.querySelectorAll('#rows button')[4].click()")
    assert json.loads(text(page, "#write-body pre")) == {"text": HARM}
    page.run("byId('close').click(); document.querySelectorAll('#rows button')[1].click()")
    assert "No message data came." in page.run("byId('write-body').innerText")


def test_keys_alone_reach_every_write(page: Chromium) -> None:
    for _ in range(20):
        page.press("Tab")
        if page.run("document.activeElement.id") == "lanes":
            break
    else:
        pytest.fail("Tab does not reach the timeline")
    page.press("ArrowRight")
    assert text(page, "#said") == "ada, write 1: done, took 3.00 s, began at 0 ms"
    page.press("ArrowRight")
    assert text(page, "#said").startswith("ada, write 5: network, connect limit")
    page.press("ArrowDown")
    assert text(page, "#said").startswith("bob, write 2")
    page.press("ArrowUp")
    page.press("End")
    assert text(page, "#said").startswith("(no agent), write 4")
    page.press("Home")
    page.press("Enter")
    assert text(page, "#write-title") == "Write 1 of ada: done"
    assert page.run("document.activeElement.id") == "write-title"
    page.press("Escape")
    assert page.run("document.activeElement.id") == "lanes"


def test_keys_and_buttons_zoom(page: Chromium) -> None:
    page.run("lanes.focus()")
    page.press("+")
    assert page.run("view.to - view.from") == pytest.approx(4800)
    page.press("ArrowRight", shift=True)
    assert page.run("view.from") == pytest.approx(3360)
    page.press("-")
    page.press("-")
    assert page.run("[view.from, view.to]") == [0, 9600]
    page.run("byId('zoom-in').click()")
    page.press("0")
    assert page.run("[view.from, view.to]") == [0, 9600]


def test_a_click_shows_a_write_and_a_drag_moves_the_view(page: Chromium) -> None:
    place = "const box = canvas.getBoundingClientRect(); [box.x + toX(4000), box.y + AXIS + ROW * 1.5]"
    x, y = page.run(f"(() => {{ {place.replace('; [', '; return [')} }})()")
    page.mouse(x, y, "mousePressed")
    page.mouse(x, y, "mouseReleased")
    assert text(page, "#write-title").startswith("Write 2 of bob")
    page.press("Escape")
    page.run("byId('zoom-in').click()")
    page.mouse(x, y, "mousePressed")
    page.mouse(x - 100, y, "mouseMoved")
    page.mouse(x - 100, y, "mouseReleased")
    assert page.run("view.from") > 2400
    assert page.run("dialog.open") is False


def test_what_a_screen_reader_finds_has_names(page: Chromium) -> None:
    page.run("document.querySelectorAll('#rows button')[2].focus()")
    nodes = page.ask("Accessibility.getFullAXTree")["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored")
    ]
    for role in (
        "button",
        "combobox",
        "searchbox",
        "application",
        "table",
        "columnheader",
        "heading",
        "region",
    ):
        assert any(kind == role for kind, _ in named), role
    controls = {"button", "combobox", "searchbox", "application", "heading", "region"}
    assert [one for one in named if one[0] in controls and not one[1]] == []
    assert ("button", "Show ada, write 1: done, took 3.00 s, began at 0 ms") in named


def test_whatever_a_log_says_the_page_runs_none_of_it(browser: Chromium, tmp_path: Path) -> None:
    facts = dict.fromkeys(("endpoint", "agent", "model", "outcome", "limit", "error", "partial"), HARM)
    strange: dict[str, Any] = {HARM: HARM, "__proto__": HARM, "constructor": {"x": HARM}, "toString": [HARM]}
    tool = {"timestamp": stamp(900), "event": "tool.settled", "agent": HARM, "tool": HARM, "elapsed_ms": 15}
    lines: list[dict[str, Any] | str] = [settled(1000, 900, **facts, **strange, write=HARM), tool, HARM]
    browser.open(page_of(tmp_path, *lines, name=HARM).as_uri())
    browser.run("document.querySelectorAll('#rows button')[0].click()")
    assert HARM in text(browser, "dialog")
    assert browser.run("document.title") == f"{HARM}: writes"
    assert browser.run("document.querySelectorAll('img, iframe, object, embed').length") == 0
    assert browser.run("document.scripts.length") == 2  # the data, and the page's own
    assert browser.run("({}).x === undefined && ({}).toString === Object.prototype.toString") is True
    complaints = {"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"}
    assert [event for event in browser.events if event.get("method") in complaints] == []


def test_many_writes_are_listed_by_pages_and_only_the_seen_rows_are_drawn(
    browser: Chromium, tmp_path: Path
) -> None:
    lines = [settled(1000 + n, 900, write=n, agent=f"a{n}") for n in range(5000)]
    browser.open(page_of(tmp_path, *lines).as_uri())
    assert browser.run("rows.length") == 5000
    assert browser.run("canvas.height") <= 1000
    assert text(browser, "#page") == "Page 1 of 50"
    browser.run("byId('next').click()")
    assert text(browser, "#page") == "Page 2 of 50"
    assert len(listed(browser)) == 100
    browser.run("byId('previous').click(); lanes.focus()")
    browser.press("ArrowDown")
    browser.press("End")
    assert text(browser, "#said").startswith("a4999")
    assert browser.run("lanes.scrollTop") > 100_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_the_page_fits_narrow_and_wide_light_and_dark(width: int, scheme: str, page: Chromium) -> None:
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    assert page.run("document.documentElement.scrollWidth") <= width
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 20, 26)")
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done("
    pixel = page.run(f"{drawn}Array.from(pen.getImageData(5, AXIS + 2, 1, 1).data)))))")
    assert pixel[:3] == ([255, 255, 255] if scheme == "light" else [15, 20, 26])
    page.run("document.querySelectorAll('#rows button')[0].click()")
    assert page.run("dialog.scrollWidth - dialog.clientWidth") <= 0
