"""Rows that a fit is compared with, and how a column answers for other hardware numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import unknown
from nearkv.sweeps.evaluate.probe import Probe, column
from nearkv.sweeps.study.study import NONE, Numbers

Predict = Callable[[Mapping[str, Numbers]], Numbers]
"""Hardware numbers by `role.key`, k values each in SI -> predictions (k, rows)."""


@dataclass(frozen=True)
class Evidence:
    """The rows that a fit is compared with.

    Attributes:
        what: where they come from, for readers.
        source: key into sources.toml.
        platform: whose numbers are fitted.
        names: of the rows.
        stated: what each row states or measured.
        predict: the models' predictions of all rows.
    """

    what: str
    source: str
    platform: Platform
    names: tuple[str, ...]
    stated: Numbers
    predict: Predict


def without(evidence: Evidence, left_out: Sequence[str]) -> Evidence:
    """The evidence without some rows, by name; the id of a claim stands for both of its ends.

    Raises:
        InputError: no such row.
    """
    kept = list(range(len(evidence.names)))
    for row in left_out:
        matches = {row, f"{row} low", f"{row} high"}
        if matches.isdisjoint(evidence.names):
            raise unknown("row", row, evidence.names, "--without")
        kept = [place for place in kept if evidence.names[place] not in matches]

    def predict(numbers: Mapping[str, Numbers]) -> Numbers:
        predictions: Numbers = evidence.predict(numbers)[:, kept]
        return predictions

    names = tuple(evidence.names[place] for place in kept)
    return replace(evidence, names=names, stated=evidence.stated[kept], predict=predict)


def predictions(
    probe: Probe,
    metric: str,
    numbers: Mapping[str, Numbers],
    axes: Mapping[str, Numbers] = NONE,
    infeasible: bool = True,
) -> Numbers:
    """A column for k values of hardware numbers, at all design points of a block.

    Numbers that the block sets itself stay as set.

    Args:
        probe: the block.
        metric: the column.
        numbers: hardware numbers by `role.key`, k values each [SI].
        axes: values of axes in place of the block's own points, one each point.
        infeasible: whether points that do not fit have their time all the same; else they are NaN.

    Returns:
        (k, points).
    """
    count = _length(numbers, 1)
    size = _length(axes, probe.size)
    points = np.zeros(size, np.intp) if axes else np.arange(size)
    set_by_block = probe.block.sets.values()
    free = {}
    for address, values in numbers.items():
        if address not in set_by_block:
            free[address] = np.repeat(values, size)
    tiled_axes = {name: np.tile(values, count) for name, values in axes.items()}
    answer = probe.answer(np.tile(points, count), tiled_axes, free)
    if infeasible:
        values = np.asarray(COLUMNS[metric].compute(answer))
    else:
        values = column(answer, metric, count * size)
    flat = np.broadcast_to(values, (count * size,))
    return flat.reshape(count, size).astype(float)


def _length(arrays: Mapping[str, Numbers], default: int) -> int:
    """Length that all arrays share."""
    for values in arrays.values():
        return len(values)
    return default
