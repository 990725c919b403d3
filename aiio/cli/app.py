"""The commands and their options, in click; the work is done in the module named after each command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import click

from aiio import __version__
from aiio.env.durations import parse_duration
from aiio.env.scrub import Scrubber
from aiio.observe import LEVELS

from . import completion_commands, config_commands, mock_commands, sessions_commands, trace_commands
from .exits import BAD_INPUT, DONE, INTERRUPTED, READER_GONE, CliFault
from .models import LimitOptions, parse_settings
from .output import Output, say
from .session import Command, LogOptions, Session, crashed, execute
from .sessions_commands import dir_option

_Function = TypeVar("_Function", bound=Callable[..., Any])

EXIT_CODES = """Exit codes: 0 answered, 2 credentials, 3 network or a time limit, 4 the provider said no,
5 an answer that can't be read, bad input or no room for output, 6 a budget of `run` is used up, 130 Ctrl-C
(143 SIGTERM), 141 the reader of the output went away, 1 a bug of aiio."""


def invoke(arguments: list[str]) -> int:
    """Run the command line *arguments* and return the exit code. Raises nothing but SystemExit."""
    try:
        code = cli.main(args=arguments, prog_name="aiio", standalone_mode=False)
    except click.UsageError as exc:
        if exc.ctx is not None:
            say(exc.ctx.get_usage())
        say(exc.format_message())
        return BAD_INPUT
    except CliFault as fault:
        say(Scrubber().text(str(fault)))
        return fault.code
    except (click.Abort, KeyboardInterrupt):
        say("stopped")
        return INTERRUPTED
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # or the interpreter complains about it at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except Exception as exc:  # noqa: BLE001  # no traceback reaches a user: it can quote a credential
        return crashed(exc, LogOptions(debug="--debug" in arguments), Scrubber().text)
    return code if isinstance(code, int) else DONE


def _options(*decorators: Callable[[_Function], _Function]) -> Callable[[_Function], _Function]:
    """Put several option decorators into one, shown in the order given."""

    def decorate(function: _Function) -> _Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


_model_options = _options(
    click.option("--model", "-m", metavar="ENDPOINT/MODEL", help="Whom to ask; default: the embedded model."),
    click.option("--system", "-s", metavar="TEXT", help="A system message in front."),
    click.option("--timeout", metavar="TIME", help='Limit for a whole request ("90s", "5m", "never").'),
    click.option("--connect-timeout", metavar="TIME", help="Limit until the answer begins."),
    click.option("--stuck-timeout", metavar="TIME", help="Limit for silence in mid-answer."),
    click.option(
        "--set",
        "pairs",
        metavar="KEY=VALUE",
        multiple=True,
        help="A setting, e.g. temperature=0.2 or url=...",
    ),
)
_log_options = _options(
    click.option("--log", metavar="FILE", help="Append log lines (JSON, without credentials) to FILE."),
    click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True),
    click.option("--debug", is_flag=True, help="Log at level debug, and show tracebacks, scrubbed."),
)


@click.group(
    epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="aiio")
def cli() -> None:
    """Ask language models, one at a time or many at once.

    \b
    Examples:
      aiio local setup                           fetch the small embedded model, once
      aiio ask "Name three birds."               ask it
      aiio ask -m openai/gpt-5 "Why?"            ask another; the key is in OPENAI_API_KEY
      aiio chat --session birds                  converse, kept on disk
      cat chat.json | aiio ask --json            a context in, events out, as JSON lines
      aiio run prompts.jsonl -m openai/gpt-5 --agents 20 --out answers.jsonl
    """


@cli.command()
@click.argument("prompt", required=False)
@click.option("--session", "name", metavar="NAME", help="Ask in session NAME, kept on disk; it may be new.")
@dir_option
@_model_options
@click.option("--json", "json_lines", is_flag=True, help="Print every event as one line of JSON.")
@click.option("--thinking", is_flag=True, help="Show what the model thinks, on stderr.")
@_log_options
def ask(
    prompt: str | None,
    name: str | None,
    dir: str | None,
    model: str | None,
    system: str | None,
    pairs: tuple[str, ...],
    json_lines: bool,
    thinking: bool,
    **more: Any,
) -> int:
    """Ask once; the answer is printed as it comes.

    PROMPT is the text to send. Without it, or with `-`, stdin is read: text, a JSON list of messages, or
    messages as JSON lines. Ctrl-C stops the request and keeps what was printed. In a session, all that was
    said before is sent too, and question and answer are kept, also an answer that was stopped.

    \b
    Examples:
      aiio ask "Name three birds."
      git diff | aiio ask - --system "Review this change."
      aiio ask --session birds "And three more?"
      aiio ask "Hello" -m vllm/qwen3 --set url=http://127.0.0.1:8000/v1 --timeout 30s
    """
    from .ask import Question, ask, read_context

    question = Question(
        context=read_context(prompt, system),
        model=model,
        session=name,
        dir=dir,
        json_lines=json_lines,
        thinking=thinking,
        settings=parse_settings(pairs),
        limits=_limits(more),
    )
    out = Output(sys.stdout.fileno())

    async def work(session: Session) -> int:
        return await ask(session, question, out)

    return _execute(work, more)


@cli.command()
@click.argument("prompts", metavar="PROMPTS.jsonl")
@_model_options
@click.option(
    "--agents", "-n", type=click.IntRange(min=1), help="Requests at a time [default: 8; embedded model: 4]."
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Start no more prompts once all together have cost this much.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="The same for tokens, input and output [of one answer: --set max_tokens=N].",
)
@click.option("--max-time", metavar="TIME", help='Stop everything after so long ("10m"); partials are kept.')
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where requests are made: in this process, or by workers on a Ray cluster (extra `ray`).",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes on the cluster [default: one for 500 agents, 2 at least].",
)
@click.option(
    "--ray-address",
    envvar="RAY_ADDRESS",
    metavar="ADDRESS",
    help="The cluster; else Ray is started on this machine.",
)
@click.option("--out", "-o", required=True, metavar="OUT.jsonl", help="Where result lines are appended.")
@click.option("--no-progress", is_flag=True, help="Show no table while it runs.")
@click.option("--skip-bad", is_flag=True, help="Leave broken lines of the prompts file out.")
@click.option("--keep-failed", is_flag=True, help="Do not run again what failed in an earlier run.")
@_log_options
def run(
    prompts: str,
    model: str | None,
    system: str | None,
    pairs: tuple[str, ...],
    agents: int | None,
    max_cost: float | None,
    max_tokens: int | None,
    max_time: str | None,
    engine: Literal["local", "ray"],
    workers: int | None,
    ray_address: str | None,
    out: str,
    no_progress: bool,
    skip_bad: bool,
    keep_failed: bool,
    **more: Any,
) -> int:
    """Ask many; one result line per prompt, written as it ends.

    A line of PROMPTS.jsonl (`-`: stdin) is a JSON string, or an object with `prompt` or `context`, and
    optionally `key` (else the line number), `model` and `system`. A line of OUT.jsonl is {key, terminal,
    message, usage, timings}. Run again, the same command does what is left: prompts without a result of type
    `done`. Ctrl-C ends every request with what had arrived in its line; a second Ctrl-C quits at once.

    A budget is for all prompts of this run together. At --max-cost and --max-tokens the requests in flight
    go on to their end and count, so it ends above them; at --max-time they end with what had arrived.

    With --engine ray, --agents is for all workers together. They use the keys and settings of their own
    machines; the log holds what happened here. A prompt whose worker is lost runs again on another one.

    When prompts failed, the exit code is the lowest of theirs: what to mend first.

    \b
    Examples:
      aiio run prompts.jsonl -m openai/gpt-5 --agents 20 --out answers.jsonl
      aiio run prompts.jsonl --out answers.jsonl --timeout 2m --log trace.jsonl
      aiio run prompts.jsonl -m openai/gpt-5 --out answers.jsonl --max-cost 2.50 --max-time 30m
      aiio run prompts.jsonl -m vllm/qwen3 --out answers.jsonl --agents 4000 --engine ray --ray-address auto
    """
    from .run import RunOptions
    from .run import run as run_prompts

    options = RunOptions(
        prompts=prompts,
        out=out,
        model=model,
        agents=agents,
        system=system,
        settings=parse_settings(pairs),
        limits=_limits(more),
        max_cost=max_cost,
        max_tokens=max_tokens,
        max_time=max_time,
        engine=engine,
        workers=workers,
        ray_address=ray_address,
        progress=not no_progress,
        skip_bad=skip_bad,
        keep_failed=keep_failed,
    )

    async def work(session: Session) -> int:
        return await run_prompts(session, options)

    return _execute(work, more)


@cli.group()
def local() -> None:
    """The embedded model: a small one that needs no key and proves that everything works.

    \b
    Examples:
      aiio local setup
      aiio ask -m local/smollm2 "Name three birds."
    """


@local.command()
@_log_options
def setup(**more: Any) -> int:
    """Fetch the model's weights (about 100 MB), once. Safe to run again.

    \b
    Examples:
      aiio local setup
    """
    from .local import setup

    return _execute(setup, more)


@local.command()
@_log_options
def serve(**more: Any) -> int:
    """Serve the model to all processes of this user, until Ctrl-C; without it each starts its own.

    \b
    Examples:
      aiio local serve &
    """
    from .local import serve

    return _execute(serve, more)


@local.command()
@_log_options
def stop(**more: Any) -> int:
    """End the server that `aiio local serve` started.

    \b
    Examples:
      aiio local stop
    """
    from .local import stop

    return _execute(stop, more)


def _limits(more: dict[str, Any]) -> LimitOptions:
    """Take the limits out of a command's options. CliFault: one is no duration."""
    limits = LimitOptions(
        timeout=more["timeout"], connect_timeout=more["connect_timeout"], stuck_timeout=more["stuck_timeout"]
    )
    for name, value in limits.items():
        try:
            parse_duration(cast(str | None, value))
        except ValueError as exc:
            raise CliFault(f"--{name.replace('_', '-')}: {exc}") from exc
    return limits


def _execute(command: Command, more: dict[str, Any]) -> int:
    return execute(command, LogOptions(log=more["log"], level=more["log_level"], debug=more["debug"]))


completion_commands.add_commands(cli)
config_commands.add_commands(cli, _log_options, _execute)
sessions_commands.add_commands(cli, _model_options, _log_options, _limits, _execute)
mock_commands.add_commands(cli, _log_options, _execute)
trace_commands.add_commands(cli)
