"""The best machine of each system, ranked, with what was proven of it and what was left out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.hardware.platform import Platform
from nearkv.solvers.boxes import Optimum, Progress, minimise
from nearkv.sweeps.evaluate.columns import BOTTLENECK, columns
from nearkv.sweeps.explore.design.certificate import certificate_of
from nearkv.sweeps.explore.design.flips import flips_of, winning_share
from nearkv.sweeps.explore.design.machine_file import machine_file
from nearkv.sweeps.explore.design.measures import Space
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.design.space import Cases
from nearkv.sweeps.explore.rows import Row
from nearkv.sweeps.study.study import LENGTHS, Block, Study, blocks, name_of
from nearkv.sweeps.tables.table import records

TURNING = 3
"""Numbers that are named of those that would turn the ranking."""
AT_ONCE = 1 << 14
"""Boxes bounded together: a round asks each system once for all of its boxes."""
Report = Callable[[Progress], None]


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

    @property
    def order(self) -> list[int]:
        """Places of the best machines, the best of all first."""
        return [int(place) for place in np.lexsort(self.optimum.value.T[::-1])]

    def piece(self, place: int) -> tuple[Cases, int]:
        """The piece of the space that a best machine is of, and its case there."""
        case = self.optimum.case[place]
        piece = int(self.space.piece_of(np.array([case]))[0])
        return self.space.pieces[piece], int(case - self.space.starts[piece])

    def machine(self, place: int) -> Platform:
        """A best machine as a platform, under the name of its server."""
        return machine_of(*self.piece(place), self.optimum.point[place])

    def study(self, place: int) -> Study:
        """The question to `estimate` of a best machine."""
        piece, _ = self.piece(place)
        asked = self.question.study
        split = self.space.knobs(int(self.optimum.case[place]), self.optimum.point[place])
        names, machines = (piece.system.name,), (self.machine(place),)
        return asked.but(systems=names, platforms=machines, knobs={**asked.knobs, **split})

    def block(self, place: int) -> Block:
        """The workload on a best machine."""
        (block,) = blocks(self.study(place))
        return block

    def command(self, place: int) -> str:
        """The command that prints the columns of a best machine, once its file is appended."""
        study = self.study(place)
        words = ["nearkv", "estimate", *study.systems, "--model"]
        words += [name_of(model) for model in study.models]
        for name, option in LENGTHS.items():
            words += [option, *(f"{length:.0f}" for length in getattr(study, name))]
        for name, values in study.knobs.items():
            words += ["--knob", f"{name}={getattr(values[0], 'text', values[0])}"]
        for plugin in study.plugins:
            words += ["--plugin", plugin]
        return f"{shlex.join(words)} --platform"

    def rows(self) -> list[Row]:
        """A row a best machine: its parts, then the columns of `estimate`, then its bound."""
        return [self._row(place) for place in self.order]

    def machine_file(self, place: int) -> str:
        """A best machine as the TOML of a platform."""
        piece, _ = self.piece(place)
        return machine_file(self.machine(place), piece.server)

    def certificate(self) -> dict[str, Any]:
        """The best machines and the cuts that rule out all others."""
        return certificate_of(self.space, self.optimum)

    def sentences(self) -> list[str]:
        """How sure the answer is, and what was left out."""
        progress, cases = self.optimum.progress, len(self.space.boxes)
        machines = np.sum(self.space.boxes.sizes)
        asked = f"{cases:,} cases of {machines:.3g} machines, {progress.evaluations:,} evaluated"
        said = [f"Proven over {asked}."]
        if len(self.optimum.open):
            said = [f"Stopped: {len(self.optimum.open):,} boxes are open; {asked}."]
        if len(self.order) > 1 and len(self.space.goal.objectives) == 1:
            said += self.flips()
        if self.unpriced:
            said.append(f"Left out, as they have no price: {', '.join(self.unpriced)}.")
        return said

    def flips(self) -> list[str]:
        """Who comes second, and what would make it the first."""
        first, second = self.order[:2]
        (one, _), (other, _) = self.piece(first), self.piece(second)
        value, next_best = self.optimum.value[[first, second], 0]
        name = self.space.goal.objectives[0]
        said = (
            f"{one.system.name} on {one.server.part.name} is first, {other.system.name} on "
            f"{other.server.part.name} next: {name} {abs(next_best):.4g} after {abs(value):.4g}."
        )
        blocks_of = self.block(first), self.block(second)
        if self.question.draws:
            share = winning_share(self.space, *blocks_of)
            said += f" It wins in {share:.0%} of the draws of all uncertain numbers."
        turning = flips_of(self.space, *blocks_of)[:TURNING]
        if not turning:
            return [
                said,
                f"No number within its range makes {other.system.name} the first.",
            ]
        listed = "; ".join(f"{flip.number} at {flip.text}" for flip in turning)
        return [said, f"{other.system.name} wins with {listed}."]

    def _row(self, place: int) -> Row:
        piece, case = self.piece(place)
        point = self.optimum.point[place]
        block = self.block(place)
        (answered,) = records(columns(block, block.grid.whole, extra=(BOTTLENECK,)))
        progress = self.optimum.progress
        group = self.optimum.group[place]
        value = float(self.optimum.value[place, 0])
        bound = min(value, float(progress.bound[group]))
        sign = -1.0 if self.space.goal.highest[0] else 1.0
        row = {**parts_of(piece, case, point), **answered}
        if len(self.space.goal.objectives) > 1:
            return row
        return {
            **row,
            "bound": sign * bound,
            "gap": abs(value / bound - 1) if bound else 0.0,
        }


def machine_of(piece: Cases, case: int, point: Sequence[int]) -> Platform:
    """The machine at a point of a case, under the name of its server."""
    build, memory = piece.build(case, point)
    machine = piece.server.machine(build, memory)
    rented = piece.values(case, point).get("ownership", 0.0)
    return replace(
        machine.override("ownership.rented", rented), name=piece.server.part.name
    )


def parts_of(piece: Cases, case: int, point: Sequence[int]) -> Row:
    """The server of a point and what is in it, as columns."""
    build, memory = piece.build(case, point)
    row: dict[str, Any] = {"server": piece.server.part.name}
    for role in ("gpu", "host", "ssd", "csd", "raid", "dimm"):
        fitted = build.get(role)
        row[f"{role}s"] = f"{fitted.count:g} x {fitted.part.name}" if fitted else ""
    host = piece.machine.roles.get("host")
    held = memory or (host.si["memory"] if host else 0.0)
    row["dram_gib"] = held / 2**30
    if piece.values(case, point).get("ownership"):
        row["acquired"] = "rented"
    else:
        row["acquired"] = "bought"
    return row


def best_machines(
    question: Question, seconds: float = np.inf, report: Report | None = None
) -> Answer:
    """Search all machines that may be built for the best one of each system.

    Args:
        question: what is asked.
        seconds: after which the search stops with what it has.
        report: called after every round.

    Raises:
        InputError: no machine may be built, or none meets every limit.
    """
    space, unpriced = question.space()
    optimum = minimise(
        space.boxes,
        space.bound,
        space.value,
        quick=space.quick,
        group=space.groups_of_cases(),
        objectives=len(space.goal.objectives),
        at_once=AT_ONCE,
        seconds=seconds,
        report=report,
    )
    if not len(optimum.case):
        raise InputError(nearest_miss(question, space, len(optimum.open) > 0))
    return Answer(question, space, optimum, unpriced)


def nearest_miss(question: Question, space: Space, stopped: bool) -> str:
    """Why no machine meets every limit: the one that misses least, and by how much which limit."""
    if stopped:
        return "no machine was found in --seconds that meets every limit; allow more time"
    goal = replace(space.goal, is_nearest=True, objectives=space.goal.objectives[:1])
    near = Space(space.pieces, space.study, goal)
    optimum = minimise(
        near.boxes, near.bound, near.value, quick=near.quick, at_once=AT_ONCE
    )
    if not len(optimum.case):
        return "no machine that may be built fits the model in its memories"
    answer = Answer(question, near, optimum, ())
    (row,) = answer.rows()
    missed = [
        f"{limit.name} {row[limit.quantity]:.4g} where {limit.value:g} is allowed ({limit.option})"
        for limit in goal.limits
        if limit.margin(np.array(float(row[limit.quantity]))) < 0
    ]
    fitted = ", ".join(
        str(row[role]) for role in ("gpus", "hosts", "ssds", "csds") if row[role]
    )
    return (
        f"no machine meets every limit; the nearest is {row['system']} on {row['server']} "
        f"({fitted}): {'; '.join(missed)}"
    )
