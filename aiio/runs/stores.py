"""Where checkpoints live: a store of bytes by key, in memory, in a folder, or in SQLite."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

import trio


class CheckpointStore(Protocol):
    """Bytes by key. What a `put` stored that returned survives a crash; of one that did not, all or nothing.

    Methods raise `OSError` when the store can't be read or written; a cancelled one may have done its work.
    """

    async def get(self, key: str) -> bytes | None:
        """Return what is stored under *key*."""

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return what is stored under those of *keys* that are there."""

    async def put(self, key: str, value: bytes) -> None:
        """Store *value* under *key*, in place of what was there."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove *keys*; one that is missing is fine."""

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with *prefix*, sorted."""


class MemoryStore:
    """A store that lasts as long as the object: for tests, and for restoring within one process.

    Its methods are checkpoints; a cancelled one has done nothing.
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def get(self, key: str) -> bytes | None:
        """Return what is stored under *key*."""
        await trio.lowlevel.checkpoint()
        return self._values.get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return what is stored under those of *keys* that are there."""
        await trio.lowlevel.checkpoint()
        return {key: self._values[key] for key in keys if key in self._values}

    async def put(self, key: str, value: bytes) -> None:
        """Store *value*."""
        await trio.lowlevel.checkpoint()
        self._values[key] = bytes(value)

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove *keys*."""
        await trio.lowlevel.checkpoint()
        for key in keys:
            self._values.pop(key, None)

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with *prefix*, sorted."""
        await trio.lowlevel.checkpoint()
        return sorted(key for key in self._values if key.startswith(prefix))


class DiskStore:
    """One file a key, in *folder*. A value is written beside its place, synced, and moved there.

    Its methods raise `OSError`, and work in a thread that is not abandoned: one that is cancelled ends first.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    async def get(self, key: str) -> bytes | None:
        """Return what is stored under *key*."""
        return (await self.get_many([key])).get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return what is stored under those of *keys* that are there."""
        return await trio.to_thread.run_sync(self._read, list(keys))

    async def put(self, key: str, value: bytes) -> None:
        """Store *value*."""
        await trio.to_thread.run_sync(self._write, key, value)

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove *keys*."""
        await trio.to_thread.run_sync(self._remove, list(keys))

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with *prefix*, sorted."""
        return await trio.to_thread.run_sync(self._list, prefix)

    def _path(self, key: str) -> Path:
        return self._folder / (quote(key, safe="") + ".json")

    def _read(self, keys: list[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for key in keys:
            try:
                found[key] = self._path(key).read_bytes()
            except FileNotFoundError:
                continue
        return found

    def _write(self, key: str, value: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(key)
        beside = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        """Make the move itself durable."""
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self._path(key).unlink(missing_ok=True)

    def _list(self, prefix: str) -> list[str]:
        names = (path.name for path in self._folder.glob("*.json"))
        found = (unquote(name.removesuffix(".json")) for name in names)
        return sorted(key for key in found if key.startswith(prefix))


_TABLE = "CREATE TABLE IF NOT EXISTS checkpoints (key TEXT PRIMARY KEY, value BLOB NOT NULL)"


class SQLiteStore:
    """One table in a SQLite file. Each `put` is a transaction, synced. `close` it, or use it in a `with`.

    Args:
      path: the file; made if need be.

    Raises:
      OSError: it is not a database, or can't be opened; of methods, it can't be read or written.

    Methods work in a thread that is not abandoned: one that is cancelled ends first.
    """

    def __init__(self, path: str | Path) -> None:
        self._lock = threading.Lock()
        if str(path) != ":memory:":
            # The owner's alone, and so are the files that SQLite puts beside it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(_TABLE)
        except sqlite3.Error as exc:
            self._db.close()
            raise OSError(f"checkpoints can't be kept in {str(path)!r}: {exc}") from exc

    def __enter__(self) -> SQLiteStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Waits for an operation that is running."""
        with self._lock:
            self._db.close()

    async def get(self, key: str) -> bytes | None:
        """Return what is stored under *key*."""
        return (await self.get_many([key])).get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return what is stored under those of *keys* that are there."""
        wanted = list(keys)

        def read() -> dict[str, bytes]:
            found: dict[str, bytes] = {}
            for key in wanted:
                for (value,) in self._run("SELECT value FROM checkpoints WHERE key = ?", [(key,)]):
                    found[key] = value
            return found

        return await trio.to_thread.run_sync(read)

    async def put(self, key: str, value: bytes) -> None:
        """Store *value*."""
        await trio.to_thread.run_sync(
            self._run, "INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", [(key, bytes(value))]
        )

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove *keys*."""
        rows = [(key,) for key in keys]
        await trio.to_thread.run_sync(self._run, "DELETE FROM checkpoints WHERE key = ?", rows)

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with *prefix*, sorted."""
        found = await trio.to_thread.run_sync(
            self._run, "SELECT key FROM checkpoints WHERE substr(key, 1, ?) = ?", [(len(prefix), prefix)]
        )
        return sorted(key for (key,) in found)

    def _run(self, sql: str, rows: Sequence[tuple[object, ...]]) -> list[tuple[Any]]:
        """Run *sql* for each row, in a thread; one at a time."""
        try:
            with self._lock:
                return [found for row in rows for found in self._db.execute(sql, row).fetchall()]
        except sqlite3.Error as exc:
            raise OSError(f"the checkpoint database failed: {exc}") from exc
