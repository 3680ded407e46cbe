"""Select the columns and rows of a table that a figure draws."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.hardware.errors import InputError, check_known, warn
from nearkv.sweeps.study.sizes import comma_list
from nearkv.sweeps.tables.table import MARKS, check_columns

if TYPE_CHECKING:
    import pandas as pd


LARGEST_DRAWN = 1e100
"""The largest number that is drawn: squares and spans of an axis overflow far beyond it."""
NUMBERS = ("value", "low", "high")
"""Columns of what is drawn at a place, and of the ends of its band."""


def check_drawable(table: pd.DataFrame, *names: str) -> None:
    """Refuse a table that is empty or lacks a column.

    Raises:
        InputError: naming the column and the nearest one the table has.
    """
    check_known("column", names, columns_of(table), "the table")
    if table.empty:
        raise InputError("the table has no rows; there is nothing to draw")


def check_numbers(table: pd.DataFrame, *names: str) -> None:
    """Refuse a column that cannot be drawn: no finite number, no mark in its place, or too large.

    Raises:
        InputError: naming the column.
    """
    check_no_names(table, *names)
    runs = table
    if "status" in table.columns:
        runs = table[~table["status"].isin(list(MARKS))]
    for name in names:
        numbers = np.array([finite(value) for value in runs[name]])
        if np.any(np.abs(numbers) > LARGEST_DRAWN):
            raise InputError(
                f"{name} holds a number beyond {LARGEST_DRAWN:g}, which no axis shows"
            )
        missing = np.isnan(numbers)
        if len(runs) and missing.all():
            raise InputError(f"{name} holds no finite number; name another column")
        if missing.any():
            blank = f"{missing.sum()} of {len(runs)} rows"
            warn(f"{name} holds no finite number in {blank}, which stay blank")


def columns_of(table: pd.DataFrame) -> list[str]:
    """Return the names of a table's columns."""
    return [str(name) for name in table.columns]


def check_no_names(
    table: pd.DataFrame, *names: str, advice: str = "name another column"
) -> None:
    """Refuse a column of text, or of anything but numbers, where numbers are drawn.

    Raises:
        InputError: naming the column, with the advice.
    """
    for name in names:
        stated = [value for value in table[name].dropna() if value != ""]
        if any(isinstance(value, bool | np.bool_) for value in stated):
            raise InputError(f"{name} holds yes and no, not numbers; {advice}")
        if not all(isinstance(value, int | float | np.number) for value in stated):
            raise InputError(f"{name} holds names, not numbers; {advice}")


SPEED = "throughput_tok_s"
"""Column that is drawn where none is named."""


def drawn_column(table: pd.DataFrame, only: str) -> str:
    """Return the first column of a comma-separated list that holds numbers and is no axis.

    Raises:
        InputError: there is no such column, or one does not exist.
    """
    names = comma_list(only)
    check_columns(table, names)
    for name in names:
        if table[name].dtype.kind in "if" and name not in FIGURE_AXES:
            return name
    if names:
        raise InputError(f"--columns {only} holds no numbers to draw; name one, as {SPEED}")
    return SPEED


def distinct_values(table: pd.DataFrame, column: str) -> list[Any]:
    """Return the values of a column in the order of the table, each once."""
    return list(table[column].drop_duplicates())


