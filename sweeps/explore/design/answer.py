"""The best machine of each system, ranked, with what was proven of it and what was left out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.hardware.errors import UnmetError
from nearkv.hardware.platform import Platform
from nearkv.hardware.schema import PARTLESS
from nearkv.solvers.boxes import Integers, Optimum, Progress, minimise
from nearkv.sweeps.evaluate.columns import BOTTLENECK, columns
from nearkv.sweeps.explore.design.certificate import CLOSE, certificate_of
from nearkv.sweeps.explore.design.flips import flips_of, winning_share
from nearkv.sweeps.explore.design.measures import Space
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.design.space import Case
from nearkv.sweeps.study.axes import WORKLOAD_OPTIONS
from nearkv.sweeps.study.study import Block, Study, blocks, name_of
from nearkv.sweeps.tables.table import Rows, cell_text, records

TURNING = 3
"""Numbers that are named of those that would turn the ranking."""
AT_ONCE = 1 << 14
"""Boxes bounded together: a round asks each system once for all of its boxes."""
SLOTS = ("gpu", "host", "ssd", "csd", "raid", "dimm")
"""Roles whose parts are columns of the answer."""
OF_A_BATCH = (
    "All sequences start at once: ttft_s is the mean over this batch, of which the last waits "
    "longest, and stages of a pipeline are taken as full. As many run at once as memory holds, so "
    "a machine of less memory may have a shorter tpot_ms."
)
"""What times of a batch are, for readers who know load as requests that arrive over time."""
Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Design:
    """A machine, the system on it, and its knobs.

    Attributes:
        case: what it is built of.
        machine: as a platform, under the name of its server.
        study: the question to `estimate` of it.
    """

    case: Case
    machine: Platform
    study: Study

    @property
    def place(self) -> str:
        """What runs where, in words."""
        return f"{self.case.system.name} on {self.case.server.part.name}"

    @cached_property
    def block(self) -> Block:
        """The workload on the machine."""
        (block,) = blocks(self.study)
        return block

    def row(self) -> dict[str, Any]:
        """Its parts, then the columns of `estimate`."""
        row: dict[str, Any] = {"server": self.case.server.part.name}
        for role in SLOTS:
            fitted = self.machine.roles[role] if role in self.case.parts else None
            row[f"{role}s"] = f"{fitted.si['count']:g} x {fitted.name}" if fitted else ""
        host = self.machine.roles.get("host")
        row["dram_gib"] = host.si["memory"] / 2**30 if host else 0.0
        rented = self.machine.roles["ownership"].si["rented"]
        row["acquired"] = "rented" if rented else "bought"
        own = columns(self.block, self.block.grid.whole, extra=(BOTTLENECK,))
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
        base = self.case.server.platform
        lines = [f'title = "{self.machine.name}"', f'base = "{base.name}"']
        for role, part in self.machine.roles.items():
            before = base.roles.get(role)
            if before and before.numbers == part.numbers and role != "ownership":
                continue
            lines += ["", f"[{role}]"]
            if role not in PARTLESS:
                lines.append(f'part = "{part.name}"')
            for key, number in part.numbers.items():
                lines.append(f'{key} = "{number.value!r} {number.unit}"')
        return "\n".join(lines) + "\n"


def design_of(space: Space, number: int, point: Integers) -> Design:
    """The machine at a point of a case, with the best of its splits."""
    case = space.cases[number]
    machine = case.machine(point.tolist())
    study = space.study.but(
        systems=(case.system.name,),
        platforms=(machine,),
        knobs={**space.study.knobs, **space.knobs(number, point)},
    )
    return Design(case, machine, study)


@dataclass(frozen=True)
class Answer:
    """What a search found.

    Attributes:
        question, space: what was asked, and the machines there are.
        optimum: the best machine of each system, with the certificate.
        unpriced: parts left out because they have no price.
    """

    question: Question
    space: Space
    optimum: Optimum
    unpriced: Sequence[str]

    @cached_property
    def order(self) -> list[int]:
        """Places of the best machines in the optimum, the best of all first."""
        return [int(place) for place in np.lexsort(self.optimum.value.T[::-1])]

    @cached_property
    def designs(self) -> list[Design]:
        """The best machines, the best of all first."""
        case, point = self.optimum.case, self.optimum.point
        return [design_of(self.space, int(case[row]), point[row]) for row in self.order]

    def rows(self) -> Rows:
        """A row a best machine, with its bound where one column is made best."""
        rows = [design.row() for design in self.designs]
        if len(self.space.goal.objectives) > 1:
            return rows
        sign = -1.0 if self.space.goal.highest[0] else 1.0
        for place, row in zip(self.order, rows, strict=True):
            value = float(self.optimum.value[place, 0])
            group = self.optimum.group[place]
            bound = float(self.optimum.progress.bound[group])
            row["bound"] = sign * bound
            row["gap"] = abs(value / bound - 1) if bound else 0.0
        return rows

    def certificate(self) -> dict[str, Any]:
        """The best machines and the cuts that rule out all others."""
        return certificate_of(self.space, self.optimum)

    def sentences(self) -> list[str]:
        """How sure the answer is, and what was left out."""
        said = [f"Proven over {self.searched}."]
        if open_boxes := len(self.optimum.open):
            known = f"{self.searched}{sentence_of_bound(self.space, self.optimum)}"
            said = [f"Stopped: {open_boxes:,} boxes are open; {known}."]
        if self.question.study.batch[0] > 1:
            said.append(OF_A_BATCH)
        if len(self.order) > 1 and len(self.space.goal.objectives) == 1:
            said += self.flips()
        return [*said, *self.left_out()]

    @property
    def searched(self) -> str:
        """How many machines there are, and how many were looked at."""
        machines = np.sum(self.space.boxes.sizes)
        evaluated = f"{self.optimum.progress.evaluations:,} evaluated"
        return f"{len(self.space.cases):,} cases of {machines:,.0f} machines, {evaluated}"

    def left_out(self) -> list[str]:
        """The parts that were no candidates, in words."""
        if not self.unpriced:
            return []
        return [f"Left out, as they have no price: {', '.join(self.unpriced)}."]

    def flips(self) -> list[str]:
        """Who comes second, and what would make it the first."""
        first, second = self.designs[:2]
        value, next_best = map(float, np.abs(self.optimum.value[self.order[:2], 0]))
        name, other = self.space.goal.objectives[0], second.case.system.name
        if np.isclose(value, next_best, CLOSE, 0):
            return [f"{first.place} and {second.place} tie: {name} {cell_text(value)}."]
        said = (
            f"{first.place} is first, {second.place} next: "
            f"{name} {cell_text(next_best)} after {cell_text(value)}."
        )
        if self.question.draws:
            share = winning_share(self.space, first.block, second.block)
            said += f" It wins in {share:.0%} of the draws of all uncertain numbers."
        turning = flips_of(self.space, first.block, second.block)
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
        report: called after every round.

    Raises:
        InputError: no machine may be built.
        UnmetError: none meets every limit, or none was found in time.
        KeyboardInterrupt: Ctrl-C came before any machine was found.
    """
    space, unpriced = question.space()
    optimum = search(space, seconds, report)
    if not len(optimum.case):
        raise UnmetError(nearest_miss(question, space))
    return Answer(question, space, optimum, unpriced)


