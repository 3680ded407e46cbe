"""Stacked bars of the seconds of each resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.columns import TIME_PREFIX
from nearkv.sweeps.figures.bars import mark, tick_of
from nearkv.sweeps.figures.series import (
    check_drawable,
    check_no_names,
    columns_of,
    independent,
    that_tell_apart,
)
from nearkv.sweeps.figures.style import (
    HEIGHT,
    LEGEND_LINE,
    legend_above,
    looks,
    new_axes,
    styled,
)
from nearkv.sweeps.tables.table import MARKS, three_digits

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_UPRIGHT = 7
"""More bars than this lie, so that their names do not meet."""

SMALLEST = 0.02
"""Share of a bar from which on a part is seen."""

AROUND = 0.6
"""Height around bars that lie [inch]."""


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
    check_drawable(table, by)
    resources = [name for name in columns_of(table) if name.startswith(TIME_PREFIX)]
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
    named = {
        name.removeprefix(TIME_PREFIX): row for name, row in parts.items() if row.any()
    }
    heights = _without_small(named, seconds.sum(axis=0))
    if not heights:
        raise InputError("no row of the table has seconds; there is nothing to draw")
    names = _names_of_bars(table, by)
    target = new_axes(axes, width, _height(names, len(heights)))
    lie = len(names) > MOST_UPRIGHT
    draw_stacks(target, names, heights, lie=lie)
    what = "Share of the time" if relative else "Time (s)"
    target.set(**{"xlabel" if lie else "ylabel": what})
    for place, text in enumerate(marks):
        if text and lie:
            target.text(0, place, f" {text}", va="center", fontsize=6)
        elif text:
            mark(target, place, text)
    target.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return target


def _without_small(
    parts: Mapping[str, NDArray[np.floating[Any]]], whole: NDArray[np.floating[Any]]
) -> dict[str, NDArray[np.floating[Any]]]:
    """Return the parts that can be seen in a bar, and the sum of all others."""
    seen = {name: row for name, row in parts.items() if (row > SMALLEST * whole).any()}
    others = [row for name, row in parts.items() if name not in seen]
    return seen | ({"others": np.sum(others, axis=0)} if others else {})


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
        >>> import pandas
        >>> prediction = nearkv.estimate("hilos", model="opt-66b", context="64k")
        >>> axes = nearkv.plot.footprint(pandas.DataFrame(prediction.footprint))
    """
    for name in ("memory", "content", "needed_gb", "available_gb"):
        check_drawable(table, name)
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
    axes: Axes,
    names: Sequence[str],
    heights: Mapping[str, NDArray[np.floating[Any]]],
    *,
    lie: bool = False,
) -> None:
    """Draw a bar for each name, its parts in their order, upright or lying beside its name."""
    end = np.zeros(len(names))
    places = np.arange(len(names))
    for look, (part, row) in zip(looks([*heights]), heights.items(), strict=True):
        if lie:
            axes.barh(places, row, 0.7, left=end, label=part, **look.bar)
        else:
            axes.bar(places, row, 0.7, bottom=end, label=part, **look.bar)
        end += row
    if lie:
        axes.set_yticks(places, names)
        axes.invert_yaxis()
    else:
        axes.set_xticks(places, names)


def _height(names: Sequence[str], entries: int) -> float:
    """Return a height that leaves bars visible beside the legend [inch]."""
    lying = LEGEND_LINE * len(names) if len(names) > MOST_UPRIGHT else 0.0
    return max(HEIGHT, AROUND + lying, (entries + 1) * LEGEND_LINE)


def _names_of_bars(table: pd.DataFrame, by: str) -> list[str]:
    """Return the name under each bar: the value of `by` and all else that varies."""
    others = independent(table, by)
    others += that_tell_apart(table, [by, *others])
    names = []
    for row in table.to_dict("records"):
        texts = [str(row[by]), *(tick_of(row[name]) for name in others)]
        names.append(" ".join(texts) if len(table) > MOST_UPRIGHT else "\n".join(texts))
    return names
