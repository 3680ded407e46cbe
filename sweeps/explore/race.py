"""Two systems side by side along an axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.model.metrics import Answer
from nearkv.hardware.errors import InputError
from nearkv.solvers.search import CLOSE, Crossing, Points, crossings
from nearkv.sweeps.evaluate.probe import Probe, column
from nearkv.sweeps.evaluate.slo import FAR, higher_is_better
from nearkv.sweeps.explore.lines import WORKLOAD
from nearkv.sweeps.study.study import NONE, Numbers


@dataclass(frozen=True)
class Change:
    """A value along an axis at which the leader changes.

    Attributes:
        point: index of the design point.
        below, above: values on either side of it, as of a `Crossing`.
        before, after: 1 where the first system leads, -1 where the second does, 0 where neither.
    """

    point: int
    below: float
    above: float
    before: int
    after: int

    @property
    def rises(self) -> bool:
        """Whether the first system gains."""
        return self.after > self.before

    @property
    def side(self) -> int:
        """Whose being behind begins or ends here: 1 of the first, or of both; -1 of the second."""
        return -1 if self.before + self.after > 0 else 1


@dataclass(frozen=True)
class Race:
    """Two systems along an axis, compared by a column.

    Attributes:
        first, second: the systems, point for point.
        axis: `batch`, `context`, `output_tokens` or `role.key`.
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
            values = column(answer, self.of, len(point))
            self._check_filled(probe, answer, values, value)
            answers.append(values)
        first, second = answers
        return first, second

    def _check_filled(
        self, probe: Probe, answer: Answer, values: Numbers, at: Numbers
    ) -> None:
        """Refuse to call a system behind that runs and has no such number.

        Raises:
            InputError: the column is blank where the system runs.
        """
        blank = np.isnan(values) & answer.estimate.fits.ok
        if not blank.any():
            return
        name, first = probe.block.system.name, at[np.argmax(blank)]
        raise InputError(
            f"--of {self.of}: {name} runs at {self.axis} {first:g} and has no {self.of} there "
            f"(see `nearkv columns show {self.of}`); compare another column, "
            "as with --of throughput_tok_s"
        )

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

    def edges(self, side: int, count: int, values: Numbers, whole: bool) -> list[Crossing]:
        """Where the first falls behind or catches up, or (side -1) where the second does."""

        def margin(point: Points, value: Numbers) -> Numbers:
            lead: Numbers = side * self.lead(point, value)
            return lead

        edges = crossings(margin, count, values, whole)
        return [replace(edge, rises=edge.rises == (side > 0)) for edge in edges]

    def changes(self, values: Numbers, whole: bool) -> list[Change]:
        """Where the leader changes along a line of values, point by point, rising."""
        both = [
            (edge.point, edge.below, edge.above)
            for side in (1, -1)
            for edge in self.edges(side, self.first.size, values, whole)
        ]
        changes: list[Change] = []
        for point, below, above in sorted(set(both)):
            before, after = self._signs(point, below, above)
            change = Change(point, below, above, before, after)
            last = changes[-1] if changes else None
            if last and not whole and _meet(last, change):
                changes[-1] = replace(last, above=above, after=after)
            else:
                changes.append(change)
        return [change for change in changes if change.before != change.after]

    def _signs(self, point: int, *values: float) -> list[int]:
        """Who leads at some values: 1 the first, -1 the second, 0 neither."""
        points = np.full(len(values), point)
        lead = self.lead(points, np.array(values))
        return [int(sign) for sign in np.sign(lead)]

    def misfits(self, change: Change) -> list[str]:
        """Sentences on systems that have an answer on one side of a change only."""
        sentences = []
        for probe in (self.first, self.second):
            name = probe.block.system.name
            below, above = (
                self._reason(probe, change.point, value)
                for value in (change.below, change.above)
            )
            if above and not below:
                sentences.append(f"{name} no longer runs there: {above}")
            if below and not above:
                sentences.append(f"{name} does not run before: {below}")
        return sentences

    def _reason(self, probe: Probe, point: int, value: float) -> str:
        """Why a system has no answer; empty where it has one."""
        answer = self.answer(probe, np.array([point]), np.array([value]))
        fits = answer.estimate.fits
        place = int(np.ravel(fits.reason)[0])
        sentence: str = fits.reasons[place]
        return sentence

    def is_contested(self, change: Change) -> bool:
        """Whether on both sides of a change at least one system fits."""
        point = np.array([change.point])
        for value in (change.below, change.above):
            answers = self.columns(point, np.array([value]))
            if not np.isfinite(answers).any():
                return False
        return True


def _meet(last: Change, change: Change) -> bool:
    """Whether a change begins where the last ends: one, in which rounding makes both equal."""
    is_close = change.below - last.above <= CLOSE * abs(change.below)
    return last.point == change.point and is_close
