"""The built-in stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiio.runs.stores import DiskStore, MemoryStore, SQLiteStore
from tests.runs.store_conformance import StoreConformance


class TestMemory(StoreConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


class TestDisk(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DiskStore:
        return DiskStore(tmp_path / "deep" / "folder")

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


class TestSQLite(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SQLiteStore]:
        with SQLiteStore(tmp_path / "checkpoints.db") as store:
            yield store

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
