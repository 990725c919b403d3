"""Make a release from the current folder: refuse what is not fit, bump, check, build, commit, tag.

In this order, and nothing is changed before everything up to there has been found good:

1. Refused: a version that is none; a branch other than main; changes that are not committed, and files that
   git does not know; a version that is not greater than all released ones (the tags `v...`), or is smaller
   than the one in the code; a changelog without lines for it, or with lines that are still unreleased.
2. The version is written into the package, and today's date into the changelog.
3. The checks and the build run on that. One that fails ends it, and the files are as before.
4. Commit, tag. What to type in order to publish is printed; it is not done.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

CODE, CHANGELOG = Path("aiio/__init__.py"), Path("CHANGELOG.md")
BRANCH = "main"
CHECKS = ("scripts/check", "scripts/test")
BUILD = "scripts/package"
DIST = "dist"

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?")
_IN_CODE = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_HEADING = re.compile(r"^## (?P<name>\S+)(?: - (?P<date>\S+))?$", re.MULTILINE)
_FINAL = "~"  # sorts after a, b and rc


class Refused(Exception):
    """No release; the text says why."""


def parse_version(text: str) -> tuple[int, int, int, str, int]:
    """Return *text* as something to compare: 1.2.0rc1 < 1.2.0 < 1.10.0. Refused: it is not a version."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise Refused(f"{text!r} is not a version like 1.2.0 or 1.2.0rc1")
    major, minor, patch, stage, number = found.groups()
    return int(major), int(minor), int(patch), stage or _FINAL, int(number or 0)


def changelog_entry(changelog: str, name: str) -> str | None:
    """Return what *changelog* says under the heading of *name*; None: it has no such heading."""
    headings = list(_HEADING.finditer(changelog))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["name"] == name:
            return changelog[heading.end() : following.start() if following else None].strip()
    return None


def has_lines(entry: str) -> bool:
    """Tell whether a changelog entry lists anything."""
    return re.search(r"^- \S", entry, re.MULTILINE) is not None


def git(*arguments: str) -> str:
    """Return what git prints. Refused: it failed."""
    ended = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Refused(f"git {arguments[0]} failed: {ended.stderr.strip()}")
    return ended.stdout.strip()


def version_in_code() -> str:
    """Return the version of the package. Refused: it has none."""
    found = _IN_CODE.search(CODE.read_text("utf-8"))
    if found is None:
        raise Refused(f"{CODE} has no line __version__ = ...")
    return found[1]


def refuse_unless_fit(version: str) -> None:
    """Refused: *version* can't be released from what is here. The module tells what is looked at."""
    wanted = parse_version(version)
    if (branch := git("branch", "--show-current")) != BRANCH:
        raise Refused(f"this is the branch {branch or '(none)'}, and releases are made from {BRANCH}")
    if changes := git("status", "--porcelain"):
        raise Refused(f"not everything is committed:\n{changes}")
    released = [tag[1:] for tag in git("tag", "--list", "v[0-9]*").split()]
    for other in released:
        if wanted <= parse_version(other):
            raise Refused(f"{version} is not greater than {other}, which was released")
    if wanted < parse_version(version_in_code()):
        raise Refused(f"{version} is smaller than {version_in_code()}, which {CODE} says")
    changelog = CHANGELOG.read_text("utf-8")
    entry = changelog_entry(changelog, version)
    if entry is None:
        raise Refused(f"{CHANGELOG} has no heading: ## {version}")
    if not has_lines(entry):
        raise Refused(f"{CHANGELOG} lists nothing under {version}")
    if has_lines(changelog_entry(changelog, "Unreleased") or ""):
        raise Refused(f"{CHANGELOG} still lists something under Unreleased: it belongs under {version}")


def bumped(version: str, today: date) -> dict[Path, str]:
    """Return the texts of the files that name the version."""
    code = _IN_CODE.sub(f'__version__ = "{version}"', CODE.read_text("utf-8"))

    def dated(heading: re.Match[str]) -> str:
        return f"## {version} - {today.isoformat()}" if heading["name"] == version else heading[0]

    return {CODE: code, CHANGELOG: _HEADING.sub(dated, CHANGELOG.read_text("utf-8"))}


@contextmanager
def written(texts: Mapping[Path, str], *, keep: bool) -> Iterator[None]:
    """Write *texts* into their files; put back what was there if the block raises, or unless *keep*."""
    before = {path: path.read_bytes() for path in texts}
    done = False
    try:
        for path, text in texts.items():
            path.write_text(text, "utf-8")
        yield
        done = keep
    finally:
        if not done:
            for path, content in before.items():
                path.write_bytes(content)


def run(command: str) -> None:
    """Run one of the checks. Refused: it failed."""
    print(f"\n== {command}", file=sys.stderr)
    code = subprocess.run(shlex.split(command), check=False).returncode
    if code:
        raise Refused(f"{command} failed with exit code {code}")


def release(version: str, *, checks: Sequence[str], build: str, dry_run: bool) -> None:
    """Make the release. Refused: there is a reason against it, and nothing has changed."""
    refuse_unless_fit(version)
    texts = bumped(version, date.today())
    with written(texts, keep=not dry_run):
        for command in (*checks, build if dry_run else f"{build} --out {DIST}"):
            run(command)
        if dry_run:
            return
        git("commit", "--quiet", "-m", f"Release {version}", "--", *map(str, texts))
    git("tag", "--annotate", f"v{version}", "-m", f"aiio-runtime {version}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release that the command line asks for; return 1 if it is refused."""
    parser = argparse.ArgumentParser(
        prog="scripts/release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", metavar="VERSION")
    parser.add_argument("--dry-run", action="store_true", help="do everything up to the commit, then undo it")
    parser.add_argument(
        "--check",
        action="append",
        metavar="COMMAND",
        dest="checks",
        help=f"what must succeed, may be given more than once [default: {', '.join(CHECKS)}]",
    )
    parser.add_argument(
        "--build",
        default=BUILD,
        metavar="COMMAND",
        help=f"checks the package; with --out FOLDER it puts its files there [default: {BUILD}]",
    )
    options = parser.parse_args(arguments)
    try:
        release(
            options.version,
            checks=CHECKS if options.checks is None else options.checks,
            build=options.build,
            dry_run=options.dry_run,
        )
    except Refused as exc:
        print(f"refused: {exc}", file=sys.stderr)
        return 1
    if options.dry_run:
        print(f"\n{options.version} can be released; nothing was changed")
    else:
        print(
            f"\n{options.version} is committed, tagged and built. To publish it:\n"
            f"  git push origin {BRANCH} v{options.version}\n"
            f"  twine upload {DIST}/aiio_runtime-{options.version}*"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
