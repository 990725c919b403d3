"""The tools of one agent: those of the Env it may use, and functions of its own."""

from __future__ import annotations

from typing import TypeAlias

from aiio.env.toolbox import Toolbox, ToolRef

AgentTool: TypeAlias = ToolRef

__all__ = ["AgentTool", "Toolbox"]
