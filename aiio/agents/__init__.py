"""Agents: the tool loop over IO, and fleets: many agents under one nursery."""

from __future__ import annotations

from aiio.context.linkage import repair_linkage

from .agent import Agent, AgentState
from .fleet import Fleet, FleetResult, FleetStats, open_fleet
from .run import AgentResult, Stopped

__all__ = [
    "Agent",
    "AgentResult",
    "AgentState",
    "Fleet",
    "FleetResult",
    "FleetStats",
    "Stopped",
    "open_fleet",
    "repair_linkage",
]
