"""Plan of a sweep: numbered rows, in pieces that any worker can evaluate, and their digest."""

from __future__ import annotations

import hashlib
import json
import math
import pickle
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Literal

import numpy as np

from nearkv.sweeps.evaluate.columns import (
    FOOTPRINT,
    ON_REQUEST,
    Cell,
    cells,
    is_asked,
    merge,
)
from nearkv.sweeps.evaluate.no_effect import checked_blocks
from nearkv.sweeps.evaluate.provenance import package_digest
from nearkv.sweeps.study.grid import Block, Slices, shape_of
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Categories, check_columns, is_whole

ColumnKind = Literal["text", "whole", "number"]


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a sweep, small enough for one task.

    Attributes:
        number: its place among the pieces.
        first: number of its first row.
        rows: how many.
        boxes: where they come from, in order: index of the block, box of its grid.
    """

    number: int
    first: int
    rows: int
    boxes: tuple[tuple[int, Slices], ...]


@dataclass(frozen=True)
class Plan:
    """All rows of a study, in a fixed order: block by block, each in row-major order of its grid.

    Attributes:
        blocks: the parts of the study.
        kinds: columns in order, and what each holds in every row.
    """

    blocks: tuple[Block, ...]
    kinds: Mapping[str, ColumnKind]

    @property
    def size(self) -> int:
        """Number of rows, which is that of design points."""
        return sum(block.grid.size for block in self.blocks)

    def pieces(self, most: int) -> Iterator[Piece]:
        """Cut the rows into pieces of at most `most` rows; the cuts depend on nothing else."""
        number = first = rows = 0
        boxes: list[tuple[int, Slices]] = []
        for index, block in enumerate(self.blocks):
            for box in block.grid.boxes(min(block.at_once, most)):
                more = size_of(box)
                if boxes and rows + more > most:
                    yield Piece(number, first, rows, tuple(boxes))
                    number += 1
                    first += rows
                    rows, boxes = 0, []
                boxes.append((index, box))
                rows += more
        yield Piece(number, first, rows, tuple(boxes))

    def sample(self, most: int) -> Piece:
        """At most `most` rows from the beginning of the largest block."""
        sizes = [block.grid.size for block in self.blocks]
        index = sizes.index(max(sizes))
        box = next(self.blocks[index].grid.boxes(most))
        return Piece(0, 0, size_of(box), ((index, box),))

    def cells(self, index: int, box: Slices, wanted: Sequence[str]) -> dict[str, Cell]:
        """Columns of a box of a block, blank where the block lacks them."""
        answered = cells(self.blocks[index], box, wanted)
        no_text = Categories(np.zeros((), int), ("",))
        for name in wanted:
            if name not in answered:
                answered[name] = no_text if self.kinds[name] == "text" else np.nan
        return {name: answered[name] for name in wanted}

    def packed(self) -> bytes:
        """The plan as it travels to workers, behind a digest of the code that it needs there."""
        return package_digest().encode() + pickle.dumps(self)


@lru_cache(maxsize=4)
def unpacked(packed: bytes) -> Plan:
    """Read a plan that came with a task; the tasks of one sweep share it.

    Raises:
        RuntimeError: this is another version of nearkv than the one that packed it.
    """
    own = package_digest().encode()
    if not packed.startswith(own):
        host = socket.gethostname()
        raise RuntimeError(
            f"a worker on {host} is another version of nearkv; install it there"
        )
    rows: Plan = pickle.loads(packed[len(own) :])
    return rows


def size_of(box: Slices) -> int:
    """Number of design points in a box."""
    return math.prod(shape_of(box))


def plan(study: Study, only: Sequence[str] = (), extra: Sequence[str] = ()) -> Plan:
    """The rows of a study.

    Args:
        study: what to evaluate.
        only: columns to compute, in that order; all where none is named.
        extra: of `ON_REQUEST`: what to compute besides, where none is named.

    Raises:
        InputError: the study cannot be evaluated, or a name is no column or comes twice.
    """
    parts = tuple(checked_blocks(study))
    return Plan(parts, chosen(_kinds(parts), only, extra))


def chosen(
    kinds: Mapping[str, ColumnKind], only: Sequence[str], extra: Sequence[str] = ()
) -> Mapping[str, ColumnKind]:
    """The columns that are named, in that order; where none is, all but those on request.

    Of those on request, columns that begin as `extra` stay.

    Raises:
        InputError: a name is no column or comes twice.
    """
    check_columns(kinds, only)
    if only:
        return {name: kinds[name] for name in only}
    return {name: kind for name, kind in kinds.items() if is_asked(name, (), extra)}


def all_columns(study: Study) -> tuple[str, ...]:
    """Names of all columns of a study with the seconds of each resource.

    Raises:
        InputError: the study cannot be evaluated.
    """
    return tuple(name for name in _kinds(blocks(study)) if not name.startswith(FOOTPRINT))


def _kinds(parts: Sequence[Block]) -> dict[str, ColumnKind]:
    """Columns of all blocks, and what each holds: what its values have in common."""
    by_block = [_block_kinds(block) for block in parts]
    kinds: dict[str, ColumnKind] = {}
    for name in merge(by_block):
        own = {block_kinds[name] for block_kinds in by_block if name in block_kinds}
        kinds[name] = own.pop() if len(own) == 1 else "text" if "text" in own else "number"
    return kinds


def _block_kinds(block: Block) -> dict[str, ColumnKind]:
    """Columns of a block; evaluates its first design point."""
    point = tuple(slice(0, 1) for _ in block.grid.axes)
    knobs = block.system.knobs
    whole = {name for name, knob in knobs.items() if knob.kind == "count"}
    solved = {knob.share for knob in knobs.values()}  # in place of what stands on its axis
    for axis in block.display_grid.axes:
        if not axis.labels and is_whole(axis.values) and axis.name not in solved:
            whole.add(axis.name)
    kinds: dict[str, ColumnKind] = {}
    for name, cell in cells(block, point, extra=ON_REQUEST).items():
        number: ColumnKind = "whole" if name in whole else "number"
        kinds[name] = "text" if isinstance(cell, Categories) else number
    return kinds


def digest_of(study: object) -> str:
    """Digest of a study, and of the packages that turn it into bytes.

    Every field counts, down to each number of each layer of a model, so that nothing must be
    thought of here when a block gets another field.

    Args:
        study: blocks, columns and all else that the rows depend on.
    """
    packages = [package_digest(), version("numpy"), version("pyarrow")]
    text = json.dumps([study, packages], default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    """Form of a value for which JSON has none, equal for equal values alone.

    Raises:
        TypeError: there is no such form.
    """
    if is_dataclass(value):
        compared = [item.name for item in fields(value) if item.compare]
        named = {name: getattr(value, name) for name in compared}
        return {"": type(value).__name__, **named}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, np.ndarray | np.generic):
        return [value.dtype.str, value.shape, value.tobytes().hex()]
    if callable(value):  # what it does is in the code of nearkv or of the plugin
        return [value.__module__, value.__qualname__]
    raise TypeError(f"{type(value).__name__} has no digest")
