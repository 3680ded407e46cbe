"""What numbers lie between over a box of design points, computed as the numbers are."""

from __future__ import annotations

from nearkv.sweeps.evaluate.intervals import arithmetic, conditions, shapes
from nearkv.sweeps.evaluate.intervals.interval import (
    RULES,
    Interval,
    NoBoundError,
    Outcomes,
    interval_of,
)

__all__ = ["Interval", "NoBoundError", "Outcomes", "interval_of"]

RULES |= {**arithmetic.RULES, **conditions.RULES, **shapes.RULES}
