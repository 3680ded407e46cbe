"""Spans of a few named resources, as drawn examples and by hand."""

from __future__ import annotations

from hypothesis import strategies as st

from nearkv.costmodel.algebra.span import Leaf, Real, Span, overlap, serial

SOME = st.floats(0.01, 100)


def leaf(resource: str, seconds: Real) -> Leaf:
    return Leaf(resource, "run", seconds, 1.0, "op")


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Span:
    if depth == 0 or draw(st.booleans()):
        return leaf(draw(st.sampled_from("abcd")), draw(SOME))
    parts = {f"p{i}": draw(trees(depth=depth - 1)) for i in range(draw(st.integers(1, 3)))}
    grown = (overlap if draw(st.booleans()) else serial)(**parts)
    return draw(st.sampled_from([1.0, 3.0])) * grown
