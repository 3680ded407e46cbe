"""`nearkv solve hardware`: the least hardware that meets an SLO, or what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.costmodel.model.estimate import shortage
from nearkv.costmodel.model.metrics import COSTS, Evaluated
from nearkv.hardware.errors import InputError
from nearkv.solvers.search import VALUES_AT_ONCE, Crossing, crossings, looked_at
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.evaluate.prices import no_prices
from nearkv.sweeps.evaluate.probe import Probe, bottleneck, column
from nearkv.sweeps.evaluate.slo import (
    RATIOS,
    Target,
    check_quantities,
    parse_targets,
    span_of,
)
from nearkv.sweeps.explore.lines import (
    AxisLine,
    limits_of,
    line,
    number_stated,
    refuse_set,
    searched,
)
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.sizes import names
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Row, Rows, cell_text, plain

REACH = 1000.0
"""A number is searched within this factor of its present value, and a count up to it."""
REACH_OF_SPLITS = 16.0
"""`REACH` of a count for each value of which all splits over GPUs are tried."""
PRICE = "the rest of the price"
HARDWARE_SAMPLES = 241
"""Values looked at before crossings between them are refined."""


def find_hardware(study: Study, vary: str, slo: Sequence[str]) -> Rows:
    """The smallest value of a hardware number that reaches the targets, at every design point.

    Where a larger value makes things worse (a price), the largest that still reaches them.

    Args:
        study: what to evaluate.
        vary: `role.key`, with `=LOW:HIGH` to search elsewhere than within `REACH` of its value, or
            `REACH_OF_SPLITS` of GPUs whose splits are all tried. Each count is tried.
        slo: targets, all of which must hold; an item may list several, comma-separated, as in
            `step_ms=50,prefill_s=2`.

    Returns:
        A row per point, with its axes and

        - `limit`: `at least`, `at most`, `from`, `any` or `never`;
        - `value`, in `unit`: where the targets are reached; the smallest count with `any`, and
          where they come closest with `never`;
        - `up_to`: with `from`, where they are lost again; `again_from`: where they are next met;
        - the targets' quantities and `batch_run` at the value;
        - `binds`: for the target that is met by least, the resource that takes most of its time, or
          the rest of the price;
        - `bound`: the nearest value known to miss them; `gap`: the relative distance to it;
        - `resolution`: the relative distance between the values looked at.

        Counts that the system does not model, as tensor parallelism over 3 GPUs, are passed over.

    Raises:
        InputError: the study, the number or the targets cannot be used.
    """
    if study.band:
        number = vary.partition("=")[0]
        raise InputError(
            "--band: solve hardware gives one size, not a band; "
            f"compare --set {number}=VALUES --band {study.band:g} gives that of each"
        )
    targets = parse_targets(names(slo, "--slo"))
    rows: Rows = []
    study_blocks = searched(study)
    lines = [line_of(vary, block) for block in study_blocks]
    warn_of_unread(study_blocks, {along.axis: "--vary" for along in lines})
    for block, along in zip(study_blocks, lines, strict=True):
        refuse_set(study, block, along.axis, "--vary")
        rows += _Search(_probes(Probe(block), study, targets), targets, along).rows()
    return rows


def _probes(own: Probe, study: Study, targets: Sequence[Target]) -> dict[str, Probe]:
    """A system, by the empty name, and the systems that targets compare it with, by theirs.

    Raises:
        InputError: such a system is unknown, or does not have one row per design point.
    """
    check_quantities(targets, own.own_columns)
    probes = {"": own}
    for name in {target.against for target in targets} - {""}:
        platform = own.block.platform.name
        parts = blocks(replace(study, systems=(name,), platforms=(platform,), knobs={}))
        if len(parts) != 1 or parts[0].grid.size != own.size:
            raise InputError(
                f"{name} does not have one row for each row of {own.block.system.name}; "
                "drop knob lists"
            )
        probes[name] = Probe(parts[0])
    return probes


def line_of(text: str, block: Block) -> AxisLine:
    """Read `--vary ROLE.KEY` or `--vary ROLE.KEY=LOW:HIGH`, or a knob that stands for a number.

    Raises:
        InputError: no such number, or no value to start from.
    """
    name, _, limits = (part.strip() for part in text.partition("="))
    knob = block.system.knobs.get(name)
    address = knob.sets if knob and knob.sets else name
    key, present, unit = number_stated(block, address)
    looks = (
        max(HARDWARE_SAMPLES, VALUES_AT_ONCE // block.grid.size)
        if key.whole
        else HARDWARE_SAMPLES
    )
    if limits:
        edges = limits_of(limits, block, address, f"--vary {text!r}")
        return line(address, edges, looks, key.whole, unit)
    if not present:
        raise InputError(
            f"--vary {address}: {block.platform.name} does not state it; "
            f"give a range, {address}=LOW:HIGH"
        )
    least, most = key.limits
    low = 1.0 if key.whole else max(present / REACH, least)
    # the more GPUs, the more splits of each number of them
    reach = REACH_OF_SPLITS if key.whole and block.system.combinations else REACH
    high = min(present * reach, most)
    return line(address, (low, high), looks, key.whole, unit)


@dataclass(frozen=True)
class _Search:
    """The search for targets along one hardware number.

    Attributes:
        probes: design points of the system, by the empty name, and of those it is compared with.
        targets: all must be reached.
        line: values of the number that is varied.
    """

    probes: Mapping[str, Probe]
    targets: Sequence[Target]
    line: AxisLine

    @property
    def _block(self) -> Block:
        """The block whose number is varied, with that number among those set."""
        block = self.probes[""].block
        return replace(block, sets={**block.sets, "": self.line.axis})

    def rows(self) -> Rows:
        """An answer per design point."""
        count = self.probes[""].size
        points = np.arange(count)
        reached = _states(self._margins)
        smallest = np.argmax(~np.isnan(reached), axis=0)
        at_smallest = reached[smallest, points] > 0
        edges = crossings(self._reached, count, self.line.values, self.line.whole, reached)
        rows: Rows = []
        for point in points:
            own = [crossing for crossing in edges if crossing.point == point]
            rows.append(self._row(int(point), bool(at_smallest[point]), own))
        return rows

    @cached_property
    def _margins(self) -> Numbers:
        """Margins by which all targets are reached along the line: (values, points)."""
        count = self.probes[""].size
        return looked_at(self._margin, count, self.line.values, self.line.whole)

    def _answered(self, point: Indices, value: Numbers) -> tuple[Evaluated, Numbers]:
        """The system's answers, and the quantity of each target (targets, points)."""
        numbers = {self.line.axis: value}
        answers = {
            name: probe.answer(point, numbers=numbers)
            for name, probe in self.probes.items()
        }
        quantities = []
        for target in self.targets:
            rate = RATIOS.get(target.quantity, target.quantity)
            quantity = column(answers[""], rate, len(point))
            if target.against:
                quantity = quantity / column(answers[target.against], rate, len(point))
            quantities.append(quantity)
        return answers[""], np.stack(quantities)

    def _margins_of(self, quantities: Numbers) -> Numbers:
        """Margin by which each target is reached (targets, points)."""
        pairs = zip(self.targets, quantities, strict=True)
        return np.stack([target.margin(quantity) for target, quantity in pairs])

    def _margin(self, point: Indices, value: Numbers) -> Numbers:
        """Margin of all targets; negative where one is missed, NaN without a design."""
        answer, quantities = self._answered(point, value)
        least: Numbers = np.min(self._margins_of(quantities), axis=0)
        is_passed = self.line.whole & answer.estimate.fits.unmodelled
        return np.where(is_passed, np.nan, least)

    def _reached(self, point: Indices, value: Numbers) -> Numbers:
        """1 where all targets are reached, 0 where one is missed, NaN without a design."""
        return _states(self._margin(point, value))

    def _row(self, point: int, reached: bool, own: Sequence[Crossing]) -> dict[str, Any]:
        limit, value, bound, up_to = self._limit(point, reached, own)
        answer, of_targets = self._answered(np.array([point]), np.array([value]))
        margins = self._margins_of(of_targets)[:, 0]
        worst = self.targets[int(np.argmin(margins))]
        names = [target.name for target in self.targets]
        quantities = dict(zip(names, of_targets[:, 0].tolist(), strict=True))
        binds = PRICE if worst.quantity == "cost_usd" else ""
        if span := span_of(worst.quantity):
            binds = bottleneck(answer, span)
        reason = ""
        if limit == "never":
            stands = _what_misses(answer, worst, quantities[worst.name], binds)
            if worst.quantity in COSTS and (unpriced := no_prices([self._block])):
                stands = unpriced[0]
            also = [
                f", {target.name} = {quantities[target.name]:.4g}"
                for target, margin in zip(self.targets, margins, strict=True)
                if margin < 0 and target is not worst
            ]
            reason = f"never: {self._place(point, value)} {stands}{''.join(also)}"
        scale = self.line.scale
        met = [crossing.above for crossing in own if crossing.rises]
        again = met if reached else met[1:]
        has_value = limit != "never" and (limit != "any" or self.line.whole)
        noted = answer.estimate.notes.items()
        notes = [self.line.note, *(sentence for sentence, at in noted if np.all(at))]
        return {
            **self.probes[""].names(point, (self.line.axis,)),
            "vary": self.line.axis,
            "limit": limit,
            "value": value / scale if has_value else None,
            "up_to": up_to / scale if up_to else None,
            "again_from": again[0] / scale if again else None,
            "unit": self.line.unit,
            **{name: plain(quantity) for name, quantity in quantities.items()},
            "batch_run": plain(np.ravel(answer.estimate.batch_run)[0]),
            "binds": binds,
            "bound": bound / scale if bound else None,
            "gap": abs(value / bound - 1) if bound else None,
            "method": self._method,
            "resolution": self.line.resolution,
            "reason": reason,
            "note": "; ".join(filter(None, notes)),
        }

    @property
    def _method(self) -> str:
        if not self.line.whole:
            return "bisection"
        return "bisection over whole numbers" if self.line.resolution else "each count"

    def _limit(
        self, point: int, reached: bool, own: Sequence[Crossing]
    ) -> tuple[str, float, float | None, float | None]:
        """On which side of which value the targets are reached.

        Args:
            point: the design point.
            reached: whether they are at the first value.
            own: where that changes, in order.

        Returns:
            The limit in words and its value, or where the targets come closest; the nearest value
            known to miss them; and where they are lost again [SI].
        """
        if not own:
            if reached:
                smallest = np.argmax(~np.isnan(self._margins[:, point]))
                return "any", float(self.line.values[smallest]), None, None
            # of values that come equally close, the largest
            falling = self.line.values[::-1]
            margins = self._margins[::-1, point]
            closest = np.argmax(np.nan_to_num(margins, nan=-np.inf))
            return "never", float(falling[closest]), None, None
        first = own[0]
        if reached:
            return "at most", first.below, first.above, None
        if len(own) == 1:
            return "at least", first.above, first.below, None
        return "from", first.above, first.below, own[1].below

    def _place(self, point: int, value: float) -> str:
        """Words for a value, and for the end of the range if the targets come closer up to it."""
        unit = "" if self.line.unit == "1" else f" {self.line.unit}"
        place = f"at {self.line.axis} = {value / self.line.scale:.6g}{unit}"
        if value == self.line.values[-1] and len(self.line.values) > 1:
            before, at_end = self._margins[-2:, point]
            if at_end > before:
                place += ", where the range ends,"
        return place


