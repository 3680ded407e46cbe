"""`nearkv estimate --explain`: where the time of one design point goes, span by span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from nearkv.costmodel.algebra.span import Leaf, Repeat, Span
from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.study import Block

Rows = list[dict[str, object]]
ONE_STEP = "one decode step"
"""Name of the tree of a step that an answer of one token does not take."""


def time_tree(block: Block) -> Rows:
    """The time tree of the one design point of a block, parents before their parts.

    Returns:
        A row per span: `span` (a path), `word` (how its parts are composed), `seconds` it takes by
        itself, `share` of the wall-clock time attributed to it, and of a leaf its `amount`, `unit`,
        `resource` and `equation`. Spans that take no time are left out; an answer of one token,
        which prefill makes, is followed by the tree of one decode step, its shares those of the
        step.
    """
    check_has_tree(block.method)
    estimate = block.resolved(block.grid.whole).estimate
    rows = _tree("", estimate.total)
    if not _scalar(estimate.total.parts["decode"].seconds):
        rows += _tree(ONE_STEP, estimate.step)
    return rows


def check_has_tree(method: str) -> None:
    """Refuse to explain by averages what is simulated event by event.

    Raises:
        InputError: it is.
    """
    if method == "simulate":
        raise InputError(
            "a simulated queue has no time tree, nor time per resource; explain --method fluid"
        )


def _tree(path: str, span: Span) -> Rows:
    """Rows of a span and its parts; shares are of its own seconds."""
    seconds = _scalar(span.seconds)
    shares = {}
    for leaf, part in span.breakdown().items():
        inner = f"{path}/{leaf}" if path else leaf
        shares[inner] = _scalar(part) / seconds if seconds else 0.0
    return list(_rows(path, span, 1.0, shares))


def _rows(
    path: str,
    span: Span,
    times: float,
    shares: Mapping[str, float],
) -> Iterator[dict[str, object]]:
    """Rows of a span that runs `times` times, and of its parts."""
    while isinstance(span, Repeat):
        times *= _scalar(span.times)
        span = span.span
    seconds = times * _scalar(span.seconds)
    if not seconds:
        return
    inside = (share for leaf, share in shares.items() if _is_within(leaf, path))
    yield {
        "span": path or "total",
        "word": type(span).__name__.lower(),
        "seconds": seconds,
        "share": sum(inside),
        **_leaf_columns(span, times),
    }
    for name, part in span.parts.items():
        inner = f"{path}/{name}" if path else name
        yield from _rows(inner, part, times, shares)


def _leaf_columns(span: Span, times: float) -> dict[str, object]:
    """What a leaf moves or computes, and by which equation; blank of a composed span."""
    if not isinstance(span, Leaf):
        return {"amount": None, "unit": "", "resource": "", "equation": ""}
    return {
        "amount": times * _scalar(span.amount),
        "unit": span.unit,
        "resource": span.resource,
        "equation": span.eq,
    }


def _is_within(leaf_path: str, path: str) -> bool:
    return not path or leaf_path == path or leaf_path.startswith(f"{path}/")


def _scalar(value: object) -> float:
    return float(np.asarray(value).ravel()[0])
