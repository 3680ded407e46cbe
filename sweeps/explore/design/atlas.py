"""Atlas of machines: the best of each technology, or system, over a grid of workloads.

A cell of the grid is one workload within one budget, answered as `best_machines` answers it alone.
Machines are laid out and priced once for all cells. A search within a larger budget begins with the
best of the smaller one, so that each machine is evaluated once a workload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.solvers.search import crossings
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.explore.design.answer import (
    UNTRIED,
    Design,
    MachineSearch,
    Report,
    designs_of,
    machines_of,
)
from nearkv.sweeps.explore.design.deployments import LACKING
from nearkv.sweeps.explore.design.flips import best_shares
from nearkv.sweeps.explore.design.goal import served_at_once
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.lines import WORKLOAD_COLUMNS
from nearkv.sweeps.study.grid import NO_NUMBERS
from nearkv.sweeps.tables.table import Columns, Row, Rows, counted

GROUPS = ("system", "technology")
"""Columns by which the machines of a cell may be grouped."""
DRAWS = 256
"""Draws of all uncertain numbers in which the best machines of a cell are evaluated again."""
ALONG = ("context", "batch")
"""Axes of a grid, in the order of a workload's numbers."""
_BORDER = "budget_usd,along,context_tok,batch,from,to,below,above,from_system,to_system"
NO_BORDERS: Columns = dict.fromkeys(_BORDER.split(","), np.empty(0))
"""The columns of borders; a grid without a budget has not the first one."""
LOOKED_AT = 17
"""Values between two cells that are looked at before their border is refined."""

Store = Callable[[str, Callable[[], Any]], Any]
"""Takes the name of an answer and what computes it; returns the answer that it keeps."""


def computed(name: str, compute: Callable[[], Any]) -> Any:
    """Compute an answer, without keeping it."""
    return compute()


@dataclass(frozen=True)
class Region:
    """The best machines of one workload within one budget.

    Attributes:
        question: that is answered.
        best_per: the column of `GROUPS` of which each value is shown with its best machine.
        machines: numbers of the best machine of each system and of its knobs, the best of all
            first.
        shares: of those shown, the share of draws in which each is the best [1]; none where not
            asked.
        outcomes: how many machines ended how, in words.
    """

    question: Question
    best_per: str
    machines: Sequence[tuple[int, int]]
    shares: Sequence[float]
    outcomes: Mapping[str, int]

    @property
    def workload(self) -> tuple[float, float]:
        """Its context and batch."""
        study = self.question.study
        return float(study.context[0]), float(study.batch[0])

    @property
    def groups(self) -> dict[str, tuple[int, int]]:
        """Each system, or technology, and its best machine, the best of all first."""
        best: dict[str, tuple[int, int]] = {}
        for row, split in self.machines:
            system = self.question.deployments_of(row).system
            group = system.technology if self.best_per == "technology" else system.name
            best.setdefault(group, (row, split))
        return best

    @property
    def winner(self) -> str:
        """The system or the technology of the best machine; empty where none serves."""
        return next(iter(self.groups), "")

    @cached_property
    def designs(self) -> list[Design]:
        """The best machine of each system, or technology."""
        return designs_of(self.question, [*self.groups.values()])

    @property
    def cell(self) -> Row:
        """Its budget and its workload."""
        goal, (context, batch) = self.question.goal, self.workload
        budget = {"budget_usd": goal.budget.value} if goal.budget else {}
        return {**budget, "context_tok": context, "batch": batch}

    def rows(self) -> Rows:
        """A row a machine, or one that says why no machine serves."""
        if not self.machines:
            return [{**self.cell, "status": "infeasible", "reason": self.reason}]
        columns = self.question.goal.columns
        rows = [{**self.cell, **each.row(columns)} for each in self.designs]
        for row, share in zip(rows, self.shares, strict=False):
            row["best_share"] = share
        return rows

    @property
    def reason(self) -> str:
        """Why no machine serves: how most of those that were evaluated ended."""
        ends = Counter({n: c for n, c in self.outcomes.items() if n not in UNTRIED})
        if len(ends) > 1:
            del ends[LACKING]  # says nothing of this workload
        if not ends:
            return "no machine is within the budget"
        ((name, count),) = ends.most_common(1)
        why = (
            ", as memory or the engine (--knob sequences) ends it"
            if "batch_run" in name
            else ""
        )
        return f"{count:,} of {counted(ends.total(), 'machine')} {name}{why}"


