"""On which side of which value of a hardware number the targets are reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nearkv.solvers.search import Crossing
from nearkv.sweeps.explore.lines import Line


@dataclass(frozen=True)
class Verdict:
    """On which side of which value the targets are reached.

    Attributes:
        limit: `at least`, `at most`, `from`, `any` or `never`.
        value: the value in SI.
        bound: the nearest value known to miss the targets; none for `any` and `never`.
        up_to: where the targets are lost again, if they are.
    """

    limit: str
    value: float
    bound: float | None = None
    up_to: float | None = None


def verdict_of(reached: bool, own: Sequence[Crossing], line_: Line) -> Verdict:
    """What crossings of the targets say.

    Args:
        reached: whether they are at the first value.
        own: where that changes, in order.
        line_: values that were looked at.
    """
    if not own:
        limit = "any" if reached else "never"
        return Verdict(limit, float(line_.values[0] if reached else line_.values[-1]))
    first = own[0]
    if reached:
        return Verdict("at most", first.below, first.above)
    if len(own) == 1:
        return Verdict("at least", first.above, first.below)
    return Verdict("from", first.above, first.below, own[1].below)
