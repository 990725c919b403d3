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
PULLED_IN = f"import sys; print(*(name for name in {LATER!r} if name in sys.modules))"


def test_importing_aiio_pulls_in_only_what_one_write_needs() -> None:
    code = f"import aiio; {PULLED_IN}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


ONE_WRITE = """
import functools, trio, aiio

CHUNK = b'{"choices":[{"index":0,"delta":{"content":"Wren."},"finish_reason":"stop"}]}'
ANSWER = b"data: " + CHUNK + b"\\n\\ndata: [DONE]\\n\\n"

async def answer(stream):
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n\\r\\n" + ANSWER)

async def main():
    async with trio.open_nursery() as nursery:
        serve = functools.partial(trio.serve_tcp, answer, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        async with aiio.open_env() as env:
            env.register_endpoint("here", url=url)
            terminal = await aiio.IO(env=env, model="here/m").write([aiio.user_message("Name a bird.")])
        print(terminal.message["content"][0]["text"])
        nursery.cancel_scope.cancel()

trio.run(main)
"""


def test_a_write_that_nobody_logs_pulls_in_neither_a_client_library_nor_structlog() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONE_WRITE + PULLED_IN], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["Wren.", ""]


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