def repeated_where_blank(table: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Return the table with rows that lack a column at each value of it, in the same order.

    A system without the knob is the same at each of its values.
    """
    for column in columns:
        check_drawable(table, column)
        lacks = table[column].isna().to_numpy()
        values = table.loc[~lacks, column].drop_duplicates()
        if not lacks.any() or values.empty:
            continue
        times = np.where(lacks, len(values), 1)
        rows = np.repeat(np.arange(len(table)), times)
        table = table.iloc[rows].reset_index(drop=True)
        table.loc[lacks[rows], column] = np.tile(values, lacks.sum())
    return table


def varying(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the columns, of those named, that hold more than one value."""
    return [name for name in names if name in table.columns and table[name].nunique() > 1]


def independent(table: pd.DataFrame, by: str) -> list[str]:
    """Return the axes of a table that vary and that `by` does not determine.

    A platform is determined by the system where each runs on that of its own paper.
    """
    many = varying(table, axes_in(table))
    return [name for name in many if name != by and varies_within(table, name, by)]


FIGURE_AXES = (
    "context_tok",
    "batch",
    "model",
    "platform",
    "output_tokens",
    "trace",
    "devices",
)
"""Columns that a figure may run over, in the order in which one is picked where none is named."""
_SET = re.compile(r"\w+\.[a-z]\w*")
"""The column of a hardware number that is set, `role.key`."""


def axes_in(table: pd.DataFrame) -> list[str]:
    """Return the columns that a figure may run over: of `FIGURE_AXES`, and numbers that are set.

    Devices are no axis of their own where a number that is set determines them.
    """
    names = [name for name in FIGURE_AXES if name in table.columns]
    numbers = [name for name in columns_of(table) if _SET.fullmatch(name)]
    if "devices" in names and not all(
        varies_within(table, "devices", number) for number in numbers
    ):
        names.remove("devices")
    return names + numbers


def varies_within(table: pd.DataFrame, name: str, by: str) -> bool:
    """Return whether a column varies where `by` does not."""
    groups = table.groupby(by, sort=False)
    distinct = groups[name].nunique()
    return bool((distinct > 1).any())


def axis_of(table: pd.DataFrame, over: str, by: str) -> str:
    """Return the column to draw over: the one named, else the one that varies.

    Raises:
        InputError: several columns vary and none is named, or the named one does not exist.
    """
    if over:
        check_drawable(table, over)
        return over
    check_drawable(table, by)
    candidates = independent(table, by)
    if len(candidates) > 1:
        raise InputError(
            f"the table varies over {' and '.join(candidates)}; name one with over (--over), "
            "and keep one value of the others"
        )
    constant = [name for name in axes_in(table) if name != by]
    if not constant:
        raise InputError(
            "the table has no column to draw over; name one with over (--over)"
        )
    return [*candidates, *constant][0]


def marks_of(table: pd.DataFrame, value: str, over: str, by: str) -> pd.DataFrame:
    """Return the marks of a figure, one a row of a table.

    Returns:
        `over` and `by` of each; its `value` and the ends `low` and `high` of its band, NaN where
        the table has none; and `mark`, what stands in the place of a value, blank where there is
        one.

    Raises:
        InputError: a column is missing, or several rows share one place in the figure.
    """
    import pandas as pd

    check_drawable(table, value, over, by)
    check_numbers(table, value)
    repeated = table[table.duplicated([over, by])]
    if not repeated.empty:
        others = varying(table, ["system", *axes_in(table)])
        rest = [name for name in others if name not in (over, by)]
        rest += that_tell_apart(table, [over, by, *rest])
        hint = (
            f"keep one value of {', '.join(rest)}"
            if rest
            else "leave out the repeated rows"
        )
        raise InputError(f"several rows have the same {over} and {by}; {hint}")
    marks = pd.DataFrame(
        {"over": table[over].to_numpy(object), "by": table[by].to_numpy(object)}
    )
    for name, column in zip(NUMBERS, (value, *band_of(table, value)), strict=True):
        marks[name] = [finite(cell) for cell in table.get(column, [np.nan] * len(table))]
    statuses = table.get("status", ["ok"] * len(table))
    return marks.assign(mark=[MARKS.get(str(status), "") for status in statuses])


def marks_along(marks: pd.DataFrame, name: object, places: list[Any]) -> pd.DataFrame:
    """Return the marks of one value of `by` at some places, NaN where the table has no row."""
    return marks[marks["by"] == name].set_index("over").reindex(places)


def that_tell_apart(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return columns that tell rows apart which are alike in some: knobs, before their answers."""
    columns = columns_of(table)
    before = columns[: columns.index("status")] if "status" in columns else []
    alike = table[table.duplicated(list(names), keep=False)]
    return [name for name in varying(alike, before) if name not in names]


def band_of(table: pd.DataFrame, value: str) -> tuple[str, str]:
    """Return the columns with the ends of a column's band, blank where the table has none.

    >>> import pandas as pd
    >>> band_of(pd.DataFrame(columns=["step_ms", "step_ms_p05", "step_ms_p95"]), "step_ms")
    ('step_ms_p05', 'step_ms_p95')
    """
    parts = re.compile(rf"{re.escape(value)}_p[\d.]+")
    names = sorted(name for name in columns_of(table) if parts.fullmatch(name))
    return (names[0], names[-1]) if len(names) > 1 else ("", "")


def finite(value: object) -> float:
    """Return a finite number, NaN for all else."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")
    return number if np.isfinite(number) else float("nan")
