"""`nearkv solve hardware`: the least hardware that meets an SLO, or what stands in the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.model.capacity import shortage
from nearkv.hardware.errors import InputError
from nearkv.solvers.search import Crossing, Points, crossings
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.evaluate.probe import Probe, bottleneck
from nearkv.sweeps.evaluate.slo import (
    Gauge,
    Target,
    gauge,
    parse_targets,
    span_of,
)
from nearkv.sweeps.explore.lines import Line, limits_of, line, refuse_set, searched, stated
from nearkv.sweeps.explore.rows import Row, Rows, aligned, sentences
from nearkv.sweeps.study.study import Block, Numbers, Study, blocks, comma_list
from nearkv.sweeps.tables.table import plain

REACH = 1000.0
"""A number is searched within this factor of its present value, and a count up to it."""
PRICE = "the rest of the price"
LOOKS = 241
"""Values looked at before crossings between them are refined."""


def least_hardware(study: Study, vary: str, slo: Sequence[str]) -> Rows:
    """The smallest value of a hardware number that reaches the targets, at every design point.

    Where a larger value makes things worse (a price), the largest that still reaches them.

    Args:
        study: what to evaluate.
        vary: `role.key`, with `=LOW:HIGH` to search elsewhere than within `REACH` of its value.
        slo: targets, all of which must hold; an item may list several, comma-separated, as in
            `step_ms=50,prefill_s=2`.

    Returns:
        A row per point: `limit` (`at least`, `at most`, `from`, `any` or `never`), `value` in
        `unit` (with `from` also `up_to`, where the targets are lost again), `bound`, the nearest
        value known to miss them, the relative `gap` to it, the targets' quantities at the value,
        and `binds`: for the target that is met by least, the resource that takes most of its time,
        or the rest of the price. Targets that are never reached: all this where they come closest.
        `resolution` is the relative distance between the values looked at.

    Raises:
        InputError: the study, the number or the targets cannot be used.
    """
    if study.band:
        advice = (
            f"compare --set {_sizes(study, vary)} --band {study.band:g} gives that of each"
        )
        raise InputError(f"--band: solve hardware gives one size, not a band; {advice}")
    targets = parse_targets([text for item in slo for text in comma_list(item)])
    rows: Rows = []
    study_blocks = searched(study)
    lines = [line_of(vary, block) for block in study_blocks]
    warn_of_unread(study_blocks, {along.axis: "--vary" for along in lines})
    for block, searched_line in zip(study_blocks, lines, strict=True):
        refuse_set(study, block, searched_line.axis, "--vary")
        search = _Search(gauge(Probe(block), study, targets), targets, searched_line)
        rows += search.rows()
    return aligned(rows)


def _sizes(study: Study, vary: str) -> str:
    """Half, once and twice the value of a number, as `--set` takes them."""
    block = blocks(study)[0]
    searched_line = line_of(vary, block)
    key, present, _ = stated(block, searched_line.axis)
    middle = searched_line.values[len(searched_line.values) // 2]
    center = present or float(middle)
    sizes = [f"{key.shown(factor * center):g}" for factor in (0.5, 1, 2)]
    return f"{searched_line.axis}={','.join(sizes)}"


def line_of(text: str, block: Block) -> Line:
    """Read `--vary ROLE.KEY` or `--vary ROLE.KEY=LOW:HIGH`, or a knob that stands for a number.

    Raises:
        InputError: no such number, or no value to start from.
    """
    name, _, limits = (part.strip() for part in text.partition("="))
    knob = block.system.knobs.get(name)
    address = knob.sets if knob and knob.sets else name
    key, present, unit = stated(block, address)
    if limits:
        edges = limits_of(limits, block, address, f"--vary {text!r}")
        return line(address, edges, LOOKS, key.whole, unit)
    if not present:
        raise InputError(
            f"--vary {address}: {block.platform.name} does not state it; "
            f"give a range, {address}=LOW:HIGH"
        )
    least, most = key.limits
    low = 1.0 if key.whole else max(present / REACH, least)
    return line(address, (low, min(present * REACH, most)), LOOKS, key.whole, unit)


@dataclass(frozen=True)
class _Verdict:
    """On which side of which value the targets are reached.

    Attributes:
        limit: `at least`, `at most`, `from`, `any` or `never`.
        value: the value in SI.
        bound: the nearest value known to miss the targets; none for `any` and `never`.
        up_to: where the targets are lost again, if they are.
    """

    limit: str
    value: float
    bound: float | None = None
    up_to: float | None = None


def _verdict(reached: bool, own: Sequence[Crossing], along: Line) -> _Verdict:
    """What crossings of the targets say.

    Args:
        reached: whether they are at the first value.
        own: where that changes, in order.
        along: values that were looked at.
    """
    if not own:
        limit = "any" if reached else "never"
        return _Verdict(limit, float(along.values[0] if reached else along.values[-1]))
    first = own[0]
    if reached:
        return _Verdict("at most", first.below, first.above)
    if len(own) == 1:
        return _Verdict("at least", first.above, first.below)
    return _Verdict("from", first.above, first.below, own[1].below)


@dataclass(frozen=True)
class _Search:
    """The search for targets along one hardware number.

    Attributes:
        measured: the design points and how their targets are measured.
        targets: all must be reached.
        line: values of the number that is varied.
    """

    measured: Gauge
    targets: Sequence[Target]
    line: Line

    def rows(self) -> Rows:
        """An answer per design point."""
        count = self.measured.probe.size
        points = np.arange(count)
        first = np.full(count, self.line.values[0])
        reached = self._margin(points, first) >= 0
        edges = crossings(self._margin, count, self.line.values, self.line.whole)
        rows: Rows = []
        for point in points:
            own = [crossing for crossing in edges if crossing.point == point]
            rows.append(self._row(int(point), bool(reached[point]), own))
        return rows

    def _margin(self, point: Points, value: Numbers) -> Numbers:
        """How far all targets are reached; negative where one is missed."""
        numbers = {self.line.axis: value}
        margins = []
        for target in self.targets:
            quantity = self.measured.measure(target, point, numbers)
            margins.append(target.margin(quantity))
        least: Numbers = np.min(margins, axis=0)
        return least

    def _row(self, point: int, reached: bool, own: Sequence[Crossing]) -> dict[str, Any]:
        verdict = _verdict(reached, own, self.line)
        is_bounded = verdict.limit not in ("never", "any")
        value = verdict.value
        if verdict.limit == "never":
            value = self._closest(point)
        outcome = _Outcome(self, point, value)
        scale = self.line.scale
        method = "bisection"
        if self.line.whole:
            method = "bisection over whole numbers"
        return {
            **self.measured.probe.names(point, (self.line.axis,)),
            "vary": self.line.axis,
            "limit": verdict.limit,
            "value": value / scale if is_bounded else None,
            "up_to": verdict.up_to / scale if verdict.up_to else None,
            "unit": self.line.unit,
            **{name: plain(quantity) for name, quantity in outcome.quantities.items()},
            "binds": outcome.binds,
            "bound": verdict.bound / scale if verdict.bound else None,
            "gap": abs(value / verdict.bound - 1) if verdict.bound else None,
            "method": method,
            "resolution": self.line.resolution,
            "reason": outcome.why_never if verdict.limit == "never" else "",
            "note": self.line.note,
        }

    def _closest(self, point: int) -> float:
        """The value at which the targets come closest; of equals the largest."""
        falling = self.line.values[::-1]
        margins = self._margin(np.full(len(falling), point), falling)
        return float(falling[np.argmax(margins)])

    def is_cut_at(self, point: int, value: float) -> bool:
        """Whether a value is the upper end of the range, up to which the targets come closer."""
        last_two = self.line.values[-2:]
        if value != last_two[-1] or len(last_two) < 2:
            return False
        before, at_end = self._margin(np.full(2, point), last_two)
        return bool(at_end > before)


@dataclass(frozen=True)
class _Outcome:
    """What a design does at one value of the number that is varied."""

    search: _Search
    point: int
    value: float

    @property
    def _numbers(self) -> dict[str, Numbers]:
        return {self.search.line.axis: np.array([self.value])}

    @cached_property
    def _quantities(self) -> list[float]:
        point = np.array([self.point])
        return [
            float(self.search.measured.measure(target, point, self._numbers)[0])
            for target in self.search.targets
        ]

    @property
    def quantities(self) -> dict[str, float]:
        """The targets' quantities, by column."""
        names = (target.name for target in self.search.targets)
        return dict(zip(names, self._quantities, strict=True))

    @cached_property
    def worst(self) -> Target:
        """The target that is missed most, or met by least."""
        margins = [
            float(target.margin(np.array([quantity]))[0])
            for target, quantity in zip(self.search.targets, self._quantities, strict=True)
        ]
        return self.search.targets[int(np.argmin(margins))]

    @property
    def binds(self) -> str:
        """The resource that takes most of the worst target's time, or the rest of the price."""
        span = span_of(self.worst.quantity)
        if span:
            point = np.array([self.point])
            answer = self.search.measured.probe.answer(point, numbers=self._numbers)
            return str(bottleneck(answer, 1, span)[0])
        return PRICE if self.worst.quantity == "cost_usd" else ""

    @property
    def why_never(self) -> str:
        """One sentence on what stands in the way where the targets come closest."""
        line_ = self.search.line
        unit = "" if line_.unit == "1" else f" {line_.unit}"
        at = f"never: at {line_.axis} = {self.value / line_.scale:.6g}{unit}"
        if self.search.is_cut_at(self.point, self.value):
            at += ", where the range ends,"
        point = np.array([self.point])
        fits = self.search.measured.probe.answer(point, numbers=self._numbers).estimate.fits
        memory = str(np.ravel(fits.short_of)[0])
        if memory:
            missing = float(np.ravel(fits.short_bytes)[0]) / 1e9
            return f"{at} {shortage(memory)} of {missing:.4g} GB"
        quantity = self.quantities[self.worst.name]
        if not np.isfinite(quantity):
            return f"{at} {self.worst.against or 'the system'} has no {self.worst.quantity}"
        return f"{at} still {self.worst.name} = {quantity:.4g}{self._because}"

    @property
    def _because(self) -> str:
        if not self.binds:
            return ""
        if self.binds == PRICE:
            return ", because of the rest of the price"
        return f", because {self.binds} binds"


def why_hardware(rows: Sequence[Row]) -> list[str]:
    """Say how much hardware the targets need, and what binds there."""
    return sentences(filter(None, map(_why_hardware, rows)))


def _why_hardware(row: Row) -> str:
    if row["limit"] == "never":
        return ""  # its reason says it
    need = "any value"
    if row["value"] is not None:
        unit = "" if row["unit"] == "1" else f" {row['unit']}"
        need = f"{row['limit']} {row['value']:.6g}{unit}"
    binds = ""
    if row["binds"]:
        binds = f"; {row['binds']} binds there"
    if row["binds"] and row["limit"] == "at least":
        binds += ": were it faster, less would do"
    return f"{row['system']}, {row['model']}: {row['vary']} {need}{binds}."
