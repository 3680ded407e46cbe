"""The best rows of a sweep, in bounded memory: the top few, or the best of each group.

Boxes of design points are evaluated in the columns that rows are compared by. Of each box, rows
that may be among the best are kept by their number; what two parts of a sweep keep merges into what
both do, so it does not matter which worker saw which. Of rows that tie the cheapest stays, then one
of fewer parts, then the first by the alphabet: the order of names decides nothing. All columns are
evaluated at the end, of the rows kept alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError, once
from nearkv.sweeps.evaluate.blanks import running_without, warn_of_blanks
from nearkv.sweeps.evaluate.columns import (
    Cell,
    cells,
    columns_at,
    on_request,
    spread_at,
    stack,
)
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.jobs.plan import Piece, Plan, chosen, plan, size_of, unpacked
from nearkv.sweeps.jobs.progress import SweepRun, announce, progress
from nearkv.sweeps.jobs.search import MOST_KEPT, Best, Candidates, Kept, Search
from nearkv.sweeps.study.grid import POINTS_AT_ONCE, Axis, Block, Grid, Slices, shape_of
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns

BY = "throughput_tok_s"
"""The column that rows are compared by unless another is named."""
REDUCED = 1 << 20
"""Rows of a task."""
MANY_COMPARED = 10**10
"""More design points than this take hours."""
MOST_AROUND = 64
"""Design points of a box that is drawn again for the rows that are kept of it [1]."""
ALPHABET = "alphabet"
"""Place of a row by the names and numbers that identify it."""
ROW_TIES = ("cost_usd", "parts", ALPHABET)
"""Columns that decide between rows that tie: the lower cost, fewer parts, the alphabet."""


def best(study: Study, reducer: Best, run: SweepRun, only: Sequence[str] = ()) -> Columns:
    """Evaluate a study and return its best rows, in the order of the reducer.

    Args:
        study: what to evaluate.
        reducer: what is best.
        run: how.
        only: columns to return, in that order; where none is named all, and of those on request
            what rows are compared by.

    Returns:
        The best rows; where no design point has an answer, the first of them, whose `status` and
        `reason` say why.

    Raises:
        InputError: the study cannot be evaluated, or a column not be compared by.
    """
    extra = on_request([*only, *reducer.columns])
    rows = plan(study, extra=extra)
    shown = chosen(rows.kinds, only, extra)
    reducer.check(rows.kinds)
    numbers = best_numbers(rows, reducer, run)
    table = whole_rows(rows, numbers if len(numbers) else np.zeros(1, np.int64))
    if len(numbers):
        warn_of_blanks(rows.blocks, reducer.by)
    elif table["status"][0] == "ok" or running_without(rows.blocks, reducer.by[0]):
        raise InputError(f"no design point has {reducer.by[0]}; compare by another column")
    return {name: table[name] for name in shown}


def best_numbers(rows: Plan, reducer: Best, run: SweepRun) -> NDArray[np.int64]:
    """Numbers of the best rows, in the order of the reducer.

    Raises:
        InputError: too many to compare without a yes, or too many to keep.
    """
    if rows.size > MANY_COMPARED and not run.confirm(
        f"Compare {rows.size:,} design points?"
    ):
        many = f"{rows.size:,} design points are very many to compare"
        raise InputError(f"{many}; leave out some, or begin all the same with --yes")
    task = partial(_best_of_piece, rows.packed(), reducer)
    announce(rows, task, run, "compare")
    kept = reducer.nothing
    answers = run.workers.run(task, rows.pieces(REDUCED))
    with progress(rows.size, quiet=run.quiet) as advance, closing(answers):
        for piece, best_of_piece in answers:
            kept = reducer.merge(kept, best_of_piece)
            advance(piece.rows)
    return kept.rows


def _best_of_piece(packed: bytes, reducer: Best, piece: Piece) -> Kept:
    """Evaluate a piece of a packed plan and keep its best rows; what a worker does."""
    search = Search(reducer).over(_candidates(unpacked(packed), piece))
    if search.is_interrupted:
        raise KeyboardInterrupt
    return search.kept


def _candidates(rows: Plan, piece: Piece) -> Iterator[Candidates]:
    """The design points of a piece, box by box."""
    first, by_name = piece.first, sorted(map(_names, rows.blocks))
    most = max(block.grid.size for block in rows.blocks)
    for index, box in piece.boxes:
        block, size, shape = rows.blocks[index], size_of(box), shape_of(box)
        order = by_name.index(_names(block)) * most + _order(block.grid, box)
        numbers = np.arange(first, first + size).reshape(shape)
        yield Candidates(numbers, shape, partial(_compared, rows, index, box, order))
        first += size


def _compared(
    rows: Plan, index: int, box: Slices, order: Numbers, names: Sequence[str]
) -> Mapping[str, Cell]:
    """Columns of a box of a block, its order among them."""
    own = [name for name in names if name != ALPHABET]
    return {ALPHABET: order, **rows.cells(index, box, own)}


def _names(block: Block) -> tuple[object, ...]:
    """The names by which blocks are in order; a knob that is stated before one that is solved."""
    names = (block.system.name, block.platform.label, *block.sets.values())
    return (names, len(block.open_knobs), tuple(map(str, block.open_knobs.items())))


def _order(grid: Grid, box: Slices) -> Numbers:
    """Place of each point of a box by the names and numbers of all points of its grid."""
    ranked = []
    for axis in grid.axes:
        places = axis.values.astype(int)
        values = np.array(axis.labels)[places] if axis.labels else axis.values
        ranks = np.unique(values, return_inverse=True)[1]
        ranked.append(Axis(axis.name, ranks.astype(float)))
    mesh = Grid(tuple(ranked)).mesh(box)
    sizes = {axis.name: len(axis.values) for axis in grid.axes}
    order: Numbers = np.zeros(())
    for name in sorted(mesh):
        order = order * sizes[name] + mesh[name]
    return order


def whole_rows(rows: Plan, numbers: NDArray[np.int64]) -> Columns:
    """All columns of some rows of a sweep, in their order.

    Args:
        rows: the sweep.
        numbers: of the rows.
    """
    order = np.argsort(numbers)
    extra = on_request(rows.kinds)
    tables: list[Columns] = []
    first = 0
    for block in rows.blocks:
        start, end = np.searchsorted(numbers[order], (first, first + block.grid.size))
        tables += _rows_of_block(block, numbers[order[start:end]] - first, extra)
        first += block.grid.size
    table = stack(tables)
    back = np.argsort(order)
    answer: Columns = {}
    for name, kind in rows.kinds.items():
        blank = np.full(len(numbers), "" if kind == "text" else np.nan)
        answer[name] = table[name][back] if name in table else blank
    return answer


def _rows_of_block(
    block: Block, numbers: NDArray[np.int64], extra: Sequence[str]
) -> Iterator[Columns]:
    """All columns of some rows of a block, whose numbers rise; a table for each few of them."""
    if block.is_closed_form:
        for start in range(0, len(numbers), POINTS_AT_ONCE):
            some = numbers[start : start + POINTS_AT_ONCE]
            places = np.unravel_index(some, block.grid.shape)
            yield columns_at(block, np.stack(places, axis=1), extra)
        return
    # draws and events are of boxes; a simulation takes long, so no box holds a point in vain
    most = 1 if block.method == "simulate" else MOST_AROUND
    first = 0
    for box in block.grid.boxes(most):
        last = first + size_of(box)
        inside = numbers[slice(*np.searchsorted(numbers, (first, last)))] - first
        if len(inside):
            answers = cells(block, box, extra=extra)
            yield {
                name: spread_at(cell, shape_of(box), inside)
                for name, cell in answers.items()
            }
        first = last


def reducer_of(top: int | None, by: str, per: tuple[str, ...]) -> Best | None:
    """Reducer that a user asks for, or none.

    Raises:
        InputError: two at once, or one that makes no sense.
    """
    if top is not None and per:
        raise InputError("--top and --best-per each keep other rows; choose one")
    if top is not None and not 1 <= top <= MOST_KEPT:
        raise InputError(f"--top must be from 1 to {MOST_KEPT:,}, not {top}")
    if by and not (top or per):
        raise InputError(
            f"--by {by}: says what --top and --best-per compare by; give one of these"
        )
    if not (top or per):
        return None
    column, groups = by or BY, once(per, "--best-per")
    is_highest = higher_is_better(column)
    return Best((column,), (is_highest,), groups, ties=ROW_TIES, most=top or 1)
