"""One real model server for a whole test process: the fixture `real_model`, for tests marked `model`.

The embedded model (the extra `local` and its weights) runs as a child process, as it does for users; the
first test that asks starts it, and it ends with the process. A test skips, with the reason, where
xllamacpp or the weights are missing. Give it at most four requests at a time, and no long answers.

Use it from any room: `from tests.model import RealModel, real_model` and a parameter of that name.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from typing import Any

import pytest

from aiio.env.auth import Secret
from aiio.env.errors import ProviderError
from aiio.env.local_process import MODEL_ALIAS, SCRIPT, config_line, server_spec
from aiio.env.weights import find_weights

KEY = "key-of-the-test-server"


@dataclass(frozen=True, slots=True, kw_only=True)
class RealModel:
    """A llama.cpp server that runs on loopback."""

    url: str
    """Base URL, with `/v1`."""
    key: str
    pid: int
    model: str = MODEL_ALIAS

    def slots(self) -> list[dict[str, Any]]:
        """Return what the server says about its slots: `is_processing` is the independent judge of `kill()`.

        Blocks for a moment; from a trio test call it through `trio.to_thread.run_sync`.
        """
        address = f"{self.url.removesuffix('/v1')}/slots"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {self.key}"})
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=10) as response:
            slots: list[dict[str, Any]] = json.load(response)
        return slots


@pytest.fixture(scope="session")
def real_model() -> RealModel:
    """The server of this test process. Skips when it can't run here."""
    found = start_once()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@functools.cache
def start_once() -> RealModel | str:
    """Start the server and return it, or the reason why there is none."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "xllamacpp is not installed (extra `local`)"
    try:
        weights = find_weights()
    except ProviderError as exc:
        return exc.message
    process = subprocess.Popen(
        [sys.executable, "-P", str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(_end, process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(config_line(server_spec({"threads": 1}, weights), Secret(KEY)))
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    if "error" in answer:
        raise RuntimeError(f"the model server did not start: {answer['error']}")
    return RealModel(url=f"http://127.0.0.1:{answer['port']}/v1", key=KEY, pid=answer["pid"])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(5)
