"""What a sweep does and in which order: numbered rows, cut into pieces that any worker can evaluate alone."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from nearkv.hardware.errors import once, unknown
from nearkv.sweeps.evaluation.evaluate import POINTS_AT_ONCE, Names, cells, merge
from nearkv.sweeps.space.grid import Box
from nearkv.sweeps.space.study import Block, Study, blocks

Kind = Literal["text", "flag", "whole", "number"]


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a sweep, small enough for one task.

    Attributes:
        first: number of its first row.
        rows: how many.
        boxes: where they come from, in order: place of the block, box of its grid.
    """

    first: int
    rows: int
    boxes: tuple[tuple[int, Box], ...]


@dataclass(frozen=True)
class Plan:
    """All rows of a study, in a fixed order: block by block, each in row-major order of its grid.

    Attributes:
        laid: the blocks.
        kinds: columns in order, and what each holds in every row.
        full: columns that are blank nowhere.
    """

    laid: tuple[Block, ...]
    kinds: Mapping[str, Kind]
    full: frozenset[str]

    @property
    def size(self) -> int:
        """Number of rows, which is that of design points."""
        return sum(block.grid.size for block in self.laid)

    def pieces(self, most: int) -> Iterator[Piece]:
        """Cut the rows into pieces of about so many; the cuts depend on nothing else."""
        first, rows = 0, 0
        capacity_check: list[tuple[int, Box]] = []
        for place, block in enumerate(self.laid):
            for box in block.grid.boxes(min(POINTS_AT_ONCE, most)):
                here = size_of(box)
                if capacity_check and rows + here > most:
                    yield Piece(first, rows, tuple(capacity_check))
                    first, rows, capacity_check = first + rows, 0, []
                capacity_check.append((place, box))
                rows += here
        yield Piece(first, rows, tuple(capacity_check))

    def sample(self, most: int) -> Piece:
        """At most so many rows from the beginning of the largest block."""
        place = max(range(len(self.laid)), key=lambda place: self.laid[place].grid.size)
        box = next(self.laid[place].grid.boxes(most))
        return Piece(0, size_of(box), ((place, box),))

    def packed(self) -> bytes:
        """The plan as it travels to workers; `unpacked` reads it."""
        return pickle.dumps(self)


@lru_cache(maxsize=4)
def unpacked(plan: bytes) -> Plan:
    """Read a plan that came with a task; the tasks of one sweep share it."""
    found: Plan = pickle.loads(plan)
    return found


def size_of(box: Box) -> int:
    """Number of design points in a box."""
    return math.prod(piece.stop - piece.start for piece in box)


def plan(study: Study, only: Sequence[str] = ()) -> Plan:
    """Lay a study out as rows.

    Args:
        study: what to evaluate.
        only: columns to compute, in that order; all where none is named.

    Raises:
        InputError: the study cannot be evaluated, or a name is no column or comes twice.
    """
    laid = tuple(blocks(study))
    kinds, full = _kinds(laid)
    return Plan(laid, chosen(kinds, only), full)


def chosen(kinds: Mapping[str, Kind], only: Sequence[str]) -> Mapping[str, Kind]:
    """The columns that are named, in that order; all where none is.

    Raises:
        InputError: a name is no column or comes twice.
    """
    for name in once(only, "--columns"):
        if name not in kinds:
            raise unknown("column", name, kinds, "--columns")
    return {name: kinds[name] for name in only} if only else kinds


def _kinds(laid: Sequence[Block]) -> tuple[dict[str, Kind], frozenset[str]]:
    """Columns of all blocks, and those that every block has in every row; evaluates one design point of each."""
    found: list[dict[str, Kind]] = []
    for block in laid:
        point = tuple(slice(0, 1) for _ in block.grid.axes)
        whole = {
            axis.name
            for axis in block.display_grid.axes
            if not axis.labels and np.all(axis.values % 1 == 0)
        }
        whole |= {name for name, knob in block.system.knobs.items() if knob.kind == "count"}
        found.append(
            {name: _kind(cell, name in whole) for name, cell in cells(block, point).items()}
        )
    kinds: dict[str, Kind] = {}
    for name in merge(found):
        several = {one[name] for one in found if name in one}
        kinds[name] = (
            several.pop() if len(several) == 1 else "text" if "text" in several else "number"
        )
    everywhere = frozenset.intersection(*(frozenset(one) for one in found))
    return kinds, frozenset(name for name in everywhere if kinds[name] != "number")


def _kind(cell: object, whole: bool) -> Kind:
    if isinstance(cell, Names):
        return "text"
    if np.asarray(cell).dtype.kind == "b":
        return "flag"
    return "whole" if whole else "number"
