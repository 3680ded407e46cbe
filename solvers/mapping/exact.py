"""Which heads go to HBM: the exact optimum (H2M2 sec. 3, 4.3).

The step is a sum of three tables, one a sub-layer, under two capacities. A relaxation gives the
optimum wherever its answer fits: without LPDDR's capacity where design points share tables, without
both where they do not. What is left is solved by pairs of units of attention and qkv.

Symbols: n heads on HBM, N heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.tables import (
    Array,
    Choice,
    Mapping,
    Rows,
    choice_of,
    entries,
    fits,
    flatten,
    mapping_of,
    points_at,
)

Units = NDArray[np.int64]

_PAIRS_AT_ONCE = 1 << 17
"""Entries of one temporary; 1 MiB of float64, which a core's cache holds."""
_EQUAL = 1 + 1e-12
"""Sums of a few table entries that differ by less are equal but for rounding."""
_FEWEST_SHARING = 8
"""Design points that must share tables before a sweep over their headrooms pays."""


def exact(tables: HeadTables) -> Mapping:
    """The fastest mapping that fits both memories, in O(N^2) a design point at most.

    Where nothing fits both, the fastest that HBM holds.
    """
    flat = flatten(tables)
    count = math.prod(tables.points)
    if count == 1:
        return mapping_of(tables.points, flat, _best_of_pairs(flat))
    choice = _relaxed(tables, flat)
    answer = mapping_of(tables.points, flat, choice)
    if np.all(answer.ok):
        return answer
    on_hbm, on_lpddr = fits(flat, choice)
    proven = on_hbm & (on_lpddr | _overfull(flat))
    unproven = np.flatnonzero(~np.broadcast_to(proven, (count,)))
    attention, qkv, _ = flat.seconds
    pairs = attention.shape[1] * qkv.shape[1]
    step = max(_PAIRS_AT_ONCE // pairs, 1)
    for start in range(0, len(unproven), step):
        rows = unproven[start : start + step]
        choice.set_rows(rows, _best_of_pairs(points_at(flat, rows, count)))
    return mapping_of(tables.points, flat, choice)


def _overfull(flat: HeadTables) -> Array:
    """Whether every mapping has more bytes than both memories together hold."""
    least = np.zeros(1)
    for on_hbm, on_lpddr in zip(flat.hbm, flat.lpddr, strict=True):
        both = on_hbm + on_lpddr
        least = least + both.min(1)
    held = flat.hbm_headroom + flat.lpddr_headroom
    overfull: Array = least > held * _EQUAL
    return overfull


def _relaxed(tables: HeadTables, flat: HeadTables) -> Choice:
    """The fastest units if LPDDR, or both memories, were large: optimal where they fit."""
    count = math.prod(tables.points)
    groups = _sharing(tables)
    if len(groups) > 1:
        choice = Choice(*np.zeros((3, count), int))
        for rows in groups:
            choice.set_rows(rows, _best_by_headroom(points_at(flat, rows, count)))
        return choice
    choice = _best_by_headroom(flat) if len(groups) else _fastest(flat)
    return choice.apply(partial(np.full, count))


def _fastest(flat: HeadTables) -> Choice:
    """Units of each sub-layer at its fastest, capacities aside."""
    attention, qkv, fc = (seconds.argmin(1) for seconds in flat.seconds)
    return Choice(attention, qkv, fc)


# --- pairs of units of attention and qkv, design point by design point -------------------------
#
# For every pair (n_attention, n_qkv) the capacities leave an interval of n_fc, whose best value is
# a prefix minimum of fc's table, or a range minimum once LPDDR's capacity cuts the interval from
# below. So N^2 look-ups find the optimum over N^3.


def _best_of_pairs(tables: HeadTables) -> Choice:
    """Units for tables of one axis of design points."""
    low = _least_fc(tables)
    if low is None:
        tables = _up_to_fastest(tables)
    attention, qkv, fc = tables.seconds
    pairs = attention[:, :, None] + qkv[:, None, :]
    top = _most_fc(tables)
    if low is None:
        total = pairs + _prefix_minimum(fc, top)
    else:
        total = pairs + _range_minimum(fc, low, top)
        # where nothing fits both, HBM's capacity alone counts
        possible = np.any(np.isfinite(total), axis=(1, 2))
        nothing = _before_pairs(np.logical_not(possible))
        total = np.where(nothing, pairs + _prefix_minimum(fc, top), total)
        low = np.where(nothing, 0, low)
    best = total.reshape(len(total), -1).argmin(1)
    n_attention, n_qkv = np.divmod(best, total.shape[2])
    n = np.arange(fc.shape[1])
    inside = n <= _of_pair(top, n_attention, n_qkv)
    if low is not None:
        inside &= n >= _of_pair(low, n_attention, n_qkv)
    allowed = np.where(inside, fc, np.inf)
    return Choice(n_attention, n_qkv, allowed.argmin(1))


def _up_to_fastest(tables: HeadTables) -> HeadTables:
    """The tables of attention and qkv up to the fastest number, where HBM alone limits them.

    Beyond it a sub-layer takes more bytes of HBM and no less time.
    """
    seconds, hbm = list(tables.seconds), list(tables.hbm)
    for sublayer in (0, 1):
        fastest = seconds[sublayer].argmin(1).max()
        kept = slice(0, 1 + int(fastest))
        seconds[sublayer] = seconds[sublayer][:, kept]
        hbm[sublayer] = hbm[sublayer][:, kept]
    (attention, qkv, fc), (on_attention, on_qkv, on_fc) = seconds, hbm
    return replace(tables, seconds=(attention, qkv, fc), hbm=(on_attention, on_qkv, on_fc))


def _most_fc(tables: HeadTables) -> Units:
    """Most units of fc that HBM still holds beside each pair; -1 where none [1]."""
    headroom = _beside_pairs(tables.hbm, tables.hbm_headroom)
    headroom /= _bytes_of_unit(tables)
    np.floor(headroom, out=headroom)
    np.clip(headroom, -1.0, _before_pairs(tables.units), out=headroom)
    return headroom.astype(np.int64)


def _least_fc(tables: HeadTables) -> Units | None:
    """Fewest units of fc on HBM so that LPDDR holds the rest [1].

    None where LPDDR holds all of everything.
    """
    most = sum(table.max(1) for table in tables.lpddr)
    if np.all(most <= tables.lpddr_headroom):
        return None
    headroom = _beside_pairs(tables.lpddr, tables.lpddr_headroom)
    on_lpddr = np.floor(headroom / _bytes_of_unit(tables))
    units = _before_pairs(tables.units)
    on_hbm = np.clip(units - on_lpddr, 0, units + 1)
    least: Units = on_hbm.astype(np.int64)
    return least


def _beside_pairs(tables: tuple[Array, Array, Array], capacity: Array) -> Array:
    """Bytes a memory has left beside each pair of attention and qkv [B]."""
    attention, qkv, _ = tables
    beside_attention = capacity[:, None] - attention
    left: Array = beside_attention[:, :, None] - qkv[:, None, :]
    return left


def _bytes_of_unit(tables: HeadTables) -> Array:
    """Bytes of one unit of fc [B]."""
    _, _, fc = tables.hbm
    return _before_pairs(fc[:, 1])


def _before_pairs(values: Array) -> Array:
    """One value a point, to broadcast with tables of pairs."""
    return values[:, None, None]


def _of_pair(table: Array, n_attention: Array, n_qkv: Array) -> Array:
    """One value a point, as a column; one row of the table serves all points."""
    point = np.arange(len(n_attention)) if len(table) > 1 else 0
    values: Array = table[point, n_attention, n_qkv]
    return values[:, None]


def _prefix_minimum(table: Array, top: Array) -> Array:
    """Least of table[0..top] at each point; infinite where top is -1.

    Args:
        table: (points or 1, units).
        top: (points, ...), last unit that counts [1].
    """
    least = np.minimum.accumulate(table, 1)
    nothing = np.full((len(table), 1), np.inf)
    least = np.concatenate([nothing, least], 1)
    # one index into all rows, which takes a third of the time of an index of rows and one of units
    row = _before_pairs(np.arange(len(table)))
    first = least.shape[1] * row + 1
    values: Array = least.ravel().take(top + first)
    return values


def _range_minimum(table: Array, low: Array, top: Array) -> Array:
    """Least of table[low..top] at each point; infinite where that is empty.

    Every range is covered by two ranges of 2^level units, whose minima are tabulated.

    Args:
        table: (points or 1, units).
        low, top: (points, ...), first and last unit that count [1].
    """
    levels = [table]
    while 2 ** len(levels) <= table.shape[1]:
        half = 2 ** (len(levels) - 1)
        beyond = np.full((len(table), half), np.inf)
        shifted = np.append(levels[-1][:, half:], beyond, axis=1)
        levels.append(np.minimum(levels[-1], shifted))
    minima = np.stack(levels, 1)
    low, top = np.broadcast_arrays(low, top)
    empty = low > top
    width = np.where(empty, 1, top - low + 1)
    level = np.frexp(width.astype(float))[1] - 1
    point = _before_pairs(np.arange(len(table)))
    first = np.where(empty, 0, low)
    last = np.where(empty, 0, top - 2**level + 1)
    from_low = minima[point, level, first]
    to_top = minima[point, level, last]
    least = np.minimum(from_low, to_top)
    return np.where(empty, np.inf, least)


# --- headrooms of design points that share the tables of qkv and fc, without LPDDR's limit ------
#
# What attention leaves of HBM decides how qkv and fc share it. All bytes of these two are multiples
# of one number, so the headrooms of all points, rounded down to multiples of it, are few: each is
# solved once, and a look-up for every number of attention's units gives the optimum of a point.


def _sharing(tables: HeadTables) -> Rows:
    """Design points whose tables of qkv and fc are the same (groups, points of each).

    No groups where they are of few points each.
    """
    shapes = [tables.units.shape]
    for _, qkv, fc in (tables.seconds, tables.hbm):
        shapes += [qkv.shape[:-1], fc.shape[:-1]]
    shape = np.broadcast_shapes(*shapes)
    groups = math.prod(shape)
    count = math.prod(tables.points)
    if groups * _FEWEST_SHARING > count:
        return np.empty((0, count), np.intp)
    labels = np.arange(groups).reshape(shape)
    label = np.broadcast_to(labels, tables.points)
    order = np.argsort(label, axis=None, kind="stable")
    return order.reshape(groups, -1)


@dataclass(frozen=True)
class _Headrooms:
    """Headrooms of HBM in order: -1, 0, 1, 2, ... times a number of bytes.

    Attributes:
        unit: the number [B].
        first: index of the least headroom that attention leaves.
        qkv: how many of these bytes each number of units of qkv takes [1].
        n_fc: units of fc at its fastest in each headroom [1].
        fc: their seconds, infinite in the headroom that is less than none [s].
    """

    unit: float
    first: int
    qkv: Rows
    n_fc: Rows
    fc: Array


def _best_by_headroom(tables: HeadTables) -> Choice:
    """Units for points with the same tables of qkv and fc, as if LPDDR held everything.

    Where there are more headrooms than points, or many sums are equal, as if HBM did, too.
    """
    headrooms = _headrooms(tables)
    if headrooms is None:
        return _fastest(tables)
    attention, qkv, _ = tables.seconds
    attention = attention.T  # units first, as the tables of a grid lie in memory
    qkv = qkv[0, : len(headrooms.qkv)]
    # seconds of qkv and fc: a row for each headroom, a column for each number of units of qkv
    of_row = np.arange(headrooms.first, len(headrooms.fc))
    left = of_row[:, None] - headrooms.qkv
    both = qkv + headrooms.fc.take(left, mode="clip")
    # the least of a row, for the headroom that each number of units of attention leaves
    below_first = np.full(headrooms.first, np.inf)
    least = np.append(below_first, both.min(1))
    beside_attention = (tables.hbm_headroom + headrooms.unit) - tables.hbm[0].T
    beside_attention /= headrooms.unit
    index = beside_attention.astype(np.intp)
    total = least.take(index, mode="clip") + attention
    limit = total.min(0) * _EQUAL
    near = np.flatnonzero(total <= limit)
    points = total.shape[1]
    if len(near) > _FEWEST_SHARING * points:
        return _fastest(tables)
    # all mappings that equal the least but for rounding, a row for each of attention's units
    n, point = np.divmod(near, points)
    index = _entries_by_units(index, n, point)
    seconds = _entries_by_units(attention, n, point)
    row = index - headrooms.first
    total = both.take(row, axis=0, mode="clip")
    total += seconds[:, None]
    near = np.flatnonzero(total <= limit[point, None])
    candidate, n_qkv = np.divmod(near, len(qkv))
    # they are compared by sums in the order of `Choice.total`, so that the answer is brute force's
    pairs = seconds[candidate] + qkv[n_qkv]
    left = index[candidate] - headrooms.qkv[n_qkv]
    total = pairs + headrooms.fc.take(left, mode="clip")
    best = _first_lowest(total, point[candidate], points)
    n_attention = n[candidate[best]]
    n_fc = headrooms.n_fc.take(left[best], mode="clip")
    return Choice(n_attention, n_qkv[best], n_fc)


def _headrooms(tables: HeadTables) -> _Headrooms | None:
    """Headrooms at which tables change; None where they outnumber the design points."""
    on_attention, on_qkv, on_fc = tables.hbm
    on_qkv, on_fc = on_qkv[0], on_fc[0]
    unit = _common_unit(np.concatenate([on_qkv, on_fc]))
    if not unit:
        return None
    enough = on_qkv[-1] + on_fc[-1]

    def index_of(headroom: float) -> int:
        return int(min(max(headroom, -unit), enough) // unit) + 1

    first = index_of(np.min(tables.hbm_headroom - on_attention[:, -1]))
    last = index_of(np.max(tables.hbm_headroom - on_attention[:, 0]))
    points = max(len(on_attention), len(tables.hbm_headroom))
    if last > points * on_attention.shape[1]:
        return None
    _, qkv, fc = tables.seconds
    kept = slice(0, 1 + qkv[0].argmin())  # beyond its fastest, qkv only takes more bytes
    taken = on_qkv[kept] / unit
    sizes = unit * np.arange(-1, last)
    most = np.searchsorted(on_fc, sizes, side="right") - 1
    n_fc = _first_least(fc[0])[most]
    seconds = fc[0, n_fc]
    seconds[0] = np.inf
    return _Headrooms(unit, first, taken.astype(np.intp), n_fc, seconds)


def _common_unit(sizes: Array) -> float:
    """The largest number that all sizes are multiples of; 0 where they are not integers [B]."""
    integers = sizes.astype(np.int64)
    if np.any(integers != sizes):
        return 0.0
    return float(np.gcd.reduce(integers))


def _entries_by_units(table: Array, n: Rows, point: Rows) -> Array:
    """Entries of a table (units, points or 1)."""
    values: Array = table[n, point if table.shape[1] > 1 else 0]
    return values


def _first_lowest(values: Array, point: Rows, points: int) -> Rows:
    """Index of the first lowest value of each point, each of which has one."""
    lowest = np.full(points, np.inf)
    np.minimum.at(lowest, point, values)
    backwards = np.flatnonzero(values == lowest[point])[::-1]
    first = np.empty(points, np.intp)
    # of several assignments to one point the last one stays
    first[point[backwards]] = backwards
    return first


def _first_least(table: Array) -> Rows:
    """The first unit with the least entry, of 0..n for every n."""
    before = np.minimum.accumulate(table)
    n = np.arange(len(table))
    n[1:] *= table[1:] < before[:-1]
    return np.maximum.accumulate(n)


# --- ties ---------------------------------------------------------------------------------------


def exact_and_fewest(tables: HeadTables) -> Mapping:
    """The fastest mapping; of equally fast ones the one with the fewest units on HBM.

    Layers often take as long on either side, and without a rule a point alone and one in a
    grid would be mapped differently. Sub-layer by sub-layer, the fewest units are taken that are
    as fast and leave no more on LPDDR than it holds.
    """
    flat = flatten(tables)
    choice = choice_of(tables, *exact(tables).units)
    units = [choice.attention, choice.qkv, choice.fc]
    for sublayer, n in enumerate(units):
        seconds, on_lpddr = flat.seconds[sublayer], flat.lpddr[sublayer]
        one_less = entries(seconds, np.maximum(n - 1, 0))
        is_tied = (one_less <= entries(seconds, n) * _EQUAL) & (n > 0)
        rows = np.flatnonzero(is_tied)
        if not len(rows):
            continue
        others = Choice(*units).total(flat.lpddr) - entries(on_lpddr, n)
        spare = np.broadcast_to(flat.lpddr_headroom - others, n.shape)
        tied = points_at(flat, rows, len(n))
        units[sublayer] = n.copy()
        units[sublayer][rows] = _fewest(
            tied.seconds[sublayer], tied.lpddr[sublayer], n[rows], spare[rows]
        )
    return mapping_of(tables.points, flat, Choice(*units))


def _fewest(seconds: Array, on_lpddr: Array, n: Array, spare: Array) -> Array:
    """The fewest units that take as long as n and leave no more on LPDDR than is spare.

    Args:
        seconds, on_lpddr: (points or 1, units) [s, B].
        n, spare: of each point [1, B].
    """
    points, counts = len(n), seconds.shape[1]
    rows = np.broadcast_to(seconds, (points, counts))
    equal = rows[np.arange(points), n] * _EQUAL
    possible = rows <= equal[:, None]
    possible &= on_lpddr <= spare[:, None]
    possible &= np.arange(counts) <= n[:, None]
    return np.where(possible.any(1), possible.argmax(1), n)
