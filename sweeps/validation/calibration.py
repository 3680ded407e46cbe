"""Fit a platform's assumed numbers to claims of a paper or to a user's measurements, in the open."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.hardware.catalog import Platform, names
from nearkv.hardware.errors import InputError
from nearkv.hardware.quantity import Quantity, unit_of
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.calibrate import ALIKE, CONFIDENCE, MOST_FACTORS, Fit, Residuals, fit, left_out
from nearkv.sweeps.space.study import Numbers
from nearkv.sweeps.validation.evidence import Evidence


@dataclass(frozen=True)
class Calibration:
    """A fit with the names and units of what was fitted.

    Attributes:
        evidence: what it is held to.
        factors: fitted numbers as the platform states them, by `role.key`.
        fit: in shares of their ranges.
        residuals: of any point.
        idle: derates that no row hangs on.
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
    """Fit numbers inside their ranges; by default the derates that some row hangs on.

    Args:
        evidence: rows of claims or of measurements.
        chosen: numbers to fit, as `role.key`.

    Raises:
        InputError: a number without a range, more than six, or no more rows than factors.
    """
    ranged = ranges(evidence.platform)
    chosen = tuple(dict.fromkeys(chosen))
    for address in chosen:
        evidence.platform.key(address)
        if address not in ranged:
            raise InputError(
                f"--factor {address}: has no range to fit it in; those that have: {', '.join(ranged)}"
            )
    idle: tuple[str, ...] = ()
    if not chosen:
        derates = {
            address: number for address, number in ranged.items() if address.startswith("derate.")
        }
        idle = tuple(
            address for address in derates if not _matters(evidence, address, derates[address])
        )
        chosen = tuple(address for address in derates if address not in idle)
    _check_count(evidence, chosen)
    factors = {address: ranged[address] for address in chosen}
    low, high = (
        np.array(ends) for ends in zip(*(_ends(number) for number in factors.values()), strict=True)
    )

    def residuals(at: Numbers) -> Numbers:
        values = low + at * (high - low)
        found = evidence.predict({address: values[:, i] for i, address in enumerate(factors)})
        return np.log(found / evidence.stated)

    start = (np.array([number.si for number in factors.values()]) - low) / (high - low)
    return Calibration(evidence, factors, fit(residuals, start), residuals, idle)


def ranges(platform: Platform) -> dict[str, Quantity]:
    """Numbers of a platform that a fit may move: assumed or fitted ones with a range, whole ones apart."""
    return {
        f"{role}.{key}": number
        for role, part in platform.roles.items()
        for key, number in part.numbers.items()
        if number.range_si
        and number.range_si[0] < number.range_si[1]
        and not platform.key(f"{role}.{key}").whole
    }


def _ends(number: Quantity) -> tuple[float, float]:
    size = unit_of(number.unit)[1]
    return (number.low or 0.0) * size, (number.high or 0.0) * size


def _matters(evidence: Evidence, address: str, number: Quantity) -> bool:
    low, high = evidence.predict({address: np.array(_ends(number))})
    return not np.allclose(low, high, rtol=1e-9)


def _check_count(evidence: Evidence, chosen: Sequence[str]) -> None:
    if not chosen:
        raise InputError(
            f"no derate of {evidence.platform.name} changes these rows; name numbers to fit with --factor"
        )
    if len(chosen) > MOST_FACTORS:
        raise InputError(
            f"{len(chosen)} factors are too many; choose at most six with --factor: {', '.join(chosen)}"
        )
    if len(chosen) >= len(evidence.names):
        raise InputError(
            f"{evidence.what}: {len(evidence.names)} rows cannot tell {len(chosen)} factors ({', '.join(chosen)}); "
            "give more rows, or fewer factors with --factor"
        )


# --- report -------------------------------------------------------------------------------------


def factor_rows(found: Calibration) -> list[dict[str, Any]]:
    """Every factor in its unit: as stated, fitted, the interval of the fit, the range."""
    rows = []
    for i, (address, number) in enumerate(found.factors.items()):
        low, high = (0.0 if end is None else end for end in (number.low, number.high))
        share, half = found.fit.at[i], found.fit.half[i]
        ends = np.clip([share, share - half, share + half], 0.0, 1.0) * (high - low) + low
        rows.append(
            {
                "number": address,
                "unit": number.unit,
                "stated": number.value,
                **dict(
                    zip(("fitted", "interval_low", "interval_high"), map(float, ends), strict=True)
                ),
                "range_low": low,
                "range_high": high,
                "hint": _hint(float(share), float(half)),
            }
        )
    return rows


def _hint(share: float, half: float) -> str:
    if half >= 1:
        return "not determined"
    return "at an end of its range" if min(share, 1 - share) < 1e-3 else ""


