"""Fit a platform's assumed numbers to runs; what the fit found as tables, sentences and TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import InputError, a_few, once
from nearkv.hardware.schema import Quantity
from nearkv.solvers.calibrate import (
    ALIKE,
    CONFIDENCE,
    MOST_FACTORS,
    FactorFit,
    Residuals,
    fit,
    left_out,
)
from nearkv.sweeps.tables.table import Row, Rows, counted, records
from nearkv.sweeps.validation.evidence import Evidence

_ROUNDING = 1e-9
"""Relative move of a prediction that is rounding [1]."""


@dataclass(frozen=True)
class Calibration:
    """A fit with the names and units of what was fitted.

    Attributes:
        evidence: the rows it is fitted to.
        factors: fitted numbers as the platform states them, by `role.key`.
        fit: in shares of their ranges.
        residuals: of any point.
        idle: derates that no row depends on.
        weaker: assumed numbers that move the rows less than those fitted.
        alike: assumed numbers that the rows do not determine beside those fitted.
        unmoved: rows that no fitted number moves.
        kept: numbers that would move those, and are stated as measured.
    """

    evidence: Evidence
    factors: Mapping[str, Quantity]
    fit: FactorFit
    residuals: Residuals
    idle: tuple[str, ...] = ()
    weaker: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    unmoved: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def undetermined(self) -> list[str]:
        """Factors of which the rows say no more than their ranges do."""
        pairs = zip(self.factors, self.fit.half, strict=True)
        return [name for name, half in pairs if half >= 1]

    @cached_property
    def left_out(self) -> Numbers:
        """Residual of each row at factors fitted without it [1]."""
        return left_out(self.residuals, self.fit)


def fit_factors(evidence: Evidence, chosen: Sequence[str] = ()) -> Calibration:
    """Fit numbers inside their ranges; by default the assumed ones that move the rows most.

    Of those, the ones that the rows do not determine are left out, the weakest first.

    Args:
        evidence: rows of claims or of measurements.
        chosen: numbers to fit, as `role.key`.

    Raises:
        InputError: a number without a range, more than six, or no more rows than factors.
    """
    ranged = ranges(evidence.platform)
    addresses = _checked(evidence.platform, chosen, ranged)
    if chosen:
        return _fitted_to(evidence, ranged, addresses)
    moves = _moves(evidence, ranged)
    moved, idle = _assumed_that_matter(evidence, ranged, moves)
    most = max(min(MOST_FACTORS, len(evidence.names) - 1), 1)
    strongest, weaker = moved[:most], moved[most:]
    fitted = _fitted_to(evidence, ranged, strongest)
    while len(fitted.factors) > 1 and fitted.undetermined:
        weakest = fitted.undetermined[-1]
        others = [name for name in fitted.factors if name != weakest]
        fitted = _fitted_to(evidence, ranged, others)
    alike = tuple(name for name in strongest if name not in fitted.factors)
    still = np.max([moves[name] for name in fitted.factors], axis=0) <= _ROUNDING
    unmoved = tuple(np.array(evidence.names)[still].tolist())
    kept = tuple(
        name
        for name, each in moves.items()
        if not _is_guessed(ranged[name]) and np.any(each[still] > _ROUNDING)
    )
    fitted = replace(fitted, idle=idle, weaker=weaker, alike=alike)
    return replace(fitted, unmoved=unmoved, kept=kept)


def _fitted_to(
    evidence: Evidence, ranged: Mapping[str, Quantity], addresses: Sequence[str]
) -> Calibration:
    """Numbers fitted to rows inside their ranges.

    Raises:
        InputError: more than six, or no more rows than numbers.
    """
    _check_count(evidence, addresses)
    factors = {address: ranged[address] for address in addresses}
    low, high = np.array([number.range_si for number in factors.values()], float).T
    span = high - low

    def residuals(shares: Numbers) -> Numbers:
        values = low + shares * span
        numbers = {address: values[:, place] for place, address in enumerate(factors)}
        return np.log(evidence.predict(numbers) / evidence.stated)

    stated = np.array([number.si for number in factors.values()])
    start = (stated - low) / span
    return Calibration(evidence, factors, fit(residuals, start), residuals)


def ranges(platform: Platform) -> dict[str, Quantity]:
    """Numbers of a platform that a fit may move: with a range, any of it, and its own."""
    ranged = {}
    for address, number in platform.numbers.items():
        key = platform.key(address)
        is_fixed = key.whole or key.only or address in platform.follows
        if number.range_si is None or is_fixed:
            continue
        if number.range_si[0] < number.range_si[1]:
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
            known = a_few(ranged, like=address)
            raise InputError(
                f"--factor {address} has no range to fit it in; those that have: {known}"
            )
    return addresses


def _assumed_that_matter(
    evidence: Evidence, ranged: Mapping[str, Quantity], moves: Mapping[str, Numbers]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Numbers not measured that some row depends on, and derates that none does.

    Returns:
        The former in the order of their effect, from one end of their range to the other.

    Raises:
        InputError: none matters; it names measured ones that do.
    """
    effect = {name: float(np.max(each)) for name, each in moves.items()}
    moving = [name for name in ranged if effect[name] > _ROUNDING]
    moved = sorted(moving, key=lambda name: -effect[name])
    guessed = [name for name in ranged if _is_guessed(ranged[name])]
    chosen = [name for name in moved if name in guessed]
    if not chosen:
        raise InputError(_nothing_to_fit(evidence.platform.name, moved))
    shares = [name for name in guessed if name.startswith("derate.")]
    return tuple(chosen), tuple(name for name in shares if name not in moved)


