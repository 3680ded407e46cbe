"""`nearkv sensitivity`: elasticity to each number, and with `--sobol` what the band is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.schema import Key, Quantity
from nearkv.solvers.uncertainty.draws import ranks
from nearkv.solvers.uncertainty.sobol import sobol_indices
from nearkv.solvers.uncertainty.spread import SourceError
from nearkv.sweeps.evaluate.columns import evaluate
from nearkv.sweeps.evaluate.no_effect import warn_of_no_effect
from nearkv.sweeps.evaluate.probe import Probe, check_column, column
from nearkv.sweeps.study.bands import MODEL_ERROR, Band
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks, one_block
from nearkv.sweeps.tables.table import Row, Rows, plain
from nearkv.sweeps.uncertainty.model_error import VALUE, error_power, find_error, slowest
from nearkv.sweeps.uncertainty.sampled import numbers_at

ELASTICITY_STEP = 1e-4
"""Relative step, on a logarithmic scale, to either side of a number."""
JUMP_STEP = 1e-6
"""A step so small that only a discontinuity changes anything over it."""
SMALLEST_JUMP = 1e-9
MOST_MEASURED = 3
"""Numbers that are named to be measured first."""
KNOWN = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Ranks at which a number may turn out to be, all equally likely."""
LEAST_INDEX = 1e-4
"""Total index from which on an unknown is shown [1]."""
LEVEL = 90.0
"""Share inside the band where none is asked for [%]."""


def find_elasticities(study: Study, of: str) -> tuple[Rows, dict[str, Any]]:
    """Change of a column of one design point with each number of its platform.

    Solved knobs are solved anew for each change.

    Args:
        study: one system at one design point.
        of: the column.

    Returns:
        Two things. First a row per number that matters, sorted by swing, then by elasticity:

        - `value`: of the number;
        - `elasticity`: percent of change per percent, by a symmetric step on a logarithmic scale,
          or from one less to one more of what is counted;
        - `jump`: the relative change where the column is discontinuous at this very value; the
          elasticity is then that of the smooth side;
        - `swing`: of assumed and fitted numbers, the larger relative change at the ends of their
          range, with the column at both ends.

        Then the band of the prediction, that of `estimate --band`:

        - `low`, `middle`, `high`: its ends and its middle;
        - `factors`: how many numbers are drawn beside the model error;
        - `fits_share`: the share of the draws in which the design fits.

    Raises:
        InputError: not one design point, an unknown column, or a point that does not fit.
    """
    probe, value = _point(study, of)
    return _elasticities(probe, of, value), _band(study, of, value)


def _point(study: Study, of: str) -> tuple[Probe, float]:
    """The only design point of a study, and its column at the stated numbers.

    Raises:
        InputError: there are several, the column is unknown, or the point has no answer.
    """
    without_band = replace(study, band=0.0)
    block = one_block(without_band, "sensitivity")
    warn_of_no_effect(without_band, [block])
    probe = Probe(block)
    check_column(of, probe.own_columns)
    value = float(column(probe.answer(), of, 1)[0])
    if not np.isfinite(value) or not value:
        raise InputError(
            f"{of} has no value at this design point; `nearkv estimate` says why"
        )
    return probe, value


@dataclass(frozen=True)
class _Factor:
    """A hardware number that may matter.

    Attributes:
        address: `role.key`.
        quantity: the number.
        key: its meaning, with the unit that people read it in.
    """

    address: str
    quantity: Quantity
    key: Key

    @property
    def looks(self) -> list[float]:
        """Values to look at: below, just below, just above, above, and both ends of the range."""
        value = self.quantity.si
        if self.key.whole:
            below, above = max(value - 1, 1.0), value + 1
            around = [below, value, value, above]
        else:
            steps = np.array([-ELASTICITY_STEP, -JUMP_STEP, JUMP_STEP, ELASTICITY_STEP])
            around = (value * np.exp(steps)).tolist()
        both_ends = self.quantity.range_si or (value, value)
        return [*around, *both_ends]


def _factors(block: Block) -> list[_Factor]:
    """Numbers of the platform that neither the study sets nor follow others.

    A zero has no elasticity.
    """
    platform = block.platform
    fixed = {*block.sets.values(), *platform.follows}
    return [
        _Factor(address, quantity, platform.key(address))
        for address, quantity in platform.numbers.items()
        if quantity.si and address not in fixed
    ]


def _elasticities(probe: Probe, of: str, value: float) -> Rows:
    """All factors in one evaluation: each has points of its own in which it alone changes."""
    factors = _factors(probe.block)
    if not factors:
        return []
    looks = np.array([factor.looks for factor in factors])
    numbers = {}
    for i, factor in enumerate(factors):
        changed = np.full(looks.shape, factor.quantity.si)
        changed[i] = looks[i]
        numbers[factor.address] = changed.ravel()
    answer = probe.answer(np.zeros(looks.size, np.intp), numbers=numbers)
    answers = column(answer, of, looks.size).reshape(looks.shape)
    rows = [
        _row(factor, of, at, there, value)
        for factor, at, there in zip(factors, looks, answers, strict=True)
    ]
    rows = [row for row in rows if row.pop("matters")]
    return sorted(rows, key=_importance, reverse=True)


def _importance(row: Row) -> tuple[float, float]:
    """The swing of the column over a number's range; on ties its elasticity decides."""
    return row["swing"] or 0.0, abs(row["elasticity"] or 0.0)


