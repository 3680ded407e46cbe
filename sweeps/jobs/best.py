"""Run a sweep down to its best rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.blanks import running_without, warn_of_blanks
from nearkv.sweeps.evaluate.bounds import columns_at
from nearkv.sweeps.evaluate.evaluate import Columns, at, cells, stack
from nearkv.sweeps.evaluate.requested import on_request
from nearkv.sweeps.explore import pruning
from nearkv.sweeps.explore.ideals import Contest
from nearkv.sweeps.explore.pruning import Search, Visit
from nearkv.sweeps.jobs.interrupts import careful, listening
from nearkv.sweeps.jobs.kept import Kept
from nearkv.sweeps.jobs.plan import (
    SWEPT_AT_ONCE,
    Piece,
    Plan,
    chosen,
    plan,
    shape_of,
    size_of,
    unpacked,
)
from nearkv.sweeps.jobs.progress import progress
from nearkv.sweeps.jobs.reduce import Reducer, reduced
from nearkv.sweeps.jobs.running import SweepRun, announce
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.grid import Box
from nearkv.sweeps.study.study import Study

REDUCED = 1 << 20
"""Rows of a task that keeps only the best."""

Rows = NDArray[np.int64]
FIRST: Rows = np.zeros(1, np.int64)
"""Number of the first row."""


def best(
    study: Study, reducer: Reducer, run: SweepRun, only: Sequence[str] = ()
) -> Columns:
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
    requested = on_request([*only, reducer.by, *reducer.per])
    rows = plan(study, extra=requested)
    shown = chosen(rows.kinds, only, requested)
    reducer.check(rows.kinds)
    with careful():
        kept = _kept(rows, reducer, run)
        numbers = kept.rows if kept is not None else np.zeros(0, np.int64)
        is_answered = len(numbers) > 0
        table = whole_rows(rows, numbers if is_answered else FIRST, run.workers)
    if is_answered:
        warn_of_blanks(rows.blocks, (reducer.by,), "--by")
    elif table["status"][0] == "ok" or running_without(rows.blocks, reducer.by):
        raise InputError(f"no design point has {reducer.by}; compare by another column")
    return {name: table[name] for name in shown}


def _kept(rows: Plan, reducer: Reducer, run: SweepRun) -> Kept | None:
    """Numbers of the best rows, and what they are compared by."""
    task = partial(reduced, rows.packed(), reducer)
    contest = Contest((reducer.by,), reducer.per)
    with listening():
        is_searched = rows.size >= pruning.ENOUGH
        announce(rows, task, run, "compare", at_most=is_searched)
        search = Search(rows.blocks if is_searched else (), contest)
    kept: Kept | None = None
    items = _items(rows, search, is_searched)
    answers = run.workers.run(task, items)
    with progress(rows.size, quiet=run.quiet) as advance, closing(answers):
        for item, best_of_item in answers:
            kept = reducer.merge(kept, best_of_item)
            search.incumbents = reducer.limits(kept, contest.groups)
            advance(search.settled(item.rows))
    if search.proved and not run.quiet:
        run.say(f"{search.proved:,} of {rows.size:,} design points proved away by bounds")
    return kept


def _items(rows: Plan, search: Search, is_searched: bool) -> Iterator[Piece | Visit]:
    """What is to be visited, in pieces where bounds spare nothing."""
    if not is_searched:
        yield from rows.pieces(REDUCED)
        return
    for part in search.parts():
        if isinstance(part, Visit):
            yield part
        else:
            yield from _pieces_of(rows, part)


def _pieces_of(rows: Plan, index: int) -> Iterator[Piece]:
    """Pieces of a block."""
    before = sum(block.grid.size for block in rows.blocks[:index])
    own = replace(rows, blocks=(rows.blocks[index],))
    for piece in own.pieces(REDUCED):
        boxes = tuple((index, box) for _, box in piece.boxes)
        yield replace(piece, first=before + piece.first, boxes=boxes)


def whole_rows(rows: Plan, numbers: Rows, workers: Workers) -> Columns:
    """All columns of some rows, in their order."""
    order = np.argsort(numbers)
    task = partial(_taken, rows.packed())
    if all(block.is_closed_form for block in rows.blocks):
        workers = Workers()  # done before processes would have begun
    with closing(workers.run(task, _picks(rows, numbers[order]))) as answers:
        table = stack([part for _, part in answers])
    back = np.argsort(order)
    columns: Columns = {}
    for name, kind in rows.kinds.items():
        if name in table:
            columns[name] = table[name][back]
        else:
            blank = "" if kind == "text" else np.nan
            columns[name] = np.full(len(back), blank)
    return columns


@dataclass(frozen=True)
class Pick:
    """Rows of a box.

    Attributes:
        index: of its block.
        box: of the grid.
        rows: their places in row-major order.
    """

    index: int
    box: Box
    rows: Rows


def _picks(rows: Plan, numbers: Rows) -> Iterator[Pick]:
    """Where some rows lie, which are in order: of formulas alone, rows cost what they are."""
    first = 0
    for index, block in enumerate(rows.blocks):
        boxes = block.grid.boxes(SWEPT_AT_ONCE)
        for box in [block.grid.whole] if block.is_closed_form else boxes:
            size = size_of(box)
            start, end = np.searchsorted(numbers, (first, first + size))
            for at_once in range(start, end, SWEPT_AT_ONCE):
                last = min(at_once + SWEPT_AT_ONCE, end)
                yield Pick(index, box, numbers[at_once:last] - first)
            first += size


def _taken(packed: bytes, pick: Pick) -> Columns:
    """All columns of some rows."""
    rows = unpacked(packed)
    block = rows.blocks[pick.index]
    extra = on_request(rows.kinds)
    shape = shape_of(pick.box)
    if block.is_closed_form:
        indices = np.stack(np.unravel_index(pick.rows, shape), axis=1)
        return columns_at(block, indices, extra)
    computed = cells(block, pick.box, extra=extra)
    return {name: at(cell, shape, pick.rows) for name, cell in computed.items()}
