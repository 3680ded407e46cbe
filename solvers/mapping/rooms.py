"""The optimal mapping of design points that share the tables of qkv and fc, without LPDDR's limit.

What attention leaves of HBM decides how qkv and fc share it. All bytes of these two are multiples
of one number, so the rooms of all points, rounded down to multiples of it, are few: each is solved
once, and a look-up for every number of attention's units gives the optimum of a point.

Symbols: n heads on HBM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.flat import Array, Chosen, fastest

Places = NDArray[np.intp]

_FEWEST = 8
"""Design points that must share tables before sharing pays."""
_TIED = 1e-12
"""Relative difference of two sums that may be rounding."""


def sharing(tables: HeadTables) -> Places:
    """Design points whose tables of qkv and fc are the same (groups, points of each).

    No groups where they are of few points each.
    """
    shapes = [tables.units.shape]
    for _, qkv, fc in (tables.seconds, tables.hbm):
        shapes.append(qkv.shape[:-1])
        shapes.append(fc.shape[:-1])
    shape = np.broadcast_shapes(*shapes)
    groups = math.prod(shape)
    count = math.prod(tables.points)
    if groups * _FEWEST > count:
        return np.empty((0, count), np.intp)
    labels = np.arange(groups).reshape(shape)
    label = np.broadcast_to(labels, tables.points)
    order = np.argsort(label, axis=None, kind="stable")
    return order.reshape(groups, -1)


@dataclass(frozen=True)
class _Rooms:
    """Rooms of HBM in order: -1, 0, 1, 2, ... times a number of bytes.

    Attributes:
        unit: the number [B].
        first: place of the least room that attention leaves.
        qkv: how many of these bytes each number of units of qkv takes [1].
        n_fc: units of fc at its fastest in each room [1].
        fc: their seconds, infinite in the room that is less than none [s].
    """

    unit: float
    first: int
    qkv: Places
    n_fc: Places
    fc: Array

    def beside_attention(self, tables: HeadTables) -> Places:
        """Place of the room that each number of units of attention leaves (units, points or 1)."""
        # units first, as the tables of a grid lie in memory
        left = (tables.hbm_room + self.unit) - tables.hbm[0].T
        left /= self.unit
        return left.astype(np.intp)

    def seconds_of_fc(self) -> Array:
        """Of the rooms that attention leaves, beside each number of units of qkv [s]."""
        places = np.arange(self.first, len(self.fc))
        left = places[:, None] - self.qkv
        return self.fc.take(left, mode="clip")


def best_by_room(tables: HeadTables) -> Chosen:
    """Units for points with the same tables of qkv and fc, as if LPDDR held everything.

    Where there are more rooms than points, or many sums are equal, as if HBM did, too.
    """
    rooms = _rooms(tables)
    if rooms is None:
        return fastest(tables)
    attention, qkv, _ = tables.seconds
    attention = attention.T
    qkv = qkv[0, : len(rooms.qkv)]
    both = qkv + rooms.seconds_of_fc()
    unused = np.full(rooms.first, np.inf)
    least = np.append(unused, both.min(1))
    place = rooms.beside_attention(tables)
    total = least.take(place, mode="clip") + attention
    limit = total.min(0) * (1 + _TIED)
    near = np.flatnonzero(total <= limit)
    points = total.shape[1]
    if len(near) > _FEWEST * points:
        return fastest(tables)
    n, point = np.divmod(near, points)
    place = _entries(place, n, point)
    beside = _entries(attention, n, point)
    total = both.take(place - rooms.first, axis=0, mode="clip")
    total += beside[:, None]
    near = np.flatnonzero(total <= limit[point, None])
    pair, n_qkv = np.divmod(near, len(qkv))
    # sums that rounding alone may part are compared in the order of every other sum
    pairs = beside[pair] + qkv[n_qkv]
    left = place[pair] - rooms.qkv[n_qkv]
    total = pairs + rooms.fc.take(left, mode="clip")
    best = _first_lowest(total, point[pair], points)
    n_fc = rooms.n_fc.take(left[best], mode="clip")
    return Chosen(n[pair[best]], n_qkv[best], n_fc)


def _rooms(tables: HeadTables) -> _Rooms | None:
    """The rooms that tables ask for; None where they are more than the questions."""
    on_attention, on_qkv, on_fc = tables.hbm
    on_qkv, on_fc = on_qkv[0], on_fc[0]
    sizes = np.concatenate([on_qkv, on_fc])
    unit = _common_unit(sizes)
    if not unit:
        return None
    enough = on_qkv[-1] + on_fc[-1]

    def place(room: float) -> int:
        multiple = min(max(room, -unit), enough) // unit
        return int(multiple) + 1

    first = place(np.min(tables.hbm_room - on_attention[:, -1]))
    last = place(np.max(tables.hbm_room - on_attention[:, 0]))
    points = max(len(on_attention), len(tables.hbm_room))
    if last > points * on_attention.shape[1]:
        return None
    _, qkv, fc = tables.seconds
    kept = slice(0, 1 + qkv[0].argmin())  # beyond its fastest, qkv only takes more bytes
    taken = on_qkv[kept] / unit
    rooms = unit * np.arange(-1, last)
    most = np.searchsorted(on_fc, rooms, side="right") - 1
    n_fc = _first_least(fc[0])[most]
    seconds = fc[0, n_fc]
    seconds[0] = np.inf
    return _Rooms(unit, first, taken.astype(np.intp), n_fc, seconds)


def _common_unit(sizes: Array) -> float:
    """The largest number that all sizes are multiples of; 0 where they are not whole [B]."""
    whole = sizes.astype(np.int64)
    if np.any(whole != sizes):
        return 0.0
    return float(np.gcd.reduce(whole))


def _entries(table: Array, n: Places, point: Places) -> Array:
    """Entries of a table (units, points or 1)."""
    entries: Array = table[n, point if table.shape[1] > 1 else 0]
    return entries


def _first_lowest(values: Array, point: Places, points: int) -> Places:
    """The first place of the lowest value of each point, none of which is left out."""
    lowest = np.full(points, np.inf)
    np.minimum.at(lowest, point, values)
    backwards = np.flatnonzero(values == lowest[point])[::-1]
    first = np.empty(points, np.intp)
    # of places of the same point the last one is kept
    first[point[backwards]] = backwards
    return first


def _first_least(table: Array) -> Places:
    """The first unit with the least entry, of 0..n for every n."""
    before = np.minimum.accumulate(table)
    n = np.arange(len(table))
    n[1:] *= table[1:] < before[:-1]
    return np.maximum.accumulate(n)
