"""The words that systems are written in: `serial`, `overlap`, `stream` and `pipeline` compose spans of spans."""

from __future__ import annotations

from nearkv.costmodel.span import Overlap, Port, Real, Repeat, Serial, Span, Stream


def serial(**parts: Span) -> Span:
    """One after the other: seconds = sum of the parts' [s]."""
    return Serial(parts)


def overlap(**parts: Span) -> Span:
    """At the same time: seconds = the longest part's, or the longest queue for a shared resource [s]."""
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
    return Stream({name: port(amount, eq) for name, port in ports.items()})


def pipeline(items: Real, **stages: Span) -> Span:
    """Send items through stages: fill with the first, then one item every slowest stage.

    Args:
        items: how many items [1], at least one.
        stages: the span of one item in each stage.

    Returns:
        seconds = sum of the stages + (items - 1) x overlap of the stages [s].
    """
    return Serial({"first": Serial(stages), "steady": Repeat(items - 1, Overlap(stages))})
