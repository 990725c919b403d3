"""Runs: one execution, threaded through every step of it (seed 002).

harness = Harness(env=env, model="local/smollm2", store=DiskStore("checkpoints"))
answer = await harness.run(call_model("ask"), "Name three birds.")
"""

from __future__ import annotations

from .adapters import items_to_messages, messages_to_items
from .anchoring import CachePolicy, EpochUsage, LayerUsageEntry, Reanchor
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
from .decide import Choice, DecisionAnswer, DecisionClient, Noul, Score, decide
from .errors import RunConfigError, RunError, RunErrorKind, error_kind, is_run_error
from .fs import FsAdapter, LocalFs, MemoryFs
from .harness import Harness
from .item_log import ItemLog
from .item_schemas import ItemCategory, ItemSchemaRegistry
from .items import (
    Item,
    ItemStatus,
    create_message,
    estimate_item_tokens,
    extract_assistant_text,
    new_item,
    strip_unresolved_tool_calls,
)
from .layers import (
    Budget,
    ContextLayer,
    HookCall,
    HookContext,
    Hooks,
    LayerStorage,
    Placement,
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
from .prices import Pricer
from .spans import Span
from .spawning import DetachedHandle, DetachedStatus, detached_spawn, spawn, with_context
from .step import Step
from .stores import CheckpointStore, DiskStore, MemoryStore, SQLiteStore
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
from .view import LastLayerUsage

__all__ = [
    "Backoff",
    "Budget",
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
    "DetachedHandle",
    "DetachedStatus",
    "DiskStore",
    "EpochUsage",
    "FsAdapter",
    "Harness",
    "HookCall",
    "HookContext",
    "Hooks",
    "Item",
    "ItemCategory",
    "ItemLog",
    "ItemSchemaRegistry",
    "ItemStatus",
    "LastLayerUsage",
    "LayerStorage",
    "LayerUsageEntry",
    "LocalFs",
    "LoopSnapshot",
    "MemoryFs",
    "MemoryStore",
    "Noul",
    "OnError",
    "PaidCall",
    "PaidState",
    "ParallelMode",
    "Placement",
    "Pricer",
    "ProjectionPolicy",
    "Reanchor",
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
    "TokenTotals",
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
    "output_contains",
    "output_equals",
    "run_code",
    "schedule",
    "scratchpad_layer",
    "share",
    "spawn",
    "steering_layer",
    "strip_unresolved_tool_calls",
    "temporal_layer",
    "verified",
    "with_context",
]
