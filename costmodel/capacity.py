"""What fits where: bytes needed and available, tier by tier; infeasible is an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.span import Real

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Fits:
    """Whether a design point fits its memories.

    Attributes:
        tiers: name of a memory -> (bytes needed, bytes available) [B].
    """

    tiers: Mapping[str, tuple[Real, Real]]

    @cached_property
    def ok(self) -> NDArray[np.bool_]:
        """True where every memory holds what it must."""
        held = (_holds(needed, available) for needed, available in self.tiers.values())
        return reduce(np.logical_and, held)

    @property
    def short_bytes(self) -> Real:
        """Bytes missing in the memory that is shortest; 0 where all fit [B]."""
        worst: Real = np.max(self._missing, axis=0)
        return worst

    @property
    def limiting(self) -> NDArray[np.intp]:
        """Place of the memory that misses most bytes, counted from 1; 0 where all fit."""
        return np.where(self.short_bytes > 0, np.argmax(self._missing, axis=0) + 1, 0)

    @property
    def limited_by(self) -> NDArray[np.str_]:
        """Name of the memory that misses most bytes; empty where all fit."""
        chosen: NDArray[np.str_] = np.array(["", *self.tiers])[self.limiting]
        return chosen

    @cached_property
    def _missing(self) -> NDArray[np.float64]:
        by_tier = [_missing_bytes(needed, available) for needed, available in self.tiers.values()]
        stacked = np.stack(np.broadcast_arrays(*by_tier))
        missing: NDArray[np.float64] = np.maximum(stacked, 0.0)
        return missing


def _holds(needed: Real, available: Real) -> NDArray[np.bool_]:
    """Whether it fits, rounding aside: a share solved for the last byte may miss it by that."""
    limit = np.multiply(available, 1 + _ROUNDING)
    return np.less_equal(needed, limit)


def _missing_bytes(needed: Real, available: Real) -> Real:
    """Bytes needed beyond those available; 0 where they fit [B]."""
    excess = np.subtract(needed, available)
    return np.where(_holds(needed, available), 0.0, excess)


def fits(**tiers: tuple[Real, Real]) -> Fits:
    """State what each memory must hold and can hold: `fits(gpu=(needed, available), ...)` [B]."""
    return Fits(tiers)


def reduced_batch(batch: Real, per_sequence: Real, available: Real) -> Real:
    """Batch that runs at once: all of it, or equal rounds of at most a power of two.

    HILOS sec. 6.3 reduces the batch to what fits; INF² and FlexGen take powers of two. 24 sequences
    of which 16 fit run as two rounds of 12.

    Args:
        batch: sequences requested [1].
        per_sequence: bytes one sequence needs [B].
        available: bytes free for sequences [B]; may be negative.

    Returns:
        Sequences served together, at least one; where not even one fits, `Fits` says what is
        short [1].
    """
    room = np.floor(np.divide(available, per_sequence))
    _, exponent = np.frexp(np.maximum(room, 1.0))
    power_of_two = np.exp2(exponent - 1.0)
    requested = np.maximum(batch, 1.0)
    largest = np.where(room >= requested, requested, np.minimum(power_of_two, requested))
    rounds = np.ceil(requested / largest)
    return (requested / rounds)[()]
