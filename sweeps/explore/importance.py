"""`nearkv sensitivity --sobol`: which unknown numbers make a band, and what measuring them buys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError, unknown
from nearkv.solvers.uncertainty.draws import ranks
from nearkv.solvers.uncertainty.indices import Index, sobol_indices
from nearkv.solvers.uncertainty.spread import scores
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.explore.explain import one_point
from nearkv.sweeps.explore.rows import Rows
from nearkv.sweeps.study.bands import MODEL_ERROR, Band
from nearkv.sweeps.study.study import Numbers, Study
from nearkv.sweeps.uncertainty.model_error import VALUE, error_power, spreads
from nearkv.sweeps.uncertainty.numbers import drawn_number

FIRST = 3
"""Numbers that are named to be measured first."""
LEVEL = 90.0
KNOWN = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Ranks at which a number may turn out to be, all equally likely."""
LEAST = 1e-4
"""Total index from which on an unknown is shown [1]."""


@dataclass(frozen=True)
class Importance:
    """What a band is made of.

    Attributes:
        rows: a row an unknown, that with the largest total index first.
        of: the column.
        value: its value at the stated numbers.
        width: upper over lower end of its band [1].
    """

    rows: Rows
    of: str
    value: float
    width: float

    @property
    def advice(self) -> list[str]:
        """Which numbers to measure first, one sentence each."""
        measurable = [row for row in self.rows if row["number"] != MODEL_ERROR]
        measurable.sort(key=lambda row: row["width_if_known"])
        sentences = []
        for row in measurable[:FIRST]:
            narrower = f"from {self.width:.3g}x to {row['width_if_known']:.3g}x"
            sentences.append(f"measure {row['number']}: the band narrows {narrower}")
        return sentences


def importance(study: Study, of: str) -> Importance:
    """Sobol's indices of the unknowns of one design point, and what knowing each would do.

    The indices are shares of the variance of the column's logarithm. `first` is what a number
    explains alone, `total` what remains if all others are known; each has its standard error.
    `width_if_known` is the upper over the lower end of the band once the number is known, the mean
    over what it may turn out to be.

    Args:
        study: one system at one design point.
        of: the column.

    Raises:
        InputError: not one design point, an unknown column, or a point without an answer.
    """
    if of not in COLUMNS:
        raise unknown("column", of, COLUMNS, "--of")
    point = _Point.of_study(study, of)
    samples = study.samples
    indices = sobol_indices(point.logarithm, point.names, samples, study.seed)
    drawn = dict(ranks(tuple(point.names), samples, study.seed))
    band = Band(study.band or LEVEL, samples, study.seed)
    rows = []
    for name, index in indices.items():
        if index.total < LEAST:
            continue
        widths = []
        for rank in KNOWN:
            known = {**drawn, name: np.full(samples, rank)}
            widths.append(_width(point.logarithm(known), band))
        rows.append(_row(point, name, index, float(np.mean(widths))))
    rows.sort(key=lambda row: -row["total"])
    return Importance(
        rows=rows,
        of=of,
        value=point.value,
        width=_width(point.logarithm(drawn), band),
    )


def _width(logarithms: Numbers, band: Band) -> float:
    low, _, high = np.quantile(logarithms, band.shares)
    return float(np.exp(high - low))


def _row(point: _Point, name: str, index: Index, width: float) -> dict[str, Any]:
    addresses = [address for address, draw in point.draws.items() if draw == name]
    return {
        "number": ", ".join(addresses) or name,
        "first": index.first,
        "first_error": index.first_error,
        "total": index.total,
        "total_error": index.total_error,
        "width_if_known": width,
    }


@dataclass(frozen=True)
class _Point:
    """One design point and a column, as a function of the ranks of all unknowns.

    Attributes:
        probe: the block of one point.
        of: the column.
        value: at the stated numbers.
        error: spread of the model error, with the sign by which the column answers to it [1].
    """

    probe: Probe
    of: str
    value: float
    error: float

    @classmethod
    def of_study(cls, study: Study, of: str) -> _Point:
        """The only design point of a study.

        Raises:
            InputError: there are several, or it has no answer.
        """
        probe = Probe(one_point(replace(study, band=0.0), "sensitivity"))
        answer = probe.answer(np.zeros(1, np.intp))
        value = float(np.ravel(COLUMNS[of].compute(answer))[0])
        if not (answer.estimate.fits.ok and np.isfinite(value) and value > 0):
            raise InputError(
                f"{of} has no value at this design point; `nearkv estimate` says why"
            )
        size = spreads(probe.block, answer.estimate, (1,), VALUE)
        return cls(probe, of, value, error_power(of) * float(np.ravel(size)[0]))

    @property
    def draws(self) -> dict[str, str]:
        """Uncertain numbers, and the draw of each."""
        return self.probe.block.draws

    @property
    def names(self) -> list[str]:
        """Everything that is drawn."""
        return sorted({MODEL_ERROR, *self.draws.values()})

    def logarithm(self, rank: Mapping[str, Numbers]) -> Numbers:
        """Logarithm of the column at ranks of everything that is drawn.

        A draw in which the design does not fit has its time all the same.
        """
        platform = self.probe.block.platform
        numbers = {}
        for address, name in self.draws.items():
            numbers[address] = drawn_number(platform, address, rank[name])
        error = scores(rank[MODEL_ERROR])
        count = len(error)
        answer = self.probe.answer(np.zeros(count, np.intp), numbers=numbers)
        values = np.broadcast_to(COLUMNS[self.of].compute(answer), (count,))
        logarithms: Numbers = np.log(values) + self.error * error
        return logarithms
