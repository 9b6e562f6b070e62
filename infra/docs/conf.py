"""How Sphinx makes the documentation site of the pages beside this file; `make docs` calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptcore import __version__
from infra.docs.generated import write_pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "gptmill"
author = "the authors of gptmill"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
suppress_warnings = ["ref.python"]  # a field's name that several dataclasses have
html_theme = "furo"
html_title = f"gptmill {__version__}"
html_show_copyright = False
html_copy_source = False
exclude_patterns = ["_build"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4
myst_number_code_blocks: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_class_signature = "separated"
smartquotes = False  # quotes and dots stay as they are typed
default_role = "literal"  # docstrings write names between single backticks, as Markdown does


def setup(app: Sphinx) -> None:
    """Write the pages that are made of definitions before Sphinx looks for pages."""
    app.connect("builder-inited", lambda made: write_pages(made.srcdir))
