"""Ask a block at any values of its axes or of hardware numbers: design points as a flat list, not a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.metrics import COLUMNS, Answer
from hardware.errors import InputError
from solvers.knobs import settle
from sweeps.study import NONE, Block, Numbers
from sweeps.table import plain

Points = NDArray[np.intp]


@dataclass(frozen=True)
class Probe:
    """The design points of a block, in row-major order of its grid, open to questions about others near them."""

    block: Block

    def __post_init__(self) -> None:
        if self.block.method != "fluid":
            raise InputError(
                f"--method {self.block.method} is for estimate, compare and sweep; a search asks the fluid model"
            )

    @cached_property
    def axes(self) -> Mapping[str, Numbers]:
        """Value of every axis at every design point."""
        grid = self.block.grid
        return {name: np.broadcast_to(v, grid.shape).ravel() for name, v in grid.mesh(grid.whole).items()}

    @property
    def size(self) -> int:
        """Number of design points."""
        return self.block.grid.size

    def answer(
        self, point: Points, axes: Mapping[str, Numbers] = NONE, numbers: Mapping[str, Numbers] = NONE
    ) -> Answer:
        """What the system says at some points with some axes or hardware numbers changed.

        Args:
            point: indices of design points.
            axes: new values of axes by name, one each point asked.
            numbers: new values of hardware numbers by `role.key`, in SI, one each point asked.
        """
        mesh = {name: values[point] for name, values in self.axes.items()} | dict(axes)
        hw, llm, work, said = self.block.at(mesh, numbers)
        return Answer(settle(self.block.system, hw, llm, work, said).estimate, hw, self.block.system.owns)

    def names(self, point: int) -> dict[str, Any]:
        """What tells a design point from the others: system, model, platform, and every axis."""
        model = self.block.parts[int(self.axes["model"][point])].name
        labels = {axis.name: axis.labels for axis in self.block.grid.axes if axis.labels}
        rest = {
            name: labels[name][int(values[point])] if name in labels else plain(values[point])
            for name, values in self.axes.items()
            if name != "model"
        }
        return {"system": self.block.system.name, "model": model, "platform": self.block.platform.name} | rest


def column(answer: Answer, name: str, size: int) -> Numbers:
    """A column at every point asked, NaN where it does not fit."""
    found = np.where(answer.estimate.fits.ok, COLUMNS[name].compute(answer), np.nan)
    return np.broadcast_to(found, (size,)).astype(float)


def bottleneck(answer: Answer, size: int, of: str = "total") -> NDArray[np.str_]:
    """The resource to blame for most of the time, or the memory that is short.

    Args:
        answer: of some points.
        size: how many.
        of: `prefill`, `step` or `total`.
    """
    blame = getattr(answer.estimate, of).blame()
    seconds = np.stack([np.broadcast_to(value, (size,)) for value in blame.values()])
    worst = np.array(list(blame))[np.argmax(seconds, axis=0)]
    short = np.broadcast_to(answer.estimate.fits.limited_by, (size,))
    named: NDArray[np.str_] = np.where(short == "", worst, np.char.add(short, " memory"))
    return named
