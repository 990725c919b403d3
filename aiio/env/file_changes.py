"""What another process has written into the user's files since this one read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from aiio.context.log import get_logger

from .config_files import ConfigFiles, read_config_files
from .settings import Settings


class FileChanges:
    """Follows the files of one Env.

    Args:
      files: as they were read.
      settings: the live ones; read only.
    """

    def __init__(self, files: ConfigFiles, settings: Settings) -> None:
        self._read = files
        self._settings = settings

    async def of(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return (changes of the policy, changes of the record) of endpoint *name*, credentials left out.

        What the program has set itself since is not among them, nor what was taken out of a file.
        Never fails; a broken file is logged, and has no changes. Always a checkpoint.
        """
        before = self._read
        if before.folder is None:
            await trio.lowlevel.checkpoint()
            return {}, {}
        try:
            now = await trio.to_thread.run_sync(read_config_files, before.folder, abandon_on_cancel=True)
        except ValueError as exc:
            get_logger().warning("config.ignored", why=str(exc))
            return {}, {}
        self._read = now
        policy = _changes(_policy(before, name), _policy(now, name), self._settings.policy(name))
        record = _changes(_record(before, name), _record(now, name), self._settings.record(name))
        return policy, record


def _policy(files: ConfigFiles, name: str) -> Mapping[str, Any]:
    policy: Mapping[str, Any] = files.layers[0].get("providers", {}).get(name, {})
    return policy


def _record(files: ConfigFiles, name: str) -> Mapping[str, Any]:
    record = files.stored.get(name)
    return {key: record[key] for key in record if key != "auth"} if isinstance(record, Mapping) else {}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in now.items()
        if value != before.get(key) and current.get(key) == before.get(key)
    }
