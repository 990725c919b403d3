"""How the pages are built. `scripts/docs` does it, in the root of the repository: `scripts` is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import aiio

sys.path.insert(0, str(Path(__file__).parent))  # docs_extension.py

project = "aiio"
author = "the authors of aiio"
copyright = author
version = release = aiio.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinxcontrib_trio",
    "docs_extension",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_generated"]
default_role = "aiio-name"
"""In docstrings a single backtick is what it is in Markdown; a name becomes a link to it."""

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"aiio {version}"
html_show_copyright = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
