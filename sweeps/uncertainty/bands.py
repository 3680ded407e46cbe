"""Columns of the lower end, the middle and the upper end of every answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.solvers.uncertainty.draws import ranks
from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.solvers.uncertainty.spread import scores
from nearkv.sweeps.study.bands import MODEL_ERROR, Band
from nearkv.sweeps.study.grid import Box, shape_of
from nearkv.sweeps.study.study import Block
from nearkv.sweeps.uncertainty.model_error import VALUE, error_power, spreads
from nearkv.sweeps.uncertainty.sampled import sampled, tiles

Numbers = NDArray[np.float64]
FITS = "fits_share"
"""Column of the share of the draws in which a design fits."""


@dataclass(frozen=True)
class BandColumns:
    """The bands of a box of design points; evaluated when the first column is asked for.

    Attributes:
        block, box: the design points; the block has a band.
        estimate: their answer at the stated numbers.
        wanted: names of columns to compute; all where empty.
    """

    block: Block
    box: Box
    estimate: Estimate
    wanted: Collection[str] = ()

    @property
    def names(self) -> Iterator[tuple[str, str, int]]:
        """Each column of a band: its name, the column it is of, and which quantile."""
        for column in banded(self.block, self.estimate):
            for place, suffix in enumerate(_band(self.block).suffixes):
                yield f"{column}_{suffix}", column, place

    def quantile(self, column: str, place: int) -> Numbers:
        """One end or the middle of a column, over the box."""
        answer: Numbers = self._computed[column][place]
        return answer

    def fits(self) -> Numbers:
        """Share of the draws in which each design fits [1]."""
        return self._computed[FITS]

    @cached_property
    def _computed(self) -> dict[str, Numbers]:
        """Quantiles (3, points) of each column that is asked for, tile by tile."""
        shape = shape_of(self.box)
        band = _band(self.block)
        columns = list(dict.fromkeys(self._chosen))
        computed = {name: np.empty((3, *shape)) for name in columns}
        computed[FITS] = np.empty(shape)
        errors = np.broadcast_to(spreads(self.block, self.estimate, shape, VALUE), shape)
        score = error_scores(band, MODEL_ERROR)
        for outer, inner in tiles(self.block, self.box):
            answers = sampled(self.block, outer)
            factor = np.exp(errors[inner][..., np.newaxis] * score)
            for name in columns:
                values = answers.column(name) * factor ** error_power(name)
                computed[name][(slice(None), *inner)] = quantiles(values, band.shares)
            computed[FITS][inner] = np.mean(answers.fits, axis=-1)
        return computed

    @property
    def _chosen(self) -> Iterator[str]:
        for name, column, _ in self.names:
            if not self.wanted or name in self.wanted:
                yield column


def banded(block: Block, estimate: Estimate) -> list[str]:
    """Columns that have a band: all of times, rates and sums, and the knobs that are solved."""
    solved = [name for name, value in block.requested.items() if isinstance(value, str)]
    shares = [name for name in solved if not block.system.knobs[name].choices]
    return [*COLUMNS, *estimate.also, *shares]


def error_scores(band: Band, name: str) -> Numbers:
    """Draws of a model error of unit spread [1]."""
    return scores(ranks(band.names, band.samples, band.seed)[name])


def _band(block: Block) -> Band:
    assert block.band is not None
    return block.band
