"""What machines of a space measure at points, and what no machine of a box is better than."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.metrics import (
    COLUMNS,
    HOURS,
    SERVER,
    Answer,
    cost,
    power_cap,
    rack_units,
    throughput,
)
from nearkv.hardware.machine import MissingNumberError
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.boxes import Boxes, Integers, Mask, Numbers
from nearkv.solvers.knobs import STEP, Resolved, resolve_knobs
from nearkv.sweeps.evaluate.slo import Target, higher_is_better
from nearkv.sweeps.explore.design.space import PLACED_FOR, Cases, places_weights
from nearkv.sweeps.study.study import Block, Study, blocks

MEASURES = {
    "prefill_s": ("prefill_s",),
    "ttft_s": ("prefill_s", "total_s"),
    "step_ms": ("step_ms",),
    "tpot_ms": ("step_ms",),
    "decode_tok_s": ("step_ms",),
    "total_s": ("total_s",),
    "throughput_tok_s": ("total_s",),
    "batch_run": ("status",),
    "usd_mtok": ("total_s",),
    "energy_j_tok": ("total_s",),
    "tok_s_per_kusd": ("total_s",),
}
"""Column that the best corner of a box bounds -> measures whose monotony that takes."""
OF_PARTS = {"cost_usd": cost, "power_cap_w": power_cap, "rack_units": rack_units}
"""Column that follows from the parts alone -> its sum over them, which rises with every count."""


def idle_power(answer: Answer) -> Real:
    """What the devices draw at rest, which no machine that serves is below [W]."""
    devices = answer.devices.values()
    return sum((part.count * part.maybe("idle_power", np.nan) for part in devices), 0.0)


def least_hour(answer: Answer) -> Real:
    """An hour of a machine at rest, or its rent: `usd_hour` with no work [USD/h]."""
    terms = answer.hw.ownership
    electricity = 3600 * terms.pue * terms.usd_kwh * idle_power(answer)
    bought = cost(answer) / (terms.years * HOURS) + electricity
    rents = [part.count * part.rent for part in answer.devices.values() if "rent" in part]
    rent = 3600 * sum(rents) if rents else np.nan
    return np.where(np.greater(terms.rented, 0), rent, bought)[()]


def of_parts(name: str, low: Answer) -> Real | None:
    """What a column cannot be below, by the parts of the cheapest corner; None where unknown."""
    if name in OF_PARTS:
        return OF_PARTS[name](low)
    if name == "power_w":
        return idle_power(low)
    return least_hour(low) if name == "usd_hour" else None


SPANS = {
    "prefill_s": "prefill",
    "ttft_s": "prefill",
    "step_ms": "step",
    "tpot_ms": "step",
    "decode_tok_s": "step",
}
"""Column -> the span for which weights are placed to bound it; for all others the total."""
SPLITS = ("step", "total", "prefill")
"""Spans for which GPUs are split; of machines, the best of these splits counts."""
WHOLE = {"ttft_s": "prefill_s", "tpot_ms": "step_ms"}
"""Column -> the one that it is where all sequences are served at once.

