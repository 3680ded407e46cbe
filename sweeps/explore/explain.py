"""`nearkv estimate --explain`: where the time of one design point goes, span by span."""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Leaf, Span, join
from nearkv.costmodel.model.estimate import Estimate
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.tables.table import Rows

ONE_STEP = "one decode step"
"""Name of the tree of a step that an answer of one token does not take."""


def time_tree(estimate: Estimate) -> Rows:
    """The time tree of one design point, parents before their parts.

    Args:
        estimate: what its system answered.

    Returns:
        A row per span that takes time:

        - `span`: its path; `word`: how its parts are composed;
        - `seconds`: of the span by itself;
        - `share`: of the wall-clock time attributed to it;
        - `amount`, `unit`, `resource`, `equation`: of a leaf.

        An answer of one token, which prefill makes, is followed by the tree of one decode step, its
        shares those of the step.
    """
    rows = _tree("", estimate.total)
    if not scalar(estimate.total.parts["decode"].seconds):
        rows += _tree(ONE_STEP, estimate.step)
    return rows


def _tree(path: str, span: Span) -> Rows:
    """Rows of a span and its parts; shares are of its own seconds."""
    whole = scalar(span.seconds)
    attributed = {join(path, leaf): scalar(part) for leaf, part in span.breakdown().items()}
    rows: Rows = []
    for place, part, times in span.walk(path):
        runs = scalar(times)
        seconds = runs * scalar(part.seconds)
        if not seconds:
            continue
        below = f"{place}/" if place else ""
        inside = [
            share / whole
            for leaf, share in attributed.items()
            if leaf == place or leaf.startswith(below)
        ]
        row = {
            "span": place or "total",
            "word": type(part).__name__.lower(),
            "seconds": seconds,
            "share": sum(inside),
            "amount": None,
            "unit": "",
            "resource": "",
            "equation": "",
        }
        if isinstance(part, Leaf):
            row["amount"] = runs * scalar(part.amount)
            row["unit"] = part.unit
            row["resource"] = part.resource
            row["equation"] = part.eq
        rows.append(row)
    return rows
