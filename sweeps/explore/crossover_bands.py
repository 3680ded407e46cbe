"""Where systems cross over what is unknown: an interval of contexts in place of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearkv.solvers.search import Crossing, Points
from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.evaluate.slo import FAR
from nearkv.sweeps.explore.lines import Line
from nearkv.sweeps.explore.race import Change, Race
from nearkv.sweeps.study.bands import RATIO_ERROR, Band
from nearkv.sweeps.study.study import Numbers
from nearkv.sweeps.tables.table import plain
from nearkv.sweeps.uncertainty.bands import error_scores
from nearkv.sweeps.uncertainty.model_error import RATIO, spreads
from nearkv.sweeps.uncertainty.numbers import drawn_numbers

Drawn = Mapping[str, Numbers]


@dataclass(frozen=True)
class DrawnRace(Race):
    """A race at every draw of the uncertain numbers: point p is design p // draws, draw p % draws.

    Attributes:
        ours, theirs: hardware numbers of the first and the second system, one value a draw [SI].
        error: model error of the ratio (designs, draws) [1].
    """

    ours: Drawn
    theirs: Drawn
    error: Numbers

    def columns(self, point: Points, value: Numbers) -> tuple[Numbers, Numbers]:
        """The column of each system, NaN where it does not fit."""
        _, draws = self.error.shape
        design, draw = np.divmod(point, draws)
        ours = _at(self.ours, draw)
        theirs = _at(self.theirs, draw)
        return self.both(design, value, ours, theirs)

    def lead(self, point: Points, value: Numbers) -> Numbers:
        """How far the first is ahead, on a logarithmic scale, model error included."""
        lead = super().lead(point, value)
        both_fit = np.abs(lead) < FAR / 2
        errors = self.error.ravel()
        shifted = lead + errors[point]
        return np.where(both_fit, shifted, lead)


def _at(numbers: Drawn, draw: Points) -> dict[str, Numbers]:
    """Hardware numbers of some draws."""
    chosen = {}
    for address, drawn in numbers.items():
        chosen[address] = drawn[draw]
    return chosen


def drawn_race(race: Race, band: Band, walk: Line) -> DrawnRace:
    """The same race at every draw of a band."""
    first, second = race.first.block, race.second.block
    names = {RATIO_ERROR}
    names |= set(first.draws.values())
    names |= set(second.draws.values())
    common = replace(band, names=tuple(sorted(names)))
    return DrawnRace(
        first=race.first,
        second=race.second,
        axis=race.axis,
        of=race.of,
        ours=drawn_numbers(first, common),
        theirs=drawn_numbers(second, common),
        error=_error(race, common, walk),
    )


def _error(race: Race, band: Band, walk: Line) -> Numbers:
    """Model error of the ratio in the middle of the axis (designs, draws) [1]."""
    points = np.arange(race.first.size)
    middle = walk.values[len(walk.values) // 2]
    values = np.full(len(points), middle)
    answer = race.answer(race.first, points, values)
    size = spreads(race.first.block, answer.estimate, points.shape, RATIO)
    each = np.broadcast_to(size, points.shape)
    score = error_scores(band, RATIO_ERROR)
    errors: Numbers = each[:, np.newaxis] * score
    return errors


def crossing_bands(
    race: Race, band: Band, walk: Line, own: Sequence[Sequence[Change]]
) -> list[list[dict[str, Any]]]:
    """Bands of crossings, in the order of the crossings at the stated numbers.

    Args:
        race: at the stated numbers.
        band: level and draws.
        walk: the values looked at.
        own: changes at the stated numbers, by design point.

    Returns:
        For each design point and each of its crossings (or once where there is none) the columns
        `above_p05` and so on, of the first crossing in that direction of each draw, and
        `crossing_share`, the share of the draws that have one.
    """
    drawn = drawn_race(race, band, walk)
    count = race.first.size * band.samples
    sides = {1} | {change.side for stated in own for change in stated}
    tables = {}
    for side in sides:
        edges = drawn.edges(side, count, walk.values, walk.whole)
        tables[side] = _Crossings(contested(drawn, edges), band, walk.scale)
    rows = []
    for point, stated in enumerate(own):
        bands = [tables[change.side].band(point, change.rises) for change in stated]
        rows.append(bands or [tables[1].band(point, None)])
    return rows


@dataclass(frozen=True)
class _Crossings:
    """Crossings of all draws.

    Attributes:
        changes: one each, in the order of their draws, rising.
        band_of: level and draws.
        scale: of the unit that values are shown in.
    """

    changes: Sequence[Crossing]
    band_of: Band
    scale: float

    def band(self, design: int, rises: bool | None) -> dict[str, Any]:
        """Where the first crossing in a direction (or in any) lies in the draws of a design."""
        first: dict[int, float] = {}
        for crossing in self.changes:
            own_design, draw = divmod(crossing.point, self.band_of.samples)
            is_alike = rises is None or crossing.rises == rises
            if own_design == design and is_alike:
                first.setdefault(draw, crossing.above / self.scale)
        values = np.full(self.band_of.samples, np.nan)
        values[: len(first)] = list(first.values())
        return _columns(self.band_of, values)


def _columns(band: Band, values: Numbers) -> dict[str, Any]:
    ends = quantiles(values, band.shares)
    columns: dict[str, Any] = {}
    for suffix, end in zip(band.suffixes, ends, strict=True):
        columns[f"above_{suffix}"] = plain(end)
    crosses = ~np.isnan(values)
    columns["crossing_share"] = float(np.mean(crosses))
    return columns


def contested(race: Race, changes: Sequence[Crossing]) -> list[Crossing]:
    """Crossings on both sides of which at least one system fits."""
    if not changes:
        return []
    points = np.array([crossing.point for crossing in changes])
    below = np.array([crossing.below for crossing in changes])
    above = np.array([crossing.above for crossing in changes])
    kept = np.ones(len(changes), bool)
    for values in (below, above):
        ours, theirs = race.columns(points, values)
        runs = np.isfinite(ours) | np.isfinite(theirs)
        kept = kept & runs
    return [crossing for crossing, keep in zip(changes, kept, strict=True) if keep]
