"""A user's own measurements: one row a run, from a CSV."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from nearkv.costmodel.metrics import COLUMNS
from nearkv.costmodel.registry import find_system
from nearkv.hardware.catalog import load_llm
from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.space.sizes import size

ASKED = ("system", "model", "batch", "context", "output")
OPTIONAL = ("knob", "set")
MOST_ROWS, MOST_BYTES = 1000, 1 << 22


@dataclass(frozen=True)
class Measurement:
    """One measured run.

    Attributes:
        where: file and line.
        system, model, knob, set: as in a study; knob and set are `name=value;name=value`.
        batch, context, output: what ran [1].
        measured: in the unit of the file's measured column.
    """

    where: str
    system: str
    model: str
    knob: str
    set: str
    batch: float
    context: float
    output: float
    measured: float


def read_runs(path: Path) -> tuple[str, list[Measurement]]:
    """Read a CSV of `ASKED`, one measured column of `nearkv systems`, and if need be `OPTIONAL`.

    Returns:
        The measured column's name, and the runs.

    Raises:
        InputError: no such file, a column that is missing or unknown, or a cell that is no value.
    """
    header, rows = _rows(path)
    for name in ASKED:
        if name not in header:
            raise InputError(
                f"{path}: has no column {name!r}; it needs {', '.join(ASKED)} and a measured column"
            )
    measured = [name for name in header if name in COLUMNS]
    for name in header:
        if name not in (*ASKED, *OPTIONAL, *measured):
            raise unknown("column", name, [*ASKED, *OPTIONAL, *COLUMNS], str(path))
    if len(measured) != 1:
        have = f"it has {', '.join(measured)}" if measured else f"such as {', '.join(COLUMNS)}"
        raise InputError(f"{path}: needs exactly one measured column; {have}")
    return measured[0], [_run(row, measured[0], f"{path}, line {line}") for line, row in rows]


def _rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: larger than 4 MiB; give a sample of the runs")
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.reader(file, strict=True)
            header = [name.strip() for name in next(table, [])]
            rows = [(table.line_num, row) for row in table if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InputError(
            f"{path}: not a CSV file ({problem}); it needs columns {', '.join(ASKED)}"
        ) from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    if len(set(header)) < len(header):
        raise InputError(f"{path}: a column is there twice; its columns are {', '.join(header)}")
    if len(rows) > MOST_ROWS:
        raise InputError(f"{path}: has {len(rows):,} rows; give a sample of at most {MOST_ROWS:,}")
    for line, row in rows:
        if len(row) != len(header):
            raise InputError(
                f"{path}, line {line}: has {len(row)} cells for {len(header)} columns; correct it there"
            )
    return header, [
        (line, dict(zip(header, map(str.strip, row), strict=True))) for line, row in rows
    ]


def _run(row: dict[str, str], measured: str, where: str) -> Measurement:
    try:
        find_system(row["system"])
        load_llm(row["model"])
    except InputError as problem:
        raise InputError(f"{where}: {problem}") from None
    batch, context, output = (
        size(row[name], f"{where}, {name}") for name in ("batch", "context", "output")
    )
    measured_value = _positive(row[measured], f"{where}, {measured}")
    knob, sets = (row.get(name, "") for name in OPTIONAL)
    return Measurement(
        where, row["system"], row["model"], knob, sets, batch, context, output, measured_value
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
