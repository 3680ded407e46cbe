"""The directive `{columns}`: every column of a table with its definition, from the code itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import Directive

from nearkv.sweeps.evaluate.catalogue import column_rows

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class Columns(Directive):
    """A definition list of all columns."""

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        terms = nodes.definition_list()
        for row in sorted(column_rows(), key=lambda row: str(row["column"])):
            unit = f" [{row['unit']}]" if row["unit"] else ""
            item = nodes.definition_list_item()
            item += nodes.term("", "", nodes.literal(text=row["column"]))
            paragraph = nodes.paragraph("", "", *_marked(f"{row['what']}{unit}"))
            item += nodes.definition("", paragraph)
            terms += item
        return [terms]


def _marked(text: str) -> list[nodes.Node]:
    """A text whose names of columns stand between backticks."""
    pieces: list[nodes.Node] = []
    for number, piece in enumerate(text.split("`")):
        pieces.append(nodes.literal(text=piece) if number % 2 else nodes.Text(piece))
    return pieces


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive to Sphinx."""
    app.add_directive("columns", Columns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
