"""Runs: one execution, threaded through every step of it.

A harness is what runs share, a step says what to do:

    harness = Harness(env=env, model="local/smollm2", store=DiskStore("checkpoints"))
    answer = await harness.run(call_model("ask"), "Name three birds.")
"""

from __future__ import annotations

from aiio.env.prices import Pricer

from .adapters import items_to_messages, messages_to_items
from .anchoring import CachePolicy, Reanchor
from .budgets import ProjectionPolicy, Shares, share
from .builtin_layers import (
    history_layer,
    instructions_layer,
    scratchpad_layer,
    steering_layer,
    temporal_layer,
)
from .channel_outside import ChannelHandle, ChannelStream
from .channels import Channel, ChannelMode
from .code_steps import Backoff, Retry, conditional, run_code
from .context import RunContext
from .decide import Choice, DecisionAnswer, DecisionClient, DecisionLimits, Noul, Score, decide
from .errors import RunConfigError, RunError, RunErrorKind, error_kind, is_run_error
from .estimating import EstimatedDecisions
from .file_layer import filesystem_layer
from .fs import FileStat, FsAdapter, LocalFs, MemoryFs
from .harness import Harness
from .item_log import ItemLog
from .item_schemas import ItemCategory, ItemSchemaRegistry
from .item_stream import ItemSnapshot, ItemStream
from .items import (
    Item,
    ItemStatus,
    create_message,
    estimate_item_tokens,
    extract_assistant_text,
    new_item,
    strip_unresolved_tool_calls,
)
from .layer_tools import NewState
from .layer_usage import EpochUsage, LastLayerUsage, LayerUsageEntry
from .layers import (
    ContextLayer,
    HookCall,
    HookContext,
    Hooks,
    LayerBudget,
    LayerStorage,
    Placement,
    RecallMode,
    RerenderScope,
    RerenderTiming,
    Ruling,
    Scope,
    Slot,
    Verdict,
)
from .ledger import Retention
from .looping import OnError, loop, schedule
from .model_step import call_model
from .paid import PaidCall, PaidState
from .parallel import ParallelMode, in_parallel
from .plan_layer import PlanPhase, plan_layer
from .sessions import Delivery, HarnessResponse
from .spans import Span
from .spawning import DetachedHandle, DetachedStatus, detached_spawn, spawn, with_context
from .step import Step
from .stores import CheckpointStore, DiskStore, MemoryStore, SQLiteStore
from .streams import EventSource, EventStream, StreamEvent
from .tools import invoke_tool
from .totals import StepMeta, TokenTotals
from .until import (
    LoopSnapshot,
    all_of,
    any_of,
    converged,
    max_cost,
    max_duration,
    max_steps,
    never,
    no_tool_calls,
    output_contains,
    output_equals,
    verified,
)
from .view import preview
from .work_layers import ToolState, observations_layer, task_state_layer, tool_calls_layers, with_tool_state

__all__ = [
    "Backoff",
    "CachePolicy",
    "Channel",
    "ChannelHandle",
    "ChannelMode",
    "ChannelStream",
    "CheckpointStore",
    "Choice",
    "ContextLayer",
    "DecisionAnswer",
    "DecisionClient",
    "DecisionLimits",
    "Delivery",
    "DetachedHandle",
    "DetachedStatus",
    "DiskStore",
    "EpochUsage",
    "EstimatedDecisions",
    "EventSource",
    "EventStream",
    "FileStat",
    "FsAdapter",
    "Harness",
    "HarnessResponse",
    "HookCall",
    "HookContext",
    "Hooks",
    "Item",
    "ItemCategory",
    "ItemLog",
    "ItemSchemaRegistry",
    "ItemSnapshot",
    "ItemStatus",
    "ItemStream",
    "LastLayerUsage",
    "LayerBudget",
    "LayerStorage",
    "LayerUsageEntry",
    "LocalFs",
    "LoopSnapshot",
    "MemoryFs",
    "MemoryStore",
    "NewState",
    "Noul",
    "OnError",
    "PaidCall",
    "PaidState",
    "ParallelMode",
    "Placement",
    "PlanPhase",
    "Pricer",
    "ProjectionPolicy",
    "Reanchor",
    "RecallMode",
    "RerenderScope",
    "RerenderTiming",
    "Retention",
    "Retry",
    "Ruling",
    "RunConfigError",
    "RunContext",
    "RunError",
    "RunErrorKind",
    "SQLiteStore",
    "Scope",
    "Score",
    "Shares",
    "Slot",
    "Span",
    "Step",
    "StepMeta",
    "StreamEvent",
    "TokenTotals",
    "ToolState",
    "Verdict",
    "all_of",
    "any_of",
    "call_model",
    "conditional",
    "converged",
    "create_message",
    "decide",
    "detached_spawn",
    "error_kind",
    "estimate_item_tokens",
    "extract_assistant_text",
    "filesystem_layer",
    "history_layer",
    "in_parallel",
    "instructions_layer",
    "invoke_tool",
    "is_run_error",
    "items_to_messages",
    "loop",
    "max_cost",
    "max_duration",
    "max_steps",
    "messages_to_items",
    "never",
    "new_item",
    "no_tool_calls",
    "observations_layer",
    "output_contains",
    "output_equals",
    "plan_layer",
    "preview",
    "run_code",
    "schedule",
    "scratchpad_layer",
    "share",
    "spawn",
    "steering_layer",
    "strip_unresolved_tool_calls",
    "task_state_layer",
    "temporal_layer",
    "tool_calls_layers",
    "verified",
    "with_context",
    "with_tool_state",
]
