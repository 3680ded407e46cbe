"""The directive `{every-claim}`: each claim of each paper with its prediction, computed anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import Directive

from nearkv.sweeps.validation.claims import papers
from nearkv.sweeps.validation.validate import validate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

COLUMNS = ("id", "where", "claim", "stated", "predicted", "unit", "verdict", "explanation")


class EveryClaim(Directive):
    """A section a paper, which is a table with a row a claim."""

    def run(self) -> list[nodes.Node]:
        """Evaluate all claims and return their sections."""
        return [_section(paper) for paper in papers()]


def _section(paper: str) -> nodes.section:
    section = nodes.section(ids=[f"claims-of-{paper}"])
    section += nodes.title("", f"Claims: {paper}")
    group = nodes.tgroup(cols=len(COLUMNS))
    for _ in COLUMNS:
        group += nodes.colspec(colwidth=1)
    group += nodes.thead("", _line(COLUMNS))
    body = nodes.tbody()
    for row in validate(paper):
        body += _line([str(row[name]) for name in COLUMNS])
    group += body
    section += nodes.table("", group)
    return section


def _line(cells: Sequence[str]) -> nodes.row:
    line = nodes.row()
    for cell in cells:
        line += nodes.entry("", nodes.paragraph("", cell))
    return line


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive to Sphinx."""
    app.add_directive("every-claim", EveryClaim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