Of a batch in rounds they are those of one round, which is shorter where less fits: no bound.
"""


def of_corners(
    name: str,
    low: Answer,
    best: Mapping[str, Answer],
    is_whole: bool,
    is_placed: bool,
) -> Real | None:
    """What no machine of a box is better than in a column; None where that is not known.

    A ratio is bounded by its numerator at the cheapest corner over its denominator at the best.

    Args:
        name: of the column.
        low: the cheapest corner, of which only parts are known.
        best: the best corner with weights placed for each span.
        is_whole: whether all sequences are served at once.
        is_placed: whether weights are placed for each span apart.
    """
    if name in WHOLE and not is_whole:
        return None
    if name == "usd_mtok":
        tokens = 3600 * low.hw.ownership.utilisation * throughput(best["total"])
        return 1e6 * least_hour(low) / tokens
    if name == "energy_j_tok":
        return idle_power(low) / throughput(best["total"])
    if name == "tok_s_per_kusd":
        return throughput(best["total"]) / (cost(low) / 1e3)
    if name in MEASURES:
        measured = WHOLE.get(name, name) if is_placed else name
        return COLUMNS[measured].compute(best[SPANS.get(name, "total")])
    return of_parts(name, low)


def exactly(name: str, answer: Answer) -> Real:
    """A column of machines whose answer is known."""
    return COLUMNS[name].compute(answer)


@dataclass(frozen=True)
class Group:
    """Cases of one system whose machines have the same numbers, evaluated as one array.

    Attributes:
        pieces: of the space, by their place there.
        block: the system and the workload, on the first machine.
        varying: numbers in which the machines differ, as `role.key`.
    """

    pieces: Mapping[int, Cases]
    block: Block
    varying: tuple[str, ...]

    def machine(
        self, piece: Integers, case: Integers, point: Integers
    ) -> dict[str, Numbers]:
        """The numbers of some points that differ from those of the first machine [SI]."""
        columns = {address: np.empty(len(case)) for address in self.varying}
        for place in np.unique(piece):
            rows = piece == place
            own = self.pieces[int(place)]
            numbers = own.numbers(case[rows], point[rows])
            for address in self.varying:
                columns[address][rows] = numbers.get(address, stated(own, address))
        return columns

    def priced(self, numbers: Mapping[str, Numbers]) -> Answer:
        """What is known of machines without asking the system: their parts."""
        hw = self.block.platform.machine().with_values(numbers)
        return Answer(None, hw, self.block.system.owns)  # type: ignore[arg-type]

    @property
    def spans(self) -> tuple[str, ...]:
        """Spans for which knobs are solved, the first as a user's `auto` is."""
        return SPLITS if self.block.system.combinations else ("total",)

    def answer(self, numbers: Mapping[str, Numbers], span: str = "total") -> Answer | None:
        """What the system answers on machines, its knobs solved; None where they lack a number.

        Args:
            numbers: of the machines that differ from those of the first [SI].
            span: whose seconds the placement of weights, or a split over GPUs, makes least.
        """
        solved = self.solved(numbers, span)
        if solved is None:
            return None
        hw = self.block.platform.machine().with_values(numbers)
        return Answer(solved.estimate, hw, self.block.system.owns)

    def solved(self, numbers: Mapping[str, Numbers], span: str) -> Resolved | None:
        """The knobs of machines and what they estimate, as `answer` takes them."""
        mesh = self.block.grid.mesh(self.block.grid.whole)
        flat = {name: values.reshape(-1) for name, values in mesh.items()}
        hw, llm, work, requested = self.block.at(flat, numbers)
        timed = PLACED_FOR[span]
        split_for = timed if len(self.spans) > 1 else STEP
        try:
            return resolve_knobs(
                self.block.system,
                hw,
                llm,
                work,
                requested,
                placed_for=timed,
                split_for=split_for,
            )
        except MissingNumberError:
            return None


def stated(piece: Cases, address: str) -> float:
    """A number of the first machine of a piece; NaN where it has none [SI]."""
    role, _, key = address.partition(".")
    si = piece.machine.roles[role].si
    return si.get(key, si.get("idle_power", np.nan) if key == "power" else np.nan)


Bounded = Callable[[str], Real | None]
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
            if is_whole or name not in WHOLE:
                relied += MEASURES.get(name, ())
        return list(dict.fromkeys(relied))


