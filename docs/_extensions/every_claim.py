"""The directive `{every-claim}`: each claim of each paper with its prediction, computed anew.

A claim is a card, which fits any screen; the worst stand first. Boxes above choose papers and
verdicts, by style sheet alone.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.parsers.rst import Directive

from nearkv.sweeps.validation.claims import papers
from nearkv.sweeps.validation.validate import judge_claims

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

VERDICTS = ("miss", "inconsistent", "near", "match", "excluded")
"""The worst first."""


class EveryClaim(Directive):
    """Boxes to choose by, then a card a claim."""

    def run(self) -> list[nodes.Node]:
        """Evaluate all claims and return their cards."""
        rows = sorted(judge_claims(), key=_badness)
        boxes = _boxes("paper", papers()) + _boxes("verdict", VERDICTS)
        rules = "".join(_hiding(name) for name in (*papers(), *VERDICTS))
        cards = "".join(map(_card, rows))
        text = f'<style>{rules}</style><div class="claims">{boxes}{cards}</div>'
        return [nodes.raw("", text, format="html")]


def _badness(row: dict[str, Any]) -> tuple[int, float]:
    """Return what a claim is ordered by: its verdict, then its error."""
    error = row["error"] if isinstance(row["error"], int | float) else 0.0
    return VERDICTS.index(row["verdict"]), -abs(error)


def _boxes(what: str, names: Sequence[str]) -> str:
    """Return a checked box for each name."""
    boxes = [
        f'<label><input type="checkbox" id="show-{name}" checked> {name}</label>'
        for name in names
    ]
    return f"<fieldset><legend>{what}</legend>{''.join(boxes)}</fieldset>"


def _hiding(name: str) -> str:
    """Return the rule that hides the cards of a name whose box is not checked."""
    return f".claims:has(#show-{name}:not(:checked)) .of-{name} {{ display: none; }}"


def _card(row: dict[str, Any]) -> str:
    """Return a claim: what is stated and predicted, where, and why they part."""
    cell = {name: escape(str(value)) for name, value in row.items()}
    numbers = f"stated {cell['stated']}, predicted {cell['predicted']} {cell['unit']}"
    return (
        f'<section class="claim of-{row["paper"]} of-{row["verdict"]}">'
        f'<p class="head"><b>{cell["verdict"]}</b> <code>{cell["id"]}</code> '
        f"{cell['paper']}, {cell['where']}</p>"
        f'<p>{cell["claim"]}</p><p class="numbers">{numbers}</p>'
        f"<p>{cell['explanation']}</p></section>"
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive to Sphinx."""
    app.add_directive("every-claim", EveryClaim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
