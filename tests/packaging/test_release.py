"""scripts/release refuses what is not fit, and changes nothing then. Real git, in repositories of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from scripts.release_version import Refused, changelog_entry, parse_version

ROOT = Path(__file__).resolve().parents[2]
CODE = '"""A package."""\n\n__version__ = "0.1.0"\n'
CHANGELOG = """# Changelog

## Unreleased

## 0.2.0

### Added

- Something.

## 0.1.0 - 2026-01-02

- The first one.
"""
PASSES = f"{shlex.quote(sys.executable)} -c pass"
FAILS = f"{shlex.quote(sys.executable)} -c 'raise SystemExit(7)'"
BUILDS = f"""{shlex.quote(sys.executable)} -c '
import pathlib, sys
folder = pathlib.Path(sys.argv[2])
folder.mkdir()
(folder / "built").write_text(pathlib.Path("aiio/__init__.py").read_text())'"""
"""Puts into the folder after `--out` what the code was when it ran."""

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Repository:
    """A project with one release, and a changelog for the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        who = {
            f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        self._environment = {
            **clean,
            **who,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("aiio/__init__.py", CODE)
        self.write("CHANGELOG.md", CHANGELOG)
        self.write(".gitignore", "dist/\n")
        self.commit()
        self.git("tag", "v0.1.0")

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", "as it is now")

    def state(self) -> tuple[str, ...]:
        """Return what a refusal must leave as it was."""
        texts = (
            path.read_text()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        )
        return (self.git("rev-parse", "HEAD"), self.git("tag"), self.git("status", "--porcelain"), *texts)

    def release(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "scripts.release_version", *arguments],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def refuse(self, *arguments: str) -> str:
        """Ask for a release that must be refused with nothing changed, and return why it was."""
        before = self.state()
        ended = self.release(*(arguments or ("0.2.0", "--check", PASSES, "--build", BUILDS)))
        assert ended.returncode == 1, ended.stdout + ended.stderr
        assert self.state() == before
        return ended.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_release_is_bumped_checked_built_committed_and_tagged(repository: Repository) -> None:
    check = f"{shlex.quote(sys.executable)} -c 'import aiio; assert aiio.__version__ == \"0.2.0\"'"
    ended = repository.release("0.2.0", "--check", check, "--build", BUILDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert repository.git("status", "--porcelain") == ""
    assert repository.git("log", "-1", "--format=%s") == "Release 0.2.0"
    assert repository.git("rev-parse", "v0.2.0^{commit}") == repository.git("rev-parse", "HEAD")
    code = (repository.folder / "aiio/__init__.py").read_text()
    assert code == CODE.replace("0.1.0", "0.2.0")
    assert (repository.folder / "dist" / "built").read_text() == code
    changelog = (repository.folder / "CHANGELOG.md").read_text()
    assert changelog == CHANGELOG.replace("## 0.2.0", f"## 0.2.0 - {date.today().isoformat()}")
    assert "git push origin main v0.2.0" in ended.stdout


def test_a_dry_run_runs_the_checks_and_changes_nothing(repository: Repository) -> None:
    before = repository.state()
    ran = repository.folder.parent / f"{repository.folder.name}-ran"
    ended = repository.release("0.2.0", "--dry-run", "--check", f"touch {ran}", "--build", PASSES)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ran.exists()
    assert repository.state() == before


def test_a_changed_file_is_refused(repository: Repository) -> None:
    repository.write("CHANGELOG.md", CHANGELOG + "\n")
    assert "not everything is committed:\nM CHANGELOG.md" in repository.refuse().replace(" M", "M")


def test_a_file_that_git_does_not_know_is_refused(repository: Repository) -> None:
    repository.write("scratch.py", "")
    assert "?? scratch.py" in repository.refuse()


def test_another_branch_is_refused(repository: Repository) -> None:
    repository.git("switch", "--quiet", "--create", "feature")
    assert "the branch feature" in repository.refuse()


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "0.1.0rc1"])
def test_a_version_that_is_not_greater_is_refused(repository: Repository, version: str) -> None:
    assert f"{version} is not greater than 0.1.0" in repository.refuse(version)


def test_a_version_smaller_than_that_of_the_code_is_refused(repository: Repository) -> None:
    repository.write("aiio/__init__.py", CODE.replace("0.1.0", "0.3.0"))
    repository.commit()
    assert "0.2.0 is smaller than 0.3.0" in repository.refuse()


@pytest.mark.parametrize("version", ["2", "v0.2.0", "0.2.0-rc1", "0.2.0 "])
def test_what_is_not_a_version_is_refused(repository: Repository, version: str) -> None:
    assert "is not a version" in repository.refuse(version)


def test_a_version_without_a_changelog_entry_is_refused(repository: Repository) -> None:
    assert "no heading: ## 0.2.1" in repository.refuse("0.2.1")


def test_an_empty_changelog_entry_is_refused(repository: Repository) -> None:
    repository.write("CHANGELOG.md", CHANGELOG.replace("- Something.\n", ""))
    repository.commit()
    assert "lists nothing under 0.2.0" in repository.refuse()


def test_a_line_that_is_still_unreleased_is_refused(repository: Repository) -> None:
    repository.write("CHANGELOG.md", CHANGELOG.replace("Unreleased\n", "Unreleased\n\n- Forgotten.\n"))
    repository.commit()
    assert "under Unreleased" in repository.refuse()


@pytest.mark.parametrize(
    "failing", [("--check", FAILS, "--build", BUILDS), ("--check", PASSES, "--build", FAILS)]
)
def test_a_check_or_a_build_that_fails_is_refused(repository: Repository, failing: tuple[str, ...]) -> None:
    assert "failed with exit code 7" in repository.refuse("0.2.0", *failing)


def test_a_commit_that_git_refuses_leaves_nothing_behind(repository: Repository) -> None:
    hook = repository.folder / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    assert "git commit failed" in repository.refuse("0.2.0", "--check", PASSES, "--build", PASSES)


def test_versions_are_compared_as_versions() -> None:
    texts = ["0.9.9", "0.10.0a2", "0.10.0a10", "0.10.0b1", "0.10.0rc1", "0.10.0", "0.10.1", "1.0.0"]
    assert sorted(texts, key=parse_version) == texts
    with pytest.raises(Refused):
        parse_version("1.0")


def test_a_changelog_entry_ends_where_the_next_one_begins() -> None:
    assert changelog_entry(CHANGELOG, "0.2.0") == "### Added\n\n- Something."
    assert changelog_entry(CHANGELOG, "0.1.0") == "- The first one."
    assert changelog_entry(CHANGELOG, "0.1") is None