def _states(margins: Numbers) -> Numbers:
    """1 where all targets are reached, 0 where one is missed, NaN without a design."""
    return np.where(np.isnan(margins), np.nan, margins >= 0)


def _what_misses(answer: Evaluated, worst: Target, quantity: float, binds: str) -> str:
    """Name what stands in the way of a target at the value where it comes closest."""
    fits = answer.estimate.fits
    if np.all(fits.unmodelled):
        return fits.reasons[int(np.ravel(fits.reason)[0])]
    memory = str(np.ravel(fits.short_of)[0])
    if memory:
        missing = float(np.ravel(fits.short_bytes)[0]) / 1e9
        return f"{shortage(memory)} of {cell_text(missing)} GB"
    if not np.isfinite(quantity):
        return f"{worst.against or 'the system'} has no {worst.quantity}"
    because = f", because {binds} binds" if binds else ""
    if binds == PRICE:
        because = f", because of {PRICE}"
    return f"still {worst.name} = {quantity:.4g}{because}"


def why_hardware(row: Row) -> str:
    """Say how much hardware the targets need, and what binds there; empty where none does."""
    if row["limit"] == "never":
        return ""  # its reason says it
    need = "any value"
    if row["limit"] == "any" and row["value"] is not None:
        need = f"{row['value']:.6g} is enough"
    elif row["value"] is not None:
        unit = "" if row["unit"] == "1" else f" {row['unit']}"
        need = f"{row['limit']} {row['value']:.6g}{unit}"
        if row["again_from"]:
            need += f", and again from {row['again_from']:.6g}{unit}"
    binds = ""
    if row["binds"]:
        binds = f"; {row['binds']} binds there"
    if row["binds"] and row["limit"] == "at least":
        binds += ": were it faster, less would do"
    return f"{row['system']}, {row['model']}: {row['vary']} {need}{binds}."
