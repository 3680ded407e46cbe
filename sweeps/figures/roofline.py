"""The roofline of one prediction: what each operator reaches, below the rates of its machine."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.series import check_drawable
from nearkv.sweeps.figures.style import (
    DASHES,
    legend_above,
    log_scale,
    looks,
    new_axes,
    styled,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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
