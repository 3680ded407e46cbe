"""Interpolate between two evaluations of a system: any value of a knob for the price of two."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.span import Group, Leaf, Real, Repeat, Span


def blend(start: Span, end: Span, share: Real) -> Span:
    """Interpolate every amount between two trees of one shape.

    Systems whose amounts are affine in a knob need two evaluations for any value of it.

    Args:
        start, end: the tree at share 0 and at share 1; same parts, same rates.
        share: where between them [1].

    Raises:
        ValueError: the trees differ in more than their amounts.
    """
    if type(start) is not type(end):
        raise ValueError(f"cannot blend {type(start).__name__} with {type(end).__name__}")
    if isinstance(start, Leaf) and isinstance(end, Leaf):
        return _blend_leaves(start, end, share)
    if isinstance(start, Repeat) and isinstance(end, Repeat):
        if not np.array_equal(start.times, end.times):
            raise ValueError("the number of repetitions changes with the knob")
        return Repeat(start.times, blend(start.span, end.span, share))
    if start.parts.keys() != end.parts.keys():
        raise ValueError(f"parts differ: {sorted(start.parts)} and {sorted(end.parts)}")
    parts: dict[str, Span] = {}
    for name, part in start.parts.items():
        parts[name] = blend(part, end.parts[name], share)
    return type(start)(parts) if isinstance(start, Group) else start


def _blend_leaves(start: Leaf, end: Leaf, share: Real) -> Leaf:
    if start is end or start.amount is end.amount:
        return start
    same_rate = np.array_equal(start.rate, end.rate)
    if start.resource != end.resource or not same_rate:
        raise ValueError(f"leaf {start.resource!r} changes more than its amount")
    amount = (1 - share) * start.amount + share * end.amount
    return Leaf(start.resource, start.verb, amount, start.rate, start.unit, start.eq)
