"""`aiio config`: what is set, from which files, and setting it in the user's own."""

from __future__ import annotations

import importlib.util
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from aiio.env.auth import MASK, Secret
from aiio.env.config_files import CONFIG_FILE, CREDENTIALS_FILE, ConfigFiles
from aiio.env.project_layer import PROJECT_FILE
from aiio.env.scrub import is_secret_name
from aiio.env.settings import check_layer
from aiio.env.toml_text import toml_text

from .exits import DONE, CliFault
from .output import Output, say
from .session import Session


async def show(session: Session, out: Output) -> int:
    """Print the settings as they hold, as TOML, credentials masked; the files they come from on stderr."""
    files = session.env.files
    if files.folder is None:
        say("settings files are off")
    for path in _files(files):
        say(f"{path} {'is there' if path.is_file() else 'is not there'}")
    await out.text(session.env.scrub(toml_text(_shown(session.env.settings))))
    return DONE


async def set_value(session: Session, key: str, value: str) -> int:
    """Set *key*, dotted, to *value* (JSON, else text) in the user's config.toml; its comments stay.

    CliFault: files are off, the key is a credential's or does not fit what is there, the disk refused.
    """
    folder = session.env.files.folder
    if folder is None:
        raise CliFault("nothing can be kept while AIIO_NO_CONFIG turns the settings files off")
    path = folder / CONFIG_FILE
    parts = _parts(key)
    await trio.to_thread.run_sync(_change, path, parts, _value(value))
    say(f"{key} is set in {path}")
    return DONE


def _files(files: ConfigFiles) -> list[Path]:
    if files.folder is None:
        return []
    project = [] if files.project is None else [files.project / PROJECT_FILE]
    return [files.folder / CONFIG_FILE, files.folder / CREDENTIALS_FILE, *project]


def _shown(value: Any, name: str = "") -> Any:
    """Return a copy of settings without credentials, fit for TOML."""
    if isinstance(value, Mapping):
        return {str(key): _shown(item, str(key)) for key, item in value.items()}
    if isinstance(value, Secret) or (isinstance(value, str) and (name == "auth" or is_secret_name(name))):
        return MASK
    if isinstance(value, list | tuple):
        return [_shown(item, name) for item in value]
    return value if isinstance(value, str | int | float) or value is None else str(value)


def _parts(key: str) -> list[str]:
    parts = key.split(".")
    if not all(part.strip() == part and part for part in parts):
        raise CliFault(f"a setting is named like model or providers.openai.timeout, not {key!r}")
    if any(part == "auth" or is_secret_name(part) for part in parts):
        raise CliFault("credentials are no settings: keep them with `aiio auth set ENDPOINT`")
    return parts


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if value is None:
        raise CliFault("a setting can't be null; take its line out of the file instead")
    return value


def _change(path: Path, parts: list[str], value: Any) -> None:
    """Set a value in a TOML file as a person would. `CliFault`: it can't be read, changed, or written."""
    if importlib.util.find_spec("tomlkit") is None:
        raise CliFault(f"changing settings needs tomlkit: pip install tomlkit, or edit {path}")
    import tomlkit

    try:
        text = path.read_text("utf-8") if path.exists() else ""
        document = tomlkit.parse(text)
        node: Any = document
        for part in parts[:-1]:
            if part not in node:
                node[part] = tomlkit.table()
            node = node[part]
            if not isinstance(node, Mapping):
                raise CliFault(f"{'.'.join(parts)} can't be set: {part} is a value in {path}")
        node[parts[-1]] = value
        changed = tomlkit.dumps(document)
        check_layer(tomllib.loads(changed))
        _write(path, changed)
    except OSError as exc:
        raise CliFault(f"{path} can't be changed: {exc.strerror}") from exc
    except (TypeError, ValueError) as exc:
        raise CliFault(f"{'.'.join(parts)} can't be set in {path}: {exc}") from exc


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        # A proxy's password may stand in it: nobody else reads it, also not while it is written.
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        if target.exists():
            draft.chmod(target.stat().st_mode & 0o777)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
