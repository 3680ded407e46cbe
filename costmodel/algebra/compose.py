"""Compose spans: `serial`, `overlap`, `stream`, `either`, `pipeline`: the words of every system."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.overlap import Overlap, Stream
from nearkv.costmodel.algebra.span import Port, Real, Repeat, Serial, Span


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


FASTER = 2.0
"""Stands for whichever of two takes less."""


def either(choice: Real, first: Span, second: Span) -> Span:
    """The first span where the choice is 0, the second where it is 1, at 2 whichever takes less."""
    is_slower = np.greater(first.seconds, second.seconds)
    is_second = np.where(np.equal(choice, FASTER), is_slower, choice)[()]
    return Serial({"first": (1 - is_second) * first, "second": is_second * second})


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
