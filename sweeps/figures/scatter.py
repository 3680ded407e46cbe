"""Points: Pareto fronts, predictions against what papers state, and rates under a roofline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError
from nearkv.solvers.frontier import frontier
from nearkv.sweeps.evaluate.slo import higher_is_better
from nearkv.sweeps.figures.bars import tick_of
from nearkv.sweeps.figures.series import (
    check_drawable,
    check_numbers,
    distinct_values,
    varying,
)
from nearkv.sweeps.figures.style import (
    DASHES,
    figure_of,
    legend_above,
    log_scale,
    looks,
    new_axes,
    styled,
)
from nearkv.sweeps.tables.labels import label_of, without_unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SIDES = ("stated", "predicted")

SAME_WORKLOAD = ("model", "context_tok", "output_tokens", "trace")
"""Columns that make a workload, within which designs are compared."""

FEWEST = 3
"""Designs of a front that may have a knee."""

FAINT = 0.3
"""Opacity of designs that others beat."""

NEAR_FACTOR = 1.25
"""A prediction within this factor of what is stated is near."""

MOST_POWERS = 6
"""Numbers below a column's width that do not meet: as wide as 10,000."""


@styled
def pareto(
    table: pd.DataFrame,
    x: str = "cost_usd",
    y: str = "throughput_tok_s",
    *,
    by: str = "system",
    colour: str = "",
    width: str = "page",
    axes: Axes | None = None,
) -> Axes:
    """Draw designs, and a staircase through the Pareto-optimal ones of each workload.

    A table of all designs, as of `sweep`, shows those that others beat as faint points. A black
    star is the knee of a front: the design farthest from the line between its ends.

    Args:
        table: a row for every design, as `pareto` or `sweep` returns.
        x, y: the columns that are compared, each in the sense in which it is better.
        by: the column whose values have colours and fronts of their own, beside the workload.
        colour: a third column, which colours the points.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column does not exist.

    Example:
        >>> import nearkv
        >>> table = nearkv.pareto(systems="hilos", model="opt-66b", batch="1:16:x2")
        >>> axes = nearkv.plot.pareto(table)
    """
    check_drawable(table, x, y, by)
    check_numbers(table, x, y, *[colour] * bool(colour))
    target = new_axes(axes, width)
    designs = table.dropna(subset=[x, y])
    workload = varying(designs, SAME_WORKLOAD)
    fronts = dict(list(designs.groupby([by, *workload], sort=False, observed=True)))
    names = [_name_of_front(key, [by, *workload]) for key in fronts]
    signs = [-1.0 if higher_is_better(side) else 1.0 for side in (x, y)]
    for name, look, rows in zip(names, looks(names), fronts.values(), strict=True):
        costs = rows[[x, y]].to_numpy(float) * signs
        best = rows[frontier(costs)].sort_values([x, y])
        target.plot(rows[x], rows[y], ".", color=look.colour, alpha=FAINT)
        staircase = look.line | {"drawstyle": "steps-post"}
        target.plot(best[x], best[y], label=name, **staircase)
        if len(best.drop_duplicates([x, y])) >= FEWEST:
            knee = best.iloc[_knee(best[[x, y]].to_numpy(float))]
            target.plot(knee[x], knee[y], "*", color="black", markersize=7, zorder=4)
    if colour:
        points = target.scatter(
            designs[x], designs[y], s=8, c=designs[colour].astype(float), zorder=3
        )
        figure_of(target).colorbar(points, ax=target, label=label_of(colour))
    target.set(xlabel=label_of(x), ylabel=label_of(y))
    legend_above(target)
    return target


def _name_of_front(key: tuple[Any, ...], columns: Sequence[str]) -> str:
    """Return the name of a front: the value of `by`, and the workload where several are drawn."""
    first, *rest = key
    words = [
        f"{without_unit(label_of(name)).lower()} {tick_of(value)}"
        for name, value in zip(columns[1:], rest, strict=True)
    ]
    return ", ".join([str(first), *words])


def _knee(front: Numbers) -> int:
    """Return which design of a front lies farthest from the line between its ends.

    Source: Das (1999), Structural Optimization 18, 107 to 115, on axes scaled to the front.

    >>> _knee(np.array([[0.0, 0.0], [1.0, 9.0], [10.0, 10.0]]))
    1
    """
    span = np.ptp(front, axis=0)
    scaled = (front - front[0]) / np.where(span > 0, span, 1.0)
    across, upwards = scaled[-1]
    return int(np.argmax(np.abs(across * scaled[:, 1] - upwards * scaled[:, 0])))


