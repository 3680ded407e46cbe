"""Rows that a sweep keeps so far, and what others must beat to join them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.explore.ideals import Ideals

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Kept:
    """Rows that may be among the best.

    Attributes:
        rows: their numbers in the sweep.
        costs: what they are compared by, less is better.
        groups: what tells groups apart, a column each; none where there is one group.
    """

    rows: NDArray[np.int64]
    costs: Numbers
    groups: tuple[NDArray[np.generic], ...] = ()

    def take(self, chosen: NDArray[np.generic]) -> Kept:
        """Some of them, by index or by mask."""
        groups = tuple(group[chosen] for group in self.groups)
        return Kept(self.rows[chosen], self.costs[chosen], groups)

    def __add__(self, other: Kept) -> Kept:
        pairs = zip(self.groups, other.groups, strict=True)
        groups = tuple(np.concatenate(pair) for pair in pairs)
        rows = np.concatenate([self.rows, other.rows])
        costs = np.concatenate([self.costs, other.costs])
        return Kept(rows, costs, groups)


@dataclass(frozen=True)
class Limits:
    """The last row that is kept of each group; infinitely bad where there is room for more.

    Attributes:
        costs: what it is compared by, by number of the group.
        rows: its number.
    """

    costs: Numbers
    rows: Rows

    def beat(self, ideals: Ideals) -> Mask:
        """Boxes none of whose rows could be kept; of rows that compare equal the first stays."""
        is_limited = ideals.groups >= 0
        is_limited &= ideals.groups < len(self.costs)
        group = np.where(is_limited, ideals.groups, 0)
        least = ideals.costs[:, 0]
        limit = self.costs[group]
        is_later = ideals.rows > self.rows[group]
        is_beaten = least > limit
        is_beaten |= (least == limit) & is_later
        return is_limited & is_beaten
