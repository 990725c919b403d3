"""The pages of the reference, made of what the public modules list in `__all__`.

    python -m scripts.docs_reference        # prints what is not said, though it has to be

A page has a section for each file its names come from, under what that file says it is about. So a name that
is added to `__all__` is in the reference, and one that has no docstring, or whose docstring keeps quiet about
cancellation or errors, is found by a test.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

PUBLIC = (
    "aiio",
    "aiio.io",
    "aiio.context",
    "aiio.env",
    "aiio.providers",
    "aiio.transports",
    "aiio.agents",
    "aiio.builder",
    "aiio.runs",
    "aiio.scale",
    "aiio.bridges",
    "aiio.observe",
    "aiio.testing",
)
"""Modules whose `__all__` is public."""

HEAD = "aiio"
"""The module where a name is described that several of them have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One public name."""

    module: str
    """Where it is imported from."""
    name: str
    home: str
    """The file it is defined in, as a module."""
    value: Any

    @property
    def path(self) -> str:
        """What the reference calls it."""
        return f"{self.module}.{self.name}"

    @property
    def doc(self) -> str:
        """Its own docstring, not one that a class inherits; empty when it has none."""
        if inspect.ismodule(self.value) or inspect.isroutine(self.value):
            return inspect.getdoc(self.value) or ""
        if inspect.isclass(self.value):
            return inspect.cleandoc(vars(self.value).get("__doc__") or "")
        return data_docs(self.home).get(self.name, "")


def names(module: str) -> list[Name]:
    """Return the public names of *module*: by the room and the file they come from, then as in `__all__`."""
    found = importlib.import_module(module)
    listed = [
        Name(module=module, name=name, home=home_of(module, name), value=getattr(found, name))
        for name in found.__all__
    ]
    homes = list(dict.fromkeys(name.home for name in listed))
    return sorted(listed, key=lambda name: (_rank(name.home), homes.index(name.home)))


def _rank(home: str) -> int:
    """Return where the room of *home* stands among the public ones."""
    rooms = [place for place, module in enumerate(PUBLIC) if f"{home}.".startswith(f"{module}.")]
    return rooms[-1] if rooms else 0


def described_in(name: Name) -> str:
    """Return the module whose page describes *name*: `aiio` if it has it, else the room of its file."""
    if inspect.ismodule(name.value):
        return name.value.__name__
    head = importlib.import_module(HEAD)
    if name.name in head.__all__ and getattr(head, name.name) is name.value:
        return HEAD
    room = PUBLIC[_rank(name.home)]
    return room if name.name in importlib.import_module(room).__all__ else name.module


def described_as(name: Name) -> str:
    """Return what the reference calls it; of a module that is a public name, the module."""
    where = described_in(name)
    return where if inspect.ismodule(name.value) else f"{where}.{name.name}"


@cache
def home_of(module: str, name: str) -> str:
    """Return the module in whose file *name*, which *module* has, is defined."""
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return str(value.__module__)
    if isinstance(value, ModuleType):
        return value.__name__
    tree = _tree(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            origin = "." * node.level + (node.module or "")
            package = module if _is_package(module) else module.rpartition(".")[0]
            return home_of(importlib.util.resolve_name(origin, package), name)
    return module


@cache
def data_docs(module: str) -> dict[str, str]:
    """Return the docstrings that stand below assignments in *module*, by name."""
    found = {}
    for target, following in zip(_tree(module).body, _tree(module).body[1:], strict=False):
        match target:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                pass
            case _:
                continue
        match following:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(importlib.import_module(module)))


def _is_package(module: str) -> bool:
    return hasattr(importlib.import_module(module), "__path__")


def heading(home: str) -> list[str]:
    """Return what *home* says of itself: the first paragraph is a title, the rest follows it."""
    text = inspect.getdoc(importlib.import_module(home)) or home
    first, _, rest = text.partition("\n\n")
    (title,) = readable([" ".join(first.split()).rstrip(".:")])
    return [title, "-" * len(title), "", *readable(rest.splitlines()), ""]


_CODE = re.compile(r" {4,}\S")
_SECTION = re.compile(r"(Args|Returns|Raises|Yields):\s*$")
_SPAN = re.compile(r"(`[^`]+`)(\w?)")


def readable(lines: Iterable[str]) -> list[str]:
    """Return a docstring's lines in reStructuredText: indented blocks are code, and `Name`s may have an s."""
    marked: list[str] = []
    in_code = in_section = False
    for line in lines:
        if line.strip() and not line.startswith(" "):
            in_section = _SECTION.match(line) is not None
        if line.strip() and not _CODE.match(line):
            in_code = False
        elif line.strip() and not in_section and not in_code and not (marked and marked[-1].strip()):
            marked += ["::", ""]
            in_code = True
        marked.append(line if in_code else _SPAN.sub(_apart, line))
    return marked


def _apart(span: re.Match[str]) -> str:
    """Return a span of code, kept apart from a letter that follows it at once."""
    return f"{span[1]}\\ {span[2]}" if span[2] else span[0]


