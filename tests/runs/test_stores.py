"""Checkpoint stores: the built-in ones keep the rules that a user's own can be held to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import aiio.testing
from aiio.runs.stores import CheckpointStore, DiskStore, MemoryStore, SQLiteStore
from aiio.testing.checkpoint_stores import RULES


@pytest.fixture(params=["memory", "disk", "sqlite", "sqlite in memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckpointStore]:
    match request.param:
        case "memory":
            yield MemoryStore()
        case "disk":
            yield DiskStore(tmp_path / "deep" / "folder")
        case name:
            with SQLiteStore(":memory:" if name == "sqlite in memory" else tmp_path / "store.db") as store:
                yield store


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
async def test_B7_a_built_in_store_keeps_the_rule(
    store: CheckpointStore, rule: Callable[[CheckpointStore], object]
) -> None:
    await rule(store)  # type: ignore[misc]  # every rule is async


class NoCopy(MemoryStore):
    async def put(self, key: str, value: bytes) -> None:
        await super().put(key, value)
        self._values[key] = value


class Unsorted(MemoryStore):
    async def keys(self, prefix: str) -> list[str]:
        return (await super().keys(prefix))[::-1]


class CaseBlind(MemoryStore):
    async def put(self, key: str, value: bytes) -> None:
        await super().put(key.lower(), value)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        found = await super().get_many([key.lower() for key in wanted])
        return {key: found[key.lower()] for key in wanted if key.lower() in found}


class Hoarder(MemoryStore):
    async def delete(self, keys: Iterable[str]) -> None:
        await super().delete(list(keys)[1:])


class Rude(MemoryStore):
    async def get(self, key: str) -> bytes | None:
        return self._values.get(key)


class Forgetful(MemoryStore):
    async def put(self, key: str, value: bytes) -> None:
        await super().put("lost" if key.startswith("execution:") and len(key) > 40 else key, value)


class Inventive(MemoryStore):
    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(keys)
        return {**dict.fromkeys(wanted, b""), **await super().get_many(wanted)}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (NoCopy, "whose buffer was changed"),
        (Unsorted, "sorted"),
        (CaseBlind, "keys"),
        (Hoarder, "deleted"),
        (Rude, "lets other tasks run, and can be cancelled"),
        (Inventive, "one that is not"),
        (Forgetful, "nothing to restore"),
    ],
)
async def test_B7_a_store_that_breaks_a_rule_is_told_which(broken: type[MemoryStore], says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        await aiio.testing.checkpoint_store_conformance(broken())


async def test_B7_a_users_own_store_is_tested_with_one_call() -> None:
    await aiio.testing.checkpoint_store_conformance(MemoryStore())


class TestDisk:
    async def test_a_put_that_fails_leaves_the_old_value_and_no_rest(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = DiskStore(tmp_path)
        await store.put("k", b"old")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", full)
            with pytest.raises(OSError, match="No space"):
                await store.put("k", b"new")
        assert await store.get("k") == b"old"
        assert len(os.listdir(tmp_path)) == 1

    async def test_files_are_the_owners_alone(self, tmp_path: Path) -> None:
        await DiskStore(tmp_path / "x").put("k", b"")
        assert (tmp_path / "x").stat().st_mode & 0o077 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "x").iterdir())


class TestSQLite:
    async def test_the_file_is_the_owners_alone_and_memory_needs_none(self, tmp_path: Path) -> None:
        with SQLiteStore(tmp_path / "x.db") as store:
            await store.put("k", b"v")
            assert all(os.stat(tmp_path / name).st_mode & 0o077 == 0 for name in os.listdir(tmp_path))
        with SQLiteStore(":memory:") as store:
            await store.put("k", b"v")
            assert await store.get("k") == b"v"

    async def test_trouble_is_an_os_error(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("this is no database, " * 100)
        with pytest.raises(OSError, match="can't be kept"):
            SQLiteStore(tmp_path / "text")
        store = SQLiteStore(tmp_path / "x.db")
        store.close()
        with pytest.raises(OSError, match="failed"):
            await store.get("k")