@dataclass(frozen=True)
class Atlas:
    """A question that is asked over a grid of workloads, and within several budgets.

    Attributes:
        question: with all contexts and batches, and the limits that all cells share.
        budgets: limits of the price, rising; none where it is not limited.
        best_per: the column of `GROUPS` that groups machines.
        at_once: whether all sequences of a batch must run at once.
        draws: whether the share of draws is asked in which each machine is the best.
        store: keeps the answers of workloads.
    """

    question: Question
    budgets: Sequence[Target]
    best_per: str
    at_once: bool
    draws: bool
    store: Store = computed

    @property
    def depends_on(self) -> list[object]:
        """All that its answers depend on."""
        question = self.question
        parts = [server.parts(role) for server in question.built for role in server.slots]
        machines = [question.built, parts, question.prices, question.terms, question.rents]
        return [
            question.study,
            question.goal,
            self.budgets,
            self.best_per,
            self.at_once,
            self.draws,
            machines,
        ]

    def regions(self, report: Report | None = None) -> list[list[Region]]:
        """The regions of each workload, one a budget, context by context of each batch.

        Args:
            report: called after each workload, as `Report` says.

        Raises:
            KeyboardInterrupt: Ctrl-C came.
        """
        study, regions = self.question.study, list[list[Region]]()
        workloads = list(product(study.batch, study.context))
        for batch, context in workloads:
            regions.append(self.regions_of((float(context), float(batch))))
            if report:
                report(len(regions), len(workloads))
        return regions

    def regions_of(self, workload: tuple[float, float]) -> list[Region]:
        """The regions of a workload, one a budget, from where they are kept or searched."""
        questions = self._questions(workload)
        context, batch = workload
        name = f"{context:.0f}-{batch:.0f}"
        answers = self.store(name, lambda: self._answers(questions))
        pairs = zip(questions, answers, strict=True)
        return [Region(question, self.best_per, **answer) for question, answer in pairs]

    def _at_border(self, workload: tuple[float, float], place: int) -> Region:
        """The region of a workload within one of the budgets, without draws."""
        budgets = self.budgets[place : place + 1]
        budget = f"-within-{budgets[0].value:.0f}" if budgets else ""
        alone = replace(
            self,
            budgets=budgets,
            draws=False,
            store=lambda name, compute: self.store(f"{name}{budget}-border", compute),
        )
        (region,) = alone.regions_of(workload)
        return region

    def _questions(self, workload: tuple[float, float]) -> list[Question]:
        """The question of one workload, within each budget."""
        context, batch = workload
        study = self.question.study.but(context=context, batch=batch)
        goal = self.question.goal
        limits = goal.limits
        if self.at_once:
            limits = (*limits, served_at_once(batch))
        goals = [replace(goal, limits=(each, *limits)) for each in self.budgets]
        goals = goals or [replace(goal, limits=limits)]
        return [self.question.asking(study, each) for each in goals]

    def _answers(self, questions: Sequence[Question]) -> list[dict[str, Any]]:
        """Fields of the regions of one workload, searched within each budget."""
        answers: list[dict[str, Any]] = []
        smaller: MachineSearch | None = None
        for question in questions:
            search = MachineSearch(question, question.goal.best, np.inf, None)
            search.over_within(smaller)
            if search.is_interrupted:
                raise KeyboardInterrupt
            # ranking drops what tells the systems apart, from which the next search goes on
            smaller = copy(search)
            search.rank()
            answers.append(self._answer(search))
        return answers

    def _answer(self, search: MachineSearch) -> dict[str, Any]:
        """Fields of a region that a search found."""
        machines = machines_of(search.kept) if search.meets else []
        outcomes = dict(search.outcomes)
        region = Region(search.question, self.best_per, machines, (), outcomes)
        shares = list[float]()
        if self.draws and machines:
            rivals = [design.block for design in region.designs]
            shares = best_shares(search.question.goal, rivals, DRAWS).tolist()
        return {"machines": machines, "shares": shares, "outcomes": outcomes}

    def sentences(self, regions: Sequence[Sequence[Region]]) -> list[str]:
        """Say in how many cells each group wins, a sentence a budget."""
        sentences = []
        for cells in zip(*regions, strict=True):
            budget = cells[0].question.goal.budget
            where = f"Within {budget.value:,.0f} USD: " if budget else ""
            wins = Counter(cell.winner or "no machine" for cell in cells)
            counts = ", ".join(f"{name} {count}" for name, count in wins.most_common())
            sentences.append(f"{where}of {counted(len(cells), 'cell')} {counts}.")
        return sentences

    def borders(self, regions: Sequence[Sequence[Region]]) -> Rows:
        """Find where exactly the best technology changes between workloads beside each other.

        Args:
            regions: those of `regions`.

        Returns:
            A row a change: `from` is the best up to `below`, `to` from `above` on, the next whole
            number, and what each reaches there.

        Raises:
            KeyboardInterrupt: Ctrl-C came.
        """
        study = self.question.study
        by_workload = {each[0].workload: each for each in regions}
        rows: Rows = []
        for place in range(len(regions[0])):
            for batch, ends in product(study.batch, pairwise(study.context)):
                low, high = (by_workload[float(end), float(batch)][place] for end in ends)
                rows += self._between(place, "context", low, high)
            # where all must run at once, the limit itself changes with the batch
            steps = () if self.at_once else pairwise(study.batch)
            for context, ends in product(study.context, steps):
                low, high = (by_workload[float(context), float(end)][place] for end in ends)
                rows += self._between(place, "batch", low, high)
        return rows

    def _between(self, place: int, along: str, low: Region, high: Region) -> Rows:
        """Borders between two regions; machines are searched again at each.

        Args:
            place: of the budget.
            along: the axis on which they differ.
            low, high: the regions, at the lower and the higher value.
        """
        if not low.machines or not high.machines:
            return []
        first, second = low.winner, high.winner
        if first == second:
            return []
        below, above = border(along, low, high)
        context, batch = high.workload
        there = (above, batch) if along == "context" else (context, above)
        middle = high if there == high.workload else self._at_border(there, place)
        if middle.machines[:1] != high.machines[:1]:
            before = self._between(place, along, low, middle)
            return before + self._between(place, along, middle, high)
        budget = high.question.goal.budget
        systems = [each.designs[0].system for each in (low, high)]
        values = [along, context, batch, first, second, below, above, *systems]
        row: Row = {"budget_usd": budget.value} if budget else {}
        row |= zip([*NO_BORDERS][1:], values, strict=True)
        row[WORKLOAD_COLUMNS[along]] = None
        return [row]


def border(along: str, low: Region, high: Region) -> tuple[float, float]:
    """Values beside each other between which the best machine of one region falls behind.

    Args:
        along: the axis on which the regions differ.
        low, high: the regions; the best machine of each is no worse there than that of the other.
    """
    goal, axis = low.question.goal, WORKLOAD_COLUMNS[along]
    first, second = low.designs[0].block, high.designs[0].block
    start, end = (each.workload[ALONG.index(along)] for each in (low, high))

    def leads(_: Indices, values: Numbers) -> Numbers:
        """1 where the first machine is no worse."""
        of_first, of_second = (
            goal.loss(block, NO_NUMBERS, len(values), {axis: values})
            for block in (first, second)
        )
        return (of_first <= of_second).astype(float)

    values: Numbers = np.unique(np.round(np.geomspace(start, end, LOOKED_AT)))
    changes = [each for each in crossings(leads, 1, values, True) if not each.rises]
    if not changes:  # they tie up to the end
        return end - 1, end
    return changes[0].below, changes[0].above