def search(space: Space, seconds: float, report: Report | None) -> Optimum:
    """The best machines of a space, with arguments as those of `best_machines`.

    Raises:
        UnmetError: none was found in time.
        KeyboardInterrupt: Ctrl-C came before any machine was found.
    """
    optimum = minimise(space, at_once=AT_ONCE, seconds=seconds, report=report)
    if len(optimum.open) and not len(optimum.case):
        stopped = KeyboardInterrupt if optimum.is_interrupted else UnmetError
        raise stopped(none_found(space, optimum))
    return optimum


def none_found(space: Space, optimum: Optimum) -> str:
    """That a search was stopped before it found a machine, and what is known by then."""
    known = f"{len(optimum.open):,} boxes are open{sentence_of_bound(space, optimum)}"
    return f"stopped before a machine was found that meets every limit; {known}; allow more time"


def sentence_of_bound(space: Space, optimum: Optimum) -> str:
    """What no machine is better than in the first objective, and the gap of the best so far."""
    bound, best = np.min(optimum.progress.bound), np.min(optimum.progress.value)
    if not np.isfinite(bound):
        return ""
    least = cell_text(float(abs(bound)))
    said = f"; none is better than {space.goal.objectives[0]} {least}"
    gap = abs(best / bound - 1) if bound < best < np.inf else 0.0
    return f"{said}, a gap of {gap:.1%}" if best < np.inf else said


def nearest_miss(question: Question, space: Space) -> str:
    """Why no machine meets every limit: the one that misses least, and by how much which limit."""
    goal = replace(space.goal, is_nearest=True, objectives=space.goal.objectives[:1])
    near = replace(space, goal=goal)
    optimum = search(near, np.inf, None)
    if not len(optimum.case):
        lacked = f"holds the model, runs it with the knobs and has a {goal.objectives[0]}"
        return f"no machine that may be built {lacked}"
    (row,) = Answer(question, near, optimum, ()).rows()
    missed = [
        f"{limit.name} {cell_text(float(row[limit.quantity]))} where {cell_text(limit.value)} is "
        f"{'asked' if limit.at_least else 'allowed'} ({limit.option})"
        for limit in goal.limits
        if limit.margin(np.array(float(row[limit.quantity]))) < 0
    ]
    parts = [row[f"{role}s"] for role in ("gpu", "host", "ssd", "csd")]
    fitted = ", ".join(filter(None, parts))
    return (
        f"no machine meets every limit; the nearest is {row['system']} on {row['server']} "
        f"({fitted}): {'; '.join(missed) or f'it has no {goal.objectives[0]}'}"
    )
