"""The optima of a study as a page shows them: the value, the bound that proves it, the rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.errors import InputError
from nearkv.sweeps.explore.knob import best_knob
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import cell_text, records

KNOB = "alpha"
"""The knob whose optimum a page proves: the share of X in the cache."""

POINT = ("system", "model", "platform", "batch", "context_tok", "output_tokens")
SHOWN = (
    "value",
    "step_ms",
    "bound_ms",
    "gap",
    "rule",
    "rule_loss",
    "bound_by",
)
"""Columns that name a design, before what is set, and columns of its optimum after that."""

MOST_ROWS = 100
"""Optima that a page shows."""


def optima(study: Study) -> list[dict[str, Any]]:
    """Return a row for every optimum of a study, at most a hundred; none where none is solved.

    Args:
        study: whose knob was left to be solved.
    """
    solved = [name for name in study.systems if KNOB in find_system(name).knobs]
    if not solved or KNOB in study.knobs or study.traces:
        return []
    question = replace(study, systems=tuple(solved), band=0.0)
    try:
        answer = records(best_knob(question, KNOB))
    except InputError:
        return []  # a knob of the study that one of these systems lacks
    names = (*POINT, *study.sets, *study.knobs, *SHOWN)
    return [_cells(row, names) for row in answer[:MOST_ROWS]]


def _cells(row: dict[str, Any], names: Sequence[str]) -> dict[str, str]:
    return {name: cell_text(row[name]) for name in names if name in row}