def _row(
    factor: _Factor, of: str, looks: Numbers, answers: Numbers, value: float
) -> dict[str, Any]:
    quantity, key = factor.quantity, factor.key
    around, there = looks[:4], answers[:4]
    slope, jump = _slope(np.log(around), there, value)
    is_ranged = quantity.range_si is not None
    low, high = map(key.shown, quantity.range_si or (np.nan, np.nan))
    at_low, at_high = answers[4:]
    swing = np.nanmax(np.abs(answers[4:] / value - 1), initial=0.0)
    return {
        "number": factor.address,
        "value": key.shown(quantity.si),
        "unit": key.shown_in,
        "kind": quantity.kind,
        "swing": plain(swing) if is_ranged else None,
        "elasticity": plain(slope),
        "jump": jump or None,
        "low": plain(low),
        "high": plain(high),
        of: plain(value),
        f"{of}_at_low": plain(at_low) if is_ranged else None,
        f"{of}_at_high": plain(at_high) if is_ranged else None,
        "matters": slope != 0 or jump or (is_ranged and at_low != at_high),
    }


def _slope(places: Numbers, answers: Numbers, value: float) -> tuple[float, float]:
    """Elasticity, and the jump where the column is discontinuous at the number's own value.

    A change over the small step that is not small beside that over the large one is a jump. A side
    without an answer, as a count that the heads do not divide over, leaves the other.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        below, near_below, near_above, above = np.log(answers / value)
    jumps_below = _is_jump(near_below, below)
    jumps_above = _is_jump(near_above, above)
    skips_below = jumps_below or np.isnan(below)
    skips_above = jumps_above or np.isnan(above)
    if skips_below == skips_above:
        slope = (above - below) / (places[3] - places[0])
    elif skips_below:
        slope = (above - near_above) / (places[3] - places[2])
    else:
        slope = (near_below - below) / (places[1] - places[0])
    jump = 0.0
    if jumps_below or jumps_above:
        jump = float(np.exp(near_above - near_below)) - 1
    return float(slope), jump


def _is_jump(near: float, far: float) -> bool:
    return bool(abs(near) > max(SMALLEST_JUMP, abs(far) / 2))


def _band(study: Study, of: str, value: float) -> dict[str, Any]:
    """The band of the column, that of `estimate`."""
    band = study if study.band else replace(study, band=LEVEL)
    (block,) = blocks(band)
    (table,) = evaluate([block])
    assert block.band is not None
    columns = [f"{of}_{end}" for end in block.band.suffixes]
    low, middle, high = (float(table[name][0]) for name in columns)
    return {
        of: value,
        "level": block.band.level,
        "low": low,
        "middle": middle,
        "high": high,
        "factors": len(block.draws),
        "samples": block.band.samples,
        "fits_share": float(table["fits_share"][0]),
    }


def importance(study: Study, of: str) -> tuple[Rows, list[str]]:
    """Sobol's indices of the unknowns of one design point, and what knowing each would do.

    The indices are shares of the variance of the column's logarithm. `first` is what a number
    explains alone, `total` what remains if all others are known; each has its standard error.
    `width_if_known` is the upper over the lower end of the band once the number is known, the mean
    over what it may turn out to be.

    Args:
        study: one system at one design point.
        of: the column.

    Returns:
        A row an unknown, that with the largest total index first; and sentences on the width of
        the band, and on the numbers to measure first.

    Raises:
        InputError: not one design point, an unknown column, or a point without an answer.
    """
    check_known("column", [of], COLUMNS, "--of")
    (probe, value), samples = _point(study, of), study.samples
    block = probe.block
    draws = block.draws
    names = sorted({MODEL_ERROR, *draws.values()})
    stated = probe.answer().estimate
    (place,), mechanisms = slowest(block, stated, (1,))
    law = find_error(mechanisms[place], VALUE, block.system.cite).law
    logarithm = partial(_logarithm, probe, of, law)
    indices = sobol_indices(logarithm, names, samples, study.seed)
    drawn = dict(ranks(tuple(names), samples, study.seed))
    band = Band(study.band or LEVEL, samples, study.seed)
    rows: Rows = []
    for name, index in indices.items():
        if index.total < LEAST_INDEX:
            continue
        known = [{**drawn, name: np.full(samples, rank)} for rank in KNOWN]
        widths = [_width(logarithm(ranks_then), band) for ranks_then in known]
        addresses = [address for address, draw in draws.items() if draw == name]
        rows.append(
            {
                "number": ", ".join(addresses) or name,
                "first": index.first,
                "first_error": index.first_error,
                "total": index.total,
                "total_error": index.total_error,
                "width_if_known": float(np.mean(widths)),
            }
        )
    rows.sort(key=lambda row: -row["total"])
    width = _width(logarithm(drawn), band)
    sentences = [f"{of} = {value:.4g}, in a band {width:.3g}x wide"]
    measurable = [row for row in rows if row["number"] != MODEL_ERROR]
    measurable.sort(key=lambda row: row["width_if_known"])
    for row in measurable[:MOST_MEASURED]:
        narrower = f"from {width:.3g}x to {row['width_if_known']:.3g}x"
        sentences.append(f"measure {row['number']}: the band narrows {narrower}")
    return rows, sentences


def _width(logarithms: Numbers, band: Band) -> float:
    """Upper over lower end of a band [1]."""
    low, _, high = np.quantile(logarithms, band.shares)
    return float(np.exp(high - low))


def _logarithm(
    probe: Probe, of: str, law: SourceError, rank: Mapping[str, Numbers]
) -> Numbers:
    """Logarithm of the column at ranks of everything that is drawn, model error included.

    A draw in which the design does not fit has its time all the same.
    """
    error = error_power(of) * law.quantile(rank[MODEL_ERROR])
    points = np.zeros(len(error), np.intp)
    answer = probe.answer(points, numbers=numbers_at(probe.block, rank))
    values = COLUMNS[of].compute(answer)
    logarithms: Numbers = np.log(values) + error
    return logarithms
