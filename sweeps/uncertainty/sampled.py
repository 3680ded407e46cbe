"""A block evaluated at all draws of its uncertain hardware numbers: one more axis, the last.

What is asked of the draws (an end of a band, a share, a mean) reduces over that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.metrics import COLUMNS, Evaluated
from nearkv.hardware.errors import InputError
from nearkv.hardware.platform import Platform
from nearkv.hardware.schema import Key, Quantity
from nearkv.hardware.units import unit_of
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.objective import TOTAL, Timed
from nearkv.solvers.uncertainty.draws import Law, Measured, Ranged, listed, ranks
from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.study.bands import Band
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Grid, Slices, shape_of
from nearkv.sweeps.uncertainty.model_error import VALUE, drawn_error, error_power

FITS = "fits_share"
"""Column of the share of the draws in which a design fits."""


def law_of(number: Quantity, key: Key) -> Law:
    """The law of an uncertain number [SI].

    Measured quantiles go before a range. Shares of something are uniform; times, rates, sizes and
    prices err by factors, so their logarithms are.
    """
    if number.quantiles_si is not None:
        _, most = key.limits
        low, middle, high = number.quantiles_si
        return Measured(low, middle, high, most)
    exact = (number.si, number.si)
    low, high = number.range_si or exact
    is_share = number.unit == "1"
    is_log = not is_share and low > 0
    return Ranged(low, number.si, high, is_log)


def drawn_number(platform: Platform, address: str, rank: Numbers) -> Numbers:
    """A number of a platform at each rank [SI]."""
    role, _, name = address.partition(".")
    part = platform.roles[role]
    key = platform.key(address)
    law = law_of(part.numbers[name], key)
    drawn = law.quantile(rank)
    if key.only:
        _, size = unit_of(key.unit)
        values = np.array(key.only, dtype=float)
        return listed(drawn, size * values)
    return np.round(drawn) if key.whole else drawn


def drawn_numbers(block: Block, band: Band) -> dict[str, Numbers]:
    """All uncertain numbers of a block by `role.key`, one value a draw [SI]."""
    return numbers_at(block, ranks(band.names, band.samples, band.seed))


def numbers_at(block: Block, rank: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """All uncertain numbers of a block by `role.key`, at ranks of their draws by name [SI]."""
    return {
        address: drawn_number(block.platform, address, rank[name])
        for address, name in block.draws.items()
    }


@dataclass(frozen=True)
class Sampled:
    """The answers of some design points at every draw.

    Attributes:
        answer: of the system, draws along the last axis.
        knobs: value of every knob, the solved ones solved anew in each draw [1].
        shape: of the design points and draws.
    """

    answer: Evaluated
    knobs: Mapping[str, Real]
    shape: tuple[int, ...]

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """True if the design fits in each draw."""
        return np.broadcast_to(self.answer.estimate.fits.ok, self.shape)

    def column(self, name: str) -> Numbers:
        """A column or a knob at every draw; NaN where the design does not fit."""
        own = {**self.answer.estimate.columns, **self.knobs}
        if name in COLUMNS:
            values = COLUMNS[name].compute(self.answer)
        elif name in own:
            values = own[name]
        else:
            raise InputError(f"--band: {name} has no band; leave out one of them")
        return self._where_it_fits(values)

    def seconds(self, timed: Timed) -> Numbers:
        """Seconds of a span at every draw; NaN where the design does not fit [s]."""
        return self._where_it_fits(timed(self.answer.estimate).seconds)

    def _where_it_fits(self, values: Real) -> Numbers:
        return np.where(self.fits, np.broadcast_to(values, self.shape), np.nan)


def sampled(
    block: Block,
    box: Slices,
    knobs: Mapping[str, Numbers] = NO_NUMBERS,
    timed: Timed = TOTAL,
) -> Sampled:
    """Evaluate a box of design points at every draw of the block's band.

    Knobs that are solved are solved anew in each draw, unless they are stated.

    Args:
        block: with a band.
        box: the design points.
        knobs: values of knobs in place of the block's own; they broadcast to the box.
        timed: what solved knobs make short.
    """
    assert block.band is not None
    mesh = _with_draws(block.grid.mesh(box))
    # a knob with a value of its own at each design point has no axis of draws yet
    stated = {
        name: value
        for name, value in block.open_knobs.items()
        if isinstance(value, np.ndarray) and value.ndim
    }
    given = block.given(_with_draws({**stated, **knobs}))
    inputs = given.at(mesh, drawn_numbers(block, block.band))
    resolved = resolve_knobs(block.system, *inputs, timed=timed)
    answer = Evaluated(resolved.estimate, inputs[0], block.system.owns)
    shape = (*shape_of(box), block.band.samples)
    return Sampled(answer, resolved.knobs, shape)


def _with_draws(arrays: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Values of design points with one more axis, of the draws."""
    return {name: values[..., np.newaxis] for name, values in arrays.items()}


