"""The embedded model's server, run as a child process: a plain script, not part of the library's import tree.

It reads one JSON line from stdin, `{"weights", "key", "alias", "threads", "slots", "context",
"chat_template"}`, and answers with one JSON line on stdout: `{"port", "pid"}` when a request would be
served, or `{"error", "code"}`. The key travels here and never in argv, which every user of the machine can
read.
It ends when stdin ends, which happens when the parent dies, however it dies; or by SIGTERM.

Only the standard library and xllamacpp are imported: the script is started by path, without the package.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

READY_TRIES = 600
READY_PAUSE = 0.1  # seconds; 60 s in all for the server to leave "Loading model"


def main() -> int:
    """Serve until stdin ends. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us in its own time
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    answers = _take_stdout()
    os.nice(10)
    config = json.loads(sys.stdin.buffer.readline())
    _end_with_parent()
    try:
        import xllamacpp
    except ImportError as exc:
        answers.write(json.dumps({"error": str(exc), "code": "no_runtime"}) + "\n")
        return 3
    try:
        server = xllamacpp.Server(parameters(xllamacpp, config))
        _wait_until_ready(server.listening_address, config["key"])
    except Exception as exc:  # noqa: BLE001  # whatever it is, the parent must hear of it
        answers.write(json.dumps({"error": f"{type(exc).__name__}: {exc}", "code": "no_start"}) + "\n")
        return 4
    _silence(2)  # nobody reads our stderr from here on
    port = int(server.listening_address.rpartition(":")[2])
    answers.write(json.dumps({"port": port, "pid": os.getpid()}) + "\n")
    while True:
        signal.pause()


def parameters(xllamacpp: Any, config: dict[str, Any]) -> Any:
    """Return the server's parameters: loopback only, a free port, a key, no browser face, no memory hoard."""
    params = xllamacpp.CommonParams()
    params.model.path = config["weights"]
    params.model_alias = {config["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [config["key"]]
    params.endpoint_slots = True  # the independent judge of whether a killed request has really stopped
    params.ui = False
    params.cors_origins = ""
    params.cache_ram_mib = 0
    params.n_parallel = config["slots"]
    params.n_ctx = config["slots"] * config["context"]
    params.fit_params = False  # n_ctx is what was asked for, not what seems to fit
    params.cpuparams.n_threads = config["threads"]
    params.cpuparams_batch.n_threads = config["threads"]
    params.verbosity = 1
    if config.get("chat_template"):
        params.chat_template = config["chat_template"]
    return params


def _take_stdout() -> Any:
    """Keep stdout for our two lines; what the native library prints there goes nowhere."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    _silence(1)
    return answers


def _silence(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _end_with_parent() -> None:
    """End this process when stdin ends, or when the parent is another than at the start.

    The second matters when a process forked by the parent still holds the other end of the pipe.
    """
    parent = os.getppid()

    def watch_stdin() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os._exit(0)

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(0)

    for watch in (watch_stdin, watch_parent):
        threading.Thread(target=watch, daemon=True).start()


def _wait_until_ready(address: str, key: str) -> None:
    """Return when the server answers a route that needs the key and the model. TimeoutError: it never did."""
    request = urllib.request.Request(f"{address}/slots", headers={"Authorization": f"Bearer {key}"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(READY_TRIES):
        try:
            with direct.open(request, timeout=10):
                return
        except urllib.error.HTTPError as exc:
            if exc.code != 503:  # 503: still loading the model
                raise
        except OSError:
            pass  # not listening yet
        time.sleep(READY_PAUSE)
    raise TimeoutError("the model server did not become ready")


if __name__ == "__main__":
    sys.exit(main())
