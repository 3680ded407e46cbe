"""How a number is distributed: drawn from a rank between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Numbers = NDArray[np.float64]
OUTER = 0.9
"""The share of measurements below the highest stated quantile; 0.1 lie below the lowest."""


@dataclass(frozen=True)
class Ranged:
    """Uniform on either side of the stated value, which half of the draws do not exceed.

    The stated value is the best guess, wherever it lies in its range: the median of a prediction
    is then the prediction at the stated values, where it is monotone in the number.

    Attributes:
        low, value, high: the range, and the stated value inside.
        is_log: whether logarithms are uniform: of times, rates and sizes, which err by factors.
    """

    low: float
    value: float
    high: float
    is_log: bool = False

    @property
    def extremes(self) -> tuple[float, float]:
        """Ranks of the ends of the range."""
        return 0.0, 1.0

    def at(self, rank: Numbers) -> Numbers:
        """The number at each rank, in the unit of the range."""
        if not self.is_log:
            return _between(rank, self.low, self.value, self.high)
        low, value, high = np.log([self.low, self.value, self.high])
        drawn: Numbers = np.exp(_between(rank, low, value, high))
        return np.clip(drawn, self.low, self.high)


def _between(rank: Numbers, low: float, value: float, high: float) -> Numbers:
    below = low + 2 * rank * (value - low)
    above = value + (2 * rank - 1) * (high - value)
    return np.where(rank < 0.5, below, above)


@dataclass(frozen=True)
class Measured:
    """Log-normal on either side of the median of repeated measurements.

    Attributes:
        p10, p50, p90: quantiles of the measurements.
        most: what the number cannot exceed, as a share cannot exceed 1.
    """

    p10: float
    p50: float
    p90: float
    most: float = np.inf

    @property
    def extremes(self) -> tuple[float, float]:
        """Ranks beyond which nothing is expected: the law has no ends."""
        return 0.001, 0.999

    def at(self, rank: Numbers) -> Numbers:
        """The number at each rank, in the unit of the quantiles."""
        deviation = ndtri(rank) / ndtri(OUTER)
        step = np.where(
            rank < 0.5, np.log(self.p50 / self.p10), np.log(self.p90 / self.p50)
        )
        drawn: Numbers = self.p50 * np.exp(deviation * step)
        return np.minimum(drawn, self.most)


Law = Ranged | Measured


def listed(drawn: Numbers, values: Numbers) -> Numbers:
    """The nearest of some values to each draw: of a number that takes no others."""
    distance = np.abs(drawn[:, np.newaxis] - values)
    nearest: Numbers = values[np.argmin(distance, axis=1)]
    return nearest
