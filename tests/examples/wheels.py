"""A wheel of a project that is one module, made without a build tool, so that it needs no network."""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path


def build_wheel(project: Path, folder: Path) -> Path:
    """Write a wheel of the *project* into *folder* and return its path: modules, metadata, entry points."""
    facts = tomllib.loads((project / "pyproject.toml").read_text())
    about = facts["project"]
    stem = f"{about['name'].replace('-', '_')}-{about['version']}"
    info = f"{stem}.dist-info"
    files = {path.name: path.read_text() for path in sorted(project.glob("*.py"))}
    files[f"{info}/METADATA"] = "".join(
        f"{line}\n"
        for line in [
            "Metadata-Version: 2.1",
            f"Name: {about['name']}",
            f"Version: {about['version']}",
            *(f"Requires-Dist: {requirement}" for requirement in about["dependencies"]),
        ]
    )
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in about["entry-points"].items()
    )
    record = [_entry(name, text) for name, text in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"])
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def _entry(name: str, text: str) -> str:
    data = text.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}\n"
