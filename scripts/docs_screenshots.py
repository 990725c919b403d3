"""Takes the pictures of docs/images: a run on a terminal while it goes on, and the page of its trace.

    python -m scripts.docs_screenshots

Nothing in them is made up. `aiio run` asks the mock server of `aiio.testing`, which answers at the pace of a
model and fails now and then; the table is what it wrote to a terminal two thirds of the way, the page is what
`aiio trace --html` made of the log, in a Chromium.
"""

from __future__ import annotations

import base64
import io
import os
import pty
import re
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import trio
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from aiio.testing import Request, Step, fail, finish, hang, mock_server, pause, ping, say
from tests.observe.chromium import Chromium, find_chromium

from .quickstart_demo import SUBJECTS as FEW

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
TABLE, PAGE = IMAGES / "run.svg", IMAGES / "trace.png"

COLUMNS = 92
"""Of the terminal."""
WIDTH, HEIGHT = 1180, 757
"""Of the browser's window, in pixels."""
BELOW = 113
"""How much more of the page is photographed: the beginning of its list."""
SHOWN = 2 / 3
"""Which of the pictures that the run drew is shown: 0 the first, 1 the last."""

COMMAND = "aiio run prompts.jsonl --agents 6 --stuck-timeout 4s --out answers.jsonl --log trace.jsonl"
SUBJECTS = (*FEW, "winds", "clouds", "stones", "herbs", "fishes", "islands", "dances", "tools")
"""What the prompts are about; their keys."""


def script(request: Request) -> list[Step]:
    """Return how a prompt is answered: most at a model's pace, some late, some not to the end."""
    text = str(request.json()["messages"][-1]["content"])
    place = next(place for place, subject in enumerate(SUBJECTS) if subject in text)
    slowness = 1 + place * 7 % 5
    words: list[Step] = [
        step for word in range(12) for step in (pause(f"{60 * slowness}ms"), say(f"word {word} "))
    ]
    alive: list[Step] = [pause("1s"), ping()]
    match place:
        case 4:  # after some words only keep-alives
            return [pause("300ms"), *words[:8], *alive * 20]
        case 9:
            return [pause("400ms"), fail(429, "too many requests", retry_after="20s")]
        case 13:  # one long silence, and then it goes on
            return [pause("500ms"), *words[:10], pause("2500ms"), *words[10:], finish()]
        case 11:  # the connection breaks in the middle
            return [pause("200ms"), *words[:14], fail()]
        case 14:
            return [pause("700ms"), *words[:2], hang()]
        case _:
            return [pause(f"{150 * slowness}ms"), *words, finish(output_tokens=24)]


async def run_on_a_terminal(folder: Path, environment: dict[str, str]) -> bytes:
    """Run `COMMAND` in *folder*; return what it wrote to its terminal."""
    ours, theirs = pty.openpty()
    try:
        async with trio.open_nursery() as nursery:
            command = [sys.executable, "-m", "aiio.cli", *COMMAND.split()[1:]]
            run = partial(trio.run_process, stdout=theirs, stderr=theirs, check=False)
            process = await nursery.start(partial(run, command, cwd=folder, env=environment))
            os.close(theirs)
            written = b""
            while True:
                await trio.lowlevel.wait_readable(ours)
                try:
                    written += os.read(ours, 1 << 16)
                except OSError:  # nobody has the other end any more
                    break
        assert process.returncode == 3, written.decode()  # network is the lowest of what failed
        return written
    finally:
        os.close(ours)


_CURSOR_MOVES = re.compile(r"(?:\r|\x1b\[2K|\x1b\[1A|\x1b\[\?25[lh])+")


def pictures(written: bytes) -> Iterator[str]:
    """Yield each table that was drawn: what stands between two moves of the cursor."""
    for drawn in _CURSOR_MOVES.split(written.decode().replace("\r\n", "\n")):
        if "in flight" in drawn and "ETA" in drawn:
            yield drawn.strip("\n")


def as_svg(command: str, picture: str) -> str:
    """Return a terminal with *command* typed, and *picture* below it, without anything from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "green"), command))
    console.print(Text.from_ansi(picture))
    form = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # they would be fetched
    return console.export_svg(title="aiio run", code_format=form, unique_id="aiio-run")


def photograph(page: Path, profile: Path) -> bytes:
    """Return *page* in a browser, as PNG. *profile* is a folder for its own files."""
    program = find_chromium()
    if program is None:
        sys.exit("error: no Chromium found; install one (on Debian: apt-get install chromium)")
    with Chromium(program, profile, "--blink-settings=preferredColorScheme=1") as browser:  # light
        screen = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1}
        browser.ask("Emulation.setDeviceMetricsOverride", mobile=False, **screen)
        browser.open(page.as_uri())
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT + BELOW, "scale": 1}
        taken = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])


async def take(folder: Path) -> None:
    """Run, and write the pictures. *folder* is empty."""
    lines = [f'{{"key": "{subject}", "prompt": "Name three {subject}."}}\n' for subject in SUBJECTS]
    (folder / "prompts.jsonl").write_text("".join(lines), "utf-8")
    async with mock_server() as server:
        server.answer(script)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
            "AIIO_CONFIG_DIR": str(folder),
            "OPENAI_API_KEY": "any",
            "OPENAI_BASE_URL": f"{server.url}/v1",
        }
        (folder / "config.toml").write_text('model = "openai/demo"\n', "utf-8")
        drawn = list(pictures(await run_on_a_terminal(folder, environment)))
        export = [sys.executable, "-m", "aiio.cli", "trace", "trace.jsonl", "--html", "trace.html"]
        await trio.run_process(export, cwd=folder, env=environment, capture_stderr=True)
    IMAGES.mkdir(exist_ok=True)
    TABLE.write_text(as_svg(COMMAND, drawn[int(len(drawn) * SHOWN)]), "utf-8")
    PAGE.write_bytes(await trio.to_thread.run_sync(photograph, folder / "trace.html", folder / "browser"))


def main() -> None:
    """Take the pictures, and say where they are."""
    with TemporaryDirectory() as folder:
        trio.run(take, Path(folder))
        shutil.rmtree(Path(folder) / "browser", ignore_errors=True)  # which still tidies up
    for image in (TABLE, PAGE):
        print(f"{image.relative_to(ROOT)}: {image.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
