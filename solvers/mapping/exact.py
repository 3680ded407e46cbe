"""Which heads go to HBM: the paper's greedy, the exact optimum, and brute force (H2M2 sec. 3, 4.3).

The step is a sum of three tables, one a sub-layer, under two capacities. For every pair
(n_attention, n_qkv) the capacities leave an interval of n_fc, whose best value is a prefix minimum
of fc's table, or a range minimum once LPDDR's capacity cuts the interval from below. So N^2
look-ups find the optimum over N^3.

Symbols: n heads on HBM, N heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.head_tables import HeadTables
from nearkv.costmodel.span import Real
from nearkv.solvers.mapping.flat import Array, flatten, some_points
from nearkv.solvers.mapping.minima import prefix_minimum, range_minimum

Units = NDArray[np.int64]

_PAIRS_AT_ONCE = 1 << 17
"""Entries of one temporary; 1 MiB of float64, which a core's cache holds."""


@dataclass(frozen=True)
class Mapping:
    """Units on HBM, design point by design point.

    Attributes:
        attention, qkv, fc: units of each sub-layer on HBM [1].
        seconds: of one step [s].
        ok: whether both memories hold what they must; if not, the mapping is the best one that HBM
            holds, and LPDDR is short.
    """

    attention: Real
    qkv: Real
    fc: Real
    seconds: Real
    ok: Any

    @property
    def units(self) -> tuple[Real, Real, Real]:
        """Attention, qkv, fc [1]."""
        return self.attention, self.qkv, self.fc


@dataclass(frozen=True)
class _Chosen:
    """Units of each sub-layer on HBM, along one axis of design points."""

    attention: Array
    qkv: Array
    fc: Array

    def each(self, change: Callable[[Array], Array]) -> _Chosen:
        """Apply a change to all three."""
        return _Chosen(change(self.attention), change(self.qkv), change(self.fc))

    def sum_of(self, tables: tuple[Array, Array, Array]) -> Any:
        """Sum of three tables at these units; one row of a table serves all points."""
        attention, qkv, fc = tables
        sum_of_two = _at(attention, self.attention) + _at(qkv, self.qkv)
        return sum_of_two + _at(fc, self.fc)


def bytes_used(tables: HeadTables, mapping: Mapping) -> tuple[Real, Real]:
    """Bytes on HBM and on LPDDR of a mapping [B]."""
    flat = flatten(tables)
    chosen = _flat_units(tables, *mapping.units)
    hbm = chosen.sum_of(flat.hbm)
    lpddr = chosen.sum_of(flat.lpddr)
    points = tables.points
    return hbm.reshape(points)[()], lpddr.reshape(points)[()]


def evaluate(tables: HeadTables, attention: Any, qkv: Any, fc: Any) -> Mapping:
    """Seconds and feasibility of given units on HBM [1]."""
    chosen = _flat_units(tables, attention, qkv, fc)
    return _answer(tables.points, flatten(tables), chosen)


def _flat_units(tables: HeadTables, attention: Any, qkv: Any, fc: Any) -> _Chosen:
    def flat(units: Any) -> Array:
        everywhere = np.broadcast_to(units, tables.points)
        return everywhere.ravel().astype(int)

    return _Chosen(attention, qkv, fc).each(flat)


def _answer(points: tuple[int, ...], flat: HeadTables, chosen: _Chosen) -> Mapping:
    """The mapping of some units, in the shape of the design points."""
    on_hbm = chosen.sum_of(flat.hbm) <= flat.hbm_room
    on_lpddr = chosen.sum_of(flat.lpddr) <= flat.lpddr_room
    seconds = chosen.sum_of(flat.seconds)

    def shaped(values: Array) -> Any:
        return np.reshape(values, points)[()]

    units = chosen.each(lambda n: shaped(n.astype(float)))
    return Mapping(
        attention=units.attention,
        qkv=units.qkv,
        fc=units.fc,
        seconds=shaped(seconds),
        ok=shaped(on_hbm & on_lpddr),
    )


def _at(table: Array, n: Array) -> Any:
    """Entries of a table (points, units), one a point."""
    if len(table) == 1:
        return table[0][n]
    point = np.arange(len(table))
    return table[point, n if len(n) > 1 else n[0]]


def greedy(tables: HeadTables) -> Mapping:
    """Algorithm 1: attention, then qkv-linear, then fc, each at its fastest that still fits.

    Where nothing fits both memories, as many units as HBM holds.
    """
    flat = flatten(tables)
    hbm, lpddr = flat.hbm_room, flat.lpddr_room
    chosen: list[Array] = []
    for seconds, on_hbm, on_lpddr in zip(flat.seconds, flat.hbm, flat.lpddr, strict=True):
        fits_hbm = on_hbm <= hbm[:, None]
        fits_lpddr = on_lpddr <= lpddr[:, None]
        allowed = np.where(fits_hbm & fits_lpddr, seconds, np.inf)
        n = allowed.argmin(1)
        stuck = np.isinf(_at(allowed, n))
        if stuck.any():
            possible = fits_hbm & np.isfinite(seconds)
            units = np.arange(seconds.shape[1])
            most = np.where(possible, units, 0).max(1)
            n = np.where(stuck, most, n)
        hbm = hbm - _at(on_hbm, n)
        lpddr = lpddr - _at(on_lpddr, n)
        chosen.append(n)
    everywhere = [np.broadcast_to(n, hbm.shape) for n in chosen]
    return _answer(tables.points, flat, _Chosen(*everywhere))


