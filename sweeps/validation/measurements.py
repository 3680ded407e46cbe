"""A user's own measurements: one row per run, from a CSV."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_llm
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.files import read_text
from nearkv.sweeps.study.sizes import size

REQUIRED = ("system", "model", "batch", "context", "output_tokens")
OPTIONAL = ("knob", "set")
MOST_ROWS = 1000
MOST_BYTES = 1 << 22


@dataclass(frozen=True)
class Measurement:
    """One measured run.

    Attributes:
        where: file and line.
        system, model, knob, set: as in a study; knob and set are `name=value;name=value`.
        batch, context, output_tokens: what ran [1].
        measured: in the unit of the file's measured column.
    """

    where: str
    system: str
    model: str
    knob: str
    set: str
    batch: float
    context: float
    output_tokens: float
    measured: float


def read_runs(path: Path) -> tuple[str, list[Measurement]]:
    """Read a CSV with `REQUIRED` columns, one measured column and perhaps `OPTIONAL` ones.

    Returns:
        The measured column's name, and the runs.

    Raises:
        InputError: no such file, a column that is missing or unknown, or a cell that is no value.
    """
    header, rows = _rows(path)
    metric = _measured_column(header, path)
    runs = []
    for line, row in rows:
        runs.append(_run(row, metric, f"{path}, line {line}"))
    return metric, runs


def _measured_column(header: list[str], path: Path) -> str:
    for name in REQUIRED:
        if name not in header:
            needed = ", ".join(REQUIRED)
            raise InputError(
                f"{path}: has no column {name!r}; it needs {needed} and a measured column"
            )
    measured = [name for name in header if name in COLUMNS]
    for name in header:
        if name not in (*REQUIRED, *OPTIONAL, *measured):
            raise unknown("column", name, [*REQUIRED, *OPTIONAL, *COLUMNS], str(path))
    if len(measured) != 1:
        have = (
            f"it has {', '.join(measured)}" if measured else f"such as {', '.join(COLUMNS)}"
        )
        raise InputError(f"{path}: needs exactly one measured column; {have}")
    return measured[0]


Rows = list[tuple[int, dict[str, str]]]
"""Number of the line in the file, and its cells by column."""


def _rows(path: Path) -> tuple[list[str], Rows]:
    """Header and rows of a CSV.

    Raises:
        InputError: no such file, no CSV, too large, or rows of another length than the header.
    """
    needed = ", ".join(REQUIRED)
    try:
        header, lines = _cells(path)
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InputError(
            f"{path}: not a CSV file ({problem}); it needs columns {needed}"
        ) from None
    if len(set(header)) < len(header):
        raise InputError(
            f"{path}: a column is there twice; its columns are {', '.join(header)}"
        )
    if len(lines) > MOST_ROWS:
        raise InputError(
            f"{path}: has {len(lines):,} rows; give a sample of at most {MOST_ROWS:,}"
        )
    rows: Rows = []
    for line, cells in lines:
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {line}: has {len(cells)} cells for {len(header)} columns; "
                "correct it there"
            )
        rows.append((line, dict(zip(header, cells, strict=True))))
    return header, rows


def _cells(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Header and stripped cells of the lines that are not blank."""
    advice = "give a sample of the runs"
    text = read_text(path, "table of runs", MOST_BYTES, advice, encoding="utf-8-sig")
    lines = []
    table = csv.reader(io.StringIO(text), strict=True)
    header = [name.strip() for name in next(table, [])]
    for row in table:
        cells = [cell.strip() for cell in row]
        if any(cells):
            lines.append((table.line_num, cells))
    return header, lines


def _run(row: dict[str, str], metric: str, where: str) -> Measurement:
    try:
        find_system(row["system"])
        load_llm(row["model"])
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None
    return Measurement(
        where=where,
        system=row["system"],
        model=row["model"],
        knob=row.get("knob", ""),
        set=row.get("set", ""),
        batch=size(row["batch"], f"{where}, batch"),
        context=size(row["context"], f"{where}, context"),
        output_tokens=size(row["output_tokens"], f"{where}, output_tokens"),
        measured=_positive(row[metric], f"{where}, {metric}"),
    )


def _positive(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(
            f"{where}: {text!r} is not a number; write what was measured, without a unit"
        ) from None
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{where}: {text!r} must be a finite number above zero")
    return value
