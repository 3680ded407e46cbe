"""Time trees of many design points at once: one list of spans a block, seconds for every row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Leaf, Real, Repeat, Span
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.study.study import Block

DIGITS = 4
"""Significant digits of the seconds in a report."""


@dataclass(frozen=True)
class Node:
    """One span of a time tree at every row of a block.

    Attributes:
        path: names from the total to this span, joined by slashes; blank for the total.
        kind: how its parts are composed (`serial`, `overlap`, ...), or `leaf`.
        resource: who works, of a leaf.
        equation: where the amount comes from, of a leaf.
        seconds: wall-clock time it takes by itself, of shape (rows,) [s].
    """

    path: str
    kind: str
    resource: str
    equation: str
    seconds: list[float]


def time_tree(block: Block) -> list[Node]:
    """Return the spans of a block's whole requests, parents before their parts.

    Spans that take no time at any row are left out; what does not fit takes none.
    """
    hw, llm, work, requested = block.inputs(block.grid.whole)
    estimate = resolve_knobs(block.system, hw, llm, work, requested).estimate
    fits = np.where(estimate.fits.ok, 1.0, 0.0)
    return list(_nodes("", estimate.total, fits, block.grid.shape))


def _nodes(path: str, span: Span, times: Real, shape: tuple[int, ...]) -> Iterator[Node]:
    """Yield a span and, below it, its parts; repetitions multiply the seconds of their span."""
    inner = span
    while isinstance(inner, Repeat):
        times = times * inner.times
        inner = inner.span
    seconds = np.broadcast_to(times * inner.seconds, shape).ravel()
    if path and not np.any(seconds):
        return
    rounded = [float(f"{value:.{DIGITS}g}") for value in seconds.tolist()]
    leaf = inner if isinstance(inner, Leaf) else None
    kind = type(inner).__name__.lower()
    yield Node(path, kind, leaf.resource if leaf else "", leaf.eq if leaf else "", rounded)
    for name, part in inner.parts.items():
        yield from _nodes(f"{path}/{name}" if path else name, part, times, shape)


def as_json(nodes: list[Node]) -> dict[str, Any]:
    """Return a tree as a page reads it: the spans once, the seconds by span and row."""
    spans = [[node.path, node.kind, node.resource, node.equation] for node in nodes]
    return {"spans": spans, "seconds": [node.seconds for node in nodes]}
