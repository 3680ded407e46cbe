"""`nearkv estimate --explain`: where the time of one design point goes, span by span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nearkv.costmodel.algebra.span import Leaf, Repeat, Span
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.evaluate import Columns, columns
from nearkv.sweeps.evaluate.no_effect import warn_of_no_effect
from nearkv.sweeps.evaluate.requested import BOTTLENECK, on_request
from nearkv.sweeps.study.study import Block, Study, blocks

Rows = list[dict[str, object]]
ONE_STEP = "one decode step"
"""Name of the tree of a step that an answer of one token does not take."""


def one_point(study: Study, command: str = "estimate") -> Block:
    """The block of a study of one design point.

    Args:
        study: what to evaluate.
        command: that takes one design point only.

    Raises:
        InputError: the study cannot be evaluated, or is not one design point.
    """
    study_blocks = blocks(study)
    if len(study_blocks) != 1 or study_blocks[0].grid.size != 1:
        raise InputError(
            f"{command} takes one design point; use compare or sweep for lists"
        )
    warn_of_no_effect(study, study_blocks)
    return study_blocks[0]


def point_columns(block: Block, names: Sequence[str] = ()) -> Columns:
    """The columns of the one design point of a block.

    Args:
        block: of one design point.
        names: columns that are asked for; of those on request the point has these.
    """
    extra = (BOTTLENECK, *on_request(names))
    return columns(block, block.grid.whole, extra=extra)


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
