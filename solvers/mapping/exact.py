"""Which heads go to HBM: the exact optimum (H2M2 sec. 3, 4.3).

The step is a sum of three tables, one a sub-layer, under two capacities. Where all three fit at
their fastest, that is the optimum; what is left is solved by pairs of units of attention and qkv.
Where nothing fits, HBM, LPDDR and both together lack as few bytes as can be.

Symbols: n heads on HBM, N heads.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.tables import (
    Array,
    Choice,
    Mapping,
    choice_of,
    entries,
    flatten,
    mapping_of,
    points_at,
)

Units = NDArray[np.int64]

_PAIRS_AT_ONCE = 1 << 17
"""Entries of one temporary; 1 MiB of float64, which a core's cache holds."""
_EQUAL = 1 + 1e-12
"""Sums of a few table entries that differ by less are equal but for rounding."""


def exact(tables: HeadTables) -> Mapping:
    """The fastest mapping that fits both memories, in O(N^2) a design point at most.

    Where nothing fits both, the one with the fewest bytes missing.
    """
    flat = flatten(tables)
    count = math.prod(tables.points)
    if count == 1:
        return mapping_of(tables.points, flat, _best_of_pairs(flat))
    choice = _fastest(flat, count)
    answer = mapping_of(tables.points, flat, choice)
    unproven = np.flatnonzero(~np.broadcast_to(answer.ok, tables.points))
    attention, qkv, _ = flat.seconds
    pairs = attention.shape[1] * qkv.shape[1]
    step = max(_PAIRS_AT_ONCE // pairs, 1)
    for start in range(0, len(unproven), step):
        rows = unproven[start : start + step]
        choice.set_rows(rows, _best_of_pairs(points_at(flat, rows, count)))
    return mapping_of(tables.points, flat, choice)


def _fastest(flat: HeadTables, count: int) -> Choice:
    """Units of each sub-layer at its fastest, capacities aside, of so many design points."""
    attention, qkv, fc = (seconds.argmin(1) for seconds in flat.seconds)
    return Choice(attention, qkv, fc).apply(lambda n: np.resize(n, count))


# --- pairs of units of attention and qkv, design point by design point -------------------------
#
# For every pair (n_attention, n_qkv) the capacities leave an interval of n_fc, whose best value is
# a prefix minimum of fc's table, or a range minimum once LPDDR's capacity cuts the interval from
# below. So N^2 look-ups find the optimum over N^3.


def _best_of_pairs(tables: HeadTables) -> Choice:
    """Units for tables of one axis of design points."""
    low = _least_fc(tables)
    within = _up_to_fastest(tables) if low is None else tables
    attention, qkv, fc = within.seconds
    pairs = attention[:, :, None] + qkv[:, None, :]
    top = _most_fc(within)
    if low is None:
        total = pairs + _prefix_minimum(fc, top)
    else:
        total = pairs + _range_minimum(fc, low, top)
    total = total.reshape(len(total), -1)
    n_attention, n_qkv = np.divmod(total.argmin(1), pairs.shape[2])
    n = np.arange(fc.shape[1])
    inside = n <= _of_pair(top, n_attention, n_qkv)
    if low is not None:
        inside &= n >= _of_pair(low, n_attention, n_qkv)
    allowed = np.where(inside, fc, np.inf)
    choice = Choice(n_attention, n_qkv, allowed.argmin(1))
    nothing = np.flatnonzero(np.isinf(total.min(1)))
    if len(nothing):
        choice.set_rows(nothing, _least_missing(points_at(tables, nothing, len(total))))
    return choice


def _least_missing(tables: HeadTables) -> Choice:
    """Units with the fewest bytes missing: of HBM, of LPDDR or of both, whatever is the most.

    A further unit of fc moves its bytes from LPDDR to HBM, so beside each pair the best number is
    one of the two around that with which both lack the same.
    """
    attention, qkv, fc = tables.seconds
    unit = _bytes_of_unit(tables)
    exists = np.isfinite(fc)
    first = exists.argmax(1)
    last = exists.shape[1] - 1 - exists[:, ::-1].argmax(1)
    on_hbm = -_beside_pairs(tables.hbm, tables.hbm_headroom)
    on_lpddr = -_beside_pairs(tables.lpddr, tables.lpddr_headroom)
    on_lpddr = on_lpddr + _before_pairs(tables.units) * unit
    level = np.floor((on_lpddr - on_hbm) / (2 * unit))
    fewer = np.clip(level, _before_pairs(first), _before_pairs(last))
    more = np.minimum(fewer + 1, _before_pairs(last))
    missing = [np.maximum(on_hbm + n * unit, on_lpddr - n * unit) for n in (fewer, more)]
    n_fc = np.where(missing[1] < missing[0], more, fewer).astype(np.int64)
    least = np.maximum(np.minimum(*missing), on_hbm + on_lpddr)
    pairs = attention[:, :, None] + qkv[:, None, :]
    least = np.where(np.isfinite(pairs), least, np.inf)
    least = least.reshape(len(least), -1)
    n_attention, n_qkv = np.divmod(least.argmin(1), pairs.shape[2])
    return Choice(n_attention, n_qkv, _of_pair(n_fc, n_attention, n_qkv)[:, 0])


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
