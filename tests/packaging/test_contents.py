"""What scripts/package says of a wheel and an sdist that have too much or too little."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import aiio
from scripts.package_base import EXTRAS
from scripts.package_contents import faults, of_repository, of_sdist, of_wheel
from scripts.release_version import changelog_entry, has_lines

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = {
    ".ci/run",
    ".gitignore",
    "aiio/__init__.py",
    "aiio/py.typed",
    "tests/test_it.py",
    "pyproject.toml",
}
WHEEL = {"aiio/__init__.py", "aiio/py.typed"}
SDIST = {"PKG-INFO", ".gitignore", "aiio/__init__.py", "aiio/py.typed", "tests/test_it.py", "pyproject.toml"}


def test_nothing_is_said_of_what_is_right() -> None:
    assert list(faults(WHEEL, SDIST, REPOSITORY)) == []


@pytest.mark.parametrize("extra", ["tests/test_it.py", "aiio/scratch.py", "scripts/test"])
def test_what_slips_into_a_wheel_is_named(extra: str) -> None:
    assert list(faults(WHEEL | {extra}, SDIST, REPOSITORY)) == [f"the wheel should not have {extra}"]


def test_a_file_that_the_wheel_forgot_is_named() -> None:
    assert list(faults(WHEEL - {"aiio/__init__.py"}, SDIST, REPOSITORY)) == [
        "the wheel has no aiio/__init__.py"
    ]


def test_a_wheel_without_the_marker_of_types_is_named_even_if_there_is_none_at_all() -> None:
    marker = {"aiio/py.typed"}
    (said,) = faults(WHEEL - marker, SDIST - marker, REPOSITORY - marker)
    assert said.startswith("the wheel has no aiio/py.typed")


def test_an_sdist_has_its_tests_and_nothing_that_git_ignores() -> None:
    changed = SDIST - {"tests/test_it.py"} | {"dist/old.whl"}
    assert list(faults(WHEEL, changed, REPOSITORY)) == [
        "the sdist has no tests/test_it.py",
        "the sdist should not have dist/old.whl",
    ]


def test_archives_are_read_without_metadata_and_without_the_folder_around(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "it.whl", tmp_path / "it.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("aiio/py.typed", "")
        archive.writestr("it-1.0.dist-info/METADATA", "")
    with tarfile.open(sdist, "w:gz") as packed:
        packed.addfile(tarfile.TarInfo("it-1.0/tests/test_it.py"), io.BytesIO())
    assert of_wheel(wheel) == {"aiio/py.typed"}
    assert of_sdist(sdist) == {"tests/test_it.py"}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_files_of_a_repository_are_those_that_git_has_or_would_take(tmp_path: Path) -> None:
    for name in (".gitignore", "ignored.py", "kept.py", "removed.py"):
        (tmp_path / name).write_text("ignored.py\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "removed.py"], cwd=tmp_path, check=True)
    (tmp_path / "removed.py").unlink()
    assert of_repository(tmp_path) == {".gitignore", "kept.py"}


def test_the_version_of_the_code_has_an_entry_in_the_changelog() -> None:
    entry = changelog_entry((ROOT / "CHANGELOG.md").read_text("utf-8"), aiio.__version__)
    assert entry is not None
    assert has_lines(entry)


def test_a_base_installation_is_held_to_have_none_of_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert len(EXTRAS) == sum(map(len, extras.values()))
