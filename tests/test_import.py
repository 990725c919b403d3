"""What `import aiio` brings in, and what it leaves until somebody asks."""

from __future__ import annotations

import subprocess
import sys

import pytest

import aiio

LATER = (
    "rich",
    "structlog",
    "genai_prices",
    "opentelemetry",
    "trio_websocket",
    "httpx",
    "asyncio",
    "sqlite3",
)


def test_importing_aiio_pulls_in_only_what_one_write_needs() -> None:
    code = f"import sys, aiio; print(*(name for name in {LATER!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", aiio.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(aiio, name) is not None
    assert name in dir(aiio)


@pytest.mark.parametrize(
    "room", ["agents", "bridges", "builder", "observe", "runs", "scale", "testing", "transports"]
)
def test_a_room_is_imported_when_it_is_first_asked_for(room: str) -> None:
    assert getattr(aiio, room).__name__ == f"aiio.{room}"


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'wirte'"):
        aiio.wirte  # noqa: B018
