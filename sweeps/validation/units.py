"""Units of claims: what a claim states is compared in its own unit, whatever that of the column."""

from __future__ import annotations

import re

from nearkv.hardware.errors import InputError
from nearkv.hardware.units import unit_of
from nearkv.sweeps.evaluate.catalogue import column_rows
from nearkv.sweeps.validation.checks import checks
from nearkv.sweeps.validation.checks.asking import quantity_at
from nearkv.sweeps.validation.claims import Claim

PRINTED_UNITS = {
    "GFLOPS": ("FLOP/s", 1e9),
    "PBW": ("B", 1e15),
    "billion params": ("1", 1e9),
}
"""Units as papers print them that no specification is written in: dimension, size in SI."""
TOKENS = re.compile(r"\btok(ens?)?\b", re.IGNORECASE)
"""What tables count, so that it is no unit: `tok/s` is `1/s`."""


def unit_size(claim: Claim) -> float:
    """Size of a claim's unit in that of its column [1].

    Words such as `x` or `sequences` count things: they are units of ratios and of columns of
    counts. What checks answer and what a system's own columns hold is taken as it is, unless the
    name of the column ends in its unit.

    Raises:
        InputError: the claim's unit measures something else.

    >>> unit_size(Claim("a", "", "", "", "", "72", "72", "s", metric="step_ms"))
    1000.0
    """
    if claim.metric == "number":
        column: str | None = quantity_at(claim.system).unit
    else:
        column = "1" if claim.over else column_unit(claim.metric)
    if column is None:
        return 1.0
    stated, needed = _plain(claim.unit), _plain(column)
    if stated == needed:
        return 1.0
    dimension, size = _measure(stated)
    if needed in ("", "1"):
        required, column_size = "1", 1.0
        dimension = dimension or "1"
    else:
        required, column_size = _measure(needed)
    if dimension != required:
        subject = "a ratio" if claim.over else claim.metric
        if claim.metric == "number":
            subject = claim.system
        written = column if needed not in ("", "1") else "x or a word for what is counted"
        raise InputError(f"{claim.unit!r} does not measure {subject}; write {written}")
    return size / column_size


def column_unit(metric: str) -> str | None:
    """The unit of a column, empty of a count; None where nobody states it."""
    if metric in checks():
        return None
    units = {str(row["column"]): str(row["unit"]) for row in column_rows()}
    if metric in units:
        return units[metric]
    _, underscore, ending = metric.rpartition("_")
    dimension, _ = _measure(ending)
    is_rate = metric.endswith("_tok_s")
    return ending if underscore and dimension and not is_rate else None


def _plain(unit: str) -> str:
    """A unit without the tokens that it counts."""
    counted = TOKENS.sub("1", unit.strip())
    return counted.removesuffix("/1")


def _measure(unit: str) -> tuple[str, float]:
    """Dimension and size in SI; no dimension where it is a word and no unit."""
    if unit in PRINTED_UNITS:
        return PRINTED_UNITS[unit]
    try:
        return unit_of(unit)
    except InputError:
        return "", 1.0
