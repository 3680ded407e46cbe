"""Where the time goes: stacked bars of the seconds of each resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.bars import mark
from nearkv.sweeps.figures.series import (
    check_columns,
    check_no_names,
    columns_of,
    independent,
    telling,
)
from nearkv.sweeps.figures.style import (
    HEIGHT,
    LEGEND_LINE,
    legend_above,
    looks,
    new_axes,
    styled,
)
from nearkv.sweeps.tables.labels import short_number
from nearkv.sweeps.tables.table import MARKS, three_digits

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PREFIX = "time_s:"
"""What names of columns with seconds by resource begin with."""

MOST_UPRIGHT = 7
"""The names of more bars than this are turned, so that they do not meet."""

LEAST_BARS, LETTER = 1.6, 0.06
"""Least height of the bars, and height of a letter of a turned name [inch]."""


@styled
def breakdown(
    table: pd.DataFrame,
    *,
    by: str = "system",
    relative: bool = False,
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Draw one stacked bar a row: wall-clock seconds by the resource they are attributed to.

    Args:
        table: rows with columns of seconds by resource, as `compare(..., breakdown=True)` returns.
        by: the column that names a bar, beside all else that varies.
        relative: draw shares of the total instead of seconds.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: the table has no column of seconds by resource.

    Example:
        >>> import nearkv
        >>> table = nearkv.compare(["flexgen-ssd", "hilos"], model="opt-66b", breakdown=True)
        >>> axes = nearkv.plot.breakdown(table)
    """
    check_columns(table, by)
    resources = [name for name in columns_of(table) if name.startswith(PREFIX)]
    if not resources:
        raise InputError("the table has no seconds by resource; make it with --breakdown")
    marks = [
        MARKS.get(str(status), "") for status in table.get("status", [""] * len(table))
    ]
    check_no_names(table, *resources)
    seconds = table[resources].astype(float).fillna(0.0).to_numpy().T
    seconds = np.where([bool(text) for text in marks], 0.0, seconds)
    if relative:
        seconds = seconds / np.maximum(seconds.sum(axis=0), np.finfo(float).tiny)
    parts = dict(zip(resources, seconds, strict=True))
    heights = {name.removeprefix(PREFIX): row for name, row in parts.items() if row.any()}
    if not heights:
        raise InputError("no row of the table has seconds; there is nothing to draw")
    names = _names_of_bars(table, by)
    target = new_axes(axes, width, _height(names, len(heights)))
    draw_stacks(target, names, heights)
    for place, text in enumerate(marks):
        if text:
            mark(target, place, text)
    target.set_ylabel("Share of the time" if relative else "Time (s)")
    target.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return target


@styled
def footprint(
    table: pd.DataFrame, *, width: str = "column", axes: Axes | None = None
) -> Axes:
    """Draw what lies in each memory as a share of it, and the memory's size as a line.

    Args:
        table: rows of `estimate --footprint`: `memory`, `content`, `needed_gb`, `available_gb`.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: the table is not one of `--footprint`.

    Example:
        >>> import nearkv
        >>> prediction = nearkv.estimate("hilos", model="opt-66b", context="64k")
        >>> axes = nearkv.plot.footprint(prediction.footprint())
    """
    for name in ("memory", "content", "needed_gb", "available_gb"):
        check_columns(table, name)
    size = table.dropna(subset=["available_gb"]).set_index("memory")["available_gb"]
    parts = table[table["available_gb"].isna()]
    needed = parts.pivot_table("needed_gb", "content", "memory", "sum", sort=False)
    shares = (needed / size).reindex(columns=size.index).fillna(0.0)
    names = [f"{memory}\n{three_digits(room)} GB" for memory, room in size.items()]
    target = new_axes(axes, width)
    draw_stacks(target, names, {str(key): row.to_numpy() for key, row in shares.iterrows()})
    target.axhline(1.0, color="black", linewidth=0.8)
    target.set_ylabel("Share of the memory")
    legend_above(target)
    return target


def draw_stacks(
    axes: Axes, names: Sequence[str], heights: Mapping[str, NDArray[np.floating[Any]]]
) -> None:
    """Draw a bar for each name, the parts on top of each other in their order."""
    bottom = np.zeros(len(names))
    for look, (part, row) in zip(looks([*heights]), heights.items(), strict=True):
        axes.bar(np.arange(len(names)), row, 0.7, bottom=bottom, label=part, **look.bar)
        bottom += row
    turned: dict[str, Any] = {"rotation": 90} if len(names) > MOST_UPRIGHT else {}
    axes.set_xticks(range(len(names)), names, **turned)


def _height(names: Sequence[str], entries: int) -> float:
    """Return a height that leaves bars visible above turned names and beside the legend."""
    longest = max(len(name) for name in names)
    below = longest * LETTER if len(names) > MOST_UPRIGHT else 0.0
    return max(HEIGHT, LEAST_BARS + below, (entries + 1) * LEGEND_LINE)


def _names_of_bars(table: pd.DataFrame, by: str) -> list[str]:
    """Return the name under each bar: the value of `by` and all else that varies."""
    others = independent(table, by)
    others += telling(table, [by, *others])
    names = []
    for row in table.to_dict("records"):
        texts = [str(row[by])]
        for name in others:
            value = row[name]
            number = isinstance(value, int | float | np.number)
            texts.append(short_number(float(value)) if number else str(value))
        names.append(" ".join(texts) if len(table) > MOST_UPRIGHT else "\n".join(texts))
    return names
