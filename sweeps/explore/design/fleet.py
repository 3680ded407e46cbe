"""Machines of several kinds that share classes of requests, with a proof that none cost less."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from nearkv.hardware.errors import InputError, UnmetError
from nearkv.solvers.boxes import Boxes, Integers, Numbers
from nearkv.solvers.mix import Mix, cheapest_mix
from nearkv.sweeps.explore.design.answer import (
    Answer,
    Design,
    Report,
    design_of,
    nearest_miss,
    none_found,
    search,
)
from nearkv.sweeps.explore.design.measures import OF_PARTS, Goal, Space
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.tables.table import Rows, cell_text, counted

SERVED = "throughput_tok_s"
"""How fast a machine serves a class, in tokens that it generates."""

OF_CLASSES = (
    "A machine gives each class a share of its time, in batches that start together, with the "
    "knobs that serve this class fastest. --batch says how many sequences are a batch, of which as "
    "many run at once as fit; the proof is of that batch alone."
)
"""How machines share classes."""


@dataclass(frozen=True)
class NodeKinds(Space):
    """Machines as kinds of node: what each needs, and how fast it serves each class.

    Attributes:
        classes: the space of each class, over the same cases; its last objective is the speed.
    """

    classes: tuple[Space, ...]

    def quick(self, boxes: Boxes) -> Numbers:
        """What the parts of the cheapest corner say of each box: (boxes, objectives)."""
        return _together([space.quick(boxes) for space in self.classes])

    def bound(self, boxes: Boxes) -> Numbers:
        """What no machine of each box is better than: (boxes, objectives)."""
        return _together([space.bound(boxes) for space in self.classes])

    def value(self, case: Integers, point: Integers) -> Numbers:
        """What machines need, and minus how fast they serve each class: (points, objectives)."""
        return _together([space.value(case, point) for space in self.classes])


def _together(by_class: Sequence[Numbers]) -> Numbers:
    """Objectives over all classes; a machine that cannot serve a class serves it at a rate of 0."""
    needs = np.min([own[:, :-1] for own in by_class], axis=0)
    speeds = [np.where(own[:, -1] == np.inf, 0.0, own[:, -1]) for own in by_class]
    return np.column_stack([needs, *speeds])


@dataclass(frozen=True)
class Fleet(Answer):
    """Machines that serve all classes together; attributes as those of `Answer`, and these.

    Attributes:
        space: all kinds of machine.
        optimum: those that no other dominates, with the certificate.
        mix: how many machines of each kind are built.
    """

    space: NodeKinds
    mix: Mix

    @cached_property
    def uses(self) -> list[tuple[int, int]]:
        """Places of a class and of a kind of machine that serves some of it."""
        return [(each, kind) for each, kind in np.argwhere(self.mix.busy.T > 0).tolist()]

    @cached_property
    def designs(self) -> list[Design]:
        """The machine of each use, with the class as its workload."""
        case, point = self.optimum.case, self.optimum.point
        return [
            design_of(self.space.classes[each], int(case[kind]), point[kind])
            for each, kind in self.uses
        ]

    @property
    def value(self) -> float:
        """What all machines need of what is made least."""
        return float(self.optimum.value[:, 0] @ self.mix.count)

    def rows(self) -> Rows:
        """A row for each kind of machine that serves a class, with the columns of `estimate`."""
        rows = []
        for (each, kind), design in zip(self.uses, self.designs, strict=True):
            requests, busy = self.question.classes[each], self.mix.busy[kind, each]
            row = {"class": requests.name, "nodes": self.mix.count[kind], "busy": busy}
            row |= design.row()
            row["req_s"] = busy * row[SERVED] / requests.output_tokens
            if not len(self.optimum.open):
                row["bound"] = min(self.mix.bound, self.value)
                row["gap"] = self.value / row["bound"] - 1
            rows.append(row)
        return rows

    def sentences(self) -> list[str]:
        """What all machines need together, and how sure it is that none need less."""
        name = self.space.goal.objectives[0]
        machines = counted(int(self.mix.count.sum()), "machine")
        need = f"{machines}, {name} {cell_text(self.value)} in all"
        known = f"none need less than {cell_text(min(self.mix.bound, self.value))}"
        if len(self.optimum.open):
            known = f"stopped with {len(self.optimum.open):,} boxes open, so fewer may do"
        kinds = f"{len(self.optimum.case):,} kinds that no other dominates"
        proof = f"{need}; {known}, by {kinds} among {self.searched}."
        return [proof, OF_CLASSES, *self.left_out()]


def kinds_of(question: Question) -> tuple[NodeKinds, list[str]]:
    """All kinds of machine that may serve some class, and the parts that have no price.

    Args:
        question: whose classes stand in place of its lengths, and whose budget all machines share.

    Raises:
        InputError: none can be built, or what is asked does not add up over machines.
    """
    goal = question.goal
    columns = list(dict.fromkeys([*goal.objectives, *budget(goal)]))
    adds_up = {*columns} <= OF_PARTS.keys() and not any(goal.highest)
    if not adds_up or len(goal.objectives) > 1 or question.draws:
        raise InputError(
            f"--class: of machines that share requests, {', '.join(OF_PARTS)} add up; make one of "
            "them least, limit no other by --budget, and leave out --band"
        )
    spaces = []
    for each in question.classes:
        study = question.study.but(context=each.context, output_tokens=each.output_tokens)
        of_class = replace(question, goal=serving(goal, columns, 1), study=study)
        space, unpriced = of_class.space()
        spaces.append(space)
    together = serving(goal, columns, len(spaces))
    return NodeKinds(space.cases, space.study, together, tuple(spaces)), unpriced


def serving(goal: Goal, columns: Sequence[str], classes: int) -> Goal:
    """A goal whose objectives are some columns, and how fast some classes are served."""
    highest = [False] * len(columns) + [True] * classes
    return replace(goal, objectives=(*columns, *[SERVED] * classes), highest=tuple(highest))


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
        question: as in `kinds_of`.
        seconds, report: as in `best_machines`.

    Raises:
        InputError: as in `kinds_of`.
        UnmetError: a class is served by no machine, or all together by none within the limits.
        KeyboardInterrupt: Ctrl-C came before any machine was found.
    """
    end = time.monotonic() + seconds
    kinds, unpriced = kinds_of(question)
    optimum = search(kinds, seconds, report)
    needs, speed = np.split(optimum.value, [-len(kinds.classes)], axis=1)
    idle = np.flatnonzero(speed.min(axis=0, initial=0) == 0)
    if len(idle):
        name, space = question.classes[idle[0]].name, kinds.classes[idle[0]]
        is_over = not len(optimum.open)
        why = nearest_miss(question, space) if is_over else none_found(kinds, optimum)
        raise UnmetError(f"class {name}: {why}")
    rate = -speed / np.array([each.output_tokens for each in question.classes])
    demand = np.array([each.rate for each in question.classes])
    need = dict(zip(kinds.goal.objectives, needs.T, strict=False))
    limits = [(need[name], most) for name, most in budget(kinds.goal).items()]
    left = max(end - time.monotonic(), 1.0)
    mix = cheapest_mix(needs[:, 0], rate, demand, limits, left)
    if mix is None:
        least = cheapest_mix(needs[:, 0], rate, demand, (), left)
        why = "none were found in --seconds"
        if least:
            total = [f"{name} {cell_text(own @ least.count)}" for name, own in need.items()]
            why = f"the best beyond it need {', '.join(total)}"
        raise UnmetError(f"no machines within --budget serve all classes; {why}")
    return Fleet(question, kinds, optimum, unpriced, mix)
