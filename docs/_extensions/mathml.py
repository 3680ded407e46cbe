"""Equations as MathML, which browsers draw by themselves: no script, no font, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def visit_inline(writer: Any, node: nodes.math) -> None:
    """Write an equation within a line."""
    writer.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.math_block) -> None:
    """Write an equation that stands alone."""
    writer.body.append(f"<div>{convert(node.astext(), display='block')}</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the renderer to Sphinx."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
