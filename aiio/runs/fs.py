"""The files that steps and layers see: in memory by default, those of a folder when asked for."""

from __future__ import annotations

import shutil
import stat as modes
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import trio


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What is at a path."""

    size: int
    """Bytes; 0 of a folder."""
    is_folder: bool = False
    is_link: bool = False
    """Only `lstat` says so."""
    modified: float | None = None
    """Wall-clock seconds; None: nobody keeps it."""


class FsAdapter(Protocol):
    """File access for steps. Paths are texts with slashes; what is missing raises `FileNotFoundError`.

    An operation that is cancelled may have done its work.
    """

    async def read_file(self, path: str) -> bytes:
        """Return a file's bytes."""
        ...

    async def write_file_bytes(self, path: str, data: bytes) -> None:
        """Write a file, and make the folders above it."""
        ...

    async def append_file(self, path: str, text: str) -> None:
        """Append text to a file, made if need be."""
        ...

    async def mkdir(self, path: str) -> None:
        """Make a folder and those above it."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Move a file or folder."""
        ...

    async def rm(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Remove a file, or with *recursive* a folder; *force* does not mind that it is missing."""
        ...

    async def access(self, path: str) -> None:
        """Raise FileNotFoundError when nothing is there."""
        ...

    async def stat(self, path: str) -> FileStat:
        """Return what is there, behind a link."""
        ...

    async def lstat(self, path: str) -> FileStat:
        """Return what is there, the link itself if it is one."""
        ...

    async def readdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        ...

    async def read_file_text(self, path: str) -> str:
        """Return a file as UTF-8 text."""
        ...

    async def write_file(self, path: str, text: str) -> None:
        """Write a file as UTF-8 text."""
        ...


class _Texts:
    """Text on top of bytes."""

    async def read_file_text(self: FsAdapter, path: str) -> str:
        """Return a file as UTF-8 text."""
        return (await self.read_file(path)).decode()

    async def write_file(self: FsAdapter, path: str, text: str) -> None:
        """Write a file as UTF-8 text."""
        await self.write_file_bytes(path, text.encode())


class MemoryFs(_Texts):
    """Files in memory. All operations are checkpoints, and done at once: a cancelled one has done nothing.

    Raises:
      FileNotFoundError: nothing is there.
      IsADirectoryError: a folder is there, where a file was meant.
      FileExistsError: a file is there, where a folder is to be made.
    """

    def __init__(self) -> None:
        self._files: dict[PurePosixPath, bytes] = {}
        self._folders: set[PurePosixPath] = {PurePosixPath("/")}

    async def read_file(self, path: str) -> bytes:
        """Return a file's bytes."""
        await trio.lowlevel.checkpoint()
        place = _place(path)
        if place not in self._files:
            raise FileNotFoundError(path)
        return self._files[place]

    async def write_file_bytes(self, path: str, data: bytes) -> None:
        """Write a file, and make the folders above it."""
        await trio.lowlevel.checkpoint()
        place = _place(path)
        if place in self._folders:
            raise IsADirectoryError(path)
        self._folders.update(place.parents)
        self._files[place] = bytes(data)

    async def append_file(self, path: str, text: str) -> None:
        """Append text to a file, made if need be."""
        await self.write_file_bytes(path, self._files.get(_place(path), b"") + text.encode())

    async def mkdir(self, path: str) -> None:
        """Make a folder and those above it."""
        await trio.lowlevel.checkpoint()
        place = _place(path)
        if place in self._files:
            raise FileExistsError(path)
        self._folders.update((place, *place.parents))

    async def rename(self, old: str, new: str) -> None:
        """Rename a file; one that has the new name is replaced."""
        await trio.lowlevel.checkpoint()
        source, target = _place(old), _place(new)
        if source not in self._files:
            raise FileNotFoundError(old)
        self._folders.update(target.parents)
        self._files[target] = self._files.pop(source)

    async def rm(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Remove a file, or with *recursive* a folder; *force* does not mind that it is missing."""
        await trio.lowlevel.checkpoint()
        place = _place(path)
        if place in self._files:
            del self._files[place]
        elif place in self._folders:
            if not recursive:
                raise IsADirectoryError(path)
            for file in [file for file in self._files if place in file.parents]:
                del self._files[file]
            self._folders -= {folder for folder in self._folders if place in (folder, *folder.parents)}
        elif not force:
            raise FileNotFoundError(path)

    async def access(self, path: str) -> None:
        """Return if there is something at *path*."""
        await trio.lowlevel.checkpoint()
        if _place(path) not in self._files and _place(path) not in self._folders:
            raise FileNotFoundError(path)

    async def stat(self, path: str) -> FileStat:
        """Return what is at *path*; there are no links here."""
        await self.access(path)
        place = _place(path)
        return FileStat(size=len(self._files.get(place, b"")), is_folder=place in self._folders)

    lstat = stat

    async def readdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        await self.access(path)
        place = _place(path)
        return sorted(
            {entry.name for entry in (*self._files, *self._folders) if entry.parent == place != entry}
        )


class LocalFs(_Texts):
    """Files under *root* on the disk, in threads that are not abandoned: a cancelled operation ends first.

    Raises:
      PermissionError: the path leads out of *root*, or the file may not be used.
      FileNotFoundError, IsADirectoryError, NotADirectoryError: as the disk says, like any other `OSError`.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).resolve()

    def _at(self, path: str) -> Path:
        place = (self._root / path.lstrip("/")).resolve()
        if not place.is_relative_to(self._root):
            raise PermissionError(f"{path!r} is outside of the run's folder")
        return place

    async def read_file(self, path: str) -> bytes:
        """Return a file's bytes."""
        return await trio.to_thread.run_sync(self._at(path).read_bytes)

    async def write_file_bytes(self, path: str, data: bytes) -> None:
        """Write a file, and make the folders above it."""

        def write(place: Path) -> None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

        await trio.to_thread.run_sync(write, self._at(path))

    async def append_file(self, path: str, text: str) -> None:
        """Append text to a file, made if need be."""

        def append(place: Path) -> None:
            with place.open("ab") as file:
                file.write(text.encode())

        await trio.to_thread.run_sync(append, self._at(path))

    async def mkdir(self, path: str) -> None:
        """Make a folder and those above it."""
        await trio.to_thread.run_sync(lambda: self._at(path).mkdir(parents=True, exist_ok=True))

    async def rename(self, old: str, new: str) -> None:
        """Rename a file; one that has the new name is replaced, in one step."""
        await trio.to_thread.run_sync(lambda: self._at(old).replace(self._at(new)))

    async def rm(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Remove a file, or with *recursive* a folder; *force* does not mind that it is missing."""

        def remove(place: Path) -> None:
            if place.is_dir():
                if not recursive:
                    raise IsADirectoryError(path)
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=force)

        await trio.to_thread.run_sync(remove, self._at(path))

    async def access(self, path: str) -> None:
        """Return if there is something at *path*."""
        await trio.to_thread.run_sync(lambda: self._at(path).stat())

    async def stat(self, path: str) -> FileStat:
        """Return what is at *path*, or where a link there leads to."""
        return await trio.to_thread.run_sync(lambda: _stat(self._at(path)))

    async def lstat(self, path: str) -> FileStat:
        """Return what is at *path* itself, be it a link."""

        def look() -> FileStat:
            place = self._root / path.lstrip("/")
            return _stat(self._at(str(Path(path).parent)) / place.name)

        return await trio.to_thread.run_sync(look)

    async def readdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return await trio.to_thread.run_sync(lambda: sorted(entry.name for entry in self._at(path).iterdir()))


def _stat(place: Path) -> FileStat:
    found = place.lstat()
    folder = modes.S_ISDIR(found.st_mode)
    return FileStat(
        size=0 if folder else found.st_size,
        is_folder=folder,
        is_link=modes.S_ISLNK(found.st_mode),
        modified=found.st_mtime,
    )


def _place(path: str) -> PurePosixPath:
    return PurePosixPath("/") / path
