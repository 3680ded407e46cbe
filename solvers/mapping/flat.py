"""Head tables with all design points along one axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables

Array = NDArray[Any]


def flatten(tables: HeadTables) -> HeadTables:
    """One axis of design points, of length 1 where nothing depends on them."""
    points = tables.points

    def rows(table: Array, own: int) -> Array:
        if table.ndim == own:
            return table[None]
        tail = table.shape[table.ndim - own :]
        if table.size == math.prod(tail):
            return table.reshape((1, *tail))
        return np.broadcast_to(table, points + tail).reshape((-1, *tail))

    return _each(tables, rows)


def _each(tables: HeadTables, change: Callable[[Array, int], Array]) -> HeadTables:
    """Apply a change to every array; its second argument is how many axes are the array's own."""

    def three(of: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        attention, qkv, fc = of
        return change(attention, 1), change(qkv, 1), change(fc, 1)

    return HeadTables(
        seconds=three(tables.seconds),
        hbm=three(tables.hbm),
        lpddr=three(tables.lpddr),
        hbm_room=change(tables.hbm_room, 0),
        lpddr_room=change(tables.lpddr_room, 0),
        units=change(tables.units, 0),
    )


def some_points(flat: HeadTables, rows: NDArray[np.intp], count: int) -> HeadTables:
    """The design points `rows`, in order, of flat tables that have `count` of them."""
    if len(rows) == count:
        return flat

    def cut(table: Array, _: int) -> Array:
        return table[rows] if len(table) == count else table

    return _each(flat, cut)


@dataclass(frozen=True)
class Chosen:
    """Units of each sub-layer on HBM, along one axis of design points."""

    attention: Array
    qkv: Array
    fc: Array

    def each(self, change: Callable[[Array], Array]) -> Chosen:
        """Apply a change to all three."""
        return Chosen(change(self.attention), change(self.qkv), change(self.fc))

    def put(self, rows: NDArray[np.intp], piece: Chosen) -> None:
        """Replace the units at some design points."""
        self.attention[rows] = piece.attention
        self.qkv[rows] = piece.qkv
        self.fc[rows] = piece.fc

    def sum_of(self, tables: tuple[Array, Array, Array]) -> Any:
        """Sum of three tables at these units; one row of a table serves all points."""
        attention, qkv, fc = tables
        sum_of_two = at(attention, self.attention) + at(qkv, self.qkv)
        return sum_of_two + at(fc, self.fc)


def at(table: Array, n: Array) -> Any:
    """Entries of a table (points, units), one a point."""
    if len(table) == 1:
        return table[0][n]
    point = np.arange(len(table))
    return table[point, n if len(n) > 1 else n[0]]


def fastest(flat: HeadTables) -> Chosen:
    """Units of each sub-layer at its fastest, whatever the memories hold."""
    attention, qkv, fc = (seconds.argmin(1) for seconds in flat.seconds)
    return Chosen(attention, qkv, fc)
