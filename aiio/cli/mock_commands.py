"""The command `mock`, in click; app.py adds it to `aiio`."""

from __future__ import annotations

import sys
from typing import Any

import click

from .config_commands import Execute, Options
from .output import Output


def add_commands(cli: click.Group, log_options: Options, execute: Execute) -> None:
    """Add `mock` to *cli*."""

    @cli.command()
    @click.option("--script", metavar="FILE", help="JSON lines, each the steps for one request.")
    @click.option(
        "--recording",
        "recordings",
        metavar="FILE",
        multiple=True,
        help="An answer to play: .jsonl of the recorder, .sse, .ndjson, .http.json; one a request.",
    )
    @click.option(
        "--speed", type=float, default=1.0, show_default=True, help="Of recordings; inf: no pauses."
    )
    @click.option(
        "--faults",
        metavar="FAULT",
        multiple=True,
        help="KIND[=VALUE][@BYTE][:up], e.g. stall@400, reset@10:up, latency=80ms, throttle=2000, refuse.",
    )
    @click.option(
        "--port", type=click.IntRange(0, 65535), default=0, help="On 127.0.0.1 [default: a free one]."
    )
    @log_options
    def mock(
        script: str | None,
        recordings: tuple[str, ...],
        speed: float,
        faults: tuple[str, ...],
        port: int,
        **more: Any,
    ) -> int:
        """Serve a provider of scripts or recordings on this machine, with faults, until Ctrl-C.

        It speaks Chat Completions, Responses, Anthropic Messages, Gemini and Ollama, by the path asked for.
        The last script or recording is played again for all further requests. A line of a script is e.g.
        [{"say": "Hello"}, {"pause": "5s"}, {"call": "look", "arguments": {"at": 1}}, "finish"], and other
        steps are {"fail": 429, "retry_after": "2s"}, {"think": "..."}, "ping", "hang".

        \b
        Examples:
          aiio mock
          aiio mock --script slow.jsonl --port 8765
          aiio mock --recording incident.jsonl --speed 10
          aiio mock --faults stall@400 --faults latency=80ms
        """
        from .mock import MockOptions
        from .mock import mock as serve

        options = MockOptions(script=script, recordings=recordings, speed=speed, faults=faults, port=port)
        return execute(lambda session: serve(session, Output(sys.stdout.fileno()), options), more)