@dataclass(frozen=True)
class Space:
    """All machines that may be built, and what is asked of them.

    Attributes:
        pieces: cases, those with the same numbers together.
        study: one system's question, whose workload all machines serve.
        goal: what is asked.
    """

    pieces: tuple[Cases, ...]
    study: Study
    goal: Goal

    @property
    def is_whole(self) -> bool:
        """Whether all sequences of the workload must be served at once."""
        return self.goal.serves_all(self.study.batch[0])

    @cached_property
    def starts(self) -> Integers:
        """First case of each piece."""
        counts = np.array([0, *map(len, self.pieces)])
        return np.cumsum(counts)[:-1]

    @cached_property
    def boxes(self) -> Boxes:
        """A box a case, of the places along its axes."""
        depth = max((len(piece.axes) for piece in self.pieces), default=0) or 1
        high = [_last_places(piece, depth) for piece in self.pieces]
        ends = np.concatenate([np.zeros((0, depth), np.int64), *high])
        return Boxes(np.arange(len(ends)), np.zeros_like(ends), ends)

    @cached_property
    def groups(self) -> list[Group]:
        """The pieces by system and by the numbers of their machines that it reads."""
        groups: list[Group] = []
        for name in dict.fromkeys(piece.system.name for piece in self.pieces):
            own = {
                place: piece
                for place, piece in enumerate(self.pieces)
                if piece.system.name == name
            }
            groups += _groups(own, self.study.but(systems=(name,)))
        return groups

    def piece_of(self, case: Integers) -> Integers:
        """The piece that each case is of."""
        return np.searchsorted(self.starts, case, side="right") - 1

    def systems(self) -> tuple[list[str], Integers]:
        """Names of the systems, and which of them each case is of."""
        names = list(dict.fromkeys(piece.system.name for piece in self.pieces))
        own = [names.index(piece.system.name) for piece in self.pieces]
        return names, np.array(own, np.int64)[self.piece_of(self.boxes.case)]

    @cached_property
    def names(self) -> list[str]:
        """A name a case: its system, its server, its parts and what is enumerated."""
        return [name for piece in self.pieces for name in piece.names]

    def groups_of_cases(self) -> Integers:
        """The system of each case; a front is of all systems together."""
        _, system = self.systems()
        return np.zeros_like(system) if len(self.goal.objectives) > 1 else system

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
        relied: dict[str, None] = {}
        for piece in self.pieces:
            for axis in piece.axes:
                for measure in self.goal.measures(self.study.batch[0]):
                    said = (
                        f"{piece.system.name}: {measure} by {' and '.join(axis.addresses)}"
                    )
                    relied[said] = None
        return list(relied)

    def quick(self, boxes: Boxes) -> Numbers:
        """What the parts of the cheapest corner say of each box: (boxes, objectives)."""
        bounds = self._no_bounds(len(boxes))
        for group, rows, piece, case in self._by_group(boxes.case):
            low = group.machine(piece, case, boxes.low[rows])
            priced = group.priced(low)
            bounds[rows] = self._bounds(partial(of_parts, low=priced), len(rows))
            bounds[rows[~self._assembles(piece, case, boxes.low[rows])]] = np.inf
        return bounds

    def bound(self, boxes: Boxes) -> Numbers:
        """What no machine of each box is better than: (boxes, objectives); inf where none is."""
        bounds = self._no_bounds(len(boxes))
        for group, rows, piece, case in self._by_group(boxes.case):
            priced = group.priced(group.machine(piece, case, boxes.low[rows]))
            high = group.machine(piece, case, boxes.high[rows])
            if len(group.spans) > 1:  # a box is one machine
                bounds[rows], _ = self.best_split(group, high, len(rows))
                continue
            best = group.answer(high)
            if best is None:
                continue
            is_placed = self.is_whole and places_weights(group.block.system)
            corners = {"total": best, "prefill": best, "step": best}
            if is_placed:
                spans = {SPANS.get(name, "total") for name in self.goal.columns}
                corners |= {span: group.answer(high, span) or best for span in spans}
            column = partial(
                of_corners,
                low=priced,
                best=corners,
                is_whole=self.is_whole,
                is_placed=is_placed,
            )
            bounds[rows] = self._bounds(column, len(rows))
            bounds[rows[~np.broadcast_to(best.estimate.fits.ok, len(rows))]] = np.inf
        return bounds

    def value(self, case: Integers, point: Integers) -> Numbers:
        """The objectives at points, to be made small; inf where a limit is missed."""
        values = np.full((len(case), len(self.goal.objectives)), np.inf)
        for group, rows, piece, own in self._by_group(case):
            numbers = group.machine(piece, own, point[rows])
            worth, _ = self.best_split(group, numbers, len(rows))
            assembles = self._assembles(piece, own, point[rows])
            values[rows[assembles]] = worth[assembles]
        return values

    def best_split(
        self, group: Group, numbers: Mapping[str, Numbers], count: int
    ) -> tuple[Numbers, Integers]:
        """The objectives of machines at their best split, and the place of its span."""
        worths = []
        for span in group.spans:
            answer = group.answer(numbers, span)
            worths.append(self.worth(answer, count) if answer else self._no_bounds(count))
        every = np.stack(worths)
        # the first objective decides, and of what is alike in it the next
        split = np.lexsort(every.T[::-1])[:, 0]
        return every[split, np.arange(count)], split

    def knobs(self, case: int, point: Integers) -> dict[str, str]:
        """The best split of a machine, as a user states its knobs; nothing where it has none."""
        ((group, _, piece, own),) = self._by_group(np.array([case]))
        system = group.block.system
        if not system.combinations:
            return {}
        numbers = group.machine(piece, own, point[np.newaxis])
        _, split = self.best_split(group, numbers, 1)
        solved = group.solved(numbers, group.spans[int(split[0])])
        assert solved
        stated = {}
        for name in group.block.requested:
            value = float(np.ravel(solved.knobs[name])[0])
            names = system.knobs[name].choices
            stated[name] = names[int(value)] if names else f"{value:g}"
        return stated

    def worth(self, answer: Answer, count: int) -> Numbers:
        """The objectives of machines, to be made small; inf where one is no answer."""
        worth = self._bounds(partial(exactly, answer=answer), count, exact=True)
        worth[~np.broadcast_to(answer.estimate.fits.ok, count)] = np.inf
        return worth

    def _no_bounds(self, count: int) -> Numbers:
        return np.full((count, len(self.goal.objectives)), np.inf)

    def _by_group(
        self, case: Integers
    ) -> Iterator[tuple[Group, Integers, Integers, Integers]]:
        """Each group, which of some cases it has, their pieces, and their places in these."""
        piece = self.piece_of(case)
        for group in self.groups:
            rows = np.flatnonzero(np.isin(piece, list(group.pieces)))
            if len(rows):
                yield group, rows, piece[rows], case[rows] - self.starts[piece[rows]]

    def _assembles(self, piece: Integers, case: Integers, point: Integers) -> Mask:
        """Where lanes and supply carry what is fitted."""
        assembles = np.zeros(len(case), bool)
        for place in np.unique(piece):
            rows = piece == place
            assembles[rows] = self.pieces[place].assembles(case[rows], point[rows])
        return assembles

    def _bounds(self, column: Bounded, count: int, exact: bool = False) -> Numbers:
        """Objectives to be made small, as far as they are known; inf where a limit is missed.

        Args:
            column: name -> values; None where nothing is known.
            count: of boxes or points.
            exact: whether a limit that is not known is missed.
        """
        if self.goal.is_nearest:
            return self._excess(column, count, exact)
        bounds = np.full((count, len(self.goal.objectives)), -np.inf)
        for place, name in enumerate(self.goal.objectives):
            values = column(name)
            if values is not None:
                signed = np.negative(values) if self.goal.highest[place] else values
                bounds[:, place] = np.where(np.isnan(signed), np.inf, signed)
        for limit, values in self._limited(column, exact):
            met = np.greater_equal if limit.at_least else np.less_equal
            bounds[~np.broadcast_to(met(values, limit.value), count)] = np.inf
        return bounds

    def _excess(self, column: Bounded, count: int, exact: bool) -> Numbers:
        """By which factor the limit is missed that is missed most, its logarithm."""
        excess = np.full(count, -np.inf)
        for limit, values in self._limited(column, exact):
            excess = np.maximum(excess, -limit.margin(np.asarray(values)))
        column_of: Numbers = excess[:, np.newaxis]
        return column_of

    def _limited(self, column: Bounded, exact: bool) -> Iterator[tuple[Target, Real]]:
        """The limits that a column says something of, and its values."""
        for limit in self.goal.limits:
            values = column(limit.quantity)
            is_bounded = exact or limit.at_least == higher_is_better(limit.quantity)
            if values is not None and is_bounded:
                yield limit, values


