"""`aiio trace` in click; app.py adds it to `aiio`."""

from __future__ import annotations

import click


def add_commands(cli: click.Group) -> None:
    """Add `trace` to *cli*."""

    @cli.command()
    @click.argument("log", metavar="LOG.jsonl")
    @click.option("--outcome", metavar="OUTCOME", help='Only writes that ended so: "done", "network", ...')
    @click.option(
        "--limit",
        type=click.Choice(["overall", "connect", "stuck"]),
        help="Only writes that this limit ended.",
    )
    @click.option("--agent", metavar="NAME", help='Only writes of this agent; "NAME*": of all that begin so.')
    @click.option(
        "--top",
        type=click.IntRange(min=0),
        metavar="N",
        help="Show N writes, 0: all [default: all; terminal: 50].",
    )
    @click.option("--html", metavar="FILE", help="Write a page to look at in a browser, all writes in it.")
    @click.option("--chrome", metavar="FILE", help="Write Chrome trace events, for Perfetto.")
    def trace(
        log: str,
        outcome: str | None,
        limit: str | None,
        agent: str | None,
        top: int | None,
        html: str | None,
        chrome: str | None,
    ) -> int:
        """Show what became of every write in a log: the stuck and the slowest first.

        LOG.jsonl is what `--log` wrote. A line is a write: how long it was queued, until the head of the
        answer and its first event came, its longest gap, how it ended. Filters hold for the files too.

        \b
        Examples:
          aiio trace trace.jsonl --top 20
          aiio trace trace.jsonl --limit stuck
          aiio trace trace.jsonl --html trace.html
          aiio trace trace.jsonl --chrome trace.json
        """
        from .trace import TraceOptions
        from .trace import trace as show_trace

        return show_trace(
            TraceOptions(
                log=log, outcome=outcome, limit=limit, agent=agent, top=top, html=html, chrome=chrome
            )
        )
