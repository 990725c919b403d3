"""Headless Chromium, driven over the pipe that it offers debuggers.

with Chromium(path, folder, "--blink-settings=preferredColorScheme=0") as browser:
    browser.open("file:///...")
    assert browser.run("document.title") == "..."
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")

# The browser reads commands from descriptor 3 and writes to 4, which a child of ours can't just be given.
_LAUNCH = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60.0


def find_chromium() -> str | None:
    """Return where a Chromium is; None: there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A browser with one page. A context manager; used from one thread."""

    def __init__(self, program: str, folder: Path, *arguments: str) -> None:
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
        )
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _LAUNCH, str(commands), str(answers)),
                *(program, *flags, f"--user-data-dir={folder}", *arguments, "about:blank"),
            ],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._pending = b""
        self._count = 0
        self.events: list[dict[str, Any]] = []
        """What the browser told unasked: console messages, exceptions, requests."""
        self._session: str | None = None
        pages = [one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self.ask("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._write)  # which ends it
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a protocol command."""
        self._count += 1
        command: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while (message := self._receive()).get("id") != self._count:
            self.events.append(message)
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            chunk = os.read(self._read, 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError("the browser is gone, or says nothing")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, url: str) -> None:
        """Go to *url* and wait until it has loaded."""
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]
        self.ask("Page.navigate", url=url)
        self.wait_event("Page.loadEventFired")

    def wait_event(self, method: str) -> None:
        """Wait for an event that may have come already."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._receive())

    def run(self, script: str) -> Any:
        """Return the value of an expression of JavaScript in the page; a promise is awaited."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key as a person would."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38}.get(key, 0)
        code = code or {"ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}.get(key, 0)
        params = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **params)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **params)

    def mouse(self, x: float, y: float, kind: str) -> None:
        """Move the mouse, press or release its button: `mouseMoved`, `mousePressed`, `mouseReleased`."""
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
