"""The best machine of each system, ranked, how all machines ended, and what would change it."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from nearkv.costmodel.algebra.span import Integers, Numbers
from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import UnmetError
from nearkv.hardware.platform import Platform
from nearkv.hardware.quantity import Quantity
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.knobs import tried_together
from nearkv.sweeps.evaluate.columns import BOTTLENECK, columns, on_request
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.explore.design.deployments import Deployments
from nearkv.sweeps.explore.design.flips import flips_of, winning_share
from nearkv.sweeps.explore.design.goal import Goal
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.design.space import Builds
from nearkv.sweeps.jobs.search import (
    BEST,
    NO_BETTER,
    Candidates,
    Found,
    Kept,
    search,
    to_digits,
)
from nearkv.sweeps.study.axes import WORKLOAD_OPTIONS
from nearkv.sweeps.study.study import Block, Study, blocks, name_of
from nearkv.sweeps.tables.table import Row, Rows, cell_text, counted, records

TURNING = 3
"""Numbers that are named of those that would turn the ranking."""
CLOSE = 1e-7
"""Relative distance of values that tie [1]."""
SLOTS = ("gpu", "host", "ssd", "csd", "raid", "dimm")
"""Roles whose parts are columns of the answer."""
OVER, UNPRICED = "over the budget", "without a price"
"""How machines end that are not evaluated, beside those that cannot be better."""
UNTRIED = (OVER, UNPRICED, NO_BETTER)
OF_A_BATCH = (
    "All sequences start at once: ttft_s is the mean over this batch, of which the last waits "
    "longest, and stages of a pipeline are taken as full. As many run at once as memory holds, so "
    "a machine of less memory may have a shorter tpot_ms."
)
"""What times of a batch are, for readers who know load as requests that arrive over time."""
Report = Callable[[int, int], None]
"""Takes the number of machines that are done, and of all."""


@dataclass(frozen=True)
class Design:
    """A machine, the system on it, and its knobs.

    Attributes:
        system: its name.
        builds, number: the server, and which of its builds.
        machine: as a platform, under the name of its server.
        study: the question to `estimate` of it.
    """

    system: str
    builds: Builds
    number: int
    machine: Platform
    study: Study

    @property
    def server(self) -> str:
        """The name of its server."""
        return self.builds.server.part.name

    @property
    def place(self) -> str:
        """What runs where, in words."""
        return f"{self.system} on {self.server}"

    @cached_property
    def block(self) -> Block:
        """The workload on the machine."""
        (block,) = blocks(self.study)
        return block

    def row(self, asked: Collection[str]) -> dict[str, Any]:
        """Its parts, then the columns of `estimate`, and those that are asked about."""
        row: dict[str, Any] = {"server": self.server}
        for role in SLOTS:
            fitted = self.machine.roles[role] if role in self.builds.options else None
            row[f"{role}s"] = f"{fitted.si['count']:g} x {fitted.name}" if fitted else ""
        host = self.machine.roles.get("host")
        row["dram_gib"] = host.si["memory"] / 2**30 if host else 0.0
        rented = self.machine.roles["ownership"].si["rented"]
        row["acquired"] = "rented" if rented else "bought"
        own = columns(
            self.block, self.block.grid.whole, extra=(BOTTLENECK, *on_request(asked))
        )
        (answered,) = records(own)
        return {**row, **answered}

    def command(self) -> str:
        """The command that prints its columns, once the file of the machine is appended."""
        study = self.study
        words = ["nearkv", "estimate", *study.systems, "--model"]
        words += [name_of(model) for model in study.models]
        for name, option in WORKLOAD_OPTIONS.items():
            words += [option, *(f"{length:.0f}" for length in getattr(study, name))]
        for name, values in study.knobs.items():
            words += ["--knob", f"{name}={getattr(values[0], 'text', values[0])}"]
        for plugin in study.plugins:
            words += ["--plugin", plugin]
        return f"{shlex.join(words)} --platform"

    def machine_file(self) -> str:
        """The machine as the TOML of a platform: what differs from that of its server."""
        base = self.builds.server.platform
        lines = [f'title = "{self.machine.name}"', f'base = "{base.name}"']
        for role, part in self.machine.roles.items():
            before = base.roles.get(role)
            if before and before.numbers == part.numbers and role != "ownership":
                continue
            lines += ["", f"[{role}]"]
            own: Mapping[str, Quantity] = {}
            if role not in PARTLESS:
                lines.append(f'part = "{part.name}"')
                own = load_part(part.name).numbers
            for key, number in part.numbers.items():
                if number != own.get(key):
                    lines.append(f'{key} = "{number.value!r} {number.unit}"')
        return "\n".join(lines) + "\n"


def design_of(deployments: Deployments, study: Study, number: int, split: int) -> Design:
    """One machine, with one of the combinations of knobs that its system tries together."""
    builds, own = deployments.machines.build(number)
    machine = builds.machine(own)
    study = study.but(systems=(deployments.system.name,), platforms=(machine,))
    design = Design(deployments.system.name, builds, own, machine, study)
    hw, llm, _, requested = design.block.inputs(design.block.grid.whole)
    system = design.block.system
    if len(next(iter(tried_together(system, hw, llm, requested).values()), [])) < 2:
        return design  # nothing to choose, as on one GPU
    knobs: dict[str, Any] = {**study.knobs}
    for name, values in deployments.splits.items():
        choices, value = system.knobs[name].choices, values[split]
        knobs[name] = choices[int(value)] if choices else f"{value:g}"
    return replace(design, study=study.but(knobs=knobs))


class Pool(NamedTuple):
    """One system on all its machines, as a part of a search.

    Attributes:
        deployments: what they are.
        first: number of the first of them in the whole search.
        within, beyond: those within the limits of what parts alone say, and those beyond.
    """

    deployments: Deployments
    first: int
    within: Integers
    beyond: Integers


def pools_of(question: Question, outcomes: Counter[str]) -> list[Pool]:
    """All systems on their machines, less those without a price where money is asked about.

    Args:
        question: what is asked.
        outcomes: takes how many machines are left out.
    """
    pools, first = [], 0
    for deployments in question.deployments:
        excess = deployments.excess(question.goal)
        outcomes[UNPRICED] += sum(builds.unpriced for builds in deployments.machines.builds)
        within, beyond = np.flatnonzero(excess == 0), np.flatnonzero(excess > 0)
        pools.append(Pool(deployments, first, within, beyond))
        first += len(excess)
    return pools


@dataclass(frozen=True)
class Searched:
    """What a search of all machines kept, and how each of them ended.

    Attributes:
        designs: the best machines, the best of all first; the nearest one where none meets all.
        values: what they are compared by, made small: the excess over the limits, the objectives.
        machines: how many there are.
        outcomes: in words -> how many of them ended so.
        unpriced: parts that are in no candidate, as they have no price.
        is_complete: whether all were tried that could be better.
        is_interrupted: whether Ctrl-C ended it.
    """

    designs: Sequence[Design]
    values: Numbers
    machines: int
    outcomes: Mapping[str, int]
    unpriced: Sequence[str]
    is_complete: bool = True
    is_interrupted: bool = False

    @property
    def meets(self) -> bool:
        """True if a machine meets every limit."""
        return bool(np.any(self.values[:, 0] == 0))

    @property
    def evaluated(self) -> int:
        """Number of machines that were evaluated."""
        return sum(count for name, count in self.outcomes.items() if name not in UNTRIED)

    @property
    def text(self) -> str:
        """How many machines there are, and how they ended."""
        kept = [
            f"{self.outcomes[name]:,} {name}" for name in UNTRIED if self.outcomes.get(name)
        ]
        ends = sorted(self.outcomes.items(), key=lambda end: (end[0] == BEST, -end[1]))
        told = [
            f"{count:,} {name}" for name, count in ends if count and name not in UNTRIED
        ]
        before = f"{', '.join(kept)}, not evaluated; " if kept else ""
        after = f": {', '.join(told)}" if told else ""
        machines = counted(self.machines, "machine")
        said = f"{machines}: {before}{self.evaluated:,} evaluated{after}."
        left = self.machines - sum(self.outcomes.values())
        return said if self.is_complete else f"Stopped with {left:,} left of {said}"

    def left_out(self) -> list[str]:
        """The parts that were no candidates, in words."""
        if not self.unpriced:
            return []
        return [f"Left out, as they have no price: {', '.join(self.unpriced)}."]


class Search:
    """A search of all machines: for the best one of each system, or for a front of them all.

    Where none meets every limit, those beyond the budget are tried for the nearest, the least
    excess first.

    Args:
        question: what is asked.
        seconds: after which it stops with what it has.
        report: called after every chunk.
    """

    def __init__(self, question: Question, seconds: float, report: Report | None) -> None:
        self.question, self.report = question, report
        self.end = time.monotonic() + seconds
        self.reducer = question.goal.reducer()
        self.outcomes = Counter[str]()
        self.pools = pools_of(question, self.outcomes)
        self.done = self.outcomes[UNPRICED]
        self.machines = self.done + sum(
            len(pool.deployments.machines) for pool in self.pools
        )
        self.kept: dict[str, Kept] = {}
        self.last = Found(None, {})

    def run(self) -> Searched:
        """Try all machines."""
        is_front = len(self.question.goal.objectives) > 1
        for pool in self.pools:
            self._try(pool, pool.within, "" if is_front else pool.deployments.system.name)
        if any(kept.costs[0, 0] == 0 for kept in self.kept.values()):
            self.outcomes[OVER] += sum(len(pool.beyond) for pool in self.pools)
        else:
            near: Kept | None = None
            for kept in self.kept.values():
                near = self.reducer.merge(near, kept)
            self.kept = {} if near is None else {"": near}
            for pool in self.pools:
                self._try(pool, pool.beyond, "")
        return self._best()

    def _try(self, pool: Pool, among: Integers, group: str) -> None:
        """Search some machines of a pool, unless the search was stopped."""
        if not self.last.is_complete:
            return
        kept, chunks = self.kept.get(group), self.chunks(pool, among)
        self.last = search(chunks, self.reducer, kept, self.end, self._report)
        self.outcomes.update(self.last.outcomes)
        if self.last.kept is not None and len(self.last.kept.rows):
            self.kept[group] = self.last.kept

    def chunks(self, pool: Pool, among: Integers) -> Iterator[Candidates]:
        """Some machines of a pool, in chunks."""
        return pool.deployments.candidates(self.question.goal, among, pool.first)

    def pool_of(self, row: int) -> Pool:
        """The pool of a machine, by its number in the whole search."""
        return [pool for pool in self.pools if pool.first <= row][-1]

    def _report(self, machines: int) -> None:
        self.done += machines
        if self.report:
            self.report(self.done, self.machines)

    def _best(self) -> Searched:
        """What was kept, the best first; of the nearest machines one."""
        nothing = Kept(np.zeros(0, np.int64), np.empty((0, 2)), ())
        every = list(self.kept.values()) or [nothing]
        rows = np.concatenate([kept.rows for kept in every])
        values = np.concatenate([kept.costs for kept in every])
        order = np.lexsort(to_digits(values).T[::-1])
        within = order[values[order, 0] == 0]
        best = within if len(within) else order[:1]
        designs = []
        for row, split in zip(rows[best].tolist(), values[best, -1].tolist(), strict=True):
            pool = self.pool_of(row)
            study, number = self.question.study, row - pool.first
            designs.append(design_of(pool.deployments, study, number, int(split)))
        return self.searched(designs, values[best])

    def searched(self, designs: Sequence[Design], values: Numbers) -> Searched:
        """The machines that were chosen, and how all ended."""
        return Searched(
            designs=designs,
            values=values,
            machines=self.machines,
            outcomes=self.outcomes,
            unpriced=unpriced_parts(self.pools) if self.outcomes[UNPRICED] else (),
            is_complete=self.last.is_complete,
            is_interrupted=self.last.is_interrupted,
        )


def unpriced_parts(pools: Sequence[Pool]) -> list[str]:
    """Parts without a price that some system of a search needs."""
    names: dict[str, None] = {}
    for pool in pools:
        for builds in pool.deployments.machines.builds:
            names |= dict.fromkeys(builds.unpriced_parts())
    return list(names)


@dataclass(frozen=True)
class Answer:
    """The best machine of each system, or the front of all systems.

    Attributes:
        question: what was asked.
        searched: what was found.
    """

    question: Question
    searched: Searched

    @property
    def designs(self) -> Sequence[Design]:
        """The machines, the best of all first."""
        return self.searched.designs

    def rows(self) -> Rows:
        """A row a machine."""
        return [design.row(self.question.goal.columns) for design in self.designs]

    def sentences(self) -> list[str]:
        """How all machines ended, what the times are of, and what would change the ranking."""
        said = [self.searched.text]
        if self.question.study.batch[0] > 1:
            said.append(OF_A_BATCH)
        if len(self.designs) > 1 and len(self.question.goal.objectives) == 1:
            said += self.flips()
        return [*said, *self.searched.left_out()]

    def flips(self) -> list[str]:
        """Who comes second, and what would make it the first."""
        first, second = self.designs[:2]
        goal = self.question.goal
        value, next_best = map(float, np.abs(self.searched.values[:2, 1]))
        name, other = goal.objectives[0], second.system
        if np.isclose(value, next_best, CLOSE, 0):
            return [f"{first.place} and {second.place} tie: {name} {cell_text(value)}."]
        said = (
            f"{first.place} is first, {second.place} next: "
            f"{name} {cell_text(next_best)} after {cell_text(value)}."
        )
        if self.question.draws:
            share = winning_share(goal, first.block, second.block)
            said += f" It wins in {share:.0%} of the draws of all uncertain numbers."
        turning = flips_of(goal, first.block, second.block)
        if not turning:
            return [said, f"No number within its range makes {other} the first."]
        return [said, f"{other} wins with {'; '.join(turning[:TURNING])}."]


def best_machines(
    question: Question, seconds: float = np.inf, report: Report | None = None
) -> Answer:
    """Search all machines that may be built for the best one of each system.

    Args:
        question: what is asked.
        seconds: after which the search stops with what it has.
        report: called after every chunk.

    Raises:
        InputError: no machine may be built.
        UnmetError: none meets every limit, or none was found in time.
        KeyboardInterrupt: Ctrl-C came before any machine was found.
    """
    found = Search(question, seconds, report).run()
    if not found.meets:
        check_complete(found)
        raise UnmetError(nearest_miss(question.goal, found))
    return Answer(question, found)


def check_complete(found: Searched) -> None:
    """Refuse a search that was stopped before it found a machine.

    Raises:
        UnmetError: its time was over.
        KeyboardInterrupt: Ctrl-C came.
    """
    if not found.is_complete:
        why = f"{found.text} None meets every limit so far; allow more time"
        raise (KeyboardInterrupt if found.is_interrupted else UnmetError)(why)


def nearest_miss(goal: Goal, found: Searched) -> str:
    """Why no machine meets every limit: the one that misses least, and by how much which limit."""
    if not found.designs:
        lacked = f"holds the model, runs it with the knobs and has a {goal.objectives[0]}"
        return f"no machine that may be built {lacked}"
    row = found.designs[0].row(goal.columns)
    missed = [sentence for limit in goal.limits if (sentence := _miss(limit, row))]
    parts = [row[f"{role}s"] for role in ("gpu", "host", "ssd", "csd")]
    fitted = ", ".join(filter(None, parts))
    return (
        f"no machine meets every limit; the nearest is {row['system']} on {row['server']} "
        f"({fitted}): {'; '.join(missed)}"
    )


def _miss(limit: Target, row: Row) -> str:
    """By how much a row misses a limit; empty where it does not."""
    asked = "asked" if limit.at_least else "allowed"
    where = f"where {cell_text(limit.value)} is {asked} ({limit.option})"
    if row[limit.quantity] is None:
        return f"it has no {limit.name}, {where}"
    value = float(row[limit.quantity])
    missed = float(limit.margin(np.array(value))) < 0
    return f"{limit.name} {cell_text(value)} {where}" if missed else ""
