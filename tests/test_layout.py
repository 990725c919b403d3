"""The walls between the rooms: who may import whom, and which library stays where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "aiio"

ALLOWED: dict[str, set[str]] = {
    "context": set(),
    "env": {"context"},
    "builder": {"context"},
    "observe": {"context", "env"},
    "transports": {"context", "env"},
    "providers": {"context", "env"},
    "io": {"context", "env", "transports", "providers"},
    "runs": {"context", "env", "io", "observe"},
    "agents": {"context", "env", "io", "builder", "observe"},
    "bridges": {"context", "env"},
    "scale": {"context", "env", "agents"},
}
SEE_ALL = {"cli", "testing"}

ONLY_IN: dict[str, set[str]] = {
    "httpx": {"transports"},
    "httpx2": {"transports"},
    "httpcore": {"transports"},
    "h11": {"transports", "testing"},
    "trio_websocket": {"transports", "testing"},
    "click": {"cli"},
    "rich": {"cli"},
    "opentelemetry": {"observe"},
    "asyncio": {"bridges"},
    "ray": {"scale"},
}
NOT_IN: dict[str, set[str]] = {"trio": {"context", "providers", "builder"}}


def imports(path: Path) -> Iterator[str]:
    """Yield the absolute name of every import in *path*, also inside functions."""
    package = ["aiio", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = ".".join([*base, *([node.module] if node.module else [])])
            yield names
            if node.module is None or names == "aiio":
                yield from (f"{names}.{alias.name}" for alias in node.names)


def room(path: Path) -> str | None:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else None


FILES = sorted(ROOT.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    if here is None or here in SEE_ALL:
        return
    assert here in ALLOWED, f"{here} is a room that DESIGN does not draw"
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "aiio" and len(parts) > 1 and (ROOT / parts[1]).is_dir():
            assert parts[1] in ALLOWED[here] | {here}, f"{here} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_library_stays_in_its_room(path: Path) -> None:
    here = room(path)
    for name in imports(path):
        library = name.split(".")[0]
        if library in ONLY_IN:
            assert here in ONLY_IN[library], f"{library} belongs to {ONLY_IN[library]}, not to {here}"
        assert here not in NOT_IN.get(library, set()), f"{here} is free of {library}"
        if library == "trio":
            assert path.name != "framing.py", "framing is sans-I/O"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_environment_is_read_only_in_env(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and room(path) != "env":
            assert not (isinstance(node.value, ast.Name) and node.value.id == "os"), (
                f"{path} reads os.{node.attr}"
            )


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_structlog_is_configured_only_in_observe(path: Path) -> None:
    if room(path) in ("observe", "cli"):
        return
    assert "structlog.configure" not in path.read_text("utf-8")


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_relative_imports_stay_inside_their_room(path: Path) -> None:
    """Inside a room relative, across rooms absolute: a crossed wall is visible."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            depth = len(path.relative_to(ROOT).parts) - 1
            assert node.level <= depth, f"{path} reaches out of its room by a relative import"
