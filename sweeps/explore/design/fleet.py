"""Machines of several kinds that share classes of requests, the cheapest of all mixes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import Integers, Numbers
from nearkv.hardware.errors import InputError, UnmetError
from nearkv.solvers.mix import Mix, cheapest_mix
from nearkv.sweeps.evaluate.columns import Cell
from nearkv.sweeps.explore.design.answer import (
    Answer,
    Design,
    MachineSearch,
    Report,
    best_machines,
    design_of,
)
from nearkv.sweeps.explore.design.deployments import Deployments
from nearkv.sweeps.explore.design.goal import Goal
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.design.space import PART_COLUMNS
from nearkv.sweeps.jobs.search import Best, Candidates, Kept
from nearkv.sweeps.tables.table import Categories, Rows, cell_text, counted

SERVED = "throughput_tok_s"
"""Column of the rate at which a machine serves a class, in tokens that it generates."""
IDLE = "serve no class within the limits"
"""End of a machine that is no kind of node."""

CLASSES_SENTENCE = (
    "A machine gives each class a share of its time, in batches that start together, with the "
    "knobs and rounds that serve this class fastest. --batch says how many sequences are a batch; "
    "all mixes are of that batch alone."
)
"""Shares of machines in classes."""


class NodeKinds(MachineSearch):
    """A search of all kinds of node: machines that no other dominates.

    They are compared in what each needs, and in how fast it serves each class.
    """

    def __init__(self, question: Question, seconds: float, report: Report | None) -> None:
        self.needs = needs_of(question)
        self.speeds = [f"tokens per second of {each.name}" for each in question.classes]
        highest = (False,) * len(self.needs) + (True,) * len(self.speeds)
        best = Best((*self.needs, *self.speeds), highest, ties=("parts", "row"))
        super().__init__(question, best, seconds, report)

    def kinds(self) -> Kept:
        """All kinds, of machines within the budget alone."""
        for each in self.question.deployments:
            self.over(map(partial(self._nodes, each), each.candidates(each.within)))
        self.leave_beyond()
        return self.kept

    def _nodes(self, deployments: Deployments, candidates: Candidates) -> Candidates:
        """Machines as nodes: what each needs, and how fast it serves each class."""
        machines = candidates.rows - deployments.first
        known = deployments.machines.of_parts

        def served(_: Sequence[str]) -> Mapping[str, Cell]:
            speeds = np.max(self._speeds(deployments, machines), axis=1)
            serves = np.any(speeds > 0, axis=0)
            cells: dict[str, Cell] = {name: known[name][machines] for name in PART_COLUMNS}
            for name, speed in zip(self.speeds, speeds, strict=True):
                cells[name] = np.where(serves, speed, np.nan)
            cells["row"] = candidates.rows.astype(float)
            return {**cells, "status": Categories((~serves).astype(int), ("ok", IDLE))}

        return Candidates(candidates.rows, candidates.rows.shape, served)

    def _speeds(self, deployments: Deployments, machines: Integers) -> Numbers:
        """Rates of machines at each class, 0 beyond a limit: (classes, splits, machines)."""
        limits = self.question.goal.limits
        wanted = [SERVED, *(limit.quantity for limit in limits), "status"]
        cells = deployments.evaluate(machines, wanted)
        speed = np.nan_to_num(np.asarray(cells[SERVED], np.float64))
        for limit in limits:
            values = np.asarray(cells[limit.quantity], np.float64)
            speed = np.where(limit.margin(values) < 0, 0.0, speed)
        return speed

    def design(self, row: int, place: int) -> Design:
        """A machine with the knobs that serve a class fastest.

        Args:
            row: number of the machine in the whole search.
            place: of the class.
        """
        deployments = self.question.deployments_of(row)
        each = self.question.classes[place]
        study = self.question.study.but(
            context=each.context, output_tokens=each.output_tokens
        )
        machines = np.array([row - deployments.first])
        split = int(np.argmax(self._speeds(deployments, machines)[place, :, 0]))
        return design_of(deployments, study, row, split)


@dataclass(frozen=True)
class Fleet(Answer):
    """Machines that serve all classes together; attributes as those of `Answer`, and these.

    Attributes:
        uses: places of a class and of a kind of machine that serves some of it, one a design.
        mix: how many machines of each kind are built.
        value: what all machines need of what is made least.
    """

    uses: Sequence[tuple[int, int]]
    mix: Mix
    value: float

    def rows(self) -> Rows:
        """A row for each kind of machine that serves a class, with the columns of `estimate`."""
        rows = []
        for (each, kind), design in zip(self.uses, self.designs, strict=True):
            requests, busy = self.question.classes[each], self.mix.busy[kind, each]
            row = {"class": requests.name, "nodes": self.mix.count[kind], "busy": busy}
            row |= design.row(self.question.goal.columns)
            row["req_s"] = busy * row[SERVED] / requests.output_tokens
            rows.append(row)
        return rows

    def sentences(self) -> list[str]:
        """Sentences on what all machines need together, and whether any need less."""
        name = self.question.goal.objectives[0]
        machines = counted(int(self.mix.count.sum()), "machine")
        kinds = len(self.search.kept.rows)
        known = f"no mix of the {kinds:,} kinds that no other dominates needs less"
        need = f"{machines}, {name} {cell_text(self.value)} in all; {known}."
        return [need, self.search.text, CLASSES_SENTENCE, *self.search.left_out()]


def needs_of(question: Question) -> list[str]:
    """Columns that are made least, or of which all machines share a budget.

    Raises:
        InputError: what is asked does not add up over machines.
    """
    goal = question.goal
    columns = list(dict.fromkeys([*goal.objectives, *budget(goal)]))
    adds_up = {*columns} <= {*PART_COLUMNS} and not any(goal.highest)
    if not adds_up or len(goal.objectives) > 1 or question.draws:
        raise InputError(
            f"--class: {', '.join(PART_COLUMNS)} add up over machines that share requests; make "
            "one of them least, limit no other by --budget, and leave out --band"
        )
    return columns


def budget(goal: Goal) -> dict[str, float]:
    """Column -> the most that all machines together may need of it."""
    limits = [limit for limit in goal.limits if limit.option == "--budget"]
    return {limit.quantity: limit.value for limit in limits}


def serve(
    question: Question, seconds: float = np.inf, report: Report | None = None
) -> Fleet:
    """Search the cheapest machines, of several kinds, that share several classes of requests.

    Source: Mélange (Griggs et al. 2024): an integer program over kinds of node. Here these are all
    machines that none dominates in what they need and in how fast they serve each class.

    Args:
        question: whose classes stand in place of its lengths, and whose budget all machines share.
        seconds, report: as in `best_machines`.

    Raises:
        InputError: none can be built, or what is asked does not add up over machines.
        UnmetError: a class is served by no machine, or all together by none within the limits.
        KeyboardInterrupt: Ctrl-C came before any machine was found.
    """
    end = time.monotonic() + seconds
    needs_of(question)
    every = NodeKinds(question, seconds, report)
    kept = every.kinds()
    width = len(every.needs)
    needs = kept.costs[:, 1 : 1 + width]
    speed = -kept.costs[:, 1 + width : 1 + len(every.best.by)]
    idle = np.flatnonzero(speed.max(axis=0, initial=0) == 0)
    if len(idle):
        every.check_complete()
        _refuse(question, int(idle[0]))
    rate = speed / np.array([each.output_tokens for each in question.classes])
    demand = np.array([each.rate for each in question.classes])
    limits = budget(question.goal)
    taken = [(needs[:, every.needs.index(name)], most) for name, most in limits.items()]
    left = max(end - time.monotonic(), 1.0)
    mix = cheapest_mix(needs[:, 0], rate, demand, taken, left)
    if mix is None:
        least = cheapest_mix(needs[:, 0], rate, demand, (), left)
        why = "no mix was found; allow more time, or ask for fewer requests per second"
        if least:
            totals = zip(every.needs, least.count @ needs, strict=True)
            total = [f"{name} {cell_text(float(own))}" for name, own in totals]
            why = f"the best beyond it need {', '.join(total)}"
        raise UnmetError(f"no machines within the limits serve all classes; {why}")
    uses = [(each, kind) for each, kind in np.argwhere(mix.busy.T > 0).tolist()]
    designs = [every.design(int(kept.rows[kind]), each) for each, kind in uses]
    return Fleet(
        search=every,
        designs=designs,
        uses=uses,
        mix=mix,
        value=float(needs[:, 0] @ mix.count),
    )


def _refuse(question: Question, place: int) -> None:
    """Say why no machine serves a class.

    Raises:
        UnmetError: always.
    """
    each = question.classes[place]
    study = question.study.but(context=each.context, output_tokens=each.output_tokens)
    try:
        best_machines(replace(question, study=study, classes=()))
    except UnmetError as problem:
        raise UnmetError(f"class {each.name}: {problem}") from None