def _is_guessed(number: Quantity) -> bool:
    """True if a number is assumed or fitted, and no choice of a user."""
    return number.kind in ("assumed", "fitted") and number.source != "user"


def _moves(evidence: Evidence, ranged: Mapping[str, Quantity]) -> dict[str, Numbers]:
    """Logarithm by which each number moves every row, from end to end of its range [1]."""
    points = 2 * len(ranged)
    numbers = {}
    for place, (address, number) in enumerate(ranged.items()):
        values = np.full(points, number.si)
        values[2 * place : 2 * place + 2] = number.range_si
        numbers[address] = values
    predicted = np.log(evidence.predict(numbers))
    moves = np.abs(predicted[1::2] - predicted[0::2])
    return dict(zip(ranged, np.nan_to_num(moves, nan=0.0, posinf=0.0), strict=True))


def _nothing_to_fit(platform: str, measured: Sequence[str]) -> str:
    if not measured:
        return (
            f"no assumed number of {platform} changes these rows; name others with --factor"
        )
    return f"the numbers of {platform} that change these rows are {_kept(measured)}"


def _kept(measured: Sequence[str]) -> str:
    """Say that numbers are kept, and how to fit them."""
    options = " ".join(f"--factor {address}" for address in measured)
    return f"stated as measured, and kept; to fit them inside their ranges, give {options}"


def _check_count(evidence: Evidence, chosen: Sequence[str]) -> None:
    names = ", ".join(chosen)
    if len(chosen) > MOST_FACTORS:
        raise InputError(
            f"{len(chosen)} factors are too many; choose at most six with --factor: {names}"
        )
    if len(chosen) >= len(evidence.names):
        rows, factors = counted(len(evidence.names), "row"), counted(len(chosen), "factor")
        raise InputError(
            f"{evidence.what}: {rows} cannot determine {factors} ({names}); give more rows, "
            "or fewer factors with --factor"
        )


# --- tables -----------------------------------------------------------------------------------


def factor_rows(calibration: Calibration) -> Rows:
    """Every factor in its unit: as stated, fitted, the interval of the fit, the range.

    One that the rows do not determine has no fitted value: it stays as stated.
    """
    fit, numbers = calibration.fit, list(calibration.factors.values())
    low, high = np.array([number.range or (0.0, 0.0) for number in numbers]).T

    def at(shares: Numbers) -> Numbers:
        values: Numbers = low + np.clip(shares, 0.0, 1.0) * (high - low)
        return values

    determined = fit.half < 1
    columns = {
        "number": np.array(list(calibration.factors)),
        "unit": np.array([number.unit for number in numbers]),
        "stated": np.array([number.value for number in numbers]),
        "fitted": np.where(determined, at(fit.factors), np.nan),
        "interval_low": at(fit.factors - fit.half),
        "interval_high": at(fit.factors + fit.half),
        "range_low": low,
        "range_high": high,
        "hint": np.array(list(map(_hint, fit.factors, fit.half))),
    }
    return records(columns)


NOT_DETERMINED = "not determined"


def _hint(share: float, half: float) -> str:
    if half >= 1:
        return NOT_DETERMINED
    distance = min(share, 1 - share)
    return "at an end of its range" if distance < 1e-3 else ""


def residual_rows(calibration: Calibration) -> Rows:
    """Every row: stated, predicted and the errors, with it and without it in the fit."""
    evidence, fit = calibration.evidence, calibration.fit
    before, after, alone = (
        np.exp(residuals) for residuals in (fit.before, fit.after, calibration.left_out)
    )
    columns = {
        "row": np.array(evidence.names),
        "stated": evidence.stated,
        "before": evidence.stated * before,
        "fitted": evidence.stated * after,
        "error_before": before - 1,
        "error": after - 1,
        "error_left_out": alone - 1,
    }
    return records(columns)


# --- sentences ------------------------------------------------------------------------------------


