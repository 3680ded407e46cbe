"""Evaluate a block at any values of its axes or of hardware numbers.

Its design points are a flat list, not a grid.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Indices, Numbers, first_longest
from nearkv.costmodel.model.metrics import COLUMNS, Evaluated
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Mesh, scalar
from nearkv.sweeps.tables.table import Row, plain

FIRST = np.zeros(1, np.intp)
"""Index of the first design point."""


@dataclass(frozen=True)
class Probe:
    """The design points of a block, and the system's answers at and near them.

    Attributes:
        block: whose points these are, in row-major order of its grid.
    """

    block: Block

    def __post_init__(self) -> None:
        if self.block.method != "fluid":
            raise InputError(
                f"--method {self.block.method} is for estimate, compare and sweep; "
                "a search asks the fluid model"
            )
        if self.block.band is not None:
            raise InputError(
                "--band: this question has no band; leave it out, or ask estimate or compare"
            )

    @cached_property
    def axes(self) -> Mesh:
        """Value of every axis at every design point."""
        grid = self.block.grid
        return {
            name: np.broadcast_to(v, grid.shape).ravel()
            for name, v in grid.mesh(grid.whole).items()
        }

    @cached_property
    def own_columns(self) -> tuple[str, ...]:
        """Columns of numbers that only this system has."""
        return tuple(self.answer().estimate.columns)

    @property
    def size(self) -> int:
        """Number of design points."""
        return self.block.grid.size

    def answer(
        self,
        point: Indices = FIRST,
        axes: Mesh = NO_NUMBERS,
        numbers: Mesh = NO_NUMBERS,
    ) -> Evaluated:
        """The system's estimate at some points, with some axes or hardware numbers changed.

        Args:
            point: indices of design points.
            axes: new values of axes by name, one per point.
            numbers: new values of hardware numbers by `role.key`, in SI, one per point.
        """
        mesh = {name: values[point] for name, values in self.axes.items()}
        mesh |= axes
        return self.block.answer(mesh, numbers)

    def names(self, point: int, without: Collection[str] = ()) -> Row:
        """The columns that identify a design point: system, model, platform and its axes.

        Args:
            point: index of the design point.
            without: names of axes to leave out.
        """
        block, shape = self.block, self.block.grid.shape
        places = np.unravel_index(point, shape)
        names = {
            "system": block.system.name,
            "model": block.grid.axes[0].labels[places[0]],
            "platform": block.platform.name,
            **block.platform.part_columns,
        }
        for axis, shown, place in zip(
            block.grid.axes[1:], block.display_grid.axes[1:], places[1:], strict=True
        ):
            if axis.name not in without:
                value = shown.values[place]
                names[shown.name] = (
                    shown.labels[int(value)] if shown.labels else plain(value)
                )
        return names


def column(answer: Evaluated, name: str, size: int) -> Numbers:
    """A column at every point of an answer, NaN where the design does not fit."""
    own = answer.estimate.columns
    values = own[name] if name in own else COLUMNS[name].compute(answer)
    shown = np.where(answer.estimate.fits.ok, values, np.nan)
    return np.broadcast_to(shown, (size,)).astype(float)


def check_column(name: str, *own: Sequence[str]) -> None:
    """Refuse a column that neither every system has nor each of those asked, as their own.

    Raises:
        InputError: it is such a column.
    """
    shared = set(own[0]).intersection(*own[1:])
    known = [*COLUMNS, *sorted(shared)]
    check_known("column", [name], known, "--of")


def bottleneck(answer: Evaluated, of: str) -> str:
    """The resource that takes most of the time at one point, or the memory that is short.

    Args:
        answer: of the system.
        of: the span, `prefill`, `step` or `total`.
    """
    if memory := str(np.ravel(answer.estimate.fits.short_of)[0]):
        return f"{memory} memory"
    seconds = getattr(answer.estimate, of).attribution()
    return str([*seconds][int(scalar(first_longest(seconds.values())))])
