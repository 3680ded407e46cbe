"""The designs that no other beats, from a grid of which bounds spare most points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.bounds import Indices, columns_at
from nearkv.sweeps.evaluate.evaluate import (
    POINTS_AT_ONCE,
    Columns,
    columns,
    no_rows,
    stack,
)
from nearkv.sweeps.explore.ideals import Contest, Ideals
from nearkv.sweeps.explore.pruning import Search, Visit, rows_of
from nearkv.sweeps.jobs.progress import Advance
from nearkv.sweeps.study.study import Block

ROW = "#"
"""Column of row numbers, which no user can name."""
_MOST_COMPARED = 256
"""Designs of a workload that boxes are compared with [1]."""
_AT_ONCE = 1 << 12
"""Boxes that are compared at once [1]."""

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Undominated:
    """Designs that no other beats so far.

    Attributes:
        costs: what they are compared by, less is better: (designs, columns).
        groups: number of the workload of each.
    """

    costs: Numbers
    groups: Indices

    def beat(self, ideals: Ideals) -> Mask:
        """Boxes all of whose rows a design of the same workload dominates.

        A box is no better than its ideal, so what is better than that in one column and no worse
        in any dominates all of it. Equal rows stand together: a box that may hold one stays.
        """
        is_beaten = np.zeros(len(ideals.rows), bool)
        for group in np.unique(ideals.groups):
            own = self._sample(group)
            places = np.flatnonzero(ideals.groups == group)
            for start in range(0, len(places), _AT_ONCE):
                part = places[start : start + _AT_ONCE]
                is_beaten[part] = _dominated(ideals.costs[part], own)
        return is_beaten

    def _sample(self, group: int) -> Numbers:
        """Designs of a workload, evenly spread where there are many."""
        own = self.costs[self.groups == group]
        order = np.lexsort(own.T[::-1])
        count = min(len(own), _MOST_COMPARED)
        places = np.linspace(0, len(own) - 1, count)
        chosen = order[places.astype(int)]
        sample: Numbers = own[chosen]
        return sample


def _dominated(costs: Numbers, others: Numbers) -> Mask:
    """Rows that another row beats in one column and in none is worse than."""
    shape = (len(costs), len(others))
    no_worse = np.ones(shape, bool)
    better = np.zeros(shape, bool)
    for own, other in zip(costs.T, others.T, strict=True):
        no_worse &= other <= own[:, np.newaxis]
        better |= other < own[:, np.newaxis]
    dominated: Mask = np.any(no_worse & better, axis=1)
    return dominated


def searched(
    blocks: Sequence[Block],
    contest: Contest,
    best_of: Callable[[Columns], Columns],
    costs_of: Callable[[Columns], Numbers],
    extra: Collection[str] = (),
    advance: Advance = lambda _: None,
) -> tuple[Columns, int]:
    """The rows that no other beats, in their order, and how many points were proved away.

    Args:
        blocks: all design points.
        contest: what rows are compared by.
        best_of: the rows of a table that no other of them beats.
        costs_of: what rows of a table are compared by, less is better.
        extra: as in `cells`.
        advance: counts points that are visited or proved away.

    Raises:
        InputError: a column is unknown or cannot be compared by.
    """
    table = no_rows(blocks, extra)
    table[ROW] = np.zeros(0, np.int64)
    answer = best_of(table)
    search = Search(blocks, contest)
    for table in _tables(blocks, search, extra):
        seen = stack([answer, table])
        answer = best_of(seen)
        shared = [answer[name] for name in contest.per]
        groups = contest.groups.numbers(shared, len(answer[ROW]))
        search.incumbents = Undominated(costs_of(answer), groups)
        advance(search.settled(len(table[ROW])))
    order = np.argsort(answer.pop(ROW))
    ordered = {name: column[order] for name, column in answer.items()}
    return ordered, search.proved


def _tables(
    blocks: Sequence[Block], search: Search, extra: Collection[str]
) -> Iterator[Columns]:
    """The columns of what is to be visited, with the numbers of the rows."""
    for part in search.parts():
        if isinstance(part, Visit):
            yield _visited(blocks[part.index], part, extra)
        else:
            yield from _whole(blocks, part, extra)


def _visited(block: Block, visit: Visit, extra: Collection[str]) -> Columns:
    """The columns of some boxes."""
    indices = visit.boxes.indices()
    rows = visit.first_row + rows_of(block.grid, indices)
    return {ROW: rows, **columns_at(block, indices, extra)}


def _whole(
    blocks: Sequence[Block], index: int, extra: Collection[str]
) -> Iterator[Columns]:
    """The columns of a block, box by box."""
    first = sum(block.grid.size for block in blocks[:index])
    for box in blocks[index].grid.boxes(POINTS_AT_ONCE):
        table = columns(blocks[index], box, extra=extra)
        count = len(table["system"])
        table[ROW] = np.arange(first, first + count)
        first += count
        yield table
