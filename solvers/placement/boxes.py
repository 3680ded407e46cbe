"""Boxes of blocks, a block being a GPU batch and a number of them: what a search halves.

Symbols: gbs GPU batch, nb number of batches.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple


class Box(NamedTuple):
    """All blocks with a GPU batch and a number of batches in two ranges, ends included."""

    gbs_low: int
    gbs_high: int
    nb_low: int
    nb_high: int

    @property
    def single(self) -> bool:
        """Whether it holds one block only."""
        return self.gbs_low == self.gbs_high and self.nb_low == self.nb_high

    @property
    def sequences(self) -> int:
        """Sequences of its smallest block [1]."""
        return self.gbs_low * self.nb_low

    def halves(self, sequences: float) -> tuple[Box, Box]:
        """Cut the GPU batch, or the number of batches where that spans far more octaves.

        The GPU batch is cut halfway from its geometric middle to the smallest that makes a block
        of about so many sequences, the number of batches at the lower of the two: what a
        relaxation points to is cut off sooner.
        """
        gbs_middle = sqrt(self.gbs_low * self.gbs_high)
        nb_middle = sqrt(self.nb_low * self.nb_high)
        wider = self.gbs_high**2 * self.nb_low >= self.nb_high * self.gbs_low**2
        if wider and self.gbs_low < self.gbs_high:
            smallest = min(sequences / self.nb_high, self.gbs_high)
            middle = sqrt(max(smallest, self.gbs_low) * gbs_middle)
            cut = _between(middle, self.gbs_low, self.gbs_high)
            return self._replace(gbs_high=cut), self._replace(gbs_low=cut + 1)
        pointed = sequences / self.gbs_low
        cut = _between(min(pointed, nb_middle), self.nb_low, self.nb_high)
        return self._replace(nb_high=cut), self._replace(nb_low=cut + 1)

    def block(self, sequences: float) -> Box:
        """The block of its smallest GPU batch with about so many sequences."""
        nb = int(min(max(sequences / self.gbs_low, self.nb_low), self.nb_high))
        return Box(self.gbs_low, self.gbs_low, nb, nb)


def _between(place: float, low: int, high: int) -> int:
    """The last number of the lower part of a range that is cut about there; neither is empty."""
    return min(max(int(place), low), high - 1)


def single_block(gpu_batch: int, num_batches: int) -> Box:
    """The box of a single block."""
    return Box(gpu_batch, gpu_batch, num_batches, num_batches)
