"""`Context` against a plain list, with crashes."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiio.context.edit import rebuild_message
from aiio.context.merge import append_message
from aiio.context.store import Context
from aiio.context.types import MessageType
from aiio.context.validate import has_error

from .sessions import die, names
from .strategies import contexts, messages

SYSTEM = MessageType.SYSTEM.value


class ContextAgainstAList(RuleBasedStateMachine):
    """What a context holds is what a list would; what a reopened one holds is what was last flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.id = "work"
        self.model: list[Any] = []
        self.durable: list[Any] = []
        self.context = Context(self.id, dir=self.folder, fsync=False)

    def teardown(self) -> None:
        self.context.close()
        shutil.rmtree(self.folder)

    @rule(message=messages() | st.just({"type": "note", "value": 1}), merge=st.booleans())
    def append(self, message: dict[str, Any], merge: bool) -> None:
        stored = self.context.append(copy.deepcopy(message), merge=merge)
        assert stored == append_message(self.model, copy.deepcopy(message), merge=merge)

    @rule(added=contexts())
    def prepend(self, added: list[Any]) -> None:
        self.context.prepend(copy.deepcopy(added))
        self.model[:0] = copy.deepcopy(added)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), message=messages())
    def edit(self, data: st.DataObject, message: dict[str, Any]) -> None:
        index = data.draw(st.integers(0, len(self.model) - 1))
        if isinstance(self.model[index]["type"], int) and None not in message["content"]:
            self.context.edit(index, copy.deepcopy(message))
            self.model[index] = rebuild_message(copy.deepcopy(message))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(-len(self.model), len(self.model) - 1))
        assert self.context.rollback(index) == self.model[index:]
        del self.model[index:]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        indexes = data.draw(st.sets(st.integers(0, len(self.model) - 1), min_size=1))
        assert self.context.remove(indexes) == [self.model[index] for index in sorted(indexes)]
        self.model = [entry for index, entry in enumerate(self.model) if index not in indexes]

    @rule()
    def pop(self) -> None:
        assert self.context.pop() == (self.model.pop() if self.model else None)

    @rule()
    def error_pop(self) -> None:
        last = self.model[-1] if self.model else None
        failed = last is not None and last["type"] == MessageType.ASSISTANT and has_error(last)
        assert self.context.error_pop() == (self.model.pop() if failed else None)

    @rule()
    def update(self) -> None:
        def reverse(entries: list[Any]) -> bool:
            entries.reverse()
            return True

        assert self.context.update(reverse)
        self.model.reverse()

    @rule()
    def flush(self) -> None:
        self.context.flush()
        self._is_durable()

    @rule(new_id=st.sampled_from(["work", "play"]))
    def rename(self, new_id: str) -> None:
        flushed = new_id != self.id
        self.context.rename(new_id)
        self.id = new_id
        if flushed:
            self._is_durable()

    @rule(value=st.integers(0, 1))
    def set_settings(self, value: int) -> None:
        self.context.settings = {"value": value}

    @rule(fragment=st.binary(max_size=20).filter(lambda fragment: b"\n" not in fragment))
    def crash(self, fragment: bytes) -> None:
        """Die without a flush, perhaps while a line was appended."""
        die(self.context)
        if self.durable:
            with open(str(Context.file_of(self.id, self.folder)), "ab") as file:
                file.write(fragment)
        self._reopen()
        self.model = copy.deepcopy(self.durable)

    @rule()
    def close(self) -> None:
        self.context.close()
        self._is_durable()
        self._reopen()

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        assert self.context.messages() == self.model
        assert len(self.context) == len(self.model)

    def _is_durable(self) -> None:
        kept = any(entry["type"] != SYSTEM for entry in self.model)
        assert len([name for name in names(self.folder) if name.endswith(".jsonl")]) == kept
        # A process without the lock sees it.
        if kept:
            assert Context.resume(self.id, self.folder, save=False).messages() == self.model
        self.durable = copy.deepcopy(self.model) if kept else []

    def _reopen(self) -> None:
        if self.durable:
            self.context = Context.resume(self.id, self.folder, fsync=False)
        else:
            self.context = Context(self.id, dir=self.folder, fsync=False)
            self.model = []


TestContextAgainstAList = ContextAgainstAList.TestCase
TestContextAgainstAList.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
