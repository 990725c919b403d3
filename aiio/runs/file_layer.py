"""The filesystem layer: files that users name as `#path/to/file.py` are shown, as they are now."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from .fs import FsAdapter
from .items import Item, create_message, item_text
from .layer_states import STATE
from .layers import ContextLayer, HookCall, Hooks, LayerBudget, Placement, RerenderScope, Scope, Slot
from .work_layers import stored_state

MAX_BYTES = 1 << 20
"""Of a file that is shown; a bigger one is only named."""

EXTENSIONS = frozenset(
    {
        *("c", "cc", "cpp", "cs", "go", "h", "hpp", "java", "js", "jsx", "kt", "lua", "mjs", "php"),
        *("pl", "proto", "py", "r", "rb", "rs", "scss", "sh", "sql", "svelte", "swift", "ts", "tsx"),
        *("cfg", "css", "csv", "html", "ini", "json", "toml", "vue", "xml", "yaml", "yml", "zig"),
        *("md", "rst", "tex", "txt"),
    }
)
"""Of files that a reference may mean."""
FILES = frozenset({"Dockerfile", "Makefile", "Justfile", "LICENSE", "README"})
"""Names without an extension that a reference may mean."""

LEAST = 60
"""Tokens below which a part of a file is not worth showing."""

_REFERENCE = re.compile(r"(?<![\w#/&])#((?:[\w.-]+/)*[\w.-]*\w)")
_HEAD = "Files that were referred to, as they are now:"


def filesystem_layer(
    *,
    base: str = "/",
    max_bytes: int = MAX_BYTES,
    extensions: Iterable[str] = EXTENSIONS,
    id: str = "filesystem",
    slot: float = Slot.RAG,
    budget: float | LayerBudget | None = None,
) -> ContextLayer:
    """Return a layer that shows files which users refer to as `#src/main.py`, the last named first.

    Files are read through `context.fs` for every view, and a change is told by showing only the files that
    changed. A reference is relative, without `..`, and has a known extension. What can't be read is named
    with the reason. A file that the budget does not hold is shown without its middle.

    Args:
      base: the folder that references begin at.
      max_bytes: of a file that is read.
      extensions: known ones, without dots.
      id, slot, budget: of the layer.
    """
    files = _Files(id, PurePosixPath(base), max_bytes, frozenset(extensions))
    hooks = Hooks(
        init=lambda call: stored_state(call, {"files": {}}),
        on_item_append=files.append,
        recall=files.recall,
        render_delta=_delta,
        on_spawn=lambda call: {"child_state": {"files": dict(call.state["files"])}},
    )
    return ContextLayer(
        id=id,
        slot=slot,
        scope=Scope.THREAD,
        budget=budget,
        hooks=hooks,
        placement=Placement.ANCHOR,
        timeouts={"on_item_append": "10s"},
        provides={"files": property(lambda state: list(state["files"]))},
    )


@dataclass(frozen=True, slots=True)
class _Files:
    """What one filesystem layer does. Its state holds the paths and the hash of what was read last."""

    id: str
    base: PurePosixPath
    max_bytes: int
    extensions: frozenset[str]

    async def append(self, call: HookCall) -> dict[str, Any] | None:
        """Take note of new references; have the files shown anew when one has changed."""
        before: dict[str, str] = call.state["files"]
        files = dict(before)
        for path in _references(call.items, self.extensions):
            files.pop(path, None)
            files[path] = ""  # named last, shown first
        for path in files:
            text, why = await self._read(call.context.fs, path)
            files[path] = hashlib.sha256(f"{why}\n{text}".encode(errors="replace")).hexdigest()
        if list(files.items()) == list(before.items()):
            return None
        return {STATE: {"files": files}, "rerender": True, "scope": RerenderScope.SELF}

    async def recall(self, call: HookCall) -> dict[str, Any] | None:
        """Show the files, one item each."""
        left = float("inf") if call.budget is None else call.budget
        shown: list[Item] = []
        for path in reversed(call.state["files"]):
            text, why = await self._read(call.context.fs, path)
            whole = f"File {path}: {why}" if why else _fenced(path, text)
            if call.context.tokenize(whole) > left:
                whole = "" if why or left < LEAST else _fenced(path, _without_middle(text, left))
            left -= call.context.tokenize(whole)
            if whole:
                shown.append({**create_message(whole, "developer"), "id": f"file:{path}"})
        if not shown:
            return None
        head = {**create_message(_HEAD, "developer"), "id": f"layer:{self.id}"}
        return {"items": [head, *shown]}

    async def _read(self, fs: FsAdapter, path: str) -> tuple[str, str]:
        """Return the text of a file, or why there is none."""
        place = str(self.base / path)
        try:
            size = (await fs.stat(place)).size
            if size > self.max_bytes:
                return "", f"it has {size} bytes, more than {self.max_bytes}"
            data = await fs.read_file(place)
        except OSError as exc:
            return "", type(exc).__name__
        return ("", "it is not text") if b"\0" in data else (data.decode(errors="replace"), "")


def _references(items: Sequence[Item], extensions: frozenset[str]) -> list[str]:
    """Return the paths that users refer to in *items*, in their order."""
    found: list[str] = []
    for item in items:
        if item["type"] == "message" and item["role"] == "user":
            for match in _REFERENCE.finditer(item_text(item)):
                path = PurePosixPath(match[1])
                if ".." not in path.parts and (path.suffix[1:] in extensions or path.name in FILES):
                    found.append(str(path))
    return found


def _delta(call: HookCall) -> str | None:
    """Tell which files changed, came and went, in place of all of them."""
    before, now = _by_id(call.previous), _by_id(call.items)
    told = [text for id, text in now.items() if before.get(id) != text]
    told += [f"File {id.removeprefix('file:')} is no longer referred to." for id in before if id not in now]
    return "\n\n".join(told) or None


def _by_id(items: Sequence[Item]) -> dict[str, str]:
    return {item["id"]: item_text(item) for item in items}


def _fenced(path: str, text: str) -> str:
    longest = max(map(len, re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"File {path}:\n{fence}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}"


def _without_middle(text: str, tokens: float) -> str:
    """Return the beginning and the end of *text*, so that both fit into *tokens* with what is around them."""
    room = max(0, int(tokens * 4) - 200)  # characters; the path, the fence and the mark take some
    head, tail = text[: room * 2 // 3], text[len(text) - room // 3 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"
