"""Exact LRU at every capacity in one pass, by stack distances."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Integers, Numbers
from nearkv.costmodel.mechanisms.reuse.curve import previous_access


def stack_distances(blocks: Integers) -> Numbers:
    """Distinct blocks from the access before to each access, itself included; infinite at a first.

    An LRU cache of C blocks hits where this is at most C (Mattson et al. 1970). Of the blocks
    between two accesses i < j to one block, those count whose own access before lies at i or
    earlier: the first of each in the window. Their number is that of earlier entries of
    `previous_access` that are less, without those up to i, which all are.

    Args:
        blocks: accessed blocks in order: (accesses,).
    """
    previous = previous_access(blocks)
    distances = (smaller_before(previous) - previous).astype(float)
    return np.where(previous >= 0, distances, np.inf)


def smaller_before(values: Integers) -> Integers:
    """Earlier values that are less than each, counted by merging sorted runs: (values,)."""
    total = len(values)
    counted = np.zeros(total, np.int64)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    # of equal values the later one has the greater rank, and does not count the earlier
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    lowest = (np.cumsum(counts) - counts)[inverse]
    places = np.arange(total)
    width = 1
    while width < total:
        run = places // width
        is_right = run % 2 == 1
        left = np.sort(ranks[~is_right] + run[~is_right] * total)
        wanted = lowest[is_right] + (run[is_right] - 1) * total
        starts = np.searchsorted(left, (run[is_right] - 1) * total)
        counted[is_right] += np.searchsorted(left, wanted) - starts
        width *= 2
    return counted
