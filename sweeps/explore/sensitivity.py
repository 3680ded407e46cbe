"""What a prediction hangs on: its elasticity to every hardware number, and the band its assumptions leave."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from nearkv.costmodel.metrics import COLUMNS
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.quantity import Quantity
from nearkv.sweeps.evaluation.probe import Probe, column
from nearkv.sweeps.evaluation.table import plain
from nearkv.sweeps.explore.sizing import Rows
from nearkv.sweeps.space.study import Numbers, Study, blocks

_NUDGE = 0.01
SAMPLES = 1024
"""Quasi-random points over all ranges at once; a power of two, as Sobol's sequence wants it."""
BAND = (0.05, 0.95)


def sensitivity(study: Study, of: str) -> tuple[Rows, dict[str, Any]]:
    """How a column of one design point changes with every number of its platform.

    Solved knobs are solved anew for every change.

    Args:
        study: one system at one design point.
        of: the column.

    Returns:
        A row a number that matters: its value, `elasticity` (percent of change a percent, between
        1 % less and 1 % more, or one less and one more of what is counted), and for assumed and
        fitted numbers the column at both ends of their range; sorted by what matters most. And the
        band: the prediction with its 5 % and 95 % quantiles when all ranges vary at once, uniformly
        (Sobol), and how many of the samples did not fit.

    Raises:
        InputError: not one design point, an unknown column, or a point that does not fit.
    """
    if of not in COLUMNS:
        raise unknown("column", of, COLUMNS, "--of")
    laid = blocks(study)
    if len(laid) != 1 or laid[0].grid.size != 1:
        raise InputError("sensitivity takes one design point; drop the lists")
    probe = Probe(laid[0])
    here = float(_ask(probe, of, {}, 1)[0])
    if not np.isfinite(here) or not here:
        raise InputError(f"{of} has no value at this design point; `nearkv estimate` says why")
    numbers = {
        f"{role}.{key}": quantity
        for role, part in laid[0].platform.roles.items()
        for key, quantity in part.numbers.items()
        if quantity.si and f"{role}.{key}" not in laid[0].sets.values()
    }
    whole = {address for address in numbers if laid[0].platform.key(address).whole}
    rows = _elasticities(probe, of, numbers, whole) if numbers else []
    return rows, _band(probe, of, here, numbers)


def _ask(probe: Probe, of: str, numbers: dict[str, Numbers], size: int) -> Numbers:
    return column(probe.answer(np.zeros(size, np.intp), numbers=numbers), of, size)


def _nudged(si: float, whole: bool) -> tuple[float, float]:
    """A little less and a little more of a number: 1 %, or one where it counts."""
    return (max(si - 1, 1.0), si + 1) if whole else (si * (1 - _NUDGE), si * (1 + _NUDGE))


def _elasticities(
    probe: Probe, of: str, numbers: dict[str, Quantity], whole: Collection[str]
) -> Rows:
    """All numbers in one evaluation: each has four points of its own in which it alone changes."""
    count = len(numbers)
    changed = {address: np.full(4 * count, quantity.si) for address, quantity in numbers.items()}
    for i, (address, quantity) in enumerate(numbers.items()):
        ends = quantity.range_si or (quantity.si, quantity.si)
        changed[address][4 * i : 4 * i + 4] = [*_nudged(quantity.si, address in whole), *ends]
    moved = [
        np.log(np.divide(*_nudged(q.si, address in whole)[::-1])) for address, q in numbers.items()
    ]
    less, more, low, high = _ask(probe, of, changed, 4 * count).reshape(count, 4).T
    with np.errstate(divide="ignore", invalid="ignore"):
        elasticity = np.log(more / less) / moved
    rows: Rows = []
    for i, (address, quantity) in enumerate(numbers.items()):
        ranged = quantity.range_si is not None
        if elasticity[i] or np.isnan(elasticity[i]) or (ranged and low[i] != high[i]):
            row = {
                "number": address,
                "value": quantity.value,
                "unit": quantity.unit,
                "kind": quantity.kind,
            }
            row |= {"elasticity": plain(elasticity[i]), "low": quantity.low, "high": quantity.high}
            rows.append(row | {f"{of}_at_low": plain(low[i]) if ranged else None})
            rows[-1][f"{of}_at_high"] = plain(high[i]) if ranged else None
    return sorted(rows, key=lambda row: -abs(row["elasticity"] or 0.0))


def _band(probe: Probe, of: str, here: float, numbers: dict[str, Quantity]) -> dict[str, Any]:
    from scipy.stats import qmc

    ranges = {
        address: bounds for address, quantity in numbers.items() if (bounds := quantity.range_si)
    }
    if not ranges:
        return {
            of: here,
            "q05": here,
            "q95": here,
            "least": here,
            "most": here,
            "factors": 0,
            "samples": 0,
            "unfit": 0,
        }
    unit = qmc.Sobol(len(ranges), seed=0).random(SAMPLES)
    drawn = {
        a: low + unit[:, i] * (high - low) for i, (a, (low, high)) in enumerate(ranges.items())
    }
    found = _ask(probe, of, drawn, SAMPLES)
    q05, q95 = np.nanquantile(found, BAND)
    extremes = {"least": float(np.nanmin(found)), "most": float(np.nanmax(found))}
    drawings = {"samples": SAMPLES, "unfit": int(np.isnan(found).sum())}
    return {
        of: here,
        "q05": float(q05),
        "q95": float(q95),
        **extremes,
        "factors": len(ranges),
        **drawings,
    }
