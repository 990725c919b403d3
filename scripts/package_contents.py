"""Compare a wheel and an sdist with the files of this repository: nothing is left out, nothing slips in.

python -m scripts.package_contents dist/aiio_runtime-0.1.0.tar.gz dist/aiio_runtime-0.1.0-py3-none-any.whl
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGE = "aiio"
MARKER = f"{PACKAGE}/py.typed"
MADE = frozenset({"PKG-INFO"})
"""What building adds to an sdist."""


def of_repository(root: Path) -> set[str]:
    """Return the files that git has or would take. One that was removed is none."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout.decode()
    return {name for name in listing.split("\0") if name and (root / name).is_file()}


def of_wheel(wheel: Path) -> set[str]:
    """Return the files that *wheel* installs, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    return {name for name in names if not name.split("/")[0].endswith(".dist-info")}


def of_sdist(sdist: Path) -> set[str]:
    """Return the files in *sdist*, named from its one folder."""
    with tarfile.open(sdist) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def faults(wheel: set[str], sdist: set[str], repository: set[str]) -> Iterator[str]:
    """Yield what is wrong with the contents, in words.

    A wheel has the package and nothing else. An sdist has all that git has, so that its tests can run, but
    for what only serves git and CI: files and folders whose name begins with a dot.
    """
    if MARKER not in wheel:
        yield f"the wheel has no {MARKER}: its types would be ignored"
    package = {name for name in repository if name.startswith(f"{PACKAGE}/")}
    yield from _differences("wheel", wheel, package)
    visible = {name for name in repository if not name.startswith(".")}
    yield from _differences("sdist", {name for name in sdist if not name.startswith(".")} - MADE, visible)


def _differences(kind: str, found: set[str], expected: set[str]) -> Iterator[str]:
    yield from (f"the {kind} has no {name}" for name in sorted(expected - found))
    yield from (f"the {kind} should not have {name}" for name in sorted(found - expected))


def main(arguments: Sequence[str]) -> int:
    """Print what is wrong with the sdist and the wheel named; return 1 if anything is."""
    sdist, wheel = (
        next(Path(name) for name in arguments if name.endswith(end)) for end in (".tar.gz", ".whl")
    )
    wrong = list(faults(of_wheel(wheel), of_sdist(sdist), of_repository(Path.cwd())))
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
