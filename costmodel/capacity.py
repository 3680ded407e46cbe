"""What fits where: bytes needed and bytes there, tier by tier; infeasible is an answer."""

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
        tiers: name of a memory -> (bytes needed, bytes there) [B].
    """

    tiers: Mapping[str, tuple[Real, Real]]

    @cached_property
    def ok(self) -> NDArray[np.bool_]:
        """True where every memory holds what it must."""
        return reduce(np.logical_and, (_holds(need, there) for need, there in self.tiers.values()))

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
        missing = np.broadcast_arrays(
            *(_beyond(need, there) for need, there in self.tiers.values())
        )
        short: NDArray[np.float64] = np.maximum(np.stack(missing), 0.0)
        return short


def _holds(need: Real, there: Real) -> NDArray[np.bool_]:
    """Whether it fits; a share solved for the last byte may miss it by rounding, which counts as fitting."""
    return np.less_equal(need, np.multiply(there, 1 + _ROUNDING))


def _beyond(need: Real, there: Real) -> Real:
    """Bytes too many [B]."""
    return np.where(_holds(need, there), 0.0, np.subtract(need, there))


def fits(**tiers: tuple[Real, Real]) -> Fits:
    """State what each memory must hold and what it can: `fits(gpu=(need, there), ...)` [B]."""
    return Fits(tiers)


def reduced_batch(batch: Real, per_sequence: Real, there: Real) -> Real:
    """Batch that runs at once: all of it where it fits, else equal rounds, none above the largest power of two.

    HILOS sec. 6.3 reduces the batch to what fits; INF² and FlexGen take powers of two. 24 sequences
    of which 16 fit run as two rounds of 12.

    Args:
        batch: sequences asked for [1].
        per_sequence: bytes one sequence needs [B].
        there: bytes free for sequences [B]; may be negative.

    Returns:
        Sequences served together, at least one; where not even one fits, `Fits` says what is short [1].
    """
    room = np.floor(np.divide(there, per_sequence))
    _, exponent = np.frexp(np.maximum(room, 1.0))
    asked = np.maximum(batch, 1.0)
    most = np.where(room >= asked, asked, np.minimum(np.exp2(exponent - 1.0), asked))
    return (asked / np.ceil(asked / most))[()]
