"""The directive `{equation} HILOS-1`: a numbered equation, its code and a worked number.

It is cited in text as "nearkv, eq. HILOS-1", and linked as `#hilos-1`.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class Equation(Directive):
    """An equation with its number, its code and its paper's equation."""

    required_arguments = 1
    has_content = True
    option_spec = dict.fromkeys(
        ("code", "paper", "case", "worked", "reads"), directives.unchanged_required
    )

    def run(self) -> list[nodes.Node]:
        """Return the equation."""
        name = self.arguments[0]
        given = {key: escape(str(value)) for key, value in self.options.items()}
        mathematics = convert("\n".join(self.content), display="block")
        notes = (
            f"<p>Paper: {given['paper']}. Code: <code>{given['code']}</code>. "
            f"<code>{given['worked']}</code> is what <code>nearkv {given['case']}</code> has as "
            f"<code>{given['reads']}</code>.</p>"
        )
        text = (
            f'<div class="equation" id="{name.lower()}"><p class="number">({name})</p>'
            f"<div>{mathematics}</div>{notes}</div>"
        )
        return [nodes.raw("", text, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive to Sphinx."""
    app.add_directive("equation", Equation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
