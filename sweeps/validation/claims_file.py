"""A user's own claims: a CSV in the form of the papers' claims."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.files import read_text
from nearkv.sweeps.validation.claims import FIELDS, Claim
from nearkv.sweeps.validation.prediction import unit_size

REQUIRED = ("id", "low", "unit", "metric", "system")
BOUNDS = ("exact", "approx", "at_most", "at_least", "range")
KINDS = ("measured", "simulated", "analytic", "parameter")
TAKES = ("", "max", "min", "mean", "ends", "every")
MOST_BYTES = 1 << 22
DEFAULTS = {"kind": "measured", "bound": "exact"}


def read_claims(path: Path) -> list[Claim]:
    """Read claims from a CSV with the columns of `Claim`; all but `REQUIRED` may be left out.

    Args:
        path: the file; `high` is `low` where it is blank.

    Raises:
        InputError: no such file, a column that is missing or unknown, or a cell that is no value.
    """
    claims = []
    for line, cells in _rows(path):
        where = f"{path}, line {line}"
        claims.append(_claim(cells, where))
    ids = [claim.id for claim in claims]
    for name in ids:
        if ids.count(name) > 1:
            raise InputError(
                f"{path}: the id {name!r} is there twice; give each claim its own"
            )
    if not claims:
        raise InputError(f"{path}: holds no claims; write one row a claim")
    return claims


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Number of the line, and its cells by column."""
    try:
        text = read_text(
            path, "list of claims", MOST_BYTES, "split it", encoding="utf-8-sig"
        )
        table = csv.DictReader(io.StringIO(text), strict=True)
        _check_header(table.fieldnames or [], path)
        return [(table.line_num, row) for row in table]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{path}: not a CSV file ({problem})") from None


def _check_header(header: Sequence[str], path: Path) -> None:
    for name in REQUIRED:
        if name not in header:
            needed = ", ".join(REQUIRED)
            raise InputError(f"{path}: has no column {name!r}; claims need {needed}")
    for name in header:
        if name not in FIELDS:
            raise unknown("column", name, FIELDS, str(path))


def _claim(cells: dict[str, str], where: str) -> Claim:
    if None in cells or None in cells.values():
        raise InputError(
            f"{where}: has more or fewer cells than the header; correct it there"
        )
    texts = {field.name: "" for field in fields(Claim)}
    texts |= {name: text.strip() for name, text in cells.items()}
    for name, default in DEFAULTS.items():
        texts[name] = texts[name] or default
    texts["high"] = texts["high"] or texts["low"]
    for name in REQUIRED:
        if not texts[name]:
            raise InputError(f"{where}: {name} is blank; fill it in")
    for name, known in (("bound", BOUNDS), ("kind", KINDS), ("take", TAKES)):
        if texts[name] not in known:
            raise unknown(name, texts[name], known, where)
    for name in ("low", "high"):
        _check_number(texts[name], f"{where}, {name}")
    if float(texts["low"]) > float(texts["high"]):
        raise InputError(
            f"{where}: low, {texts['low']}, is above high, {texts['high']}; exchange them"
        )
    claim = Claim(**texts)
    try:
        unit_size(claim)
    except InputError as problem:
        raise InputError(f"{where}, unit: {problem}") from None
    return claim


def _check_number(text: str, where: str) -> None:
    try:
        value = float(text)
    except ValueError:
        raise InputError(
            f"{where}: {text!r} is not a number; write it without a unit"
        ) from None
    if not math.isfinite(value):
        raise InputError(f"{where}: {text!r} must be finite")
