"""Agents: the tool loop over IO, and fleets: many agents under one nursery."""

from __future__ import annotations

from aiio.context.linkage import repair_linkage

from .agent import Agent, AgentState
from .compaction import history_of
from .fleet import Fleet, FleetResult, FleetStats, open_fleet
from .guard import ContextGuard
from .result import AgentResult, Stopped
from .spending import Budget

__all__ = [
    "Agent",
    "AgentResult",
    "AgentState",
    "Budget",
    "ContextGuard",
    "Fleet",
    "FleetResult",
    "FleetStats",
    "Stopped",
    "history_of",
    "open_fleet",
    "repair_linkage",
]
