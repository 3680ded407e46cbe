"""The best machine of each system, ranked, how all machines ended, and what would change it."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from nearkv.costmodel.model.estimate import AT_LIMIT
from nearkv.costmodel.model.metrics import SERVER
from nearkv.hardware.catalog import load_part
from nearkv.hardware.errors import UnmetError
from nearkv.hardware.own import without_source
from nearkv.hardware.platform import Platform
from nearkv.hardware.schema import PARTLESS, Quantity
from nearkv.solvers.knob_values import tried_together
from nearkv.sweeps.evaluate.columns import BOTTLENECK, columns, on_request
from nearkv.sweeps.evaluate.ground import BITS, ORIGIN
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.explore.design.deployments import PER_ROUND, Deployments
from nearkv.sweeps.explore.design.flips import FLIP_SAMPLES, band_of, best_shares, flips_of
from nearkv.sweeps.explore.design.goal import Goal, served_at_once
from nearkv.sweeps.explore.design.question import Question
from nearkv.sweeps.explore.design.space import Builds
from nearkv.sweeps.jobs.search import (
    BEST,
    NO_BETTER,
    Best,
    Kept,
    Search,
)
from nearkv.sweeps.study.axes import WORKLOAD_OPTIONS
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks, name_of
from nearkv.sweeps.tables.table import Row, Rows, cell_text, counted, records
from nearkv.sweeps.uncertainty.sampled import drawn_numbers

MOST_NAMED = 6
"""Systems without a row whose nearest machine is told."""
TURNING = 3
"""Numbers that are named of those that would turn the ranking."""
CLOSE = 1e-7
"""Relative distance of values that tie [1]."""
SLOTS = ("gpu", "hbm", "lpddr", "host", "ssd", "csd", "raid", "dimm")
"""Roles whose parts are columns of the answer."""
OVER, UNPRICED = "over the budget", "without a price"
"""Ends of machines that are not evaluated, beside those that cannot be better."""
UNTRIED = (OVER, UNPRICED, NO_BETTER)
"""All ends of machines that are not evaluated."""
BATCH_SENTENCE = (
    "All sequences start at once, a static batch, not load: ttft_s is the mean over this batch, "
    "of which the last waits longest, and stages of a pipeline are taken as full. Users who come "
    "one by one may wait longer: ask with --users in place of --batch in the command below, and "
    "without the knobs of its split (tp, pp, ...), as no pipeline is modelled under load."
)
"""Meaning of the times of a batch, for readers who know load as requests that arrive."""
ROUNDS_SENTENCE = (
    "Sequences run in rounds of batch_run where memory holds fewer or that is better, so tpot_ms "
    "may be shorter with less memory."
)
"""Meaning of the times of a batch that need not be held at once."""
Report = Callable[[int, int], None]
"""Takes the number of machines, or of workloads of a grid, that are done, and of all."""


@dataclass(frozen=True)
class Design:
    """A machine, the system on it, and its knobs.

    Attributes:
        system: its name.
        builds: those of its server.
        machine: as a platform, under the name of its server.
        study: the question to `estimate` of it.
    """

    system: str
    builds: Builds
    machine: Platform
    study: Study

    @property
    def server(self) -> str:
        """The name of its server."""
        return self.builds.server.part.name

    @property
    def technology(self) -> str:
        """The technology of its system."""
        return self.block.system.technology

    @property
    def where(self) -> str:
        """The system and its server, in words."""
        return f"{self.system} on {self.server}"

    @cached_property
    def block(self) -> Block:
        """The workload on the machine."""
        (block,) = blocks(self.study)
        return block

    def row(self, names: Collection[str]) -> dict[str, Any]:
        """Its parts, then the columns of `estimate`, and those that are named."""
        row: dict[str, Any] = {"server": self.server, "technology": self.technology}
        for role in SLOTS:
            fitted = self.machine.roles[role] if role in self.builds.options else None
            row[f"{role}s"] = f"{fitted.si['count']:g} x {fitted.name}" if fitted else ""
        host = self.machine.roles.get("host")
        row["dram_gib"] = host.si["memory"] / 2**30 if host else 0.0
        rented = self.machine.roles["ownership"].si["rented"]
        row["acquired"] = "rented" if rented else "bought"
        own = columns(
            self.block,
            self.block.grid.whole,
            extra=(ORIGIN, BITS, BOTTLENECK, *on_request(names)),
        )
        (answered,) = records(own)
        return {**row, **answered}

    def command(self) -> str:
        """The command that prints its columns, once the file of the machine is appended."""
        study = self.study
        words = ["nearkv", "estimate", *study.systems, "--model"]
        words += [name_of(model) for model in study.models]
        for name, option in WORKLOAD_OPTIONS.items():
            for length in getattr(study, name):
                words += [option, f"{length:.0f}"]
        for option, chosen in (("--knob", study.knobs), ("--set", study.sets)):
            for name, values in chosen.items():
                words += [option, f"{name}={getattr(values[0], 'text', values[0])}"]
        for plugin in study.plugins:
            words += ["--plugin", plugin]
        return f"{shlex.join(words)} --platform"

    def machine_file(self) -> str:
        """The machine as the TOML of a platform: what differs from that of its server."""
        base, files = self.builds.server.platform, self.builds.server.files
        lines = [f'title = "{self.machine.name}"', f'base = "{base.name}"']
        for role, part in self.machine.roles.items():
            before = base.roles.get(role)
            if before and before.numbers == part.numbers and role != "ownership":
                continue
            lines += ["", f"[{role}]"]
            own: Mapping[str, Quantity] = {}
            if role not in PARTLESS:
                name = files.get(part.name, part.name)
                lines.append(f'part = "{name}"')
                own = load_part(name).numbers
            for key, number in part.numbers.items():
                if number != own.get(key):
                    lines.append(f"{key} = {without_source(number)}")
        return "\n".join(lines) + "\n"


def design_of(deployments: Deployments, study: Study, row: int, split: int) -> Design:
    """One machine, with one combination of the knobs that its system tries together, and rounds."""
    builds, own = deployments.machines.build(row - deployments.first)
    machine = builds.machine(own)
    names = (deployments.system.name,)
    study = study.but(systems=names, platforms=(machine,), per_round=())
    design = Design(deployments.system.name, builds, machine, study)
    hw, llm, _, settings = design.block.inputs(design.block.grid.whole)
    system = design.block.system
    chosen = {name: values[split] for name, values in deployments.splits.items()}
    if np.isfinite(per_round := chosen.pop(PER_ROUND, np.inf)):
        design = replace(design, study=study.but(per_round=per_round))
    if len(next(iter(tried_together(system, hw, llm, settings).values()), [])) < 2:
        return design  # nothing to choose, as on one GPU
    knobs: dict[str, Any] = {**study.knobs}
    for name, value in chosen.items():
        choices = system.knobs[name].choices
        knobs[name] = choices[int(value)] if choices else f"{value:g}"
    return replace(design, study=design.study.but(knobs=knobs))


def machines_of(kept: Kept) -> list[tuple[int, int]]:
    """Number of each machine that is kept, and of its combination of knobs."""
    splits = kept.costs[:, -1].astype(int).tolist()
    return list(zip(kept.rows.tolist(), splits, strict=True))


def designs_of(question: Question, machines: Sequence[Sequence[int]]) -> list[Design]:
    """Machines by number, each with one of the combinations of knobs that are tried together."""
    study = question.study
    return [
        design_of(question.deployments_of(row), study, row, split)
        for row, split in machines
    ]


class MachineSearch(Search):
    """A search of all machines of a question.

    Args:
        question: what is asked.
        best: what is kept.
        seconds: after which it stops with what it has.
        report: called after every chunk.

    Attributes:
        ended: system -> how many of its machines within the budget ended how, in words.
    """

    def __init__(
        self, question: Question, best: Best, seconds: float, report: Report | None
    ) -> None:
        super().__init__(best, time.monotonic() + seconds)
        self.question, self.told = question, report
        self.nearest = best.nothing
        self.ended: dict[str, Counter[str]] = {}
        self.machines = sum(len(each.machines) for each in question.deployments)
        unpriced = sum(len(each.unpriced) for each in question.deployments)
        self.outcomes[UNPRICED] += unpriced

    def report(self) -> None:
        """Tell how many machines are done."""
        if self.told:
            self.told(sum(self.outcomes.values()), self.machines)

    def over_within(self, smaller: MachineSearch | None = None) -> None:
        """Search the machines of every system within the limits of what parts alone say.

        Args:
            smaller: a search of these machines within a smaller budget, to go on from.
        """
        if smaller:
            self.kept, self.outcomes = smaller.kept, Counter(smaller.outcomes)
        for place, each in enumerate(self.question.deployments):
            tried = smaller.question.deployments[place].within if smaller else ()
            before = Counter(self.outcomes)
            self.over(each.candidates(np.setdiff1d(each.within, tried)))
            self.ended[each.system.name] = self.outcomes - before

    def leave_beyond(self) -> None:
        """Count the machines beyond the budget, which are not tried."""
        self.outcomes[OVER] += sum(len(each.beyond) for each in self.question.deployments)

    def designs_of(self, kept: Kept) -> list[Design]:
        """Machines of what a search keeps, with their knobs."""
        return designs_of(self.question, machines_of(kept))

    @property
    def meets(self) -> bool:
        """True if a machine meets every limit."""
        return bool(np.any(self.kept.costs[:, 0] == 0))

    def rank(self) -> None:
        """Put the best of all systems first; where none meets every limit, keep the nearest.

        Those of systems that meet the limits nowhere stand aside, the nearest first.
        """
        misses = np.flatnonzero(self.kept.costs[:, 0] > 0)
        nearest_first = misses[np.argsort(self.kept.costs[misses, 0], kind="stable")]
        self.nearest = self.kept.take(nearest_first)
        many = len(self.kept.rows) if self.meets else 1
        best = replace(self.best, per=(), most=max(many, 1))
        order = best.choose(self.kept.costs.T, np.zeros(len(self.kept.rows), int))
        self.kept = replace(self.kept.take(order), groups=())

    @property
    def evaluated(self) -> int:
        """Number of machines that were evaluated."""
        return sum(count for name, count in self.outcomes.items() if name not in UNTRIED)

    @property
    def text(self) -> str:
        """The number of machines, and of those that ended in each way."""
        untried = counts_text((name, self.outcomes[name]) for name in UNTRIED)
        ends = sorted(self.outcomes.items(), key=lambda end: (end[0] == BEST, -end[1]))
        tried = counts_text(end for end in ends if end[0] not in UNTRIED)
        before = f"{untried}, not evaluated; " if untried else ""
        after = f": {tried}" if tried else ""
        machines = counted(self.machines, "machine")
        said = f"{machines}: {before}{self.evaluated:,} evaluated{after}."
        left = self.machines - sum(self.outcomes.values())
        return said if self.is_complete else f"Stopped with {left:,} left of {said}"

    def left_out(self) -> list[str]:
        """The parts that were no candidates, in words."""
        if not self.outcomes[UNPRICED]:
            return []
        parts: dict[str, None] = {}
        for machines in (each.machines for each in self.question.deployments):
            for builds, role in product(machines.builds, (*machines.owns, SERVER)):
                parts |= dict.fromkeys(builds.unpriced(role))
        return [f"Left out, as they have no price: {', '.join(parts)}."]

    def check_complete(self) -> None:
        """Refuse a search that was stopped before it found a machine.

        Raises:
            UnmetError: its time was over.
            KeyboardInterrupt: Ctrl-C came.
        """
        if not self.is_complete:
            why = f"{self.text} None meets every limit so far; allow more time"
            raise (KeyboardInterrupt if self.is_interrupted else UnmetError)(why)


def counts_text(counts: Iterable[tuple[str, int]]) -> str:
    """Numbers of machines that ended in each way, without those of which there are none."""
    return ", ".join(f"{count:,} {end}" for end, count in counts if count)


@dataclass(frozen=True)
class Answer:
    """The best machine of each system, or the front of all systems.

    Attributes:
        search: how it was found.
        designs: the machines of the answer, the best of all first.
    """

    search: MachineSearch
    designs: Sequence[Design]

    @property
    def question(self) -> Question:
        """The question that was answered."""
        return self.search.question

    def rows(self) -> Rows:
        """A row a machine."""
        return [design.row(self.question.goal.columns) for design in self.designs]

    def sentences(self) -> list[str]:
        """Sentences on the search, on the meaning of its times, and on what turns the ranking."""
        said = [self.search.text]
        batch = self.question.study.batch[0]
        if batch > 1:
            said.append(BATCH_SENTENCE)
        if batch > 1 and served_at_once(batch) not in self.question.goal.limits:
            said.append(ROUNDS_SENTENCE)
        if len(self.question.goal.objectives) == 1:
            said += self.flips() if len(self.designs) > 1 else self.margins()
        return [*said, *self.without_a_row(), *self.search.left_out()]

    def without_a_row(self) -> list[str]:
        """Systems of the question that are not in the answer, and why."""
        goal = self.question.goal
        if len(goal.objectives) > 1:
            return []
        misses = self.search.designs_of(self.search.nearest)
        told = [f"{near.where}: {missed(goal, near)}" for near in misses[:MOST_NAMED]]
        if more := misses[MOST_NAMED:]:
            told.append(f"and further off {', '.join(near.system for near in more)}")
        said = [f"No machine meets every limit with {'; '.join(told)}."] if told else []
        answered = {design.system for design in (*self.designs, *misses)}
        others = sorted({*self.question.study.systems} - answered)
        ended = {name: self.search.ended.get(name, Counter()) for name in others}
        if untried := [name for name in others if not ended[name]]:
            said.append(f"No machine within the budget runs {', '.join(untried)}.")
        for name, ends in ended.items():
            if ends:
                said.append(
                    f"{name} has no row: of its machines {counts_text(ends.items())}."
                )
        return said

    def margins(self) -> list[str]:
        """Sentences on the only machine: its nearest limit, and numbers that would exceed one."""
        goal, only = self.question.goal, self.designs[0]
        row = only.row(goal.columns)
        at_once = served_at_once(self.question.study.batch[0])
        kept = {
            limit: float(limit.margin(np.array(float(row[limit.quantity]))))
            for limit in goal.limits
            if limit != at_once
        }
        if not kept:
            idle = "--band compares two systems or asks of limits; there is one, without a limit."
            return [idle] if self.question.draws else []
        near = min(kept, key=lambda limit: kept[limit])
        value, spare = cell_text(row[near.quantity]), abs(np.expm1(-kept[near]))
        said = f"{only.where} is nearest to the limit {near.text}: {value}, {spare:.1%} within."
        if self.question.draws:
            band = band_of([only.block], FLIP_SAMPLES)
            drawn = goal.loss(only.block, drawn_numbers(only.block, band), FLIP_SAMPLES)
            share = np.isfinite(drawn).mean()
            said += (
                f" It keeps every limit in {share:.0%} of the draws of all uncertain numbers, "
                "the models' own error aside."
            )
        turning = [text for text, _ in flips_of(goal, only.block)[:TURNING]]
        if not turning:
            return [said, "No number within its range makes it miss a limit."]
        return [said, f"It misses a limit with {'; '.join(turning)}."]

    def flips(self) -> list[str]:
        """Sentences on the second machine, and on numbers that would make it the first."""
        first, second = self.designs[:2]
        goal = self.question.goal
        value, next_best = map(float, np.abs(self.search.kept.costs[:2, 1]))
        name, other = goal.objectives[0], second.system
        if np.isclose(value, next_best, CLOSE, 0):
            return [f"{first.where} and {second.where} tie: {name} {cell_text(value)}."]
        said = (
            f"{first.where} is first, {second.where} next: "
            f"{name} {cell_text(next_best)} after {cell_text(value)}."
        )
        if self.question.draws:
            share, _ = best_shares(goal, [first.block, second.block], FLIP_SAMPLES)
            said += f" It wins in {share:.0%} of the draws of all uncertain numbers."
        turning = flips_of(goal, first.block, second.block)[:TURNING]
        if not turning:
            return [said, f"No number within its range makes {other} the first."]
        worse = "; ".join(text for text, misses in turning if not misses)
        beyond = "; ".join(text for text, misses in turning if misses)
        ends = [f"{other} wins with {worse}."] if worse else []
        if beyond:
            ends.append(f"This machine of {first.system} misses a limit with {beyond}.")
        return [said, *ends]


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
    search = MachineSearch(question, question.goal.best, seconds, report)
    search.over_within()
    search.rank()
    if search.meets:
        search.leave_beyond()
    else:
        search.best = replace(search.best, per=())
        for each in question.deployments:
            search.over(each.candidates(each.beyond))
    designs = search.designs_of(search.kept)
    if not search.meets:
        search.check_complete()
        raise UnmetError(nearest_miss(question, designs))
    return Answer(search, designs)


def nearest_miss(question: Question, nearest: Sequence[Design]) -> str:
    """Say why no machine meets every limit: the limits that the nearest one misses, and by what."""
    goal, batch = question.goal, question.study.batch[0]
    if not nearest:
        lacked = f"holds the model, runs it with the knobs and has a value of {goal.objectives[0]}"
        return f"no machine that may be built {lacked}"
    row = nearest[0].row(goal.columns)
    fitted = ", ".join(filter(None, (row[f"{role}s"] for role in SLOTS)))
    load = f"nearkv compare {row['system']} ... --users {batch:.0f}"
    limit = f"; {AT_LIMIT}" if AT_LIMIT in str(row["note"]) else ""
    starts = f"; all {batch:,.0f} prompts start at once, where `{load}` is load"
    return (
        f"no machine meets every limit; the nearest is {row['system']} on {row['server']} "
        f"({fitted}): {missed(goal, nearest[0])}{limit}{starts if batch > 1 else ''}"
    )


def missed(goal: Goal, design: Design) -> str:
    """The limits that a machine misses, with its values, in words."""
    row = design.row(goal.columns)
    return "; ".join(filter(None, (_miss(limit, row) for limit in goal.limits)))


def _miss(limit: Target, row: Row) -> str:
    """The value of a row beside a limit that it misses; empty where it does not."""
    asked = "asked" if limit.at_least else "allowed"
    where = f"where {cell_text(limit.value)} is {asked} ({limit.option})"
    if row[limit.quantity] is None:
        return f"it has no {limit.name}, {where}"
    value = float(row[limit.quantity])
    is_missed = float(limit.margin(np.array(value))) < 0
    return f"{limit.name} {cell_text(value)} {where}" if is_missed else ""
