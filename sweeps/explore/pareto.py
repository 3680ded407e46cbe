"""`nearkv pareto`: the Pareto-optimal designs of a sweep, for each workload of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.blanks import warn_of_blanks
from nearkv.sweeps.evaluate.columns import on_request
from nearkv.sweeps.evaluate.slo import (
    RATIOS,
    Target,
    check_quantities,
    higher_is_better,
    parse_targets,
)
from nearkv.sweeps.jobs.best import ROW_TIES, best_numbers, whole_rows
from nearkv.sweeps.jobs.plan import plan
from nearkv.sweeps.jobs.progress import QUICK, SweepRun
from nearkv.sweeps.jobs.search import MOST_KEPT, Best
from nearkv.sweeps.jobs.workers import Workers
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.sizes import comma_list
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns, plain

PER = ("model", "context_tok", "output_tokens", "trace")
"""Columns that make a workload; designs are compared within one only."""
ALONE = SweepRun(Workers(), True, False, lambda line: None, lambda question: False)
"""A sweep in this process, without a word."""


def find_front(
    study: Study,
    by: str,
    where: Sequence[str],
    run: SweepRun = ALONE,
    shown: Sequence[str] = (),
) -> Columns:
    """Evaluate a study and keep the designs that are Pareto-optimal in some columns.

    Args:
        study: what to evaluate; it may be larger than memory.
        by: two or three comma-separated columns; more is better of rates and endurance, less of
            the rest.
        where: limits on columns, as `step_ms<=200`; designs outside are left out first.
        run: how.
        shown: columns to return; of those on request, only these and those compared by are there.

    Returns:
        The rows on the frontiers, workload by workload, best in the first column first. Designs
        that differ only in axes their system does not depend on are one row, whose `note` names the
        values it stands for.

    Raises:
        InputError: the study, a column or a limit cannot be used, or nothing is left.
    """
    names, limits = comma_list(by), _limits(where)
    if len(set(names)) != len(names) or not 2 <= len(names) <= 3:
        raise InputError(
            f"--by {by!r}: name two or three different columns, as in throughput_tok_s,cost_usd"
        )
    limited = [limit.quantity for limit in limits]
    rows = plan(study, extra=on_request([*shown, *names, *limited]))
    check_quantities(limits, [name for name, kind in rows.kinds.items() if kind != "text"])
    # a study without traces has no such column, and needs none to tell its workloads apart
    own = tuple(name for name in PER if name != "trace" or name in rows.kinds)
    highest = tuple(map(higher_is_better, names))
    front = Best(names, highest, own, limits, ROW_TIES, most=MOST_KEPT)
    front.check(rows.kinds)
    quiet = run.quiet or rows.size < QUICK
    numbers = best_numbers(rows, front, replace(run, quiet=quiet))
    warn_of_blanks(rows.blocks, names)
    if not len(numbers):
        condition = "meets every --where and " if limits else ""
        raise InputError(f"no design {condition}has all of {by}; see `nearkv sweep`")
    return _merged(whole_rows(rows, numbers), _axes(rows.blocks))


def _limits(where: Sequence[str]) -> tuple[Target, ...]:
    limits = parse_targets(where, "--where") if where else ()
    if any(limit.quantity in RATIOS for limit in limits):
        ratios = " and ".join(RATIOS)
        raise InputError(
            f"--where: {ratios} need `nearkv compare`; limit columns of a sweep"
        )
    return limits


def _axes(study_blocks: Sequence[Block]) -> list[str]:
    """Columns of the axes that designs differ in."""
    axes = [axis for block in study_blocks for axis in block.display_grid.axes]
    names = dict.fromkeys(axis.name for axis in axes)
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
    merged = {name: column[first] for name, column in table.items()}
    notes = [_note(table, members, axes) for members in groups]
    merged["note"] = np.array(notes)
    return merged


def _note(table: Columns, members: Sequence[int], axes: Sequence[str]) -> str:
    """The note of the first of some rows, and the values that it stands for."""
    sentences = [str(table["note"][members[0]])]
    for name in axes:
        if name not in table:
            continue
        cells = table[name][members]
        values = {*cells[cells == cells].tolist()}  # noqa: PLR0124 - none where it is no number
        if len(values) > 1:
            low = plain(min(values))
            high = plain(max(values))
            sentences.append(
                f"the same for {len(values)} values of {name}, {low} to {high}"
            )
    return "; ".join(filter(None, sentences))
