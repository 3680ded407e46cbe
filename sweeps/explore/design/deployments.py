"""A system on all machines on which it may run, of which the parts are known before they run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Integers, Numbers
from nearkv.costmodel.model.estimate import STATUSES
from nearkv.costmodel.model.metrics import COLUMNS, Evaluated, is_of_costs
from nearkv.costmodel.model.registry import System
from nearkv.hardware.machine import recording
from nearkv.hardware.platform import Platform
from nearkv.solvers.knob_values import tried_together
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.columns import Cell
from nearkv.sweeps.explore.design.goal import Goal, served_at_once
from nearkv.sweeps.explore.design.space import PART_COLUMNS, Machines, Read
from nearkv.sweeps.jobs.search import Candidates, candidates_at
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Categories

LACKING = "lack a number that the system reads"
"""End of a machine on which a system cannot be evaluated."""
FIRST_CHUNK = 1 << 9
"""Machines that are evaluated together first; then four times as many, up to `AT_ONCE`."""
AT_ONCE, LEAST = 4 << 10, 1 << 8
"""Machines evaluated together, times combinations of knobs and workloads; and the fewest."""
PER_ROUND = "per_round"
"""The axis of the sequences that run together at most."""
NEVER_WORN = "endurance_requests"
"""The column that is blank where no flash is written."""


@dataclass(frozen=True)
class Deployments:
    """One system on all machines on which it may run, and what they serve.

    Attributes:
        system: what runs.
        read: all of them, and what was read of them so far.
        study: the workload.
        goal: what is asked of them.
        first: number of the first machine of all in the whole search.
        axes: of several workloads, their values in front of those of machines, by axis.
    """

    system: System
    read: Read
    study: Study
    goal: Goal
    first: int
    axes: Mapping[str, Numbers] = field(default_factory=dict)

    @property
    def machines(self) -> Machines:
        """All of them."""
        return self.read.machines

    def block(self, machine: Platform) -> Block:
        """The workload on a machine.

        Under the name of the system's own bed, what is lacking is not listed, which takes long.
        """
        platform = replace(machine, name=self.system.platform)
        names = (self.system.name,)
        study = self.study.but(systems=names, platforms=(platform,), per_round=())
        (block,) = blocks(study)
        return block

    @cached_property
    def excess(self) -> Numbers:
        """Excess of the parts alone over a limit, on a logarithmic scale; infinite without a price.

        A price counts only where one is asked about.
        """
        known = self.machines.of_parts
        excess = np.zeros(len(self.machines))
        for limit in self.goal.limits:
            if limit.quantity in PART_COLUMNS:
                excess = np.maximum(excess, -limit.margin(known[limit.quantity]))
        if is_of_costs(self.goal.columns):
            excess[np.isnan(known["cost_usd"])] = np.inf
        return excess

    @property
    def within(self) -> Integers:
        """The machines within the limits of what parts alone say."""
        return np.flatnonzero(self.excess == 0)

    @property
    def beyond(self) -> Integers:
        """The machines beyond these limits."""
        return np.flatnonzero((self.excess > 0) & np.isfinite(self.excess))

    @property
    def unpriced(self) -> Integers:
        """The machines that lack a price that is asked about."""
        return np.flatnonzero(np.isinf(self.excess))

    @cached_property
    def splits(self) -> dict[str, Numbers]:
        """Values that are tried on each machine: of knobs tried together, of rounds; or none."""
        joint, sizes = self._joint_knobs, self._round_sizes
        if not np.any(np.isfinite(sizes)):
            return joint
        combinations = len(next(iter(joint.values()), [0]))
        splits = {name: np.repeat(values, len(sizes)) for name, values in joint.items()}
        return {**splits, PER_ROUND: np.tile(sizes, combinations)}

    @property
    def _round_sizes(self) -> Numbers:
        """Sequences that may run together at most, infinite for all, the most first [1]."""
        batch = self.study.batch[0]
        if served_at_once(batch) in self.goal.limits:
            return np.array([np.inf])
        powers = 2.0 ** np.arange(np.ceil(np.log2(batch)) + 1)
        tried = np.array(self.study.per_round or powers)
        return np.unique(np.where(tried < batch, tried, np.inf))[::-1]

    @cached_property
    def _joint_knobs(self) -> dict[str, Numbers]:
        """Values of the knobs that the system tries together, for the most parts; or none."""
        if not self.system.combinations:
            return {}
        block, every = self.block(self.machines.platform(0)), self.machines.every
        most = {}
        for role, part in block.platform.roles.items():
            if "count" in part.si:
                counts = self.machines.column(f"{role}.count", every)
                most[f"{role}.count"] = np.nanmax(counts, keepdims=True)
        hw, llm, _, settings = block.at(block.grid.mesh(block.grid.whole), most)
        return tried_together(self.system, hw, llm, settings)

    @property
    def before(self) -> tuple[int, ...]:
        """Shape in front of that of machines: workloads, where there are several, combinations."""
        combinations = len(next(iter(self.splits.values()), [0]))
        shapes = map(np.shape, self.axes.values())
        return np.broadcast_shapes(*shapes, (combinations, 1))[:-1]

    def candidates(self, among: Integers) -> Iterator[Candidates]:
        """Machines in chunks, those that exceed the limits least first, then the best by its parts.

        Args:
            among: which machines.
        """
        goal, known = self.goal, [self.excess]
        if goal.objectives[0] in PART_COLUMNS:
            sign = -1.0 if goal.highest[0] else 1.0
            known.append(sign * self.machines.of_parts[goal.objectives[0]])
        order = np.lexsort([column[among] for column in known[::-1]])
        left, size = among[order], FIRST_CHUNK
        most = max(AT_ONCE // math.prod(self.before), LEAST)
        while len(left):
            kinds = self.read.kinds[left]
            taken = np.flatnonzero(kinds == kinds[0])[:size]
            machines = left[taken]
            left, size = np.delete(left, taken), min(4 * size, most)
            yield Candidates(
                rows=self.first + machines,
                shape=(*self.before, len(machines)),
                evaluate=partial(self.evaluate, machines),
                least=tuple(float(column[machines[0]]) for column in known),
                group=(self.system.name,),
            )

    def evaluate(self, machines: Integers, names: Sequence[str]) -> Mapping[str, Cell]:
        """Columns of some machines, with every combination of the knobs tried together.

        Raises:
            ArithmeticError: a machine has an answer and a value that is none.
        """
        shape = (*self.before, len(machines))
        own: dict[str, Cell] = {
            "system": Categories(np.zeros((), int), (self.system.name,)),
            "parts": self.machines.of_parts["parts"][machines],
            "row": (self.first + machines).astype(float),
            "split": np.arange(float(self.before[-1]))[:, np.newaxis],
        }
        computed = [name for name in names if name not in own]
        values = {name: np.full(shape, np.nan) for name in computed if name != "status"}
        status = np.full(shape, len(STATUSES))
        knobs = {name: values[:, np.newaxis] for name, values in self.splits.items()}

        def answered(group: Integers) -> Mapping[str, Cell]:
            block, numbers = self.block(self.read.base(group)), self.read.numbers(group)
            axes, read = {**knobs, **self.axes}, self.read.addresses
            return candidates_at(block, axes, numbers, read=read).evaluate(computed)

        for places, cells in self.read.by_kind(machines, answered):
            if cells is None:
                continue
            assert isinstance(cells["status"], Categories)
            status[..., places] = cells["status"].places
            for name, column in values.items():
                column[..., places] = cells[name]
            self._check_values(machines[places], cells, status[..., places] == 0)
        return {**own, **values, "status": Categories(status, (*STATUSES, LACKING))}

    def _check_values(
        self, machines: Integers, cells: Mapping[str, Cell], answered: Booleans
    ) -> None:
        """Hold that every answer has a value in each column, unless its machine lacks a number.

        Args:
            machines: of one kind.
            cells: their columns.
            answered: which of them have an answer.

        Raises:
            ArithmeticError: a value is none or infinite, and no number is missing.
        """
        for name, cell in cells.items():
            if isinstance(cell, Categories) or name == NEVER_WORN:
                continue
            is_none = answered & ~np.isfinite(cell)
            if np.any(is_none) and not self._lacks_for(name, machines):
                builds, _ = self.machines.build(int(machines[np.argwhere(is_none)[0, -1]]))
                where = f"{self.system.name} on a {builds.server.part.name}"
                raise ArithmeticError(f"{where} has an answer and no {name}")

    def _lacks_for(self, name: str, machines: Integers) -> bool:
        """True if machines of one kind lack a number that a column looks for."""
        block, seen = self.block(self.read.base(machines)), set[str]()
        hw, llm, work, knobs = block.at(block.grid.mesh(block.grid.whole))
        estimate = resolve_knobs(self.system, hw, llm, work, knobs).estimate
        COLUMNS[name].compute(Evaluated(estimate, recording(hw, seen), self.system.owns))
        stated = {
            f"{role}.{key}"
            for role, part in block.platform.roles.items()
            for key in part.si
        }
        return not seen <= stated