def sentences(calibration: Calibration) -> list[str]:
    """Quality of the fit, and what the rows do not determine."""
    fit, evidence = calibration.fit, calibration.evidence
    factors = list(calibration.factors)
    lines = [
        f"{evidence.what}: {counted(len(evidence.names), 'row')}, "
        f"{counted(len(factors), 'factor')} of "
        f"{evidence.platform.name}; median error {_median_error(fit.before):.3g} % as stated, "
        f"{_median_error(fit.after):.3g} % fitted, {_median_error(calibration.left_out):.3g} % "
        "each row predicted by a fit to the others."
    ]
    lines += [_undetermined(factors, direction) for direction in fit.unknown]
    alike = np.triu(np.abs(fit.correlation) >= ALIKE, 1)
    for i, j in zip(*np.nonzero(alike), strict=True):
        lines.append(
            f"{factors[i]} and {factors[j]}: "
            f"their errors correlate at {fit.correlation[i, j]:+.3f}; "
            "the rows determine their combination better than either."
        )
    kept = calibration.undetermined
    if len(kept) == len(factors):
        lines.append(
            "A written platform is the base unchanged, as the rows determine none of the factors: "
            "name fewer with --factor, or add rows that differ in system, batch or context."
        )
    elif kept:
        lines.append(
            f"A written platform leaves {', '.join(kept)} as stated, so it does not predict what "
            "stands under fitted."
        )
    if rows := calibration.unmoved:
        of = f"{len(rows)} of {len(evidence.names)} rows ({a_few(rows)})"
        why = (
            f": those that would are {_kept(calibration.kept)}" if calibration.kept else ""
        )
        lines.append(f"No fitted number moves {of}{why}.")
    if calibration.alike:
        others = ", ".join(calibration.alike)
        why = "as the rows do not determine them beside those fitted"
        lines.append(f"Left as stated, {why}: {others} (--factor).")
    if calibration.weaker:
        others = ", ".join(calibration.weaker)
        lines.append(f"Left as stated, as they move the rows less: {others} (--factor).")
    if calibration.idle:
        lines.append(f"No row depends on {', '.join(calibration.idle)}; left as stated.")
    return lines


def _median_error(residuals: Numbers) -> float:
    """Median of |predicted / stated - 1| [%]."""
    return float(100 * np.median(np.abs(np.expm1(residuals))))


def _undetermined(factors: Sequence[str], direction: Numbers) -> str:
    """One direction along which the rows say no more than the ranges do."""
    parts = [(share, name) for share, name in zip(direction, factors, strict=True)]
    large = [(share, name) for share, name in parts if abs(share) >= 0.1]
    if len(large) == 1:
        return f"Of {large[0][1]} the rows say little that its range does not."
    sign = np.sign(large[0][0])
    moves = ", ".join(f"{sign * share:+.2f} {name}" for share, name in large)
    return (
        f"The rows cannot separate, in shares of their ranges: {moves}; "
        "a move in this direction hardly changes a prediction."
    )


# --- a platform with the fitted numbers -----------------------------------------------------------


def platform_file(calibration: Calibration) -> str:
    """A platform with its fitted numbers in place of those it states, as TOML.

    A number that the rows do not determine stays as the platform states it.
    """
    test_bed = calibration.evidence.platform
    title = f"{test_bed.title}, fitted to {calibration.evidence.what}"
    lines = [f"base = {_text(test_bed.name)}", f"title = {_text(title)}"]
    if test_bed.cite:
        lines.append(f"cite = {_text(test_bed.cite)}")
    numbers = calibration.factors.values()
    for row, number in zip(factor_rows(calibration), numbers, strict=True):
        if row["hint"] == NOT_DETERMINED:
            continue
        lines.append(f"{row['number']} = {_entry(_fitted(number, row, calibration))}")
    return "\n".join(lines) + "\n"


def _fitted(number: Quantity, row: Row, calibration: Calibration) -> Quantity:
    """The number with its fitted value; its range is the interval of the fit."""
    evidence = calibration.evidence
    before = f"{number.value:g} in {row['range_low']:g} to {row['range_high']:g}"
    interval = f"the range is the {100 * CONFIDENCE:g} % interval of the fit"
    note = f"{number.note.rstrip('.')}; fitted, {interval}; before it was {before}"
    low, value, high = (
        float(f"{row[name]:.6g}") for name in ("interval_low", "fitted", "interval_high")
    )
    return replace(
        number,
        value=float(np.clip(value, row["range_low"], row["range_high"])),
        kind="fitted",
        source=evidence.source,
        at=f"fitted to {len(evidence.names)} rows: {evidence.what}",
        note=note,
        range=(max(low, row["range_low"]), min(high, row["range_high"])),
        quantiles=None,
    )


def _entry(number: Quantity) -> str:
    """A fitted number as a TOML inline table."""
    texts = ["unit", "kind", "source", "at", "note", *(["shares"] if number.shares else [])]
    entries = [f"value = {number.value!r}", f"range = {list(number.range or ())!r}"]
    entries += [f"{name} = {_text(getattr(number, name))}" for name in texts]
    return f"{{ {', '.join(entries)} }}"


def _text(value: str) -> str:
    """A TOML basic string; JSON escapes the same characters, all but DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