def _last_places(piece: Cases, depth: int) -> Integers:
    """The last place along each axis, for every case of a piece: (cases, depth)."""
    last = np.zeros(depth, np.int64)
    last[: len(piece.axes)] = [len(axis.values) - 1 for axis in piece.axes]
    return np.tile(last, (len(piece), 1))


def _needed_roles(piece: Cases) -> list[str]:
    """Roles that the system may read: its own, the server, links, and numbers without a part."""
    owned = (*piece.system.owns, SERVER)
    return [
        role
        for role, part in piece.machine.roles.items()
        if role in owned or part.type in ("link", *PARTLESS)
    ]


def _groups(pieces: Mapping[int, Cases], study: Study) -> Iterator[Group]:
    """Pieces of one system by which of the numbers that it reads their machines have."""
    read: set[str] = set()
    alike: dict[frozenset[str], dict[int, Cases]] = {}
    for place, piece in pieces.items():
        if not read:
            read = _read(_block(piece, study))
        roles = _needed_roles(piece)
        there = {f"{role}.{key}" for role in roles for key in piece.machine.roles[role].si}
        lasts = {address for address in there if address.endswith(".endurance")}
        alike.setdefault(frozenset({*roles, *lasts, *there & read}), {})[place] = piece
    for own in alike.values():
        first = next(iter(own.values()))
        yield Group(own, _block(first, study), tuple(_varying(own)))


def _block(piece: Cases, study: Study) -> Block:
    """The workload on the first machine of a piece, with the roles that the system may read."""
    roles = {role: piece.machine.roles[role] for role in _needed_roles(piece)}
    # under the name of the system's own bed, what is lacking is not listed, which takes long
    machine = replace(piece.machine, name=piece.system.platform, roles=roles)
    (block,) = blocks(study.but(platforms=(machine,)))
    return block


def _read(block: Block) -> set[str]:
    """Numbers that the system reads, or looks for, as `role.key`; none where some are lacking."""
    read: set[str] = set()
    mesh = block.grid.mesh(block.grid.whole)
    inputs = block.at(mesh, read=read)
    try:
        resolve_knobs(block.system, *inputs)
    except MissingNumberError:
        return set()
    return read


def _varying(pieces: Mapping[int, Cases]) -> list[str]:
    """Numbers in which the machines of some pieces differ."""
    first, *others = pieces.values()
    varying = dict.fromkeys(
        address for piece in pieces.values() for address in piece.chosen
    )
    for role in _needed_roles(first):
        si = first.machine.roles[role].si
        for piece in others:
            own = piece.machine.roles[role].si
            differing = (key for key in {*si, *own} if si.get(key) != own.get(key))
            varying |= dict.fromkeys(f"{role}.{key}" for key in sorted(differing))
    return list(varying)
