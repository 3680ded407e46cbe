"""Configuration of Sphinx: the site offline, equations as MathML, API pages from docstrings."""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "nearkv"
author = "the nearkv contributors"
version = release = version_of("nearkv")
smartquotes = False  # options begin with two dashes
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "mathml",
    "equations",
    "data_paths",
    "prints",
    "every_claim",
    "gallery",
    "glossary_of_columns",
]
exclude_patterns = ["_build", "_extensions"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_title = "nearkv"
html_math_renderer = "mathml"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["drawings.css"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
