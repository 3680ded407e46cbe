"""Fit a platform's assumed numbers to claims of a paper or to a user's measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import InputError, once
from nearkv.hardware.quantity import Quantity
from nearkv.hardware.units import unit_of
from nearkv.solvers.calibrate import MOST_FACTORS, Fit, Residuals, fit, left_out
from nearkv.sweeps.study.study import Numbers
from nearkv.sweeps.validation.evidence import Evidence


@dataclass(frozen=True)
class Calibration:
    """A fit with the names and units of what was fitted.

    Attributes:
        evidence: the rows it is fitted to.
        factors: fitted numbers as the platform states them, by `role.key`.
        fit: in shares of their ranges.
        residuals: of any point.
        idle: derates that no row depends on.
    """

    evidence: Evidence
    factors: Mapping[str, Quantity]
    fit: Fit
    residuals: Residuals
    idle: tuple[str, ...]

    @cached_property
    def left_out(self) -> Numbers:
        """Residual of each row at factors fitted without it [1]."""
        return left_out(self.residuals, self.fit)


def calibrate(evidence: Evidence, chosen: Sequence[str] = ()) -> Calibration:
    """Fit numbers inside their ranges; by default the derates that some row depends on.

    Args:
        evidence: rows of claims or of measurements.
        chosen: numbers to fit, as `role.key`.

    Raises:
        InputError: a number without a range, more than six, or no more rows than factors.
    """
    ranged = ranges(evidence.platform)
    idle: tuple[str, ...] = ()
    addresses = _checked(evidence.platform, chosen, ranged)
    if not chosen:
        addresses, idle = _derates_that_matter(evidence, ranged)
    _check_count(evidence, addresses)
    factors = {address: ranged[address] for address in addresses}
    ends = np.array([_ends(number) for number in factors.values()])
    low, span = ends[:, 0], ends[:, 1] - ends[:, 0]

    def residuals(shares: Numbers) -> Numbers:
        values = low + shares * span
        numbers = {address: values[:, place] for place, address in enumerate(factors)}
        return np.log(evidence.predict(numbers) / evidence.stated)

    stated = np.array([number.si for number in factors.values()])
    start = (stated - low) / span
    return Calibration(evidence, factors, fit(residuals, start), residuals, idle)


def ranges(platform: Platform) -> dict[str, Quantity]:
    """Numbers of a platform that a fit may move: assumed or fitted, with a range, not whole."""
    ranged = {}
    for role, part in platform.roles.items():
        for key, number in part.numbers.items():
            address = f"{role}.{key}"
            is_movable = number.kind in ("assumed", "fitted")
            if not is_movable or number.range_si is None or platform.key(address).whole:
                continue
            low, high = number.range_si
            if low < high:
                ranged[address] = number
    return ranged


def _checked(
    platform: Platform, chosen: Sequence[str], ranged: Mapping[str, Quantity]
) -> tuple[str, ...]:
    """The chosen numbers, each once and with a range."""
    addresses = once(tuple(chosen), "--factor")
    for address in addresses:
        platform.key(address)
        if address not in ranged:
            known = ", ".join(ranged)
            raise InputError(
                f"--factor {address}: has no range to fit it in; those that have: {known}"
            )
    return addresses


def _derates_that_matter(
    evidence: Evidence, ranged: Mapping[str, Quantity]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Derates that some row depends on, and those that none does."""
    chosen: list[str] = []
    idle: list[str] = []
    for address, number in ranged.items():
        if not address.startswith("derate."):
            continue
        low, high = evidence.predict({address: np.array(_ends(number))})
        unchanged = np.allclose(low, high, rtol=1e-9)
        (idle if unchanged else chosen).append(address)
    return tuple(chosen), tuple(idle)


def _ends(number: Quantity) -> tuple[float, float]:
    """Ends of a number's range [SI]."""
    _, size = unit_of(number.unit)
    return (number.low or 0.0) * size, (number.high or 0.0) * size


def _check_count(evidence: Evidence, chosen: Sequence[str]) -> None:
    names = ", ".join(chosen)
    if not chosen:
        raise InputError(
            f"no derate of {evidence.platform.name} changes these rows; "
            "name numbers to fit with --factor"
        )
    if len(chosen) > MOST_FACTORS:
        raise InputError(
            f"{len(chosen)} factors are too many; choose at most six with --factor: {names}"
        )
    if len(chosen) >= len(evidence.names):
        raise InputError(
            f"{evidence.what}: {len(evidence.names)} rows cannot determine {len(chosen)} factors "
            f"({names}); give more rows, or fewer factors with --factor"
        )
