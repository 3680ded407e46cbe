"""Bands of ratios over the first system, and the share of the draws in which each row is best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, permutations, product

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers
from nearkv.sweeps.study.bands import FASTER_SHARES
from nearkv.sweeps.study.grid import Block, Grid, Slices, shape_of
from nearkv.sweeps.tables.table import Columns
from nearkv.sweeps.uncertainty.model_error import RATIO, drawn_error, error_power
from nearkv.sweeps.uncertainty.sampled import ends, sampled, tiles


def ratio_bands(
    blocks: Sequence[Block], table: Columns, ratios: Mapping[str, str], shared: int
) -> dict[str, Numbers]:
    """Bands of ratios over the first row of each design point, and how often each row is best.

    Numbers that two systems share are drawn once for both, so that what is unknown of both cancels.
    The error of the models is that of a ratio: the row that others are compared with has none. For
    a band that is the first row, for a share the best at the stated numbers. It lifts no row above
    one of its optima.

    Args:
        blocks: of a study with a band, in the order of the table's rows.
        table: their answers at the stated numbers.
        ratios: name of a ratio -> the column that it compares.
        shared: how many axes of the grids are design points; the others are knobs.

    Returns:
        For each ratio the columns `RATIO_p05` and so on; for those of `FASTER_SHARES` the share of
        the draws in which the row is the fastest of its design point, ties shared evenly. NaN where
        the row, or the first for a ratio, never fits.
    """
    band = blocks[0].band
    assert band is not None
    points = Grid(blocks[0].grid.axes[:shared])
    sizes = [block.grid.size // points.size for block in blocks]
    starts = np.cumsum([0, *sizes])
    optima = _optima(blocks, shared)
    bounded = [row for row, optimum in optima if optimum == 0]
    bounding = [optimum for row, optimum in optima if row == 0]
    numbers = np.arange(points.size).reshape(points.shape)
    most = min(block.at_once for block in blocks) // (band.samples * starts[-1])
    columns: dict[str, Numbers] = {}
    for piece in points.boxes(max(most, 1)):
        drawn = [_drawn(block, piece, list(ratios.values())) for block in blocks]
        rates = {
            column: np.concatenate([rates[column] for rates, _ in drawn], axis=1)
            for column in ratios.values()
        }
        error = np.concatenate([error for _, error in drawn], axis=1)
        own = numbers[piece].ravel()
        for ratio, column in ratios.items():
            with np.errstate(divide="ignore", invalid="ignore"):
                modelled = rates[column] / rates[column][:, :1]
            likely = _compared(modelled, error, column, 0)
            likely[:, bounded] = np.minimum(likely, np.maximum(modelled, 1.0))[:, bounded]
            likely[:, bounding] = np.maximum(likely, np.minimum(modelled, 1.0))[:, bounding]
            answers = ends(band, ratio, likely)
            if ratio in FASTER_SHARES:
                stated = _by_point(table[column], sizes, points.size)[own]
                best = np.argmax(np.nan_to_num(stated, nan=-np.inf), axis=1)
                compared = _compared(rates[column], error, column, best)
                for row, optimum in optima:
                    is_beaten = rates[column][:, optimum] > rates[column][:, row]
                    compared[:, row][is_beaten] = -np.inf
                answers[FASTER_SHARES[ratio]] = _share_fastest(compared)
            for name, values in answers.items():
                whole = columns.setdefault(name, np.empty((points.size, starts[-1])))
                whole[own] = values
    rows = [slice(start, start + size) for start, size in zip(starts, sizes, strict=False)]
    return {
        name: np.concatenate([values[:, some].ravel() for some in rows])
        for name, values in columns.items()
    }


def _optima(blocks: Sequence[Block], shared: int) -> list[tuple[int, int]]:
    """Rows of a design point, each beside a row that may take what it states or is mapped to.

    Both are of one system, or the second of an optimum of the first one's, on the same machine;
    each knob of the second is `auto` or has the same value in both.
    """
    places = count()
    rows = [[(next(places), knobs) for knobs in _knobs(block, shared)] for block in blocks]
    pairs = []
    for (block, own), (best, theirs) in permutations(zip(blocks, rows, strict=True), 2):
        systems = (block.system.name, *block.system.optima)
        if best.system.name not in systems or best.platform != block.platform:
            continue
        for (row, knobs), (optimum, solved) in product(own, theirs):
            if all(value in ("auto", knobs.get(name)) for name, value in solved.items()):
                pairs.append((row, optimum))
    return pairs


def _knobs(block: Block, shared: int) -> Iterator[dict[str, object]]:
    """Values of the knobs of each row of a design point; `auto`, or a rule, where one chooses."""
    axes = block.grid.axes[shared:]
    for values in product(*[axis.values for axis in axes]):
        stated = zip([axis.name for axis in axes], values, strict=True)
        yield {**block.open_knobs, **dict(stated)}


def _by_point(values: NDArray[np.generic], sizes: Sequence[int], points: int) -> Numbers:
    """A column of a table whose blocks stand below one another: (points, rows of each)."""
    parts = np.split(values.astype(float), np.cumsum(sizes)[:-1] * points)
    return np.concatenate([part.reshape(points, -1) for part in parts], axis=1)


def _drawn(
    block: Block, points: Slices, columns: Sequence[str]
) -> tuple[dict[str, Numbers], Numbers]:
    """Columns of a block at every draw, and the logarithm of the model error of each.

    Returns:
        Arrays of (points, rows of a point, draws); NaN where a row does not fit.
    """
    band = block.band
    assert band is not None
    box = (*points, *block.grid.whole[len(points) :])
    shape = (*shape_of(box), band.samples)
    rates = {column: np.empty(shape) for column in columns}
    error = np.empty(shape)
    for outer, inner in tiles(block, box):
        answers = sampled(block, outer)
        for column, values in rates.items():
            values[inner] = answers.column(column)
        estimate = block.resolved(outer).estimate
        error[inner] = drawn_error(block, band, estimate, shape_of(outer), RATIO)
    flat = (math.prod(shape_of(points)), -1, band.samples)
    return {name: rate.reshape(flat) for name, rate in rates.items()}, error.reshape(flat)


def _compared(
    rates: Numbers, error: Numbers, column: str, reference: Numbers | int
) -> Numbers:
    """A column beside that of one row of each point, which has no error beside itself."""
    beside = error.copy()
    beside[np.arange(len(rates)), reference] = 0.0
    return rates * np.exp(error_power(column) * beside)


def _share_fastest(rates: Numbers) -> Numbers:
    """Share of the draws with an answer in which a row has the highest rate [1]."""
    highest = np.fmax.reduce(rates, axis=1, keepdims=True)
    leads = rates == highest
    ties = leads.sum(axis=1, keepdims=True)
    share = (leads / np.maximum(ties, 1)).sum(axis=2)
    with np.errstate(invalid="ignore"):
        share = share / (ties > 0).sum(axis=2)
    never = np.isnan(rates).all(axis=2)
    return np.where(never, np.nan, share)
