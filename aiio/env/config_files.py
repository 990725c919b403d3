"""The settings files: the user's folder and the project's file, found and read once.

    user folder   `AIIO_CONFIG_DIR`, else where this system keeps configuration (`~/.config/aiio`)
      config.toml        written by people
      credentials.toml   written by `auth_set`; sections by endpoint, and under `projects` those that count
                         in one folder only: no credential ever stands in a project's folder
    project       `aiio.toml` in the working directory, as far as project_layer.py lets it count

`AIIO_NO_CONFIG=1` turns all of them off. An environment that is not the process's own (`Env(environ=...)`)
turns them off too, unless it names the folder: a program that brings its own environment wants nothing
else of this machine.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from aiio.context.log import get_logger

from .endpoints import KNOWN_ENDPOINTS, RESERVED_NAMES
from .project_layer import PROJECT_FILE, ProjectPart, allowed_part
from .settings import Layer, check_layer

CONFIG_FILE = "config.toml"
CREDENTIALS_FILE = "credentials.toml"
PROJECTS = "projects"
_LARGEST = 1 << 20  # bytes of a settings file
_LINE = re.compile(r" \(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFiles:
    """What the files said when they were read."""

    folder: Path | None = None
    """The user's folder, which may not exist; None: files are off, nothing is read or written."""
    project: Path | None = None
    """The working directory then, without symbolic links; None: there is none, or files are off."""
    layers: tuple[Layer, ...] = field(default=(), repr=False)
    """Lowest first: the user's settings, the user's credentials, the project's settings."""
    introduced: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Endpoints that only the project's file knows."""
    local: frozenset[str] = frozenset()
    """Endpoints whose credential counts in this folder only."""
    stored: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Records by endpoint, as the user's credentials file has them."""
    notes: tuple[str, ...] = ()
    """What was ignored and why: sentences for people. The log has them as warnings."""

    @property
    def credentials(self) -> Path | None:
        """The file that `auth_set` writes; None: files are off."""
        return None if self.folder is None else self.folder / CREDENTIALS_FILE


OFF = ConfigFiles()
"""No files."""


def user_folder(environ: Mapping[str, str], *, own: bool) -> Path | None:
    """Return the folder of the user's settings, None: files are off.

    *own*: whether *environ* is the process's own environment.
    """
    if environ.get("AIIO_NO_CONFIG", "").strip() not in ("", "0"):
        return None
    named = environ.get("AIIO_CONFIG_DIR", "").strip()
    if named:
        return Path(named).expanduser()
    return platformdirs.user_config_path("aiio") if own else None


def cache_of_user(environ: Mapping[str, str], *, own: bool) -> Path | None:
    """Return where lists of models are kept between runs: `AIIO_CACHE_DIR`, else the user's cache.

    None: nowhere. *own*: as for `user_folder`.
    """
    named = environ.get("AIIO_CACHE_DIR", "").strip()
    if named:
        return Path(named).expanduser() / "models"
    return platformdirs.user_cache_path("aiio") / "models" if own else None


def read_config_files(folder: Path | None, upper: tuple[Layer, ...] = ()) -> ConfigFiles:
    """Read the files of the user in *folder* and of the project we are in.

    Args:
      folder: None: files are off.
      upper: the layers that lie over the files; their endpoints count as known.

    Raises:
      TypeError: an upper layer has not the shape of settings.
      ValueError: the user's config.toml can't be read or parsed; the text begins with file:line and quotes
        none of its content. Any other bad file is ignored with a warning in the log.
    """
    if folder is None:
        return OFF
    for layer in upper:
        check_layer(layer)
    user = read_toml(folder / CONFIG_FILE)
    notes: list[str] = []
    stored = _tolerantly(folder / CREDENTIALS_FILE, notes, private=True)
    project = _working_directory()
    local = stored.pop(PROJECTS, {})
    here = local.get(str(project)) if isinstance(local, Mapping) else None
    here = here if isinstance(here, Mapping) else {}
    _lay_over(stored, here)
    part = _project_part(project, folder, (user, stored, *upper), notes)
    return ConfigFiles(
        folder=folder,
        project=project,
        layers=(user, stored, part.layer),
        introduced=part.introduced,
        local=frozenset(here),
        stored=stored,
        notes=tuple(notes),
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Return what *path* holds; {} if it is not there, or in a folder that we can't look into.

    ValueError: it can't be read, or is no TOML of the shape of settings; the text begins with its name and,
    where known, the line.
    """
    try:
        info = path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}  # also in a home that is not ours to look into: a service has no settings there
    except OSError as exc:
        raise ValueError(f"{path}: can't be read: {exc.strerror}") from exc
    try:
        if not stat.S_ISREG(info.st_mode) or info.st_size > _LARGEST:
            raise ValueError(f"{path}: not a settings file (no regular file, or over {_LARGEST} bytes)")
        tree = tomllib.loads(path.read_text("utf-8"))
        check_layer(tree)
    except OSError as exc:
        raise ValueError(f"{path}: can't be read: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8") from None
    except tomllib.TOMLDecodeError as exc:
        found = _LINE.search(str(exc))
        line = f":{found[1]}" if found else ""
        raise ValueError(f"{path}{line}: not TOML: {_LINE.sub('', str(exc))}") from None
    except TypeError as exc:  # not the shape of settings
        raise ValueError(f"{path}: {exc}") from None
    return tree


def _tolerantly(path: Path, notes: list[str], *, private: bool = False) -> dict[str, Any]:
    """Return what *path* holds; {} with a warning if it is bad. *private*: warn if others can read it."""
    try:
        tree = read_toml(path)
        shared = private and bool(tree) and bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except (OSError, ValueError) as exc:
        get_logger().warning("config.ignored", why=str(exc))
        notes.append(f"ignored: {exc}")
        return {}
    if shared:
        get_logger().warning("config.readable_by_others", file=str(path), do="chmod 600")
        notes.append(f"others can read {path}: chmod 600 it")
    return tree


def _project_part(
    project: Path | None, folder: Path, others: tuple[Layer, ...], notes: list[str]
) -> ProjectPart:
    if project is None or project == Path(os.path.realpath(folder)):
        return ProjectPart()
    path = project / PROJECT_FILE
    part = allowed_part(_tolerantly(path, notes), _known(others))
    if part.dropped:
        get_logger().warning("config.not_for_projects", file=str(path), ignored=part.dropped)
        notes.append(f"ignored in {path}, because a project's file may not say it: {', '.join(part.dropped)}")
    return part


def _known(layers: tuple[Layer, ...]) -> set[str]:
    """Return the endpoints that *layers* or the built-in table speak of."""
    known = set(KNOWN_ENDPOINTS)
    for layer in layers:
        known.update(layer.get("providers", ()))
        known.update(key for key in layer if key not in RESERVED_NAMES)
    return known


def _working_directory() -> Path | None:
    try:
        return Path(os.path.realpath(Path.cwd()))
    except OSError:  # it was removed
        return None


def _lay_over(stored: dict[str, Any], here: Mapping[str, Any]) -> None:
    """Let the records that count in this folder replace those that count everywhere."""
    for name, record in here.items():
        below = stored.get(name)
        if isinstance(record, Mapping) and isinstance(below, Mapping):
            record = {**below, **record}
        stored[name] = record
