"""Of mappings that take equally long, one: a design point is mapped alike alone and in a grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.flat import Array, Chosen, at, some_points

_EQUAL = 1 + 1e-12
"""Seconds that differ by less are equal but for rounding."""


def settled(flat: HeadTables, chosen: Chosen) -> Chosen:
    """The fewest units on HBM, sub-layer by sub-layer, that take as long and fit LPDDR.

    Args:
        flat: tables of design points along one axis.
        chosen: an optimum of each.
    """
    units = [chosen.attention, chosen.qkv, chosen.fc]
    for which in range(len(units)):
        seconds = flat.seconds[which]
        on_lpddr = flat.lpddr[which]
        n = units[which]
        rows = _tied(seconds, n)
        if not len(rows):
            continue
        held = Chosen(*units).sum_of(flat.lpddr)
        others = held - at(on_lpddr, n)
        spare = np.broadcast_to(flat.lpddr_room - others, n.shape)
        tied = some_points(flat, rows, len(n))
        own_seconds = tied.seconds[which]
        left = tied.lpddr[which]
        fewest = n.copy()
        fewest[rows] = _fewest(own_seconds, left, n[rows], spare[rows])
        units[which] = fewest
    return Chosen(*units)


def _tied(seconds: Array, n: Array) -> NDArray[np.intp]:
    """The points at which one unit less takes as long."""
    less = np.maximum(n - 1, 0)
    equal = at(seconds, n) * _EQUAL
    is_tied = at(seconds, less) <= equal
    return np.flatnonzero(is_tied & (n > 0))


def _fewest(seconds: Array, on_lpddr: Array, n: Array, spare: Array) -> Array:
    """Fewer units that take as long as n and leave no more on LPDDR than is spare, if any."""
    points, counts = len(n), seconds.shape[1]
    rows = np.broadcast_to(seconds, (points, counts))
    equal = rows[np.arange(points), n] * _EQUAL
    possible = rows <= equal[:, None]
    possible &= on_lpddr <= spare[:, None]
    possible &= np.arange(counts) <= n[:, None]
    first = possible.argmax(1)
    return np.where(possible.any(1), first, n)