@styled
def parity(
    table: pd.DataFrame,
    *,
    by: str = "paper",
    width: str = "column",
    axes: Axes | None = None,
) -> Axes:
    """Draw predictions over what was stated, on logarithmic axes.

    The line is equality; the shaded band holds what is within 25 %. Rows without one positive
    number on both sides (yes-or-no statements, ranges) are left out.

    Args:
        table: rows with `stated` and `predicted`, as `validate` returns.
        by: the column whose values have colours of their own.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: a column does not exist, or no row can be drawn.

    Example:
        >>> import nearkv
        >>> axes = nearkv.plot.parity(nearkv.validate("hilos"))
    """
    import pandas as pd

    if not set(SIDES) <= set(table.columns):
        raise InputError("the table holds no claims; make it with nearkv validate")
    check_drawable(table, by)
    table = table.reset_index(drop=True)
    numbers = table[[*SIDES]].apply(pd.to_numeric, errors="coerce")
    drawn = (numbers > 0).all(axis=1)
    if not drawn.any():
        raise InputError("no row has a positive number on both sides; nothing to draw")
    claims = table[[by]].join(numbers)[drawn]
    target = new_axes(axes, width)
    ends = np.array([claims["stated"].min() / 2, claims["stated"].max() * 2])
    target.fill_between(
        ends,
        ends / NEAR_FACTOR,
        ends * NEAR_FACTOR,
        color="0.9",
        linewidth=0,
        label="within 25 %",
    )
    target.plot(ends, ends, color="0.4", linewidth=0.8)
    names = distinct_values(claims, by)
    for name, look in zip(names, looks(names), strict=True):
        rows = claims[claims[by] == name]
        point = look.line | {"linestyle": "none", "label": str(name)}
        target.plot(rows["stated"], rows["predicted"], **point)
    log_scale(target, "x")
    log_scale(target, "y")
    target.locator_params(axis="x", numticks=MOST_POWERS)
    target.set(xlabel="Stated", ylabel="Predicted")
    legend_above(target)
    return target


WORK, TRAFFIC = "FLOP", "B"
"""Units of the two sides of a roofline."""

MARGIN = 4.0
"""Intensities beyond those of operators that are shown, as a factor."""


@styled
def roofline(
    table: pd.DataFrame, *, width: str = "column", axes: Axes | None = None
) -> Axes:
    """Draw every operator at its arithmetic intensity, below the roofs of what it runs on.

    An operator is the smallest span with FLOPs and with bytes, of which the slowest count. Where
    the two overlap it reaches the lower roof at its intensity, and less where they take turns.

    Args:
        table: rows of `estimate --explain`: `span`, `seconds`, `amount`, `unit`, `resource`.
        width: of a new figure, `column` or `page`.
        axes: where to draw; default: a new figure.

    Returns:
        The axes, to restyle.

    Raises:
        InputError: the table is not one of `--explain`, or no operator has both sides.

    Example:
        >>> import nearkv
        >>> prediction = nearkv.estimate("hilos", model="opt-66b", context="64k")
        >>> axes = nearkv.plot.roofline(prediction.explain())

    Source:
        Williams et al., CACM 52(4), 2009.
    """
    operators = operators_of(table)
    target = new_axes(axes, width)
    log_scale(target, "x")
    log_scale(target, "y")
    ridges = operators["peak"] / operators["bandwidth"]
    places = np.concatenate([operators["intensity"], ridges])
    across = np.geomspace(places.min() / MARGIN, places.max() * MARGIN)
    roofs = operators.groupby(["memory", "processor"], sort=False)
    for dash, ((memory, processor), rows) in zip(cycle(DASHES), roofs, strict=False):
        roof = np.minimum(across * rows["bandwidth"].max(), rows["peak"].max())
        style: dict[str, Any] = {"color": "0.5", "linestyle": dash, "linewidth": 0.8}
        target.plot(across, roof, label=f"{memory}, {processor}", **style)
    names = list(operators["operator"])
    for look, row in zip(looks(names), operators.to_dict("records"), strict=True):
        phase, *inner = str(row["operator"]).split("/")
        name = f"{phase}: {'/'.join(inner[-2:])}"
        point = look.line | {"linestyle": "none", "label": name}
        target.plot(row["intensity"], row["rate"], **point)
    target.set(xlabel="Arithmetic intensity (FLOP/B)", ylabel="Rate (FLOP/s)")
    legend_above(target)
    return target


def operators_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the operators of a time tree, each with its intensity, its rate and both roofs.

    Raises:
        InputError: the table is not one of `--explain`, or no operator has both sides.
    """
    import pandas as pd

    for name in ("span", "seconds", "amount", "unit", "resource"):
        check_drawable(table, name)
    spans = table[table["seconds"] > 0].set_index("span")
    leaves = spans.assign(rate=spans["amount"] / spans["seconds"])
    traffic = leaves[leaves["unit"] == TRAFFIC]
    operators: dict[str, dict[str, Any]] = {}
    work = leaves[leaves["unit"] == WORK].reset_index()
    for leaf in work.to_dict("records"):
        for operator in _above(leaf["span"]):
            beside = traffic[traffic.index.str.startswith(f"{operator}/")]
            if len(beside):
                break
        else:
            continue
        slowest = beside.nlargest(1, "seconds").to_dict("records")[0]
        row = operators.setdefault(operator, {"operator": operator, "amount": 0.0})
        row["amount"] += leaf["amount"]
        row["intensity"] = row["amount"] / slowest["amount"]
        row["rate"] = row["amount"] / spans["seconds"][operator]
        row |= {"processor": leaf["resource"], "peak": leaf["rate"]}
        row |= {"memory": slowest["resource"], "bandwidth": slowest["rate"]}
    if not operators:
        raise InputError("no operator of the table has FLOPs and bytes; nothing to draw")
    return pd.DataFrame([*operators.values()])


def _above(span: str) -> list[str]:
    """Return the spans that hold one, the nearest first, without the run's phases.

    >>> _above("decode/layers/head/compute")
    ['decode/layers/head', 'decode/layers']
    """
    names = span.split("/")
    return ["/".join(names[:depth]) for depth in range(len(names) - 1, 1, -1)]
