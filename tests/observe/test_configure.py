"""Log set-up: JSON lines, masked, from structlog and from the standard logger alike."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from aiio.context.log import get_logger
from aiio.env.endpoints import Endpoint
from aiio.env.scrub import Scrubber
from aiio.observe import Logging, configure
from aiio.transports.base import TransportRequest

CANARY = "sk-canary-0123456789abcdef"

Read = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def read(path: Path) -> Iterator[Read]:
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    structlog.reset_defaults()


def test_a_line_holds_time_level_event_and_context(path: Path, read: Read) -> None:
    with configure(path), structlog.contextvars.bound_contextvars(agent="a1"):
        get_logger().info("request.settled", bytes=5, odd=object)
    (line,) = read()
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line["timestamp"].endswith("Z")
    assert {key: line[key] for key in ("level", "event", "bytes", "agent")} == {
        "level": "info",
        "event": "request.settled",
        "bytes": 5,
        "agent": "a1",
    }
    assert line["odd"] == "<class 'object'>"


def test_a_request_and_an_endpoint_are_not_spelled_out(path: Path, read: Read) -> None:
    """They hold prompts and headers of any name: who logs one whole did not mean those."""
    headers = {"x-login": CANARY}
    with configure(path):
        request = TransportRequest(url=f"http://x/{CANARY}", headers=headers, body=CANARY.encode())
        get_logger().info("x", request=request, endpoint=Endpoint(name="mine", policy={"headers": headers}))
    (line,) = read()
    assert "mine" in line["endpoint"]
    assert CANARY not in path.read_text()


def test_lines_below_the_level_are_not_written(path: Path, read: Read) -> None:
    with configure(path, level="warning"):
        for method in ("debug", "info", "warning", "error", "critical"):
            getattr(get_logger(), method)(method)
            getattr(logging.getLogger("aiio.x"), method)(method)
    assert [line["event"] for line in read()] == [
        name for name in ("warning", "error", "critical") for _ in range(2)
    ]


def test_the_standard_logger_goes_the_same_way(path: Path, read: Read) -> None:
    with configure(path, level="debug"):
        log = logging.getLogger("aiio.deep")
        log.debug("%s of %d", "one", 2, extra={"api_key": CANARY, "n": 1})
        log.info("%d", "no number")
        try:
            raise ValueError(f"Authorization: Bearer {CANARY}")
        except ValueError:
            log.exception("it broke")
            get_logger().exception("it broke too")
    first, bad, broke, too = read()
    assert (first["event"], first["logger"], first["level"]) == ("one of 2", "aiio.deep", "debug")
    assert (first["api_key"], first["n"]) == ("***", 1)
    assert bad["event"] == "%d (TypeError in its arguments)"
    for line in (broke, too):
        assert "ValueError: Authorization" in line["exception"]
        assert CANARY not in json.dumps(line)


def test_console_and_file_get_the_same_and_nothing_is_fine_too(path: Path, read: Read) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as console, configure(path, console=console):
        get_logger().info("both")
    with os.fdopen(reader, "rb") as shown:
        assert json.loads(shown.read()) == read()[0]
    with configure():
        get_logger().info("nobody hears")


def test_the_last_call_holds_and_leaving_undoes_it(path: Path, tmp_path: Path, read: Read) -> None:
    logger = logging.getLogger("aiio")
    early = get_logger()
    other = tmp_path / "other"
    first = configure(other)
    before = get_logger()
    with configure(path) as second:
        before.info("moved")
        logger.info("moved too")
        assert len(logger.handlers) == 1
        assert isinstance(second, Logging)
    first.close()
    assert other.read_bytes() == b""
    assert [line["event"] for line in read()] == ["moved", "moved too"]
    assert not structlog.is_configured()
    assert logger.handlers == []
    assert logger.propagate
    assert early is get_logger()


def test_misuse_is_an_error_at_once(path: Path) -> None:
    with pytest.raises(ValueError, match="'loud'"):
        configure(path, level="loud")
    with pytest.raises(OSError, match="Is a directory"):
        configure(path.parent)
    assert not structlog.is_configured()


@pytest.mark.parametrize(
    "facts",
    [
        {"headers": {"Authorization": f"Bearer {CANARY}", "X-Api-Key": CANARY}},
        {"url": f"https://user:{CANARY}@host/v1?key={CANARY}"},
        {"error": f"GET https://host/v1?api_key={CANARY}&x=1 failed"},
        {"settings": {"auth": {"token": CANARY}}, "cookie": CANARY},
        {"text": f"it was {CANARY}"},
        {CANARY: 1},
        {"data": [CANARY.encode(), ({"deep": CANARY},)]},
        {"odd": type("Odd", (), {"__repr__": lambda self: f"<key {CANARY}>"})()},
    ],
)
def test_K1_no_secret_passes(facts: dict[str, Any], path: Path, read: Read) -> None:
    scrubber = Scrubber()
    scrubber.add(CANARY)
    with configure(path, level="debug", scrub=scrubber.text):
        get_logger().debug("look", **facts)
        logging.getLogger("aiio").debug("%s", facts)
    assert CANARY not in path.read_text()
    assert len(read()) == 2


def test_K1_a_scrub_that_fails_costs_the_line_not_the_write(path: Path, read: Read) -> None:
    def broken(text: str) -> str:
        raise RuntimeError(text)

    with configure(path, scrub=broken):
        get_logger().warning("secret", key=CANARY)
    (line,) = read()
    assert line.pop("timestamp")
    assert line == {"level": "warning", "event": "log.unmaskable", "error": "RuntimeError"}
