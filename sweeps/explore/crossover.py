"""`nearkv solve crossover`: where one system overtakes another along an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.costmodel.model.metrics import Evaluated
from nearkv.hardware.errors import InputError, unknown
from nearkv.solvers.search import CLOSE_VALUES, Crossing, crossings, looked_at
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.evaluate.probe import Probe, check_column, column
from nearkv.sweeps.evaluate.slo import FAR, higher_is_better
from nearkv.sweeps.explore.lines import (
    WORKLOAD_COLUMNS,
    AxisLine,
    limits_of,
    line,
    number_stated,
    refuse_set,
    searched,
)
from nearkv.sweeps.study.bands import RATIO_ERROR, Band, check_band
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Mesh
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.labels import short_number
from nearkv.sweeps.tables.table import Row, Rows, plain

CROSSOVER_SAMPLES = 97
"""Values looked at before crossings between them are refined."""
EQUAL = "equal"
"""Stands in place of a leader where both systems are equal."""
UNEQUAL = "both systems need the same rows; give their knobs one value each"


def find_crossovers(study: Study, along: str, of: str) -> Rows:
    """Find every value at which the better of two systems changes.

    Args:
        study: two systems; its other axes may hold lists.
        along: `batch=LOW:HIGH`, `context=...`, `output_tokens=...` or `role.key=LOW:HIGH`.
        of: the column to compare by. A system that does not fit loses.

    Returns:
        A row per change; where there is no crossing, one row with the leader throughout:

        - `from`: the system that leads up to `below`; empty where neither fits;
        - `to`: the system that leads from `above` on. `equal` stands where both are equal;
        - the column of both systems at `above`, or at the low end where there is no crossing;
        - `reason`: the system that fits on one side only, and what is short on the other;
        - `resolution`: the relative distance between the values looked at; a crossing that is
          reversed within it may go unseen;
        - with a band, `above_p05` and so on, where the first crossing in that direction lies in the
          draws, and `crossing_share`, the share of the draws that have one.

    Raises:
        InputError: not two systems with the same points, or an axis or a column that cannot be
            used.
    """
    axis, equals, limits = along.partition("=")
    if not equals or limits.count(":") != 1:
        raise InputError(
            f"--along {along!r}: write it as AXIS=LOW:HIGH, as in context=4k:1M"
        )
    if "." not in axis and axis not in WORKLOAD_COLUMNS:
        raise unknown("axis", axis, [*WORKLOAD_COLUMNS, "csd.count"], "--along")
    band = Band(study.band, study.samples, study.seed) if study.band else None
    if band is not None:
        check_band(band, study.method)
    study = replace(study, band=0.0)
    if len(set(study.systems)) != 2 or len(study.systems) != 2:
        raise InputError("a crossover is between two systems; name two different ones")
    both = _blocks(study, axis)
    first, second = (
        [block for block in both if block.system.name == name] for name in study.systems
    )
    if len(first) != len(second):
        raise InputError(UNEQUAL)
    rows: Rows = []
    for one, other in zip(first, second, strict=True):
        race = Race((Probe(one), Probe(other)), axis, of)
        check_column(of, *(probe.own_columns for probe in race.systems))
        rows += _rows(race, limits, band)
    return rows


def _blocks(study: Study, axis: str) -> list[Block]:
    """Blocks of both systems, with one value on the axis that is walked."""
    if axis in WORKLOAD_COLUMNS:
        if getattr(study, axis) != getattr(Study, axis):
            raise InputError(f"--{axis} cannot be set: --along searches it")
        fixed: dict[str, Any] = {axis: (1.0,)}
        study = replace(study, **fixed)
    study_blocks = searched(study)
    for block in study_blocks:
        refuse_set(study, block, axis, "--along")
    warn_of_unread(study_blocks, {axis: "--along"})
    return study_blocks


@dataclass(frozen=True)
class Race:
    """Two systems along an axis, compared by a column, at the stated numbers or at every draw.

    A point of the search is a design point at a draw, `design * draws + draw`.

    Attributes:
        systems: both, point for point.
        axis: `batch`, `context`, `output_tokens` or `role.key`.
        of: the column.
        drawn: hardware numbers of each system by `role.key`, one value a draw [SI].
        error: model error of the ratio's logarithm (designs, draws) [1]; None at stated numbers.
    """

    systems: tuple[Probe, Probe]
    axis: str
    of: str
    drawn: tuple[Mesh, Mesh] = (NO_NUMBERS, NO_NUMBERS)
    error: Numbers | None = None

    @property
    def size(self) -> int:
        """Number of design points."""
        return self.systems[0].size

    @property
    def draws(self) -> int:
        """Number of values at which each design point is looked at."""
        return 1 if self.error is None else self.error.shape[1]

    @property
    def names(self) -> tuple[str, str]:
        """Names of both systems."""
        first, second = (probe.block.system.name for probe in self.systems)
        return first, second

    @property
    def platforms(self) -> str:
        """Platform of each system, if they run on different ones."""
        labels = [probe.block.platform.label for probe in self.systems]
        pairs = zip(self.names, labels, strict=True)
        places = ", ".join(f"{name} on {label}" for name, label in pairs)
        return places if len({*labels}) > 1 else ""

    def answered(self, walk: AxisLine) -> tuple[AxisLine, str]:
        """Values up to where a system begins to run without a number, and a sentence on the rest.

        The line stays whole where its last value has numbers, and where its first ones lack them.
        """
        points = np.arange(self.size)
        last = np.full(len(points), walk.values[-1])
        for name, probe in zip(self.names, self.systems, strict=True):
            state = partial(self._blank, probe)
            if not state(points, last).any():
                continue
            blank = looked_at(state, len(points), walk.values, walk.whole)
            first = int(np.argmax(blank.any(axis=1)))
            if first > 1:
                begins = f"{self.axis} {short_number(walk.values[first] / walk.scale)}"
                note = f"left out from {begins} on, where {name} runs without {self.of}"
                return replace(walk, values=walk.values[:first]), note
        return walk, ""

    def _blank(self, probe: Probe, point: Indices, value: Numbers) -> Numbers:
        """1 where a system runs and has no number to compare by."""
        answer = self.answer(probe, point, value)
        values = column(answer, self.of, len(point))
        return (np.isnan(values) & answer.estimate.fits.ok).astype(float)

    def columns(self, point: Indices, value: Numbers) -> Numbers:
        """The column of each system (2, points), NaN where it does not fit.

        Raises:
            InputError: a system runs and has no such number, so that it cannot be called behind.
        """
        design, draw = np.divmod(point, self.draws)
        columns = []
        for probe, drawn in zip(self.systems, self.drawn, strict=True):
            numbers = {address: values[draw] for address, values in drawn.items()}
            answer = self.answer(probe, design, value, numbers)
            values = column(answer, self.of, len(point))
            blank = np.isnan(values) & answer.estimate.fits.ok
            if blank.any():
                name = probe.block.system.name
                shown = short_number(value[np.argmax(blank)])
                raise InputError(
                    f"--of {self.of}: {name} runs at {self.axis} {shown} and has no {self.of} "
                    f"there (see `nearkv columns show {self.of}`); compare another column, "
                    "as with --of throughput_tok_s"
                )
            columns.append(values)
        return np.stack(columns)

    def answer(
        self,
        probe: Probe,
        design: Indices,
        value: Numbers,
        numbers: Mesh = NO_NUMBERS,
    ) -> Evaluated:
        """Answers of one system at some values along the axis."""
        if self.axis in WORKLOAD_COLUMNS:
            return probe.answer(design, {WORKLOAD_COLUMNS[self.axis]: value}, numbers)
        return probe.answer(design, NO_NUMBERS, {**numbers, self.axis: value})

    def lead(self, point: Indices, value: Numbers) -> Numbers:
        """Lead of the first, on a logarithmic scale, model error included.

        A system that does not fit is far behind.
        """
        better = 1.0 if higher_is_better(self.of) else -1.0
        with np.errstate(divide="ignore"):
            scores = better * np.log(self.columns(point, value))
        own, other = np.nan_to_num(scores, nan=-FAR)
        lead: Numbers = np.clip(own - other, -FAR, FAR)
        if self.error is None:
            return lead
        both_fit = np.abs(lead) < FAR / 2
        error = self.error.ravel()
        return np.where(both_fit, lead + error[point], lead)

    def leader(self, point: Indices, value: Numbers) -> Numbers:
        """1 where the first system leads, -1 where the second does, 0 where neither."""
        return np.sign(self.lead(point, value))

    def changes(self, walk: AxisLine) -> list[Crossing]:
        """Changes of the leader along a line of values, point by point, rising."""
        count = self.size * self.draws
        changes: list[Crossing] = []
        for change in crossings(self.leader, count, walk.values, walk.whole):
            last = changes[-1] if changes else None
            # a tie of rounding alone lies within one crossing
            if last and not walk.whole and _meet(last, change):
                changes[-1] = replace(last, above=change.above, after=change.after)
            else:
                changes.append(change)
        return [change for change in changes if change.before != change.after]

    def contested(self, edges: Sequence[Crossing]) -> list[Crossing]:
        """Crossings on both sides of which at least one system fits."""
        if not edges:
            return []
        sides = np.array([(edge.point, edge.below, edge.above) for edge in edges])
        points, below, above = sides.T
        runs = np.ones(len(edges), bool)
        for values in (below, above):
            runs &= np.isfinite(self.columns(points.astype(int), values)).any(axis=0)
        return [edge for edge, keep in zip(edges, runs, strict=True) if keep]


def _meet(last: Crossing, change: Crossing) -> bool:
    """True if a change begins where the last ends."""
    is_close = change.below - last.above <= CLOSE_VALUES * abs(change.below)
    return last.point == change.point and is_close


def _rows(race: Race, limits: str, band: Band | None) -> Rows:
    """A row per crossing of each design point, or one that says there is none."""
    first, second = race.systems
    if first.size != second.size:
        raise InputError(UNEQUAL)
    walk, left_out = race.answered(_line(race.axis, limits, first.block))
    changes = race.contested(race.changes(walk))
    drawn = _drawn_changes(race, walk, band) if band else []
    walked = (race.axis, WORKLOAD_COLUMNS.get(race.axis, ""))
    note = "; ".join(filter(None, (left_out, walk.note)))
    rows: Rows = []
    for point in range(race.size):
        names = first.names(point, walked)
        del names["system"]
        for change in tuple(each for each in changes if each.point == point) or (None,):
            answer = _answer(race, walk, limits, point, change)
            row = {**names, **answer, "resolution": walk.resolution}
            row["reason"] = "; ".join(filter(None, (row["reason"], race.platforms)))
            if band:
                row |= _over_draws(drawn, band, walk.scale, point, change)
            rows.append({**row, "note": note})
    return rows


def _line(axis: str, limits: str, block: Block) -> AxisLine:
    """Values of the axis that are looked at."""
    whole, unit = True, "1"
    if axis not in WORKLOAD_COLUMNS:
        key, _, unit = number_stated(block, axis)
        whole = key.whole
    edges = limits_of(limits, block, axis, f"--along {axis}={limits}")
    return line(axis, edges, CROSSOVER_SAMPLES, whole, unit)


def _answer(
    race: Race, walk: AxisLine, limits: str, point: int, change: Crossing | None
) -> dict[str, Any]:
    """Leaders on both sides of a crossing, or throughout where there is none."""
    first, second = race.names
    if change:
        leaders = {1.0: first, 0.0: EQUAL, -1.0: second}
        before, after = leaders[change.before], leaders[change.after]
        below, above = change.below / walk.scale, change.above / walk.scale
        value, reason = change.above, "; ".join(_misfits(race, change))
    else:
        before, why = _throughout(race, walk, point)
        after, below, above = "", np.nan, np.nan
        value, reason = walk.values[0], f"never: {why} from {limits.replace(':', ' to ')}"
    ours, theirs = race.columns(np.array([point]), np.array([value])).ravel()
    return {
        "from": before,
        "to": after,
        "along": race.axis,
        "below": plain(below),
        "above": plain(above),
        "unit": walk.unit if change else None,
        f"{first}_{race.of}": plain(ours),
        f"{second}_{race.of}": plain(theirs),
        "reason": reason,
    }


def _throughout(race: Race, walk: AxisLine, point: int) -> tuple[str, str]:
    """The system that leads wherever one does, and that in words."""
    points = np.full(len(walk.values), point)
    lead = race.lead(points, walk.values)
    ahead = lead[lead != 0]
    if len(ahead):
        leader = race.names[0] if ahead[0] > 0 else race.names[1]
        where = "" if len(ahead) == len(lead) else ", where one does,"
        return leader, f"{leader} leads{where}"
    has_value = np.isfinite(race.columns(points, walk.values)).any()
    return "", "both are equal" if has_value else "neither has a value"


def _misfits(race: Race, change: Crossing) -> Iterator[str]:
    """Sentences on systems that have an answer on one side of a change only."""
    point = np.full(2, change.point)
    ends = np.array([change.below, change.above])
    for name, probe in zip(race.names, race.systems, strict=True):
        fits = race.answer(probe, point, ends).estimate.fits
        below, above = (fits.reasons[place] for place in np.broadcast_to(fits.reason, 2))
        if above and not below:
            yield f"{name} no longer runs there: {above}"
        if below and not above:
            yield f"{name} does not run before: {below}"


def _drawn_changes(race: Race, walk: AxisLine, band: Band) -> list[Crossing]:
    """Changes of the leader over all draws of what is unknown, draw by draw of each point."""
    from nearkv.sweeps.uncertainty.model_error import RATIO, drawn_error
    from nearkv.sweeps.uncertainty.sampled import drawn_numbers

    first, second = (probe.block for probe in race.systems)
    names = {RATIO_ERROR, *first.draws.values(), *second.draws.values()}
    band = replace(band, names=tuple(sorted(names)))
    points = np.arange(race.size)
    middle = np.full(len(points), walk.values[len(walk.values) // 2])
    estimate = race.answer(race.systems[0], points, middle).estimate
    drawn = replace(
        race,
        drawn=(drawn_numbers(first, band), drawn_numbers(second, band)),
        error=drawn_error(first, band, estimate, points.shape, RATIO),
    )
    return drawn.contested(drawn.changes(walk))


def _over_draws(
    changes: Sequence[Crossing],
    band: Band,
    scale: float,
    point: int,
    change: Crossing | None,
) -> dict[str, Any]:
    """Ends of the first crossing in each draw, in the direction of a change or in any.

    Args:
        changes: of all draws.
        band: level and draws.
        scale: unit of the axis [SI].
        point: of the design.
        change: at the stated numbers, where there is one.

    Returns:
        `above_p05` and so on, and `crossing_share`, the share of the draws that have one.
    """
    from nearkv.sweeps.uncertainty.sampled import ends

    first: dict[int, float] = {}
    for drawn in changes:
        design, draw = divmod(drawn.point, band.samples)
        if design == point and (change is None or drawn.rises == change.rises):
            first.setdefault(draw, drawn.above / scale)
    values = np.full(band.samples, np.nan)
    values[: len(first)] = list(first.values())
    row = {name: plain(end) for name, end in ends(band, "above", values).items()}
    return {**row, "crossing_share": len(first) / band.samples}


def why_crossover(row: Row) -> str:
    """Say which system leads on either side of a crossing; empty where there is none."""
    if not row["to"]:
        return ""
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    below, above = (f"{row[side]:,.6g}{unit}" for side in ("below", "above"))
    change = (
        f"{_leads(row['from'])} up to {row['along']} {below}, "
        f"{_leads(row['to'])} from {above} on"
    )
    reason = f"; {row['reason']}" if row["reason"] else ""
    return f"{row['model']}: {change}{reason}."


def _leads(name: str) -> str:
    return "both are equal" if name == EQUAL else f"{name} leads"
