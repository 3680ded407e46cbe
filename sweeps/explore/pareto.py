"""`nearkv pareto`: the designs of a sweep that no other beats, for each workload of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError, unknown
from nearkv.solvers.frontier import frontier
from nearkv.sweeps.evaluate.blanks import warn_of_blanks
from nearkv.sweeps.evaluate.evaluate import Columns, chunks, stack
from nearkv.sweeps.evaluate.no_effect import checked_blocks
from nearkv.sweeps.evaluate.requested import on_request
from nearkv.sweeps.evaluate.slo import (
    RATIOS,
    Target,
    check_quantities,
    higher_is_better,
    parse_targets,
)
from nearkv.sweeps.explore import pruning
from nearkv.sweeps.explore.ideals import Contest
from nearkv.sweeps.explore.undominated import searched
from nearkv.sweeps.jobs.progress import Advance, progress
from nearkv.sweeps.study.study import Block, Study, comma_list
from nearkv.sweeps.tables.table import plain

PER = "model,context_tok,output_tokens,trace"
"""Columns that make a workload; designs are compared within one only."""


@dataclass(frozen=True)
class Comparison:
    """How designs are compared.

    Attributes:
        by: two or three columns.
        limits: conditions that a design must meet.
        per: columns that make a workload.
    """

    by: tuple[str, ...]
    limits: tuple[Target, ...]
    per: tuple[str, ...]

    def best(self, table: Columns) -> Columns:
        """The rows within the limits that no other row of their workload dominates."""
        check_quantities(self.limits, numeric_columns(table))
        allowed = np.ones(len(table["system"]), bool)
        for limit in self.limits:
            values = table[limit.quantity].astype(float)
            allowed &= limit.margin(values) >= 0
        within = _take(table, allowed)
        costs = self.costs(within)
        kept = np.zeros(len(costs), bool)
        for members in self.workloads(within):
            own = costs[members]
            kept[members] = frontier(own)
        return _take(within, kept)

    def contest(self, study_blocks: Sequence[Block]) -> Contest:
        """The same for boxes of design points."""
        has_traces = any(block.traces for block in study_blocks)
        per = [name for name in self.per if has_traces or name != "trace"]
        return Contest(self.by, tuple(per), limits=self.limits)

    def costs(self, table: Columns) -> NDArray[np.float64]:
        """The columns compared by, less is better.

        Raises:
            InputError: a column that does not exist or holds no numbers.
        """
        numeric = numeric_columns(table)
        signed = []
        for name in self.by:
            if name not in numeric:
                raise unknown("column", name, numeric, "--by")
            values = table[name].astype(float)
            if higher_is_better(name):
                values = -values
            signed.append(values)
        return np.column_stack(signed)

    def workloads(self, table: Columns) -> Iterator[NDArray[np.intp]]:
        """Places of the rows of each workload, in order of first appearance."""
        workload = np.zeros(len(table["system"]), int)
        for name in self.per:
            if name not in table and name == "trace":
                continue
            if name not in table:
                raise unknown("column", name, table, "--per")
            distinct, codes = np.unique(table[name], return_inverse=True)
            workload *= max(len(distinct), 1)
            workload += codes
        _, first = np.unique(workload, return_index=True)
        for start in np.sort(first):
            yield np.flatnonzero(workload == workload[start])

    def ordered(self, table: Columns) -> Columns:
        """Rows workload by workload, best in the first column first."""
        costs = self.costs(table)
        order = []
        for members in self.workloads(table):
            own = costs[members]
            ranks = np.lexsort(own.T[::-1])
            order.append(members[ranks])
        rows = np.concatenate(order)
        return _take(table, rows)


def numeric_columns(table: Columns) -> list[str]:
    """Columns of numbers."""
    return [name for name, column in table.items() if column.dtype.kind in "fiub"]


def pareto(
    study: Study,
    by: str,
    where: Sequence[str],
    per: str = PER,
    say: Callable[[str], None] | None = None,
    shown: Sequence[str] = (),
) -> Columns:
    """Evaluate a study and keep the designs that no other beats in each of some columns.

    Args:
        study: what to evaluate; it may be larger than memory.
        by: two or three comma-separated columns; more is better of rates and endurance, less of
            the rest.
        where: limits on columns, as `step_ms<=200`; designs outside are left out first.
        per: comma-separated columns that make a workload: each has a frontier of its own. Name
            `batch` among them where the batch is no design choice.
        say: shows the user a line; without it nothing is shown, no progress either.
        shown: columns to return; of those on request, only these and those compared by are there.

    Returns:
        The rows on the frontiers, workload by workload, best in the first column first. Designs
        that differ only in axes their system does not depend on are one row, whose `note` names the
        values it stands for.

    Raises:
        InputError: the study, a column or a limit cannot be used, or nothing is left.
    """
    comparison = _comparison(by, where, per)
    study_blocks = checked_blocks(study)
    limited = [limit.quantity for limit in comparison.limits]
    extra = on_request([*shown, *comparison.by, *comparison.per, *limited])
    size = sum(block.grid.size for block in study_blocks)
    if say and size >= pruning.ENOUGH:
        say(f"{size:,} design points to compare")
    with progress(size, quiet=say is None) as advance:
        if size < pruning.ENOUGH:
            answer, proved = _visited(comparison, study_blocks, extra, advance), 0
        else:
            contest = comparison.contest(study_blocks)
            best, costs = comparison.best, comparison.costs
            answer, proved = searched(study_blocks, contest, best, costs, extra, advance)
    if proved and say:
        say(f"{proved:,} of {size:,} design points proved away by bounds")
    warn_of_blanks(study_blocks, comparison.by, "--by")
    if not len(answer["system"]):
        condition = "meets every --where and " if comparison.limits else ""
        raise InputError(f"no design {condition}has all of {by}; see `nearkv sweep`")
    return _merged(comparison.ordered(answer), _axes(study_blocks))


def _visited(
    comparison: Comparison,
    study_blocks: Sequence[Block],
    extra: Sequence[str],
    advance: Advance,
) -> Columns:
    """The best rows, from a visit of all points."""
    answer: Columns | None = None
    for piece in chunks(study_blocks, extra):
        best = comparison.best(piece)
        if answer is not None:
            best = comparison.best(stack([answer, best]))
        answer = best
        advance(len(piece["system"]))
    assert answer is not None, "a study has a point"
    return answer


def _comparison(by: str, where: Sequence[str], per: str) -> Comparison:
    names = comma_list(by)
    limits: tuple[Target, ...] = ()
    if where:
        limits = parse_targets(where, "--where")
    if any(limit.quantity in RATIOS for limit in limits):
        ratios = " and ".join(RATIOS)
        raise InputError(
            f"--where: {ratios} need `nearkv compare`; limit columns of a sweep"
        )
    if len(set(names)) != len(names) or not 2 <= len(names) <= 3:
        raise InputError(
            f"--by {by!r}: name two or three different columns, as in throughput_tok_s,cost_usd"
        )
    return Comparison(names, limits, comma_list(per))


def _axes(study_blocks: Sequence[Block]) -> list[str]:
    """Columns of the axes that designs differ in."""
    names: dict[str, None] = {}
    for block in study_blocks:
        names |= dict.fromkeys(axis.name for axis in block.display_grid.axes)
    return [name for name in names if name != "model"]


def _merged(table: Columns, axes: Sequence[str]) -> Columns:
    """One row for designs that differ in axes alone, with a note of the values it stands for."""
    answers = [table[name] for name in table if name not in axes]
    alike: dict[tuple[str, ...], list[int]] = {}
    for row in range(len(table["system"])):
        key = tuple(str(column[row]) for column in answers)
        alike.setdefault(key, []).append(row)
    groups = list(alike.values())
    first = np.array([members[0] for members in groups])
    merged = _take(table, first)
    notes = [_note(table, members, axes) for members in groups]
    merged["note"] = np.array(notes)
    return merged


def _note(table: Columns, members: Sequence[int], axes: Sequence[str]) -> str:
    """The note of the first of some rows, and the values that it stands for."""
    sentences = [str(table["note"][members[0]])]
    for name in axes:
        if name not in table:
            continue
        values = set(table[name][members].tolist())
        if len(values) > 1:
            low = plain(min(values))
            high = plain(max(values))
            sentences.append(
                f"the same for {len(values)} values of {name}, {low} to {high}"
            )
    return "; ".join(filter(None, sentences))


def _take(table: Columns, rows: NDArray[np.generic]) -> Columns:
    return {name: column[rows] for name, column in table.items()}
