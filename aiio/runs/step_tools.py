"""The tools of one step: the env's, the step's own functions, and what the layers provide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiio.env.toolbox import Toolbox, ToolRef
from aiio.env.tools import Tool

from .layer_tools import layer_tools

if TYPE_CHECKING:
    from aiio.env.env import Env

    from .layer_set import LayerSet


class StepTools(Toolbox):
    """What the model of a step may call; see `Toolbox`.

    Args:
      env: its catalog; None: there is none.
      tools: None: all of the env's and the layers'; a list narrows both, `[]`: none.
      layers: of the context that the step runs on.

    Raises:
      TypeError, ValueError: as for `Toolbox`.
    """

    def __init__(self, env: Env | None, tools: Sequence[ToolRef] | None, layers: LayerSet) -> None:
        provided = layer_tools(layers)
        if isinstance(tools, list | tuple):
            wanted = {tool for tool in tools if isinstance(tool, str)}
            if "*" not in wanted:
                provided = {name: tool for name, tool in provided.items() if name in wanted}
            tools = [tool for tool in tools if not (isinstance(tool, str) and tool in provided)]
        super().__init__(env, tools)
        self._provided = provided

    def schemas(self) -> list[dict[str, Any]]:
        """Return the descriptions to publish now, under their own names."""
        provided = [tool for tool in self._provided.values() if not tool.secret]
        return super().schemas() + [{"name": tool.name, **tool.schema} for tool in provided]

    def find(self, name: object) -> Tool | None:
        """Return the tool that a model means by *name*; None: it may not call any of that name."""
        tool = self._provided.get(name) if isinstance(name, str) else None
        if tool is not None:
            return None if tool.secret else tool
        return super().find(name)
