"""The optimal mapping of design points that share the tables of qkv and fc, without LPDDR's limit.

What attention leaves of HBM decides how qkv and fc share it. All bytes of these two are multiples
of one number, so the rooms of all points, rounded down to multiples of it, are few: each is solved
once, and a look-up for every number of attention's units gives the optimum of a point.

Symbols: n heads on HBM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.head_tables import HeadTables
from nearkv.solvers.mapping.flat import Array, Chosen, fastest
from nearkv.solvers.mapping.minima import prefix_minimum
from nearkv.solvers.mapping.pairs import most_fc

Places = NDArray[np.intp]

_FEWEST = 8
"""Design points that must share tables before sharing pays."""
_TIED = 1e-12
"""Relative difference of two sums that may be rounding."""


def sharing(tables: HeadTables) -> list[Places]:
    """Design points whose tables of qkv and fc are the same, by group; none of few points each."""
    shapes = [tables.units.shape]
    for _, qkv, fc in (tables.seconds, tables.hbm):
        shapes.append(qkv.shape[:-1])
        shapes.append(fc.shape[:-1])
    shape = np.broadcast_shapes(*shapes)
    groups = math.prod(shape)
    labels = np.arange(groups)
    everywhere = np.broadcast_to(labels.reshape(shape), tables.points)
    label = everywhere.ravel()
    if groups * _FEWEST > len(label):
        return []
    order = np.argsort(label, kind="stable")
    return np.split(order, groups)


@dataclass(frozen=True)
class _Rooms:
    """What qkv and fc take in each of many rooms of HBM, the multiples of a number of bytes.

    Attributes:
        unit: the number [B].
        first: of the least room [1].
        qkv: seconds of each number of units of qkv [s].
        most: units of fc that a room holds beside each of them (rooms, units) [1].
        fc: seconds of the fastest of these (rooms, units) [s].
    """

    unit: float
    first: float
    qkv: Array
    most: Places
    fc: Array

    def beside(self, tables: HeadTables) -> Places:
        """The room that each number of units of attention leaves (units, points or 1)."""
        # units first, as the tables of a grid lie in memory
        room = tables.hbm_room - self.first * self.unit
        left = room - tables.hbm[0].T
        left /= self.unit
        return left.astype(np.intp)


def best_by_room(tables: HeadTables) -> Chosen:
    """Units for points with the same tables of qkv and fc, as if LPDDR held everything.

    Where there are more rooms than points, or many sums are equal, as if HBM did, too.
    """
    rooms = _rooms(tables)
    if rooms is None:
        return fastest(tables)
    attention, _, fc = tables.seconds
    attention = attention.T
    place = rooms.beside(tables)
    least = np.min(rooms.qkv + rooms.fc, axis=1)
    total = least.take(place, mode="clip") + attention
    limit = total.min(0) * (1 + _TIED)
    near = np.flatnonzero(total <= limit)
    points = total.shape[1]
    if len(near) > _FEWEST * points:
        return fastest(tables)
    n, point = np.divmod(near, points)
    by_point = point.argsort(kind="stable")
    n, point = n[by_point], point[by_point]
    # sums that rounding alone may part are compared in the order of every other sum
    room = _entries(place, n, point)
    room = np.clip(room, 0, len(least) - 1)
    beside = _entries(attention, n, point)
    pairs = beside[:, None] + rooms.qkv
    pairs += rooms.fc[room]
    n_qkv = pairs.argmin(1)
    lowest = pairs.min(1)
    first = _first_lowest(lowest, point)
    n_qkv = n_qkv[first]
    most = rooms.most[room[first], n_qkv]
    n_fc = _first_least(fc[0])
    return Chosen(n[first], n_qkv, n_fc[most])


def _rooms(tables: HeadTables) -> _Rooms | None:
    """The rooms that tables ask for; None where they are more than the questions."""
    on_attention, on_qkv, on_fc = tables.hbm
    sizes = np.concatenate([on_qkv[0], on_fc[0]])
    unit = _common_unit(sizes)
    if not unit:
        return None
    _, qkv, fc = tables.seconds
    least = np.min(tables.hbm_room - on_attention[:, -1])
    largest = np.max(tables.hbm_room - on_attention[:, 0])
    enough = on_qkv[0, -1] + on_fc[0, -1]
    ends = np.clip([least, largest], -unit, enough)
    first, last = np.floor(ends / unit)
    points = max(len(on_attention), len(tables.hbm_room))
    if last - first > points * on_attention.shape[1]:
        return None
    sizes = unit * np.arange(first, last + 1)
    kept = slice(0, 1 + qkv[0].argmin())  # beyond its fastest, qkv only takes more bytes
    nothing = np.zeros((1, 1))
    hbm = (nothing, on_qkv[:1, kept], on_fc[:1])
    units = tables.units[:1]
    most = most_fc(replace(tables, hbm=hbm, hbm_room=sizes, units=units))
    least_fc = prefix_minimum(fc[:1], most)
    return _Rooms(unit, first, qkv[0, kept], most[:, 0], least_fc[:, 0])


def _common_unit(sizes: Array) -> float:
    """The largest number that all sizes are multiples of; 0 where they are not whole [B]."""
    whole = np.rint(sizes).astype(np.int64)
    if np.any(whole != sizes):
        return 0.0
    return float(np.gcd.reduce(whole))


def _entries(table: Array, n: Places, point: Places) -> Array:
    """Entries of a table (units, points or 1)."""
    entries: Array = table[n, point if table.shape[1] > 1 else 0]
    return entries


def _first_lowest(values: Array, point: Places) -> Places:
    """The first place of the lowest value of each point; points in order, none left out."""
    points = np.arange(point[-1] + 1)
    starts = np.searchsorted(point, points)
    lowest = np.minimum.reduceat(values, starts)
    places = np.flatnonzero(values == lowest[point])
    first = np.searchsorted(point[places], points)
    return places[first]


def _first_least(table: Array) -> Places:
    """The first unit with the least entry, of 0..n for every n."""
    before = np.minimum.accumulate(table)
    lower = np.append(True, table[1:] < before[:-1])
    n = np.arange(len(table))
    n = np.where(lower, n, 0)
    return np.maximum.accumulate(n)
