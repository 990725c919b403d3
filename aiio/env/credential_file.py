"""The file credentials are kept in, and the system's keyring.

Both are slow and may wait for other processes, so everything here is to be called in a worker thread.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .auth import SECRET_KEYS, Secret
from .config_files import read_toml
from .toml_text import toml_text

_HEADER = "# Credentials of aiio. Programs write this file: comments in it are not kept.\n\n"
_LOCK = ".credentials.lock"

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""Given the record in the file, returns what is to stand there; {}: nothing."""


class CredentialFile:
    """A TOML file of records, readable by the user alone. Other processes may write it too."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, section: tuple[str, ...]) -> dict[str, Any]:
        """Return the record at *section*; {}: there is none. ValueError: the file can't be read."""
        return _at(read_toml(self.path), section)

    def change(self, section: tuple[str, ...], change: Change) -> None:
        """Replace the record at *section* by what *change* makes of it; other sections stay.

        Atomic: a reader sees the file of before or the file of after, and so does a crash.

        Raises:
          OSError: the disk refused; nothing was changed.
          ValueError: the file that is there can't be read, and so would be lost; nothing was changed.
        """
        with self._locked():
            tree = read_toml(self.path)
            before = _at(tree, section)
            after = change(dict(before))
            if after == before:
                return
            _put(tree, section, after)
            self._write(_HEADER + toml_text(tree))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold off other processes while the file is read, changed and written."""
        folder = self.path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, text: str) -> None:
        target = Path(os.path.realpath(self.path))  # a link in the folder stays a link
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        try:
            with open(
                os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
            ) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _at(tree: Mapping[str, Any], section: tuple[str, ...]) -> dict[str, Any]:
    node: Any = tree
    for key in section:
        node = node.get(key) if isinstance(node, Mapping) else None
    return dict(node) if isinstance(node, Mapping) else {}


def _put(tree: dict[str, Any], section: tuple[str, ...], record: dict[str, Any]) -> None:
    """Put *record* at *section*; an empty one takes the tables away that it leaves empty."""
    key, *rest = section
    below = tree.get(key)
    node = record if not rest else dict(below) if isinstance(below, Mapping) else {}
    if rest:
        _put(node, tuple(rest), record)
    if node:
        tree[key] = node
    else:
        tree.pop(key, None)


class Keyring:
    """The keyring of this system, through the package `keyring` (extra `keyring`)."""

    service = "aiio"

    @staticmethod
    def installed() -> bool:
        """Tell whether the package is there. Whether a keyring answers shows when it is used."""
        return importlib.util.find_spec("keyring") is not None

    def load(self, name: str) -> dict[str, Any]:
        """Return the secret parts of an auth record kept under *name*; {}: there are none.

        Raises whatever a backend raises.
        """
        text = self._module().get_password(self.service, name)
        parts = json.loads(text) if text else {}
        return {key: parts[key] for key in parts if key in SECRET_KEYS} if isinstance(parts, dict) else {}

    def save(self, name: str, parts: Mapping[str, str]) -> bool:
        """Keep *parts* under *name*; False: it did not keep them. Raises whatever a backend raises.

        They are read back, because some backends take everything and keep nothing.
        """
        self._module().set_password(self.service, name, json.dumps(dict(parts)))
        return self.load(name) == dict(parts)

    def delete(self, name: str) -> None:
        """Forget what is kept under *name*. Raises whatever a backend raises, also when there is nothing."""
        self._module().delete_password(self.service, name)

    @staticmethod
    def _module() -> Any:
        return importlib.import_module("keyring")


def revealed(value: Any) -> Any:
    """Return a copy of settings data with its `Secret`s as text: for a file or a keyring, nothing else."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: revealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [revealed(item) for item in value]
    return value
