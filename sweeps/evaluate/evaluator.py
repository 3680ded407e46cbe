"""Evaluate a block box by box; of a large one, repeat on each box what the first ones recorded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nearkv.sweeps.evaluate.cells import Points, cells, cells_at
from nearkv.sweeps.evaluate.notes import Names
from nearkv.sweeps.evaluate.recorded import arrays_in, values_in
from nearkv.sweeps.evaluate.recording import Part, Recording
from nearkv.sweeps.evaluate.replay import Replay
from nearkv.sweeps.evaluate.times import Cell
from nearkv.sweeps.study.grid import Box
from nearkv.sweeps.study.study import Block

MANY = 1 << 21
"""A block of fewer design points is done before a recording pays."""
FUSED = 1 << 25
"""A block of fewer design points is done before compiled loops pay."""
_MOST_RECORDINGS = 64
"""Where boxes differ so often in what Python decides, recording is given up."""

_MOST_FIXED = 1 << 13
"""Points of the axes that are constants of a recording; it keeps a few hundred arrays of them."""

Cells = dict[str, Cell]


class Evaluator:
    """The columns of one block.

    Args:
        block: the design points.
        wanted, extra: as in `cells`.

    Attributes:
        replays: what was recorded, by what each recording holds for.
    """

    def __init__(
        self,
        block: Block,
        wanted: Collection[str] = (),
        extra: Collection[str] = (),
    ) -> None:
        self._block, self._wanted, self._extra = block, wanted, extra
        self.replays: dict[object, Replay] = {}
        self._records = block.is_closed_form and block.grid.size >= MANY
        self._fuses = block.grid.size >= FUSED

    def cells(self, box: Box) -> Cells:
        """The columns of a box, repeated where its like was computed before."""
        if not self._records:
            return cells(self._block, box, self._wanted, self._extra)
        axes = _Axes(self._block, box)
        replay = self.replays.setdefault(axes.fixed, Replay(self._fuses))
        answer = replay.run([axes.part])
        if answer is not None:
            return _unpacked(*answer)
        recorded = None
        if replay.recordings < _MOST_RECORDINGS:
            recorded = self._recorded(axes, replay)
        return recorded or cells(self._block, box, self._wanted, self._extra)

    def _recorded(self, axes: _Axes, replay: Replay) -> Cells | None:
        """The columns of one box, recorded; None where its system cannot be."""
        recording = Recording(axes.part, len(self._block.grid.axes), replay.glimpses)
        try:
            points = axes.recorded(recording)
            computed = cells_at(self._block, points, self._wanted, self._extra)
        except Exception:  # a true problem comes up again without a recording
            self._records = False
            return None
        numbers, texts = _packed(computed)
        replay.add(recording, values_in(numbers), texts)
        return _unpacked(arrays_in(numbers), texts)


class _Axes:
    """The axes of a box: those that are the same in many boxes, and those that are not.

    Short axes whose values are all in the box are constants of a recording, and so is what
    depends on them alone; axes of names decide which numbers a system reads.

    Attributes:
        fixed: what one recording holds for: the constant values and the extents of the others.
        part: what the box takes of arrays over the whole grid.
    """

    def __init__(self, block: Block, box: Box) -> None:
        self._block, self._box = block, box
        self.part = Part(box)
        fixed: list[object] = []
        self._varying: list[int] = []
        points = 1
        places = reversed(list(enumerate(zip(block.grid.axes, box, strict=True))))
        for place, (axis, side) in places:
            extent = side.stop - side.start
            is_whole = extent == len(axis.values) and points * extent <= _MOST_FIXED
            if axis.labels or is_whole:
                fixed.append((side.start, side.stop))
                points *= extent
            else:
                fixed.append(extent)
                self._varying.append(place)
        self.fixed = tuple(fixed)

    def recorded(self, recording: Recording) -> Points:
        """The points of the box, with recorded arrays along the axes that vary."""
        meshes = []
        for grid in (self._block.grid, self._block.display_grid):
            mesh: dict[str, Any] = {**grid.mesh(self._box)}
            whole = grid.mesh(grid.whole)
            for place in self._varying:
                name = grid.axes[place].name
                mesh[name] = recording.input(whole[name])
            meshes.append(mesh)
        return Points(*meshes)


def _packed(computed: Mapping[str, Cell]) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Numbers of columns, and each column's name with the text they are places of."""
    numbers: list[Any] = []
    texts: list[tuple[str, Any]] = []
    for column, cell in computed.items():
        if isinstance(cell, Names):
            numbers.append(cell.places)
            texts.append((column, cell.names))
        else:
            numbers.append(cell)
            texts.append((column, None))
    return numbers, texts


def _unpacked(numbers: Sequence[Any], texts: Sequence[tuple[str, Any]]) -> Cells:
    columns: Cells = {}
    for (column, names), number in zip(texts, numbers, strict=True):
        columns[column] = number if names is None else Names(number, names)
    return columns
