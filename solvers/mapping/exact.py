"""Which heads go to HBM: the paper's greedy, the exact optimum in O(N^2), and brute force (H2M2 sec. 3, 4.3).

The step is a sum of three tables, one a sub-layer, under two capacities. For every pair (n_attention,
n_qkv) the capacities leave an interval of n_fc, whose best value is a prefix minimum of fc's table, or a
range minimum once LPDDR's capacity cuts the interval from below. So N^2 look-ups find the optimum over N^3.

Symbols: n heads on HBM, N heads, p design points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.head_tables import HeadTables
from nearkv.costmodel.span import Real

_PAIRS_AT_ONCE = 1 << 21
"""Entries of one temporary; 16 MiB of float64."""


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


def bytes_used(tables: HeadTables, mapping: Mapping) -> tuple[Real, Real]:
    """Bytes on HBM and on LPDDR of a mapping [B]."""
    flat = _flat(tables)
    units = [np.broadcast_to(n, tables.points).ravel().astype(int) for n in mapping.units]
    hbm, lpddr = _sum_at(flat.hbm, units), _sum_at(flat.lpddr, units)
    return hbm.reshape(tables.points)[()], lpddr.reshape(tables.points)[()]


def evaluate(tables: HeadTables, attention: Any, qkv: Any, fc: Any) -> Mapping:
    """Seconds and feasibility of given units on HBM [1]."""
    units = [np.broadcast_to(n, tables.points).ravel().astype(int) for n in (attention, qkv, fc)]
    return _answer(tables.points, _flat(tables), units)


def _answer(points: tuple[int, ...], flat: HeadTables, units: list[Any]) -> Mapping:
    ok = (_sum_at(flat.hbm, units) <= flat.hbm_room) & (
        _sum_at(flat.lpddr, units) <= flat.lpddr_room
    )
    shaped = [
        np.reshape(n, points)[()]
        for n in (*(n.astype(float) for n in units), _sum_at(flat.seconds, units), ok)
    ]
    return Mapping(*shaped)


def _sum_at(three: tuple[NDArray[Any], ...], units: list[Any]) -> Any:
    """Sum of three tables at given units; one row of a table serves all points."""
    a, q, f = (_row(table, n) for table, n in zip(three, units, strict=True))
    return a + q + f


def greedy(tables: HeadTables) -> Mapping:
    """Algorithm 1: attention, then qkv-linear, then fc, each at its fastest that still fits both memories.

    Where nothing fits both, as many units as HBM holds.
    """
    flat = _flat(tables)
    hbm, lpddr = flat.hbm_room, flat.lpddr_room
    chosen: list[Any] = []
    for seconds, on_hbm, on_lpddr in zip(flat.seconds, flat.hbm, flat.lpddr, strict=True):
        fits_hbm = on_hbm <= hbm[:, None]
        allowed = np.where(fits_hbm & (on_lpddr <= lpddr[:, None]), seconds, np.inf)
        n = allowed.argmin(1)
        stuck = np.isinf(_row(allowed, n))
        if stuck.any():
            n = np.where(
                stuck,
                np.where(fits_hbm & np.isfinite(seconds), np.arange(seconds.shape[1]), 0).max(1),
                n,
            )
        hbm, lpddr = hbm - _row(on_hbm, n), lpddr - _row(on_lpddr, n)
        chosen.append(n)
    return _answer(tables.points, flat, [np.broadcast_to(n, hbm.shape) for n in chosen])


def _row(table: NDArray[Any], n: NDArray[Any]) -> Any:
    return (
        table[0][n] if len(table) == 1 else table[np.arange(len(table)), n if len(n) > 1 else n[0]]
    )


def exact(tables: HeadTables) -> Mapping:
    """The fastest mapping that fits both memories, in O(N^2) a design point.

    Where nothing fits both, the fastest that HBM holds.
    """
    points, flat = tables.points, _flat(tables)
    many = math.prod(points)
    pairs = flat.seconds[0].shape[1] * flat.seconds[1].shape[1]
    step = max(_PAIRS_AT_ONCE // pairs, 1)
    if many <= step:
        return _answer(points, flat, _spread(_exact_flat(flat), many))
    some = [_rows(flat, slice(start, start + step), many) for start in range(0, many, step)]
    chosen = [_spread(_exact_flat(part), min(step, many - i * step)) for i, part in enumerate(some)]
    return _answer(points, flat, [np.concatenate(n) for n in zip(*chosen, strict=True)])


def _spread(units: tuple[Any, ...], many: int) -> list[Any]:
    """The same units for every point, where no table depends on them."""
    return [n if len(n) == many else np.broadcast_to(n, (many,)) for n in units]


def _flat(tables: HeadTables) -> HeadTables:
    """One axis of design points, of length 1 where nothing depends on them."""
    points = tables.points

    def rows(table: NDArray[Any], own: int) -> NDArray[Any]:
        if table.ndim == own:
            return table[None]
        tail = table.shape[table.ndim - own :]
        if table.size == math.prod(tail):
            return table.reshape((1, *tail))
        return np.broadcast_to(table, points + tail).reshape((-1, *tail))

    return _each(tables, rows)


def _each(tables: HeadTables, change: Callable[[NDArray[Any], int], NDArray[Any]]) -> HeadTables:
    """Apply a change to every array, told how many axes are its own."""
    seconds, hbm, lpddr = (
        (change(a, 1), change(q, 1), change(f, 1))
        for a, q, f in (tables.seconds, tables.hbm, tables.lpddr)
    )
    rooms = (change(tables.hbm_room, 0), change(tables.lpddr_room, 0), change(tables.units, 0))
    return HeadTables(seconds, hbm, lpddr, *rooms)


def _rows(flat: HeadTables, some: slice, many: int) -> HeadTables:
    return _each(flat, lambda table, _: table[some] if len(table) == many else table)


def _exact_flat(tables: HeadTables) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Units for tables of one axis of design points."""
    a, q, f = tables.seconds
    top, low = _most_fc(tables), _least_fc(tables)
    pairs = a[:, :, None] + q[:, None, :]
    if low is None:
        total = pairs + _prefix_minimum(f, top)
    else:
        total = pairs + _range_minimum(f, low, top)
        nothing = ~np.isfinite(total).any((1, 2))[:, None, None]  # then HBM's capacity alone counts
        total = np.where(nothing, pairs + _prefix_minimum(f, top), total)
        low = np.where(nothing, 0, low)
    point = np.arange(len(total))
    n_a, n_q = np.divmod(total.reshape(len(total), -1).argmin(1), total.shape[2])
    last = _pair(top, point, n_a, n_q)
    first = 0 if low is None else _pair(low, point, n_a, n_q)
    n = np.arange(f.shape[1])
    inside = (n <= last) & (n >= first)
    return n_a, n_q, np.where(inside, f, np.inf).argmin(1)