def exact(tables: HeadTables) -> Mapping:
    """The fastest mapping that fits both memories, in O(N^2) a design point.

    Where nothing fits both, the fastest that HBM holds.
    """
    flat = flatten(tables)
    count = math.prod(tables.points)
    if count == 1:
        return _answer(tables.points, flat, _exact_flat(flat))
    chosen = _spread(_fastest(flat), count)
    on_hbm = chosen.sum_of(flat.hbm) <= flat.hbm_room
    on_lpddr = chosen.sum_of(flat.lpddr) <= flat.lpddr_room
    fits = np.broadcast_to(on_hbm & on_lpddr, (count,))
    bound = np.flatnonzero(~fits)
    if len(bound):
        chosen = chosen.each(np.array)
        attention, qkv, _ = flat.seconds
        pairs = attention.shape[1] * qkv.shape[1]
        step = max(_PAIRS_AT_ONCE // pairs, 1)
        for start in range(0, len(bound), step):
            rows = bound[start : start + step]
            piece = _exact_flat(some_points(flat, rows, count))
            chosen.attention[rows] = piece.attention
            chosen.qkv[rows] = piece.qkv
            chosen.fc[rows] = piece.fc
    return _answer(tables.points, flat, chosen)


def _fastest(tables: HeadTables) -> _Chosen:
    """Units of each sub-layer at its fastest; the optimum where memories hold them."""
    attention, qkv, fc = (seconds.argmin(1) for seconds in tables.seconds)
    return _Chosen(attention, qkv, fc)


def _spread(chosen: _Chosen, count: int) -> _Chosen:
    """The same units for every point, where no table depends on them."""

    def spread(n: Array) -> Array:
        return n if len(n) == count else np.broadcast_to(n, (count,))

    return chosen.each(spread)


def _exact_flat(tables: HeadTables) -> _Chosen:
    """Units for tables of one axis of design points."""
    low = _least_fc(tables)
    if low is None:
        tables = _undominated(tables)
    attention, qkv, fc = tables.seconds
    pairs = attention[:, :, None] + qkv[:, None, :]
    top = _most_fc(tables)
    if low is None:
        total = prefix_minimum(fc, top)
        total += pairs
    else:
        total = pairs + range_minimum(fc, low, top)
        # where nothing fits both, HBM's capacity alone counts
        possible = np.any(np.isfinite(total), axis=(1, 2))
        nothing = _before_pairs(np.logical_not(possible))
        total = np.where(nothing, pairs + prefix_minimum(fc, top), total)
        low = np.where(nothing, 0, low)
    flat_pair = total.reshape(len(total), -1).argmin(1)
    n_attention, n_qkv = np.divmod(flat_pair, total.shape[2])
    n = np.arange(fc.shape[1])
    inside = n <= _of_pair(top, n_attention, n_qkv)
    if low is not None:
        inside &= n >= _of_pair(low, n_attention, n_qkv)
    n_fc = np.where(inside, fc, np.inf).argmin(1)
    return _Chosen(n_attention, n_qkv, n_fc)


def _undominated(tables: HeadTables) -> HeadTables:
    """The tables without units of attention and qkv that HBM alone bounds and that only cost.

    Beyond its fastest number a sub-layer takes more bytes of HBM and no less time.
    """
    seconds, hbm = list(tables.seconds), list(tables.hbm)
    for sublayer in (0, 1):
        fastest = seconds[sublayer].argmin(1)
        kept = slice(0, 1 + int(fastest.max()))
        seconds[sublayer] = seconds[sublayer][:, kept]
        hbm[sublayer] = hbm[sublayer][:, kept]
    attention, qkv, fc = seconds
    on_attention, on_qkv, on_fc = hbm
    on_hbm = (on_attention, on_qkv, on_fc)
    return replace(tables, seconds=(attention, qkv, fc), hbm=on_hbm)


def _of_pair(table: Array, n_attention: Array, n_qkv: Array) -> Array:
    """One value a point, as a column; one row of the table serves all points."""
    point = np.arange(len(n_attention)) if len(table) > 1 else 0
    values: Array = table[point, n_attention, n_qkv]
    return values[:, None]


def _room_beside(tables: tuple[Array, Array, Array], room: Array) -> Array:
    """Bytes a memory has left beside each pair of attention and qkv [B]."""
    attention, qkv, _ = tables
    beside_attention = room[:, None] - attention
    left: Array = beside_attention[:, :, None] - qkv[:, None, :]
    return left


def _most_fc(tables: HeadTables) -> Units:
    """Most units of fc that HBM still holds beside each pair; -1 where none [1]."""
    room = _room_beside(tables.hbm, tables.hbm_room)
    room /= _bytes_of_unit(tables)
    np.floor(room, out=room)
    np.clip(room, -1.0, _before_pairs(tables.units), out=room)
    return room.astype(np.int64)


def _least_fc(tables: HeadTables) -> Units | None:
    """Fewest units of fc on HBM so that LPDDR holds the rest [1].

    None where LPDDR holds all of everything.
    """
    most = sum(table.max(1) for table in tables.lpddr)
    if np.all(most <= tables.lpddr_room):
        return None
    room = _room_beside(tables.lpddr, tables.lpddr_room)
    on_lpddr = np.floor(room / _bytes_of_unit(tables))
    units = _before_pairs(tables.units)
    on_hbm = np.clip(units - on_lpddr, 0, units + 1)
    least: Units = on_hbm.astype(np.int64)
    return least


def _bytes_of_unit(tables: HeadTables) -> Array:
    """Bytes of one unit of fc [B]."""
    _, _, fc = tables.hbm
    return _before_pairs(fc[:, 1])


def _before_pairs(values: Array) -> Array:
    """One value a point, to broadcast with tables of pairs."""
    return values[:, None, None]
