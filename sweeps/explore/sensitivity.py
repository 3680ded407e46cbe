"""`nearkv sensitivity`: elasticity to each hardware number, and the band that assumptions leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.hardware.quantity import Quantity
from nearkv.sweeps.evaluate.evaluate import evaluate
from nearkv.sweeps.evaluate.probe import Probe, check_column, column
from nearkv.sweeps.explore.explain import one_point
from nearkv.sweeps.explore.rows import Rows
from nearkv.sweeps.study.study import Block, Numbers, Study, blocks
from nearkv.sweeps.tables.table import plain

STEP = 1e-4
"""Relative step, on a logarithmic scale, to either side of a number."""
NEAR = 1e-6
"""A step so small that only a discontinuity changes anything over it."""
SMALLEST_JUMP = 1e-9
LEVEL = 90.0
"""Share inside the band where none is asked for [%]."""


def sensitivity(study: Study, of: str) -> tuple[Rows, dict[str, Any]]:
    """How a column of one design point changes with each number of its platform.

    Solved knobs are solved anew for each change.

    Args:
        study: one system at one design point.
        of: the column.

    Returns:
        A row per number that matters: its value; `elasticity`, percent of change per percent, by a
        symmetric step on a logarithmic scale, or from one less to one more of what is counted;
        `jump`, the relative change where the column is discontinuous at this very value (the
        elasticity is then that of the smooth side); and for assumed and fitted numbers the column
        at both ends of their range. Sorted by what matters most. And the band of the prediction,
        that of `estimate --band`: its `low` and `high` end and `middle`, how many numbers are drawn
        beside the model error, and the share of the draws in which the design fits.

    Raises:
        InputError: not one design point, an unknown column, or a point that does not fit.
    """
    block = one_point(replace(study, band=0.0), "sensitivity")
    probe = Probe(block)
    check_column(of, probe.own_columns)
    point = _Point(probe, of)
    value = float(point.values({}, 1)[0])
    if not np.isfinite(value) or not value:
        raise InputError(
            f"{of} has no value at this design point; `nearkv estimate` says why"
        )
    factors = _factors(block)
    rows = _elasticities(point, value, factors) if factors else []
    return rows, _band(study, of, value)


@dataclass(frozen=True)
class _Point:
    """One design point and the column looked at."""

    probe: Probe
    of: str

    def values(self, numbers: Mapping[str, Numbers], size: int) -> Numbers:
        """The column for so many values of some numbers [unit of the column]."""
        point = np.zeros(size, np.intp)
        return column(self.probe.answer(point, numbers=numbers), self.of, size)


@dataclass(frozen=True)
class _Factor:
    """A hardware number that may matter.

    Attributes:
        address: `role.key`.
        quantity: the number.
        whole: True where it counts something.
    """

    address: str
    quantity: Quantity
    whole: bool

    @property
    def looks(self) -> list[float]:
        """Values to look at: below, just below, just above, above, and both ends of the range."""
        value = self.quantity.si
        if self.whole:
            below, above = max(value - 1, 1.0), value + 1
            around = [below, value, value, above]
        else:
            around = [value * float(np.exp(step)) for step in (-STEP, -NEAR, NEAR, STEP)]
        return [*around, *(self.quantity.range_si or (value, value))]


def _factors(block: Block) -> list[_Factor]:
    """Numbers of the platform that the study does not set itself; a zero has no elasticity."""
    factors = []
    for role, part in block.platform.roles.items():
        for key, quantity in part.numbers.items():
            address = f"{role}.{key}"
            if quantity.si and address not in block.sets.values():
                whole = block.platform.key(address).whole
                factors.append(_Factor(address, quantity, whole))
    return factors


def _elasticities(point: _Point, value: float, factors: Sequence[_Factor]) -> Rows:
    """All factors in one evaluation: each has points of its own in which it alone changes."""
    looks = np.array([factor.looks for factor in factors])
    count = looks.size
    numbers = {}
    for i, factor in enumerate(factors):
        changed = np.full(looks.shape, factor.quantity.si)
        changed[i] = looks[i]
        numbers[factor.address] = changed.ravel()
    answers = point.values(numbers, count).reshape(looks.shape)
    rows = [
        _row(factor, point.of, looks[i], answers[i], value)
        for i, factor in enumerate(factors)
    ]
    rows = [row for row in rows if row.pop("matters")]
    return sorted(rows, key=lambda row: -abs(row["elasticity"] or 0.0))


def _row(
    factor: _Factor, of: str, looks: Numbers, answers: Numbers, value: float
) -> dict[str, Any]:
    quantity = factor.quantity
    slope, jump = _slope(np.log(looks[:4]), answers[:4], value)
    is_ranged = quantity.range_si is not None
    at_low, at_high = answers[4:]
    return {
        "number": factor.address,
        "value": quantity.value,
        "unit": quantity.unit,
        "kind": quantity.kind,
        "elasticity": plain(slope),
        "jump": jump or None,
        "low": quantity.low,
        "high": quantity.high,
        f"{of}_at_low": plain(at_low) if is_ranged else None,
        f"{of}_at_high": plain(at_high) if is_ranged else None,
        "matters": slope != 0 or jump or (is_ranged and at_low != at_high),
    }


def _slope(places: Numbers, answers: Numbers, value: float) -> tuple[float, float]:
    """Elasticity, and the jump where the column is discontinuous at the number's own value.

    A change over the small step that is not small beside that over the large one is a jump.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        below, near_below, near_above, above = np.log(answers / value)
    jumps_below = _is_jump(near_below, below)
    jumps_above = _is_jump(near_above, above)
    if jumps_below == jumps_above:
        slope = (above - below) / (places[3] - places[0])
    elif jumps_below:
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
    """The same band of the column as `estimate` gives."""
    band = study if study.band else replace(study, band=LEVEL)
    (block,) = blocks(band)
    (table,) = evaluate([block])
    assert block.band is not None
    low, middle, high = (float(table[f"{of}_{end}"][0]) for end in block.band.suffixes)
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
