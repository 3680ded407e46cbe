"""What machines of a space measure at points, and what no machine of a box is better than."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.metrics import (
    COLUMNS,
    SERVER,
    Evaluated,
    cost,
    hour_at,
    power_cap,
    rack_units,
    throughput,
)
from nearkv.hardware.machine import MissingNumberError
from nearkv.hardware.part import Part
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.boxes import Boxes, Integers, Mask, Numbers
from nearkv.solvers.knobs import resolve_knobs, tried_together
from nearkv.sweeps.evaluate.slo import Target, higher_is_better
from nearkv.sweeps.explore.design.space import Case, places_weights
from nearkv.sweeps.study.study import Block, Study, blocks


class Bounded(NamedTuple):
    """How the best corner of a box bounds a column.

    Attributes:
        measures: whose monotony that takes.
        span: for which weights are placed where prefill and steps trade by their placement.
        whole: the column that it is where all sequences are served at once. Of a batch in rounds it
            is that of one round, which is shorter where less fits: no bound.
    """

    measures: tuple[str, ...]
    span: str = "total"
    whole: str = ""


BOUNDED = {
    "prefill_s": Bounded(("prefill_s",), "prefill"),
    "ttft_s": Bounded(("prefill_s", "total_s"), "prefill", "prefill_s"),
    "step_ms": Bounded(("step_ms",), "step"),
    "tpot_ms": Bounded(("step_ms",), "step", "step_ms"),
    "decode_tok_s": Bounded(("step_ms",), "step"),
    "total_s": Bounded(("total_s",)),
    "throughput_tok_s": Bounded(("total_s",)),
    "batch_run": Bounded(("status",)),
    "usd_mtok": Bounded(("total_s",)),
    "energy_j_tok": Bounded(("total_s",)),
    "tok_s_per_kusd": Bounded(("total_s",)),
}
"""Column -> how the best corner of a box bounds it."""
WORN = {"usd_mtok", "endurance_requests"}
"""Columns that read how much a drive endures, beside what the system reads."""
POINTS = 1 << 14
"""Machines that are evaluated together."""
SPLIT_POINTS = 1 << 9
"""Machines of a system that are evaluated together, each with all splits of its GPUs."""


def idle_power(answer: Evaluated) -> Real:
    """What the devices draw at rest, which no machine that serves is below [W]."""
    devices = answer.devices.values()
    return sum((part.count * part.maybe("idle_power", np.nan) for part in devices), 0.0)


def least_hour(answer: Evaluated) -> Real:
    """An hour of a machine at rest, or its rent: `usd_hour` with no work [USD/h]."""
    return hour_at(idle_power(answer), answer)


OF_PARTS = {"cost_usd": cost, "power_cap_w": power_cap, "rack_units": rack_units}
"""Column that follows from the parts alone -> its sum over them, which rises with every count."""
LEAST = {**OF_PARTS, "power_w": idle_power, "usd_hour": least_hour}
"""Column -> what it cannot be below, by the parts of the cheapest corner."""


def of_parts(name: str, low: Evaluated) -> Real | None:
    """What a column cannot be below, by the parts of the cheapest corner; None where unknown."""
    return LEAST[name](low) if name in LEAST else None


def of_corners(
    name: str, low: Evaluated, best: Mapping[str, Evaluated], is_whole: bool
) -> Real | None:
    """What no machine of a box is better than in a column; None where that is not known.

    A ratio is bounded by its numerator at the cheapest corner over its denominator at the best.

    Args:
        name: of the column.
        low: the cheapest corner, of which only parts are known.
        best: the best corner by the span for which its weights are placed, `total` among them.
        is_whole: whether all sequences are served at once.
    """
    if name not in BOUNDED:
        return of_parts(name, low)
    _, span, whole = BOUNDED[name]
    if whole and not is_whole:
        return None
    if name == "usd_mtok":
        tokens = 3600 * low.hw.ownership.utilisation * throughput(best["total"])
        return 1e6 * least_hour(low) / tokens
    if name == "energy_j_tok":
        return idle_power(low) / throughput(best["total"])
    if name == "tok_s_per_kusd":
        return throughput(best["total"]) / (cost(low) / 1e3)
    measured = (whole or name) if span in best else name
    return exactly(measured, best.get(span, best["total"]))


def exactly(name: str, answer: Evaluated) -> Real:
    """A column of machines whose answer is known."""
    return COLUMNS[name].compute(answer)


class AlongAxis(NamedTuple):
    """A number of machines, which may follow an axis.

    Attributes:
        axis: that it follows.
        row: of each case in `values`.
        values: distinct rows of it along the axis; where it stays the same, of one value [SI].
    """

    axis: int
    row: Integers
    values: Numbers

    def at(self, case: Integers, point: Integers) -> Numbers:
        """The number at points of some cases [SI]."""
        last = self.values.shape[1] - 1
        place = np.minimum(point[:, self.axis], last)
        values: Numbers = self.values[self.row[case], place]
        return values


@dataclass(frozen=True)
class CaseGroup:
    """Cases of one system whose machines state the same numbers, evaluated as one array.

    Attributes:
        block: the system and the workload, on the first machine.
        columns: number, `role.key`, in which machines differ -> its values in them.
    """

    block: Block
    columns: Mapping[str, AlongAxis]

    def numbers(self, case: Integers, point: Integers) -> dict[str, Numbers]:
        """The numbers of some points that differ from those of the first machine [SI]."""
        return {address: along.at(case, point) for address, along in self.columns.items()}

    def priced(self, numbers: Mapping[str, Numbers]) -> Evaluated:
        """What is known of machines without asking the system: their parts."""
        hw = self.block.platform.machine().with_values(numbers)
        return Evaluated(None, hw, self.block.system.owns)  # type: ignore[arg-type]

    def answer(
        self, numbers: Mapping[str, Numbers], span: str = "total"
    ) -> Evaluated | None:
        """What the system answers on machines, its knobs solved; None where they lack a number.

        Where it splits a model over GPUs, with every split: (splits, machines).

        Args:
            numbers: of the machines that differ from those of the first [SI].
            span: whose seconds the placement of weights makes least.
        """
        system = self.block.system
        hw, llm, work, requested = self.block.at(self.workload, numbers)
        try:
            for name, values in self.splits(numbers).items():
                requested[name] = values[:, np.newaxis]
            solved = resolve_knobs(system, hw, llm, work, requested, timed=attrgetter(span))
        except MissingNumberError:
            return None
        return Evaluated(solved.estimate, hw, system.owns)

    def splits(self, numbers: Mapping[str, Numbers]) -> dict[str, Numbers]:
        """Values of the knobs that the system tries together; nothing where there are none."""
        hw, llm, _, requested = self.block.at(self.workload, numbers)
        return tried_together(self.block.system, hw, llm, requested)

    @property
    def workload(self) -> Mapping[str, Numbers]:
        """The one workload of the question, by axis."""
        return self.block.grid.mesh(self.block.grid.whole)


CellOf = Callable[[str], Real | None]
"""Name of a column -> its values; None where nothing is known of it."""


@dataclass(frozen=True)
class Goal:
    """What is asked of a machine.

    Attributes:
        objectives: columns to make best.
        highest: of each, whether more is better.
        limits: all must hold.
        is_nearest: whether the least excess over all limits is looked for instead, as a factor.
    """

    objectives: tuple[str, ...]
    highest: tuple[bool, ...]
    limits: tuple[Target, ...]
    is_nearest: bool = False

    @property
    def columns(self) -> list[str]:
        """All columns that are asked about."""
        return [*self.objectives, *(limit.quantity for limit in self.limits)]

    def serves_all(self, batch: float) -> bool:
        """Whether a limit asks for all sequences of a batch to be served at once."""
        return any(
            limit.quantity == "batch_run" and limit.at_least and limit.value >= batch
            for limit in self.limits
        )

    def measures(self, batch: float) -> list[str]:
        """Measures whose monotony the bounds rely on."""
        is_whole = self.serves_all(batch)
        relied = ["status"]
        for name in self.columns:
            if name in BOUNDED and (is_whole or not BOUNDED[name].whole):
                relied += BOUNDED[name].measures
        return list(dict.fromkeys(relied))


@dataclass(frozen=True)
class Space:
    """All machines that may be built, and what is asked of them.

    Attributes:
        cases: all of them.
        study: whose workload all machines serve.
        goal: what is asked.
    """

    cases: tuple[Case, ...]
    study: Study
    goal: Goal

    @property
    def is_whole(self) -> bool:
        """Whether all sequences of the workload must be served at once."""
        return self.goal.serves_all(self.study.batch[0])

    @cached_property
    def boxes(self) -> Boxes:
        """A box a case, of the places along its axes."""
        high = np.array([case.last for case in self.cases], np.int64)
        return Boxes(np.arange(len(high)), np.zeros_like(high), high)

    @cached_property
    def _grouped(self) -> tuple[list[CaseGroup], Integers, Integers]:
        """All groups; of each case the place of its group, and its own place in it."""
        groups: list[CaseGroup] = []
        group, place = np.zeros((2, len(self.cases)), np.int64)
        for own in _alike(self.cases, self.study, self.goal.columns):
            group[own], place[own] = len(groups), np.arange(len(own))
            groups.append(_group([self.cases[case] for case in own], self.study))
        return groups, group, place

    def systems(self) -> tuple[list[str], Integers]:
        """Names of the systems, and which of them each case is of."""
        own = [case.system.name for case in self.cases]
        names = list(dict.fromkeys(own))
        return names, np.array([names.index(name) for name in own], np.int64)

    @cached_property
    def names(self) -> list[str]:
        """A name a case: its system, its server, its parts and what is enumerated."""
        return [case.name for case in self.cases]

    def groups_of_cases(self) -> Integers:
        """The system of each case; a front, and the nearest miss, is of all systems together."""
        _, system = self.systems()
        is_one = self.goal.is_nearest or len(self.goal.objectives) > 1
        return np.zeros_like(system) if is_one else system

    def asked(self) -> dict[str, Any]:
        """Objectives and limits, as a certificate states them."""
        goal = self.goal
        sides = ["highest" if highest else "least" for highest in goal.highest]
        limits = [
            f"{limit.name} {'>=' if limit.at_least else '<='} {limit.value!r}"
            for limit in goal.limits
        ]
        objectives = map(list, zip(goal.objectives, sides, strict=True))
        return {"objectives": list(objectives), "limits": limits}

    def relied_on(self) -> list[str]:
        """Which measure of which system the bounds take as monotone in which axis."""
        axes = {
            (case.system.name, " and ".join(axis.numbers))
            for case in self.cases
            for axis in case.axes
            if axis.numbers
        }
        measures = self.goal.measures(self.study.batch[0])
        relied = product(sorted(axes), measures)
        return [f"{name}: {measure} by {axis}" for (name, axis), measure in relied]

    def quick(self, boxes: Boxes) -> Numbers:
        """What the parts of the cheapest corner say of each box: (boxes, objectives)."""
        bounds = self._no_bounds(len(boxes))
        for group, rows, own in self._by_group(boxes.case):
            low = group.priced(group.numbers(own, boxes.low[rows]))
            bounds[rows] = self._bounds(partial(of_parts, low=low), (len(rows),))
        return bounds

    def bound(self, boxes: Boxes) -> Numbers:
        """What no machine of each box is better than: (boxes, objectives); inf where none is."""
        bounds = self._no_bounds(len(boxes))
        for group, rows, own in self._by_group(boxes.case):
            low = group.priced(group.numbers(own, boxes.low[rows]))
            high = group.numbers(own, boxes.high[rows])
            spans = {"total"}
            if self.is_whole and places_weights(group.block.system):
                bounded = BOUNDED.keys() & {*self.goal.columns}
                spans |= {BOUNDED[name].span for name in bounded}
            best = {span: answer for span in spans if (answer := group.answer(high, span))}
            if best:
                column = partial(of_corners, low=low, best=best, is_whole=self.is_whole)
                fits = best["total"].estimate.fits.ok
                bounds[rows] = self._bounds(column, (len(rows),), fits)
        return bounds

    def value(self, case: Integers, point: Integers) -> Numbers:
        """The objectives at points, to be made small; inf where a limit is missed."""
        values = self._no_bounds(len(case))
        for group, rows, own in self._by_group(case):
            if answer := group.answer(group.numbers(own, point[rows])):
                values[rows], _ = self.worth(answer, len(rows))
        return values

    def worth(self, answer: Evaluated, count: int) -> tuple[Numbers, Integers]:
        """The objectives of machines at the best of their splits, and the place of that split.

        The first objective decides, of splits that are alike in it the next, and in the end the
        seconds of the batch.
        """
        seconds = answer.estimate.total.seconds
        shape = np.broadcast_shapes(np.shape(seconds), (1, count))
        column = partial(exactly, answer=answer)
        worth = self._bounds(column, shape, answer.estimate.fits.ok, exact=True)
        objectives = np.moveaxis(worth, -1, 0)
        order = np.lexsort((np.broadcast_to(seconds, shape), *objectives[::-1]), axis=0)
        return worth[order[0], np.arange(count)], order[0]

    def knobs(self, case: int, point: Integers) -> dict[str, str]:
        """The best split of a machine, as a user states its knobs; nothing where it has none."""
        ((group, _, own),) = self._by_group(np.array([case]))
        numbers = group.numbers(own, point[np.newaxis])
        answer = group.answer(numbers)
        assert answer
        _, split = self.worth(answer, 1)
        if np.ptp(answer.estimate.total.seconds) == 0:
            return {}  # no knob changes anything, as on one GPU
        stated = {}
        for name, values in group.splits(numbers).items():
            choices, value = group.block.system.knobs[name].choices, values[split[0]]
            stated[name] = choices[int(value)] if choices else f"{value:g}"
        return stated

    def _no_bounds(self, count: int) -> Numbers:
        return np.full((count, len(self.goal.objectives)), np.inf)

    def _by_group(self, case: Integers) -> Iterator[tuple[CaseGroup, Integers, Integers]]:
        """Each group, which of some cases it has, and their places in it; not too many at once."""
        groups, member, place = self._grouped
        for number in np.unique(member[case]):
            rows = np.flatnonzero(member[case] == number)
            at_once = SPLIT_POINTS if groups[number].block.system.combinations else POINTS
            for start in range(0, len(rows), at_once):
                part = rows[start : start + at_once]
                yield groups[number], part, place[case[part]]

    def _bounds(
        self,
        column: CellOf,
        shape: tuple[int, ...],
        fits: Mask | bool = True,
        exact: bool = False,
    ) -> Numbers:
        """Objectives to be made small, as far as they are known; inf where a limit is missed.

        Args:
            column: name -> values; None where nothing is known.
            shape: of boxes or points; that of the answer has the objectives as one axis more.
            fits: where a design fits.
            exact: whether a limit that is not known is missed.
        """
        goal = self.goal
        bounds = np.full((*shape, len(goal.objectives)), -np.inf)

        def known(name: str, wants_more: bool) -> Real | None:
            is_bounded = exact or wants_more == higher_is_better(name)
            return column(name) if is_bounded else None

        for place, name in enumerate([] if goal.is_nearest else goal.objectives):
            values = known(name, goal.highest[place])
            if values is not None:
                signed = np.negative(values) if goal.highest[place] else values
                bounds[..., place] = np.where(np.isnan(signed), np.inf, signed)
        for limit in goal.limits:
            values = known(limit.quantity, limit.at_least)
            if values is None:
                continue
            excess = np.broadcast_to(-limit.margin(np.asarray(values)), shape)
            if goal.is_nearest:
                bounds[..., 0] = np.maximum(bounds[..., 0], excess)
            else:
                bounds[excess > 0] = np.inf
        bounds[~np.broadcast_to(fits, shape)] = np.inf
        return bounds


def _alike(
    cases: Sequence[Case], study: Study, columns: Sequence[str]
) -> Iterable[list[int]]:
    """Places of cases of one system whose machines have the same of the numbers that it reads."""
    read = _read_by_system(cases, study)
    stated: dict[tuple[str, str, int], frozenset[str]] = {}
    alike: dict[tuple[object, ...], list[int]] = {}
    for place, case in enumerate(cases):
        name = case.system.name
        kind: list[object] = [name]
        for role, part in _roles(case).items():
            own = (name, role, id(part))
            if own not in stated:
                lasts = {f"{role}.endurance"} if WORN & {*columns} else set()
                addresses = {f"{role}.{key}" for key in part.si}
                stated[own] = frozenset(addresses & (read[name] | lasts))
            kind += [role, stated[own]]
        alike.setdefault(tuple(kind), []).append(place)
    return alike.values()


def _roles(case: Case) -> dict[str, Part]:
    """Parts that a system may read: its own, the server, links, and numbers without a part."""
    owned = (*case.system.owns, SERVER)
    return {
        role: part
        for role, part in case.roles.items()
        if role in owned or part.type in ("link", *PARTLESS)
    }


def _block(case: Case, study: Study) -> Block:
    """The workload on the first machine of a case, with the roles that the system may read."""
    system, sold = case.system, case.server.as_sold
    # under the name of the system's own bed, what is lacking is not listed, which takes long
    machine = replace(sold, name=system.platform, roles=_roles(case))
    (block,) = blocks(study.but(systems=(system.name,), platforms=(machine,)))
    return block


def _read_by_system(cases: Sequence[Case], study: Study) -> dict[str, set[str]]:
    """Numbers that each system reads of the first machine that lacks none of them."""
    read: dict[str, set[str]] = {}
    tried: set[tuple[str, str, str]] = set()
    for case in cases:
        name, first = case.system.name, next(iter(case.parts.values()))
        machine = (name, case.server.part.name, first.name)
        if not read.get(name) and machine not in tried:
            tried.add(machine)
            read[name] = _read(_block(case, study))
    return read


def _read(block: Block) -> set[str]:
    """Numbers that the system reads, or looks for, as `role.key`; none where some are lacking."""
    read: set[str] = set()
    inputs = block.at(block.grid.mesh(block.grid.whole), read=read)
    try:
        resolve_knobs(block.system, *inputs)
    except MissingNumberError:
        return set()
    return read


def _group(cases: Sequence[Case], study: Study) -> CaseGroup:
    """Cases whose machines state the same numbers, as arrays of these."""
    block = _block(cases[0], study)
    stated = {
        (role, key)
        for case in cases
        for role, part in _roles(case).items()
        for key in part.si
    }
    counted = {address for case in cases for address in case.axes[1].numbers}
    columns = {}
    for role, key in stated:
        address = f"{role}.{key}"
        axis = int(address in counted)
        along = _along(axis, [_values(case, role, key, axis) for case in cases])
        if np.any(along.values != block.platform.roles[role].si.get(key, np.nan)):
            columns[address] = along
    return CaseGroup(block, columns)


def _along(axis: int, values: Sequence[tuple[float, ...]]) -> AlongAxis:
    """A number of some cases; of values that are fewer than others', the last stands again [SI]."""
    rows = {own: row for row, own in enumerate(dict.fromkeys(values))}
    longest = max(map(len, rows))
    filled = [(*own, *own[-1:] * (longest - len(own))) for own in rows]
    return AlongAxis(axis, np.array([rows[own] for own in values]), np.array(filled))


def _values(case: Case, role: str, key: str, axis: int) -> tuple[float, ...]:
    """A number of a case along an axis; one value where it stays the same [SI].

    Its idle power where a part states none at work, NaN where it has none.
    """
    address = f"{role}.{key}"
    if address in case.axes[axis].numbers:
        return case.axes[axis].numbers[address]
    if address in case.numbers:
        return (case.numbers[address],)
    part = (case.parts.get(role) or case.server.as_sold.roles[role]).si
    otherwise = part.get("idle_power", np.nan) if key == "power" else np.nan
    return (part.get(key, otherwise),)
