"""Compose spans: `serial`, `overlap`, `stream`, `faster`, `pipeline`: the words of every system."""

from __future__ import annotations

from functools import reduce

import numpy as np

from nearkv.costmodel.algebra.overlap import Overlap, Stream
from nearkv.costmodel.algebra.span import Mask, Port, Real, Repeat, Serial, Span


def serial(**parts: Span) -> Span:
    """One after the other: seconds = sum of the parts' [s]."""
    return Serial(parts)


def overlap(**parts: Span) -> Span:
    """At the same time: seconds = the longest part or queue for a shared resource [s]."""
    return Overlap(parts)


def stream(amount: Real, eq: str = "", **ports: Port) -> Span:
    """Send bytes through a chain of ports at once: what leaves the first arrives at the last.

    Args:
        amount: bytes that pass every port [B].
        eq: the equation the amount comes from.
        ports: the resources on the way.

    Returns:
        seconds = those of the slowest port [s].
    """
    leaves = {name: port(amount, eq) for name, port in ports.items()}
    return Stream(leaves)


def faster(**parts: Span) -> Span:
    """Whichever part takes the fewest seconds, at every design point; the first of equals [s]."""
    least = reduce(np.minimum, [part.seconds for part in parts.values()])
    undecided: Mask = np.ones(np.shape(least), bool)
    chosen: dict[str, Span] = {}
    for name, part in parts.items():
        taken = undecided & np.equal(part.seconds, least)
        undecided = undecided & ~taken
        chosen[name] = np.where(taken, 1.0, 0.0)[()] * part
    return Serial(chosen)


def pipeline(items: Real, **stages: Span) -> Span:
    """Send items through stages: fill with the first, then one item every slowest stage.

    Args:
        items: how many items [1], at least one.
        stages: the span of one item in each stage.

    Returns:
        seconds = sum of the stages + (items - 1) x overlap of the stages [s].
    """
    fill = Serial(stages)
    steady = Repeat(items - 1, Overlap(stages))
    return Serial({"first": fill, "steady": steady})
