"""What Sphinx needs to read our docstrings, which are written to be read as they are.

- A single backtick is code; where it holds a name of ours, a link to it.
- An indented block after an empty line is code, without the `::` that reStructuredText wants before it.
- `Args:`, `Returns:` and `Raises:` are what napoleon makes of them.
- Pages made of code are written before anything is read: docs_reference.py, docs_benchmarks.py.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyXRefRole
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util.docutils import SphinxRole

from scripts.docs_benchmarks import write_table
from scripts.docs_reference import HEAD, readable, write_pages

_NAME = re.compile(r"(aiio\.)?[A-Za-z_]\w*(\.\w+)*(\(\))?")
_DURATION = re.compile(r"int \| float \| str \| ~?(datetime\.)?timedelta")
_GOOGLE = Config(napoleon_google_docstring=True, napoleon_use_rtype=False)


class NameRole(SphinxRole):
    """Code; a link if it is the name of something that the reference describes."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the node."""
        if _NAME.fullmatch(self.text) is None:
            return [nodes.literal(self.rawtext, self.text)], []
        link = PyXRefRole()
        return link("py:obj", self.rawtext, self.text, self.lineno, self.inliner, self.options, self.content)


def read_docstring(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring.

    Napoleon is called here and not loaded: it takes `name: text` at the beginning of an attribute's docstring
    for a type, and our sentences have colons.
    """
    kind = "method" if what in ("attribute", "property", "data") else what
    text = readable(lines)
    lines[:] = GoogleDocstring(text, _GOOGLE, app, kind, name, value, options).lines()


def name_durations(
    app: Sphinx, what: str, name: str, value: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Let a signature say `Duration` where it is one: the alias is gone when annotations are read."""
    return signature and _DURATION.sub("Duration", signature), returns


def find_in_head(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.Node | None:
    """Link a name that its own module does not know, when `aiio` has it; it stays plain code otherwise."""
    if node.get("refdomain") != "py" or node.get("reftype") != "obj":
        return None
    target = node["reftarget"].removesuffix("()")
    if target.partition(".")[0] not in importlib.import_module(HEAD).__all__:
        return content
    found = env.domains["py"].find_obj(env, None, None, f"{HEAD}.{target}", "obj", 0)
    if not found:
        return content
    where = found[0][1]
    here = node.get("refdoc", env.docname)
    uri = app.builder.get_relative_uri(here, where.docname)
    link = nodes.reference("", "", content, internal=True, refuri=f"{uri}#{where.node_id}")
    return link


def lead_to_pages(app: Sphinx, file: Path, page: str, content: list[str]) -> None:
    """Let links of the documents that stand beside docs/ lead to the pages that include them."""
    content[0] = re.sub(r"\]\(docs/", "](", content[0])
    content[0] = re.sub(r"\]\(([A-Z]+\.md)", lambda link: link[0].lower(), content[0])


def write_what_is_made(app: Sphinx) -> None:
    """Write the pages of the public modules, and the table of benchmarks."""
    write_pages(Path(app.srcdir) / "reference" / "api")
    write_table(Path(app.srcdir) / "_generated")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_role("aiio-name", NameRole())
    app.connect("builder-inited", write_what_is_made)
    app.connect("include-read", lead_to_pages)
    app.connect("autodoc-process-docstring", read_docstring, priority=100)
    app.connect("autodoc-process-signature", name_durations)
    app.connect("missing-reference", find_in_head)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