def residual_rows(found: Calibration) -> list[dict[str, Any]]:
    """Every row: what it states, what is predicted and how far off, with it and without it in the fit."""
    before, after, alone = (np.exp(r) for r in (found.fit.before, found.fit.after, found.left_out))
    return [
        {
            "row": name,
            "stated": float(stated),
            "before": float(stated * before[i]),
            "fitted": float(stated * after[i]),
            "error_before": float(before[i] - 1),
            "error": float(after[i] - 1),
            "error_left_out": float(alone[i] - 1),
        }
        for i, (name, stated) in enumerate(
            zip(found.evidence.names, found.evidence.stated, strict=True)
        )
    ]


def sentences(found: Calibration) -> list[str]:
    """How good the fit is, and what the rows cannot tell."""
    before, after, alone = (
        100 * np.median(np.abs(np.expm1(r)))
        for r in (found.fit.before, found.fit.after, found.left_out)
    )
    factors = list(found.factors)
    requested = [
        f"{found.evidence.what}: {len(found.evidence.names)} rows, {len(factors)} factors of "
        f"{found.evidence.platform.name}; median error {before:.3g} % as stated, {after:.3g} % fitted, "
        f"{alone:.3g} % each row predicted by a fit to the others."
    ]
    requested += [_unknown(factors, direction) for direction in found.fit.unknown]
    for i, j in zip(*np.nonzero(np.triu(np.abs(found.fit.correlation) >= ALIKE, 1)), strict=True):
        together = f"{factors[i]} and {factors[j]}: their errors correlate at {found.fit.correlation[i, j]:+.3f}"
        requested.append(f"{together}; the rows hold their combination better than either.")
    if found.idle:
        requested.append(f"No row hangs on {', '.join(found.idle)}; left as stated.")
    return requested


def _unknown(factors: Sequence[str], direction: Numbers) -> str:
    """One direction along which the rows say no more than the ranges do."""
    parts = [
        (share, name) for share, name in zip(direction, factors, strict=True) if abs(share) >= 0.1
    ]
    if len(parts) == 1:
        return f"The rows do not determine {parts[0][1]}: its range says as much."
    sign = np.sign(parts[0][0])
    moves = ", ".join(f"{sign * share:+.2f} {name}" for share, name in parts)
    return f"The rows cannot tell apart, in shares of their ranges: {moves}; moving so changes no prediction by enough."


# --- a platform with the fitted numbers -----------------------------------------------------------


def platform_file(found: Calibration) -> str:
    """A platform on the base of the fitted one, as TOML; a role with a fitted number is written whole.

    Raises:
        InputError: a role filled by a part that is not in the catalogue.
    """
    bed = found.evidence.platform
    fitted = {row["number"]: row for row in factor_rows(found)}
    lines = [
        f"base = {_text(bed.name)}",
        f"title = {_text(f'{bed.title}, fitted to {found.evidence.what}')}",
    ]
    lines += [f"cite = {_text(bed.cite)}"] if bed.cite else []
    for role in dict.fromkeys(address.partition(".")[0] for address in fitted):
        part = bed.roles[role]
        lines += ["", f"[{role}]"]
        if part.kind not in PARTLESS:
            if part.name not in names("part"):
                raise InputError(
                    f"{role} of {bed.name} is a part of your own; only its derates can be written"
                )
            lines.append(f"part = {_text(part.name)}")
        for key, number in part.numbers.items():
            row = fitted.get(f"{role}.{key}")
            lines.append(f"{key} = {_entry(_fitted(number, row, found) if row else number)}")
    return "\n".join(lines) + "\n"


def _fitted(number: Quantity, row: Mapping[str, Any], found: Calibration) -> Quantity:
    low, high = row["interval_low"], row["interval_high"]
    interval = f"fitted with {100 * CONFIDENCE:g} % interval {low:.4g} to {high:.4g}"
    note = f"{number.note.rstrip('.')}; {interval}, before it was {number.value:g}"
    at = f"fitted to {len(found.evidence.names)} rows: {found.evidence.what}"
    value = float(np.clip(float(f"{row['fitted']:.6g}"), row["range_low"], row["range_high"]))
    source = found.evidence.source
    return replace(number, value=value, kind="fitted", source=source, at=at, note=note)


def _entry(number: Quantity) -> str:
    fields = [
        f"value = {number.value!r}",
        f"unit = {_text(number.unit)}",
        f"kind = {_text(number.kind)}",
    ]
    fields += [f"source = {_text(number.source)}", f"at = {_text(number.at)}"]
    if number.low is not None:
        fields.append(f"range = [{number.low!r}, {number.high!r}]")
    fields += [f"note = {_text(number.note)}"] if number.note else []
    return f"{{ {', '.join(fields)} }}"


def _text(value: str) -> str:
    """A TOML basic string; JSON escapes the same characters, all but DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
