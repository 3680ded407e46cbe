"""Evaluate a study into columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Integers, Numbers
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import LackingError
from nearkv.sweeps.evaluate.columns import (
    cells_at,
    columns,
    spread,
    without_answer,
)
from nearkv.sweeps.study.grid import Block, Grid
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Columns

MOST_IN_MEMORY = 2_000_000
"""More rows than this do not belong in one table in memory."""
_KEPT = 31 << 20
"""Bytes below the largest block that glibc's malloc learns from [B]."""


def keep_freed_memory() -> None:
    """Have the C library keep what NumPy frees.

    A box of design points takes a few hundred arrays of half a megabyte one after the other, which
    glibc's malloc would fetch anew from the kernel each. Once a block of this size was freed, it
    keeps blocks of up to twice that.
    """
    np.empty(_KEPT, np.uint8)


def columns_at(block: Block, places: Integers, extra: Collection[str] = ()) -> Columns:
    """Evaluate a list of points of a block that formulas alone answer.

    Args:
        block: the design points.
        places: of each point along each axis: (points, axes).
        extra: as in `columns`.
    """
    mesh = _at_places(block.grid, places)
    shown = _at_places(block.display_grid, places)
    computed = cells_at(block, mesh, shown, extra=extra)
    return {name: spread(cell, (len(places),)) for name, cell in computed.items()}


def _at_places(grid: Grid, places: Integers) -> dict[str, Numbers]:
    """Values of each axis at some points; one that all share is computed with once."""
    mesh: dict[str, Numbers] = {}
    for axis, indices in zip(grid.axes, places.T, strict=True):
        values = axis.values[indices]
        mesh[axis.name] = values[:1] if np.all(values == values[0]) else values
    return mesh


def evaluate(parts: Sequence[Block], extra: Collection[str] = ()) -> list[Columns]:
    """Evaluate blocks in memory, one table each.

    A machine that lacks what one of several systems reads has rows that are not modelled.

    Raises:
        InputError: too many rows for a table.
        LackingError: no system has a machine with all that it reads, or a band is asked for.
    """
    check_rows(parts)
    keep_freed_memory()
    tables: list[Columns] = []
    refusals: list[LackingError] = []
    for block in parts:
        try:
            tables.append(_whole(block, extra))
        except LackingError as refusal:
            refusals.append(refusal)
            tables.append(without_answer(block, refusal.reason))
            if len(refusals) == len(parts) or block.band is not None:
                raise
    return tables


def check_rows(parts: Sequence[Block]) -> None:
    """Refuse more design points than a table in memory holds.

    Raises:
        InputError: there are more.
    """
    size = sum(block.grid.size for block in parts)
    if size > MOST_IN_MEMORY:
        raise InputError(
            f"{size:,} design points are too many for one table (at most {MOST_IN_MEMORY:,}); "
            "write them to a file with `nearkv sweep ... -o FILE.csv`"
        )


def _whole(block: Block, extra: Collection[str]) -> Columns:
    pieces = block.grid.boxes(block.at_once)
    return stack([columns(block, box, extra=extra) for box in pieces])


def table(study: Study, extra: Collection[str] = ()) -> Columns:
    """Evaluate a study into one table.

    Raises:
        InputError: the study cannot be evaluated, or has too many rows for one table.
    """
    return stack(evaluate(blocks(study), extra))


def stack(tables: Sequence[Columns]) -> Columns:
    """Put tables below one another; a column that one lacks is blank (NaN or empty) there."""
    stacked: Columns = {}
    for name in merge(tables):
        kind = next(table[name].dtype for table in tables if name in table)
        stacked[name] = np.concatenate([_filled(table, name, kind) for table in tables])
    return stacked


def merge(tables: Sequence[Mapping[str, object]]) -> list[str]:
    """Names of all columns, each table's in its own order.

    A name that is new to the others goes behind the one before it.
    """
    order: list[str] = []
    for table in tables:
        last = -1
        for name in table:
            if name in order:
                last = order.index(name)
            else:
                last += 1
                order.insert(last, name)
    return order


def _filled(table: Columns, name: str, kind: np.dtype[np.generic]) -> NDArray[np.generic]:
    if name in table:
        return table[name]
    rows = len(table["system"])
    if kind.kind == "f":
        return np.full(rows, np.nan)
    return np.full(rows, "", dtype=kind)
