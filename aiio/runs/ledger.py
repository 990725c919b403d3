"""The step ledger: the result of every step that ended well, by its path, to be handed back after a restore.

Nothing is skipped blindly: a result is handed back to the step of the same id and kind in the same place.
Where another step stands now, what was recorded there and below is dropped. A result that would not come
back as it was (no JSON, tuples, too big) is not recorded, and its step runs again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiio.context.log import get_logger
from aiio.context.text import json_line, parse_json

from .errors import RunConfigError
from .items import Item

if TYPE_CHECKING:
    from .context import RunContext
    from .stores import CheckpointStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a ledger keeps. `math.inf` turns a limit off.

    RunConfigError (STEP_LEDGER_RETENTION_INVALID): a limit that is no number above 0.
    """

    max_entry_bytes: float = 131_072
    """UTF-8 bytes of one entry; bigger ones are not recorded."""
    max_entries: float = 1000
    """Entries kept; the oldest go."""

    def __post_init__(self) -> None:
        for name in ("max_entry_bytes", "max_entries"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise RunConfigError(
                    "STEP_LEDGER_RETENTION_INVALID",
                    f"{name} must be a number above 0, not {value!r}",
                    hint="math.inf turns the limit off",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One recorded result."""

    sequence: int
    path: str
    step_id: str
    kind: str
    raw: bytes
    question: str | None

    @property
    def output(self) -> Any:
        """The output; a fresh copy each time."""
        return parse_json(self.raw.decode())["output"]

    def hand_back(self, context: RunContext) -> None:
        """Give *context* what the step did to it: items (known ones are ignored) and state."""
        record = parse_json(self.raw.decode())
        for item in record.get("items", ()):
            context.item_log.append(item)
        if "state" in record:
            context.state = record["state"]["value"]


class StepLedger:
    """The results of one execution, shared by its whole tree.

    Args:
      execution_id: whose.
      store: where to; None: nothing is recorded, nothing found.
      retention: what is kept.
      clock: wall-clock seconds.
    """

    def __init__(
        self,
        execution_id: str,
        store: CheckpointStore | None,
        retention: Retention,
        clock: Callable[[], float],
    ) -> None:
        self._prefix = ledger_prefix(execution_id)
        self._store = store
        self._retention = retention
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._next = 0
        self._stale: list[str] = []
        """Keys to be removed with the next write."""
        self._warned: set[str] = set()

    @property
    def durable(self) -> bool:
        """Whether results are recorded at all."""
        return self._store is not None

    def __len__(self) -> int:
        return len(self._entries)

    async def load(self) -> None:
        """Read what an earlier attempt recorded; rows that can't be read are passed over.

        OSError: the store can't be read.
        """
        assert self._store is not None  # an execution is restored from it
        keys = await self._store.keys(self._prefix)
        rows = await self._store.get_many(keys)
        for key in keys:
            suffix = key.removeprefix(self._prefix)
            if not suffix.isdecimal():
                continue
            self._next = max(self._next, int(suffix) + 1)
            entry = _read(int(suffix), rows.get(key, b""))
            if entry is not None:
                self._entries[entry.path] = entry

    def find(self, path: str, step_id: str, kind: str, question: str | None = None) -> Entry | None:
        """Return what was recorded at *path* for this step; what is there for another one is dropped.

        A recorded *question* (of a decide step) that is another one now drops later siblings as well: the
        old answer decided about them.
        """
        entry = self._entries.get(path)
        if entry is None:
            return None
        if entry.step_id != step_id or entry.kind != kind:
            self._drop(path)
            return None
        if question is not None and entry.question != question:
            parent = path.rpartition("/")[0] + "/"
            for other in list(self._entries.values()):
                if other.path.startswith(parent) and other.sequence > entry.sequence:
                    self._drop(other.path)
            self._drop(path)
            return None
        return entry

    async def record(
        self,
        path: str,
        step_id: str,
        kind: str,
        output: Any,
        *,
        items: Sequence[Item] = (),
        state: dict[str, Any] | None = None,
        question: str | None = None,
    ) -> None:
        """Record a result. What can't be recorded, and a store that fails, is logged."""
        if self._store is None:
            return
        raw = self._encoded(path, step_id, kind, output, items, state, question)
        if raw is None:
            return
        sequence, self._next = self._next, self._next + 1  # reserved before anything is awaited
        self._entries[path] = Entry(
            sequence=sequence, path=path, step_id=step_id, kind=kind, raw=raw, question=question
        )
        self._evict()
        stale, self._stale = self._stale, []
        try:
            await self._store.put(self._key(sequence), raw)
            if stale:
                await self._store.delete(stale)
        except OSError as exc:
            get_logger().warning("run.ledger_not_saved", path=path, error=str(exc))

    def _encoded(
        self,
        path: str,
        step_id: str,
        kind: str,
        output: Any,
        items: Sequence[Item],
        state: dict[str, Any] | None,
        question: str | None,
    ) -> bytes | None:
        record: dict[str, Any] = {"path": path, "step_id": step_id, "kind": kind, "output": output}
        record["completed_at"] = self._clock()
        if items:
            record["items"] = list(items)
        if state is not None:
            record["state"] = state
        if question is not None:
            record["question"] = question
        try:
            raw = json_line(record, "result")
            if not _equal(parse_json(raw.decode()), record):
                why = "unlike_json"
            elif len(raw) > self._retention.max_entry_bytes:
                why = "too_big"
            else:
                return raw
        except (TypeError, ValueError):
            why = "not_json"
        if why not in self._warned:  # once for each reason
            self._warned.add(why)
            get_logger().warning("run.step_not_recorded", why=why, path=path, step_id=step_id)
        return None

    def _drop(self, path: str) -> None:
        """Forget the result at *path*, and all below it."""
        below = f"{path}/"
        for other in [other for other in self._entries if other == path or other.startswith(below)]:
            self._stale.append(self._key(self._entries.pop(other).sequence))

    def _evict(self) -> None:
        if math.isinf(self._retention.max_entries):
            return
        oldest = self._next - int(self._retention.max_entries)
        for entry in [entry for entry in self._entries.values() if entry.sequence < oldest]:
            del self._entries[entry.path]
            self._stale.append(self._key(entry.sequence))

    def _key(self, sequence: int) -> str:
        return f"{self._prefix}{sequence:08d}"


def ledger_prefix(execution_id: str) -> str:
    """Return what the keys of an execution's results begin with."""
    return f"execution:{execution_id}:ledger:"


def _read(sequence: int, raw: bytes) -> Entry | None:
    try:
        record = parse_json(raw.decode())
    except ValueError:
        return None
    if (
        not isinstance(record, dict)
        or "output" not in record
        or not _are_texts(record, "path", "step_id", "kind")
    ):
        return None
    return Entry(
        sequence=sequence,
        path=record["path"],
        step_id=record["step_id"],
        kind=record["kind"],
        raw=raw,
        question=record.get("question"),
    )


def _are_texts(record: dict[str, Any], *names: str) -> bool:
    return all(isinstance(record.get(name), str) for name in names)


def _equal(one: Any, other: Any) -> bool:
    """Tell whether *one* is *other* to the letter: a list is no tuple, a number no bool."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(_equal, one.values(), other.values()))
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
