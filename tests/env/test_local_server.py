"""The child's script: its parts in this process, its manners in a child with a fake library."""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import types
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiio.env import local_server

CONFIG = {"weights": "/w", "key": "the-key", "alias": "m", "threads": 2, "slots": 4, "context": 100}

FAKE_XLLAMACPP = """
import http.server, threading, types
print("noise of the native library")

class CommonParams:
    def __init__(self):
        self.model = types.SimpleNamespace()
        self.cpuparams = types.SimpleNamespace()
        self.cpuparams_batch = types.SimpleNamespace()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        good = self.headers["Authorization"] == "Bearer the-key" and self.path == "/slots"
        self.send_response(200 if good else 401)
        self.end_headers()

class Server:
    def __init__(self, params):
        self._http = http.server.HTTPServer(("127.0.0.1", params.port), Handler)
        self.listening_address = "http://127.0.0.1:%d" % self._http.server_port
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
"""


class Parameters(types.SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(
            model=types.SimpleNamespace(),
            cpuparams=types.SimpleNamespace(),
            cpuparams_batch=types.SimpleNamespace(),
        )


class Ended(BaseException):
    """What stands for the end of the process."""


def test_the_server_is_for_loopback_and_for_holders_of_the_key() -> None:
    params = local_server.parameters(types.SimpleNamespace(CommonParams=Parameters), CONFIG)
    assert params.hostnames == ["127.0.0.1"]
    assert params.port == 0
    assert params.api_keys == ["the-key"]
    assert params.ui is False
    assert params.cors_origins == ""
    assert params.cache_ram_mib == 0
    assert (params.n_parallel, params.n_ctx) == (4, 400)
    assert params.cpuparams.n_threads == params.cpuparams_batch.n_threads == 2
    assert params.endpoint_slots is True
    assert params.model.path == "/w"
    assert params.model_alias == {"m"}
    assert not hasattr(params, "chat_template")
    templated = local_server.parameters(
        types.SimpleNamespace(CommonParams=Parameters), {**CONFIG, "chat_template": "{{ x }}"}
    )
    assert templated.chat_template == "{{ x }}"


@pytest.fixture
def run_main(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], tuple[int | None, str]]:
    """Runs `main` here with *xllamacpp* as the module, everything that would change this process replaced."""

    def run(xllamacpp: Any) -> tuple[int | None, str]:
        answers = io.StringIO()
        monkeypatch.setattr(signal, "signal", lambda number, action: None)
        monkeypatch.setattr(signal, "pause", end)
        monkeypatch.setattr(os, "nice", lambda by: None)
        monkeypatch.setattr(local_server, "_take_stdout", lambda: answers)
        monkeypatch.setattr(local_server, "_end_with_parent", lambda: None)
        monkeypatch.setattr(local_server, "_silence", lambda descriptor: None)
        line = json.dumps(CONFIG).encode() + b"\n"
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(line)))
        monkeypatch.setitem(sys.modules, "xllamacpp", xllamacpp)
        try:
            return local_server.main(), answers.getvalue()
        except Ended:
            return None, answers.getvalue()

    def end() -> None:
        raise Ended

    return run


def test_main_says_that_the_library_is_missing(run_main: Callable[[Any], tuple[int | None, str]]) -> None:
    code, answer = run_main(None)
    assert code == 3
    assert json.loads(answer)["code"] == "no_runtime"


def test_main_says_why_the_server_does_not_start(run_main: Callable[[Any], tuple[int | None, str]]) -> None:
    def server(params: Any) -> Any:
        raise RuntimeError("bad weights")

    code, answer = run_main(types.SimpleNamespace(CommonParams=Parameters, Server=server))
    assert code == 4
    assert json.loads(answer) == {"error": "RuntimeError: bad weights", "code": "no_start"}


def test_the_script_runs_main(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(number: int, action: object) -> None:
        raise Ended

    monkeypatch.setattr(signal, "signal", begun)
    with pytest.raises(Ended):
        runpy.run_path(local_server.__file__, run_name="__main__")


def test_main_answers_once_a_request_would_be_served(
    run_main: Callable[[Any], tuple[int | None, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(local_server, "_wait_until_ready", lambda address, key: asked.append((address, key)))
    server = types.SimpleNamespace(listening_address="http://127.0.0.1:4711")
    code, answer = run_main(types.SimpleNamespace(CommonParams=Parameters, Server=lambda params: server))
    assert code is None
    assert json.loads(answer) == {"port": 4711, "pid": os.getpid()}
    assert asked == [("http://127.0.0.1:4711", "the-key")]


class Opener:
    """Answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def open(self, request: Any, timeout: float) -> Any:
        assert request.headers == {"Authorization": "Bearer the-key"}
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO()


def status(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://h", code, "", {}, io.BytesIO())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([None], None),
        ([ConnectionRefusedError(), status(503), None], None),
        ([status(401)], urllib.error.HTTPError),
        ([ConnectionRefusedError()], TimeoutError),
    ],
)
def test_ready_is_when_the_slots_answer(
    monkeypatch: pytest.MonkeyPatch, answers: list[Any], error: type[Exception] | None
) -> None:
    monkeypatch.setattr(urllib.request, "build_opener", lambda handler: Opener(*answers))
    monkeypatch.setattr(local_server, "READY_PAUSE", 0)
    if error is None:
        local_server._wait_until_ready("http://h", "the-key")
    else:
        with pytest.raises(error):
            local_server._wait_until_ready("http://h", "the-key")
    for answer in answers:
        if isinstance(answer, urllib.error.HTTPError):
            answer.close()


def test_stdout_is_kept_for_the_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(os, "dup", lambda descriptor: target)
    silenced: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(local_server, "_silence", silenced.append)
        answers = local_server._take_stdout()
    answers.write("line\n")
    assert (tmp_path / "out").read_text() == "line\n"
    assert silenced == [1]
    local_server._silence(target)
    answers.write("nowhere\n")
    answers.close()
    assert (tmp_path / "out").read_text() == "line\n"


def test_the_end_of_stdin_or_another_parent_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    watches: list[Callable[[], None]] = []

    class Thread:
        def __init__(self, target: Callable[[], None], daemon: bool) -> None:
            assert daemon
            watches.append(target)

        def start(self) -> None: ...

    def end(code: int) -> None:
        raise Ended(code)

    parents = iter([10, 10, 10, 1])
    monkeypatch.setattr(threading, "Thread", Thread)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"x" * 9000)))
    local_server._end_with_parent()
    for watch in watches:
        with pytest.raises(Ended):
            watch()
    assert next(parents, None) is None


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "xllamacpp.py").write_text(FAKE_XLLAMACPP)
    process = subprocess.Popen(
        [sys.executable, local_server.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"},
    )
    with process:
        yield process
        process.kill()


def ready(child: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(CONFIG).encode() + b"\n")
    child.stdin.flush()
    answer: dict[str, Any] = json.loads(child.stdout.readline())
    return answer


def test_a_child_answers_on_one_line_and_ends_with_stdin(child: subprocess.Popen[bytes]) -> None:
    answer = ready(child)
    assert answer["pid"] == child.pid
    assert answer["port"] > 0
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(10) == 0
    assert child.stdout is not None
    assert child.stdout.read() == b""  # neither noise nor anything else after the answer


def test_a_child_ends_at_sigterm_and_not_at_sigint(child: subprocess.Popen[bytes]) -> None:
    ready(child)
    child.send_signal(signal.SIGINT)
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM
