"""The directive `{gallery}`: every figure of the papers, drawn while the site is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from docutils import nodes
from docutils.parsers.rst import Directive
from matplotlib import pyplot

from nearkv.sweeps.figures.papers import draw, figure_titles, paper_figure
from nearkv.sweeps.figures.style import save

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parent.parent / "pictures" / "gallery"


class Gallery(Directive):
    """A section a figure."""

    def run(self) -> list[nodes.Node]:
        """Draw all figures and return their sections."""
        mpl.use("agg")
        FOLDER.mkdir(exist_ok=True)
        return [_section(name, title) for name, title in figure_titles().items()]


def _section(name: str, title: str) -> nodes.section:
    figure = paper_figure(name)
    with mpl.rc_context({"svg.hashsalt": name}):
        drawn = draw(figure)
        save(drawn, FOLDER / f"{name}.svg")
    pyplot.close(drawn)
    section = nodes.section(ids=[name])
    section += nodes.title("", name)
    section += nodes.paragraph("", f"{title}.")
    text = f"Predictions of {title}; {len(figure.statements)} stated numbers beside them"
    image = nodes.image(uri=f"pictures/gallery/{name}.svg", alt=text)
    section += nodes.container("", image, classes=["drawing"])
    return section


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive to Sphinx."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
