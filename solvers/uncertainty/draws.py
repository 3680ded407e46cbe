"""Draws of uncertain numbers: common ranks, and the law that turns a rank into a number.

A number has the same rank in every answer of a study, so that what two answers do not know in
common cancels in their ratio.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from nearkv.costmodel.algebra.span import Numbers

OUTER = 0.9
"""The share of measurements below the highest stated quantile; 0.1 lie below the lowest."""


@lru_cache(maxsize=8)
def ranks(names: tuple[str, ...], samples: int, seed: int) -> Mapping[str, Numbers]:
    """Ranks of some numbers, spread evenly over all of them at once (scrambled Sobol sequence).

    The scrambling depends on the names and the seed alone, so that the same question has the same
    draws in every process.

    Args:
        names: of the numbers, in any order.
        samples: how many draws [1].
        seed: another one gives other draws.

    Returns:
        Name -> ranks in (0, 1), one a draw [1].
    """
    from scipy.stats import qmc

    ordered = sorted(set(names))
    if not ordered:
        return {}
    digest = hashlib.sha256(json.dumps([ordered, seed]).encode()).digest()
    entropy = int.from_bytes(digest[:16], "big")
    sequence = qmc.Sobol(len(ordered), rng=np.random.default_rng(entropy))
    exponent = int(np.ceil(np.log2(samples)))
    drawn = sequence.random_base2(exponent)[:samples]
    inside = np.clip(drawn, 2.0**-32, 1 - 2.0**-32)
    columns = np.ascontiguousarray(inside.T)
    return dict(zip(ordered, columns, strict=True))


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

    def quantile(self, rank: Numbers) -> Numbers:
        """The number at each rank, in the unit of the range."""
        ends = np.array([self.low, self.value, self.high])
        low, value, high = np.log(ends) if self.is_log else ends
        below = low + 2 * rank * (value - low)
        above = value + (2 * rank - 1) * (high - value)
        drawn: Numbers = np.where(rank < 0.5, below, above)
        if self.is_log:
            drawn = np.clip(np.exp(drawn), self.low, self.high)
        return drawn


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

    def quantile(self, rank: Numbers) -> Numbers:
        """The number at each rank, in the unit of the quantiles."""
        deviation = ndtri(rank) / ndtri(OUTER)
        below = np.log(self.p50 / self.p10)
        above = np.log(self.p90 / self.p50)
        step = np.where(rank < 0.5, below, above)
        drawn: Numbers = self.p50 * np.exp(deviation * step)
        return np.minimum(drawn, self.most)


Law = Ranged | Measured


def listed(drawn: Numbers, values: Numbers) -> Numbers:
    """Round draws of a number that takes few values to the nearest of these values."""
    distance = np.abs(drawn[:, np.newaxis] - values)
    nearest: Numbers = values[np.argmin(distance, axis=1)]
    return nearest