def _pair(
    table: NDArray[Any], point: NDArray[Any], n_a: NDArray[Any], n_q: NDArray[Any]
) -> NDArray[Any]:
    """One value a point, as a column; one row of the table serves all points."""
    found: NDArray[Any] = table[point if len(table) > 1 else 0, n_a, n_q]
    return found[:, None]


def _most_fc(tables: HeadTables) -> NDArray[np.int64]:
    """Most units of fc that HBM still holds beside each pair; -1 where none [1]."""
    a, q, f = tables.hbm
    room = (tables.hbm_room[:, None] - a)[:, :, None] - q[:, None, :]
    room /= f[:, 1, None, None]
    np.floor(room, out=room)
    np.minimum(room, tables.units[:, None, None], out=room)
    return np.maximum(room, -1.0, out=room).astype(np.int64)


def _least_fc(tables: HeadTables) -> NDArray[np.int64] | None:
    """Fewest units of fc on HBM so that LPDDR holds the rest; None where it holds all of everything [1]."""
    a, q, f = tables.lpddr
    if np.all(a.max(1) + q.max(1) + f.max(1) <= tables.lpddr_room):
        return None
    room = (tables.lpddr_room[:, None] - a)[:, :, None] - q[:, None, :]
    capacity_check = np.floor(room / tables.hbm[2][:, 1, None, None])
    return np.clip(
        tables.units[:, None, None] - capacity_check, 0, tables.units[:, None, None] + 1
    ).astype(np.int64)


def _prefix_minimum(f: NDArray[Any], top: NDArray[np.int64]) -> NDArray[Any]:
    """Least of f[0..top]; infinite where top is -1."""
    least = np.concatenate(
        [np.minimum.accumulate(f, 1), np.full((len(f), 1), np.inf)], 1
    )  # [-1] is the last
    return least[0][top] if len(f) == 1 else least[np.arange(len(f))[:, None, None], top]


def _range_minimum(f: NDArray[Any], low: NDArray[Any], top: NDArray[Any]) -> NDArray[Any]:
    """Least of f[low..top] by a sparse table; infinite where the range is empty."""
    levels = [f]
    while 2 ** len(levels) <= f.shape[1]:
        half, before = 2 ** (len(levels) - 1), levels[-1]
        levels.append(
            np.minimum(
                before, np.pad(before, ((0, 0), (0, half)), constant_values=np.inf)[:, half:]
            )
        )
    table = np.stack(levels, 1)
    low, top = np.broadcast_arrays(low, top)
    empty = low > top
    level = np.frexp(np.where(empty, 1, top - low + 1).astype(float))[1] - 1
    point = np.arange(len(f))[:, None, None] if len(f) > 1 else 0
    first = np.where(empty, 0, low)
    last = np.where(empty, 0, top - 2**level + 1)
    least: NDArray[Any] = np.minimum(table[point, level, first], table[point, level, last])
    return np.where(empty, np.inf, least)


def brute(tables: HeadTables) -> Mapping:
    """Try every mapping: O(N^3), for one design point.

    Raises:
        ValueError: more than one design point.
    """
    if math.prod(tables.points) != 1:
        raise ValueError("brute force takes one design point")
    flat = _flat(tables)

    def mesh(three: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        a, q, f = (table[0] for table in three)
        cube: NDArray[Any] = (a[:, None, None] + q[:, None]) + f  # the order of every other sum
        return cube

    seconds = mesh(flat.seconds)
    on_hbm = mesh(flat.hbm) <= flat.hbm_room
    ok = on_hbm & (mesh(flat.lpddr) <= flat.lpddr_room)
    allowed = np.where(ok if (ok & np.isfinite(seconds)).any() else on_hbm, seconds, np.inf)
    best = np.unravel_index(allowed.argmin(), allowed.shape)
    return _answer(tables.points, flat, [np.reshape(n, (1,)) for n in best])
