"""The command `completion`, in click; app.py adds it to `aiio`."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from .exits import DONE

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}

VARIABLE = "_AIIO_COMPLETE"
"""What click derives from the program's name: set by the shell when it asks for completions."""


def add_commands(cli: click.Group) -> None:
    """Add `completion` to *cli*."""

    @cli.command()
    @click.argument("shell", type=click.Choice(sorted(SHELLS)))
    def completion(shell: str) -> int:
        """Print the code by which SHELL completes commands and options of `aiio`.

        bash must be 4.4 or newer.

        \b
        Examples:
          source <(aiio completion bash)             in ~/.bashrc
          source <(aiio completion zsh)              in ~/.zshrc
          aiio completion fish > ~/.config/fish/completions/aiio.fish
        """
        completer = SHELLS[shell](cli, {}, "aiio", VARIABLE)
        code = completer.source_template % completer.source_vars()
        click.echo(code)
        return DONE
