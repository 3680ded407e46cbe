"""Interpolate between two evaluations of a system: any value of a knob for the price of two.

And a share of a span, with the share in its amounts, so that a solver may choose it.
"""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Group, Leaf, Real, Repeat, Span, is_same


def blend(start: Span, end: Span, share: Real) -> Span:
    """Interpolate every amount between two trees of one shape.

    Systems whose amounts are affine in a knob need two evaluations for any value of it.

    Args:
        start, end: the tree at share 0 and at share 1; same parts, same rates.
        share: where between them [1].

    Raises:
        ValueError: the trees differ in more than their amounts.
    """
    match start, end:
        case Leaf(), Leaf():
            return _blend_leaves(start, end, share)
        case Repeat(), Repeat() if is_same(start.times, end.times):
            return Repeat(start.times, blend(start.span, end.span, share))
        case Group(), Group() if _shape(start) == _shape(end):
            ends = end.parts
            return type(start)(
                {name: blend(part, ends[name], share) for name, part in start.parts.items()}
            )
    raise ValueError("trees of different shapes")


def _shape(group: Group) -> tuple[type[Group], set[str]]:
    return type(group), set(group.parts)


def _blend_leaves(start: Leaf, end: Leaf, share: Real) -> Leaf:
    if start.amount is end.amount:
        return start
    same_resource = start.resource == end.resource
    if not (same_resource and is_same(start.rate, end.rate)):
        raise ValueError(f"leaf {start.resource!r} changes more than its amount")
    at_start = (1 - share) * start.amount
    at_end = share * end.amount
    return start.with_amount(at_start + at_end)


def scaled(span: Span, share: Real) -> Span:
    """A share of the work of a span, each amount times the share.

    `share * span` would repeat it instead, and how often a span runs must not change with a knob.

    Args:
        span: the work.
        share: of each amount [1].
    """
    match span:
        case Leaf():
            return span.with_amount(share * span.amount)
        case Repeat():
            return Repeat(span.times, scaled(span.span, share))
        case Group():
            return type(span)(
                {name: scaled(part, share) for name, part in span.parts.items()}
            )
    raise ValueError("no span of the algebra")
