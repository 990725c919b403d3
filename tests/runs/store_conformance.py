"""What every checkpoint store must do. Subclass `StoreConformance` with a fixture `store` for yours.

class TestMine(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path): return MyStore(tmp_path)
"""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from trio.testing import assert_checkpoints

from aiio.runs.code_steps import run_code
from aiio.runs.harness import Harness
from aiio.runs.looping import loop
from aiio.runs.stores import CheckpointStore
from aiio.runs.until import max_steps

ODD_KEYS = [
    "a",
    "execution:1:snapshot",
    "with/slash",
    "with space",
    "ä日",
    "..",
    "%41",
    "A",
    "UPPER",
    "x" * 100,
]


class StoreConformance:
    """The tests."""

    async def test_what_is_put_is_got(self, store: CheckpointStore) -> None:
        assert await store.get("k") is None
        await store.put("k", b"\x00one")
        await store.put("k", b"two")
        assert await store.get("k") == b"two"
        await store.put("empty", b"")
        assert await store.get("empty") == b""

    async def test_a_value_is_a_copy(self, store: CheckpointStore) -> None:
        value = bytearray(b"one")
        await store.put("k", cast(bytes, value))
        value[:] = b"two"
        assert await store.get("k") == b"one"

    async def test_keys_are_listed_by_prefix_and_sorted(self, store: CheckpointStore) -> None:
        for key in ("b:2", "a:10", "a:1", "a", "A:1", "a%:1"):
            await store.put(key, b"")
        assert await store.keys("a:") == ["a:1", "a:10"]
        assert await store.keys("a%") == ["a%:1"]
        assert await store.keys("none") == []
        assert await store.keys("") == sorted(["b:2", "a:10", "a:1", "a", "A:1", "a%:1"])

    async def test_odd_keys_stay_apart(self, store: CheckpointStore) -> None:
        for key in ODD_KEYS:
            await store.put(key, key.encode())
        assert await store.get_many(ODD_KEYS) == {key: key.encode() for key in ODD_KEYS}
        assert await store.keys("") == sorted(ODD_KEYS)

    async def test_get_many_leaves_out_what_is_missing(self, store: CheckpointStore) -> None:
        await store.put("a", b"1")
        assert await store.get_many(["a", "b"]) == {"a": b"1"}
        assert await store.get_many([]) == {}

    async def test_delete_removes_and_does_not_mind_a_missing_key(self, store: CheckpointStore) -> None:
        await store.put("a", b"1")
        await store.put("b", b"2")
        await store.delete(["a", "missing"])
        await store.delete([])
        assert await store.keys("") == ["b"]

    async def test_puts_at_the_same_time_are_all_there(self, store: CheckpointStore) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(store.put, f"k{number:02}", bytes([number]))
                nursery.start_soon(store.put, "same", bytes([number]) * 1000)
        assert len(await store.keys("k")) == 30
        same = await store.get("same")
        assert same is not None
        assert len(same) == 1000
        assert len(set(same)) == 1

    async def test_operations_are_checkpoints(self, store: CheckpointStore) -> None:
        with assert_checkpoints():
            await store.put("a", b"1")
        with assert_checkpoints():
            await store.get("a")
        with assert_checkpoints():
            await store.keys("")

    async def test_a_run_is_resumed_from_it(self, store: CheckpointStore) -> None:
        ran: list[int] = []
        broken = [True]

        def work(input: int, context: Any) -> int:
            if input == 3 and broken:
                raise ValueError("crash")
            ran.append(input)
            return input + 1

        step = loop("l", run_code("w", work), max_steps(5))
        harness = Harness(store=store)
        context = harness.create_context(state={"kept": True})
        with pytest.raises(Exception, match="crash"):
            await harness.run(step, 0, context=context)
        broken.clear()
        resumed = await Harness(store=store).restore(context.id)
        assert resumed is not None
        assert await resumed.harness.run(step, 0, context=resumed) == 5
        assert ran == [0, 1, 2, 3, 4]
        assert resumed.state == {"kept": True}
        await harness.clear_checkpoint(context.id)
        assert await store.keys("") == []
