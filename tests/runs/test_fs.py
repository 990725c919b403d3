"""The files steps see: one behaviour in memory and on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiio.runs.fs import FsAdapter, LocalFs, MemoryFs


@pytest.fixture(params=["memory", "disk"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FsAdapter:
    return MemoryFs() if request.param == "memory" else LocalFs(tmp_path)


async def test_B14_files_are_written_read_appended_renamed_and_removed(fs: FsAdapter) -> None:
    await fs.write_file("/a/b.txt", "hä")
    await fs.append_file("/a/b.txt", "!")
    await fs.append_file("a/new.txt", "x")
    assert await fs.read_file_text("/a/b.txt") == "hä!"
    assert await fs.read_file("/a/b.txt") == "hä!".encode()
    await fs.rename("/a/b.txt", "/a/new.txt")
    assert await fs.read_file_text("/a/new.txt") == "hä!"
    assert await fs.readdir("/a") == ["new.txt"]
    await fs.mkdir("/a/deep/er")
    assert await fs.readdir("/a") == ["deep", "new.txt"]
    await fs.access("/a/deep")
    await fs.rm("/a/new.txt")
    await fs.rm("/a/new.txt", force=True)
    await fs.write_file("/a/deep/er/f", "x")
    await fs.rm("/a", recursive=True)
    assert await fs.readdir("/") == []


async def test_B14_what_is_missing_or_in_the_way_raises(fs: FsAdapter) -> None:
    await fs.mkdir("/d")
    await fs.write_file("/f", "x")
    for operation in (
        fs.read_file("/x"),
        fs.rename("/x", "/y"),
        fs.rm("/x"),
        fs.access("/x"),
        fs.stat("/x"),
        fs.lstat("/x"),
    ):
        with pytest.raises(FileNotFoundError):
            await operation
    with pytest.raises(FileNotFoundError):
        await fs.readdir("/x")
    with pytest.raises(IsADirectoryError):
        await fs.rm("/d")
    with pytest.raises(IsADirectoryError):
        await fs.write_file("/d", "x")
    with pytest.raises(FileExistsError):
        await fs.mkdir("/f")


async def test_B14_a_local_path_stays_under_its_root(tmp_path: Path) -> None:
    with pytest.raises(PermissionError):
        await LocalFs(tmp_path).read_file("../outside")
    with pytest.raises(PermissionError):
        await LocalFs(tmp_path).lstat("../outside")


async def test_B14_stat_tells_sizes_folders_and_links(fs: FsAdapter, tmp_path: Path) -> None:
    await fs.write_file("/d/f", "four")
    for found in (await fs.stat("/d/f"), await fs.lstat("d/f")):
        assert (found.size, found.is_folder, found.is_link) == (4, False, False)
        assert (found.modified is None) is isinstance(fs, MemoryFs)
    folder = await fs.stat("/d")
    assert (folder.size, folder.is_folder) == (0, True)
    assert (await fs.stat("/")).is_folder
    if isinstance(fs, LocalFs):
        (tmp_path / "link").symlink_to(tmp_path / "d" / "f")
        assert (await fs.lstat("/link")).is_link
        followed = await fs.stat("/link")
        assert (followed.is_link, followed.size) == (False, 4)
        (tmp_path / "out").symlink_to("/")
        assert (await fs.lstat("/out")).is_link
        with pytest.raises(PermissionError):
            await fs.stat("/out")
        with pytest.raises(PermissionError):
            await fs.lstat("/out/etc")
