"""Snapshots: the state of an execution between two steps, as JSON data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from aiio.context.text import compact_json, parse_json

from .errors import RunConfigError

SCHEMA_VERSION = 3
"""2 had no cost, tokens, step count and paid-call number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a restore brings back."""

    execution_id: str
    captured_at: float
    """Wall-clock seconds."""
    schema_version: int = SCHEMA_VERSION
    thread_id: str | None = None
    resource_id: str | None = None
    frontier: list[dict[str, Any]] = field(default_factory=list)
    """`step_id`, `path` and, where it is JSON, `input` of the steps that were running, outermost first."""
    layers: dict[str, Any] = field(default_factory=dict)
    """States by layer id."""
    items: list[dict[str, Any]] = field(default_factory=list)
    state: Any = None
    """The user's own, when it is JSON; None else."""
    cost: float = 0.0
    tokens: dict[str, int | None] = field(default_factory=dict)
    step_count: int = 0
    paid_sequence: int = 0
    """The last change of paid calls that `cost` and `tokens` hold."""


def snapshot_key(execution_id: str) -> str:
    """Return the key of an execution's snapshot."""
    return f"execution:{execution_id}:snapshot"


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return it as JSON. TypeError, ValueError: an item is no JSON."""
    return compact_json({name: getattr(snapshot, name) for name in snapshot.__slots__}).encode(
        errors="replace"
    )


def decode_snapshot(raw: bytes) -> Snapshot:
    """Return the snapshot in *raw*. RunConfigError (CHECKPOINT_SCHEMA_MISMATCH): it is none of ours."""
    try:
        data = parse_json(raw.decode())
        version = data.get("schema_version") if isinstance(data, dict) else None
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema version {version!r}, not {SCHEMA_VERSION}")
        return msgspec.convert(data, Snapshot)
    except ValueError as exc:
        raise RunConfigError(
            "CHECKPOINT_SCHEMA_MISMATCH",
            f"a checkpoint can't be read: {exc}",
            hint="clear_checkpoint(execution_id) and begin again",
        ) from exc