# -- pages --------------------------------------------------------------------------------------------


def page(module: str) -> str:
    """Return the page of *module*, in reStructuredText."""
    listed = names(module)
    here = [name for name in listed if described_in(name) == module]
    elsewhere = {name.name: described_as(name) for name in listed if name not in here}
    lines = [module, "=" * len(module), "", f".. automodule:: {module}", "   :no-members:", ""]
    lines += [f".. currentmodule:: {module}", ""]
    for home in dict.fromkeys(name.home for name in here):
        group = [name for name in here if name.home == home]
        if home != module:
            lines += heading(home)
        for name in group:
            lines += [*entry(name), ""]
    if elsewhere:
        lines += ["Described elsewhere", "-------------------", ""]
        lines += [f"- `{name}`: :py:obj:`{path}`" for name, path in sorted(elsewhere.items())]
    return "\n".join(lines).rstrip() + "\n"


def entry(name: Name) -> Iterator[str]:
    """Yield the lines that describe one name."""
    if inspect.isclass(name.value):
        yield f".. autoclass:: {name.path}"
        if issubclass(name.value, Enum):
            yield "   :undoc-members:"
        if bases := _bases_of_ours(name.value):
            yield f"   :inherited-members: {', '.join(bases)}"
        return
    if inspect.isroutine(name.value):
        yield f".. autofunction:: {name.path}"
        return
    yield f".. py:data:: {name.path}"
    if isinstance(name.value, int | float | str):
        yield f"   :value: {name.value!r}"
    yield ""
    yield from (f"   {line}".rstrip() for line in readable(name.doc.splitlines()))


def _bases_of_ours(cls: type) -> list[str]:
    """Return the names of the bases at which inheriting stops; empty when no base is ours."""
    ours = [base for base in cls.__mro__[1:] if base.__module__.startswith("aiio.")]
    return [base.__name__ for base in cls.__mro__[1:] if base not in ours] if ours else []


def write_pages(folder: Path) -> list[str]:
    """Write a page for each public module into *folder*, where it changed; return their names."""
    folder.mkdir(exist_ok=True)
    written = []
    for module in PUBLIC:
        path, text = folder / f"{module}.rst", page(module)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
        written.append(path.name)
    for stale in {path for path in folder.glob("*.rst") if path.name not in written}:
        stale.unlink()
    return written


# -- what is not said ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A public function, or a public method of a public class."""

    path: str
    value: Any
    """The function that was written, without its decorators."""
    doc: str
    said: str
    """Its docstring and its class's, where what holds for all methods stands once."""


def functions(module: str) -> Iterator[Function]:
    """Yield the functions of *module*, and the methods and properties that its classes define in our code."""
    for name in names(module):
        if inspect.isclass(name.value):
            for member, value in vars(name.value).items():
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if not member.startswith("_") and _is_ours(function):
                    yield _function(f"{name.path}.{member}", function, name.doc)
        elif _is_ours(name.value):
            yield _function(name.path, name.value, "")


def _is_ours(value: Any) -> bool:
    return inspect.isfunction(value) and value.__module__.partition(".")[0] == HEAD


def _function(path: str, value: Any, class_doc: str) -> Function:
    doc = inspect.cleandoc(value.__doc__ or "")
    return Function(path=path, value=inspect.unwrap(value), doc=doc, said=f"{class_doc}\n{doc}")


_CANCELLATION = re.compile(r"\bcancel|\b(always|not|are|is)( a)? checkpoints?\b", re.IGNORECASE)


def unsaid(module: str) -> list[str]:
    """Return what docstrings of *module* have to say and don't: one line for each gap.

    A name has a docstring; a function that awaits says what a cancellation leaves behind, or that it is no
    checkpoint; one that raises names the exception.
    """
    found = [f"{name.path} has no docstring" for name in names(module) if not name.doc]
    for function in functions(module):
        if not function.doc:
            found.append(f"{function.path} has no docstring")
            continue
        waits = inspect.iscoroutinefunction(function.value) or inspect.isasyncgenfunction(function.value)
        if waits and not _CANCELLATION.search(function.said):
            found.append(f"{function.path} awaits, and says nothing of cancellation")
        found += [
            f"{function.path} raises {error}, and does not say so"
            for error in sorted(_raised(function.value))
            if error not in function.said
        ]
    return found


def _raised(function: Any) -> set[str]:
    """Return the names of the exceptions that stand behind `raise` in *function* itself."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    found, todo = set(), list(ast.iter_child_nodes(tree))
    while todo:
        match todo.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pass  # what it raises, it raises when somebody calls it
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))) if name[
                0
            ].isupper():
                found.add(name)
            case node:
                todo += ast.iter_child_nodes(node)
    return found


if __name__ == "__main__":
    gaps = [line for module in PUBLIC for line in unsaid(module)]
    print("\n".join(gaps))
    sys.exit(bool(gaps))
