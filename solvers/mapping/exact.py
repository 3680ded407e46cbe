"""Which heads go to HBM: the paper's greedy and the exact optimum (H2M2 sec. 3, 4.3).

The step is a sum of three tables, one a sub-layer, under two capacities. A relaxation gives the
optimum wherever its answer fits: without LPDDR's capacity where design points share tables, without
both where they do not. What is left is solved by pairs of units of attention and qkv.

Symbols: n heads on HBM, N heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables
from nearkv.solvers.mapping.flat import Array, Chosen, at, fastest, flatten, some_points
from nearkv.solvers.mapping.pairs import best_of_pairs
from nearkv.solvers.mapping.rooms import best_by_room, sharing
from nearkv.solvers.mapping.ties import settled

_PAIRS_AT_ONCE = 1 << 17
"""Entries of one temporary; 1 MiB of float64, which a core's cache holds."""
_ROUNDING = 1e-12


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


def _flat_units(tables: HeadTables, attention: Any, qkv: Any, fc: Any) -> Chosen:
    def flat(units: Any) -> Array:
        everywhere = np.broadcast_to(units, tables.points)
        return everywhere.ravel().astype(int)

    return Chosen(attention, qkv, fc).each(flat)


def _answer(points: tuple[int, ...], flat: HeadTables, chosen: Chosen) -> Mapping:
    """The mapping of some units, in the shape of the design points."""
    on_hbm, on_lpddr = _fits(flat, chosen)
    seconds = chosen.sum_of(flat.seconds)

    def shaped(values: Array) -> Any:
        return values.reshape(points)[()]

    units = chosen.each(lambda n: shaped(n.astype(float)))
    return Mapping(
        attention=units.attention,
        qkv=units.qkv,
        fc=units.fc,
        seconds=shaped(seconds),
        ok=shaped(on_hbm & on_lpddr),
    )


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
        stuck = np.isinf(at(allowed, n))
        if stuck.any():
            possible = fits_hbm & np.isfinite(seconds)
            units = np.arange(seconds.shape[1])
            most = np.where(possible, units, 0).max(1)
            n = np.where(stuck, most, n)
        hbm = hbm - at(on_hbm, n)
        lpddr = lpddr - at(on_lpddr, n)
        chosen.append(n)
    everywhere = [np.broadcast_to(n, hbm.shape) for n in chosen]
    return _answer(tables.points, flat, Chosen(*everywhere))


def exact(tables: HeadTables) -> Mapping:
    """The fastest mapping that fits both memories, in O(N^2) a design point at most.

    Where nothing fits both, the fastest that HBM holds.
    """
    flat = flatten(tables)
    count = math.prod(tables.points)
    if count == 1:
        return _answer(tables.points, flat, best_of_pairs(flat))
    chosen = _relaxed(tables, flat)
    answer = _answer(tables.points, flat, chosen)
    if np.all(answer.ok):
        return answer
    on_hbm, on_lpddr = _fits(flat, chosen)
    proven = on_hbm & (on_lpddr | _overfull(flat))
    unproven = np.flatnonzero(~np.broadcast_to(proven, (count,)))
    attention, qkv, _ = flat.seconds
    pairs = attention.shape[1] * qkv.shape[1]
    step = max(_PAIRS_AT_ONCE // pairs, 1)
    for start in range(0, len(unproven), step):
        rows = unproven[start : start + step]
        chosen.put(rows, best_of_pairs(some_points(flat, rows, count)))
    return _answer(tables.points, flat, chosen)


def exact_and_fewest(tables: HeadTables) -> Mapping:
    """The same, of equally fast ones that with the fewest units on HBM, see `settled`.

    Whole layers often take as long on either side, which a point alone and one in a grid would
    choose differently.
    """
    flat = flatten(tables)
    chosen = _flat_units(tables, *exact(tables).units)
    return _answer(tables.points, flat, settled(flat, chosen))


def _fits(flat: HeadTables, chosen: Chosen) -> tuple[Array, Array]:
    """Whether HBM and LPDDR hold their bytes."""
    on_hbm = chosen.sum_of(flat.hbm) <= flat.hbm_room
    on_lpddr = chosen.sum_of(flat.lpddr) <= flat.lpddr_room
    return on_hbm, on_lpddr


def _overfull(flat: HeadTables) -> Array:
    """Whether every mapping has more bytes than both memories together hold."""
    least = np.zeros(1)
    for on_hbm, on_lpddr in zip(flat.hbm, flat.lpddr, strict=True):
        either = on_hbm + on_lpddr
        least = least + either.min(1)
    both_rooms = flat.hbm_room + flat.lpddr_room
    overfull: Array = least > both_rooms * (1 + _ROUNDING)
    return overfull


def _relaxed(tables: HeadTables, flat: HeadTables) -> Chosen:
    """The fastest units if LPDDR, or both memories, were large: optimal where they fit."""
    count = math.prod(tables.points)
    groups = sharing(tables)
    if len(groups) > 1:
        chosen = Chosen(*np.zeros((3, count), int))
        for rows in groups:
            chosen.put(rows, best_by_room(some_points(flat, rows, count)))
        return chosen
    chosen = best_by_room(flat) if len(groups) else fastest(flat)
    return chosen.each(partial(np.full, count))
