"""Two systems side by side along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.metrics import Answer
from nearkv.solvers.search import Crossing, Points
from nearkv.sweeps.evaluation.probe import Probe, column
from nearkv.sweeps.evaluation.targets import FAR, higher_is_better
from nearkv.sweeps.explore.lines import WORKLOAD
from nearkv.sweeps.space.study import NONE, Numbers


@dataclass(frozen=True)
class Race:
    """Two systems along an axis, compared by a column.

    Attributes:
        first, second: the systems, point for point.
        axis: `batch`, `context`, `output` or `role.key`.
        of: the column.
    """

    first: Probe
    second: Probe
    axis: str
    of: str

    @property
    def names(self) -> tuple[str, str]:
        """Names of both systems."""
        return self.first.block.system.name, self.second.block.system.name

    def columns(self, point: Points, value: Numbers) -> tuple[Numbers, Numbers]:
        """The column of each system, NaN where it does not fit."""
        return self.both(point, value, NONE, NONE)

    def both(
        self,
        point: Points,
        value: Numbers,
        ours: Mapping[str, Numbers],
        theirs: Mapping[str, Numbers],
    ) -> tuple[Numbers, Numbers]:
        """The column of each system, with hardware numbers of its own."""
        answers = []
        for probe, numbers in ((self.first, ours), (self.second, theirs)):
            answer = self.answer(probe, point, value, numbers)
            answers.append(column(answer, self.of, len(point)))
        first, second = answers
        return first, second

    def answer(
        self,
        probe: Probe,
        point: Points,
        value: Numbers,
        numbers: Mapping[str, Numbers] = NONE,
    ) -> Answer:
        """What one system answers at some values along the axis."""
        if self.axis in WORKLOAD:
            return probe.answer(point, {WORKLOAD[self.axis]: value}, numbers)
        return probe.answer(point, NONE, {**numbers, self.axis: value})

    def lead(self, point: Points, value: Numbers) -> Numbers:
        """How far the first is ahead, on a logarithmic scale.

        A system that does not fit is far behind.
        """
        better = 1.0 if higher_is_better(self.of) else -1.0
        ours, theirs = self.columns(point, value)
        with np.errstate(divide="ignore"):
            ours, theirs = better * np.log(ours), better * np.log(theirs)
        lead = np.nan_to_num(ours, nan=-FAR) - np.nan_to_num(theirs, nan=-FAR)
        limited: Numbers = np.clip(lead, -FAR, FAR)
        return limited

    def is_contested(self, crossing: Crossing) -> bool:
        """Whether on both sides of a crossing at least one system fits."""
        point = np.array([crossing.point])
        for value in (crossing.below, crossing.above):
            answers = self.columns(point, np.array([value]))
            if not np.isfinite(answers).any():
                return False
        return True