def tiles(block: Block, box: Slices) -> Iterator[tuple[Slices, Slices]]:
    """Cut a box so that a piece with all its draws is evaluated at once.

    Yields:
        Each piece as a box of the block's grid, and as a box of the given one.
    """
    assert block.band is not None
    sides = zip(block.grid.axes, box, strict=True)
    grid = Grid(tuple(replace(axis, values=axis.values[side]) for axis, side in sides))
    for inner in grid.boxes(max(block.at_once // block.band.samples, 1)):
        outer = [
            slice(side.start + piece.start, side.start + piece.stop)
            for side, piece in zip(box, inner, strict=True)
        ]
        yield tuple(outer), inner


def reduced(
    block: Block, box: Slices, reduce: Callable[[Slices, Slices], Mapping[str, Numbers]]
) -> dict[str, Numbers]:
    """Columns of a box that are reduced over the draws tile by tile, so that memory is bounded.

    Args:
        block: with a band.
        box: the design points.
        reduce: a tile, as a box of the block's grid and as a box of the given one -> its columns,
            without the axis of draws.
    """
    columns: dict[str, Numbers] = {}
    for outer, inner in tiles(block, box):
        tile = reduce(outer, inner)
        for name, values in tile.items():
            if name not in columns:
                columns[name] = np.empty(shape_of(box))
            columns[name][inner] = values
    return columns


def ends(band: Band, name: str, samples: Numbers) -> dict[str, Numbers]:
    """Lower end, middle and upper end of samples along the last axis, as `NAME_p05` and so on."""
    names = [f"{name}_{suffix}" for suffix in band.suffixes]
    return dict(zip(names, quantiles(samples, band.shares), strict=True))


def band_columns(
    block: Block, box: Slices, estimate: Estimate, wanted: Collection[str] = ()
) -> dict[str, Numbers]:
    """The bands of a box of design points.

    Args:
        block, box: the design points; the block has a band.
        estimate: their answer at the stated numbers.
        wanted: names of columns to compute; all where empty.

    Returns:
        `FITS`, and a column for each end and the middle of what has a band and is wanted.
    """
    band = block.band
    assert band is not None
    needed = []
    for column in banded(block, estimate):
        names = {f"{column}_{end}" for end in band.suffixes}
        if not wanted or names & set(wanted):
            needed.append(column)
    if wanted and not needed and not {FITS, "note"} & set(wanted):
        return {}  # drawing is most of the work
    errors = drawn_error(block, band, estimate, shape_of(box), VALUE)

    def of_tile(outer: Slices, inner: Slices) -> dict[str, Numbers]:
        answers = sampled(block, outer)
        factor = np.exp(errors[inner])
        columns: dict[str, Numbers] = {}
        for name in needed:
            samples = answers.column(name) * factor ** error_power(name)
            columns |= ends(band, name, samples)
        return {**columns, FITS: np.mean(answers.fits, axis=-1)}

    return reduced(block, box, of_tile)


def banded(block: Block, estimate: Estimate) -> list[str]:
    """Columns that have a band: all of times, rates and sums, and the knobs that are solved."""
    solved = [name for name, value in block.open_knobs.items() if isinstance(value, str)]
    shares = [name for name in solved if not block.system.knobs[name].choices]
    return [*COLUMNS, *estimate.columns, *shares]
