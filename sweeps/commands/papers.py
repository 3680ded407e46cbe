"""Sentences on knobs that papers set: which they are, and what their settings take."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from nearkv.costmodel.model.registry import find_system
from nearkv.sweeps.api.tables import rows_of
from nearkv.sweeps.commands.options import View
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Display, Rows
from nearkv.sweeps.tables.terminal import lay_out

if TYPE_CHECKING:
    from nearkv.sweeps.api.tables import Findings

MOST_ROWS_TOLD = 64
"""Rows of a table below which the sentence stands; more are read by a program."""
TOLD_BEYOND = 0.1
"""Difference of whole requests from which on their ratio is named [1]."""


def tell_solved(
    study: Study,
    view: View,
    table: Findings | Rows,
    published: Callable[[Study], Findings | Rows] | None = None,
) -> None:
    """Print on a terminal that knobs are solved which a paper sets, and what its settings take.

    Args:
        study: what was asked.
        view: how its answer is shown.
        table: the answer.
        published: answers a study in the form of `table`; without it, no times are compared.
    """
    is_read = view.is_for_people and not view.file and sys.stdout.isatty()
    is_solved = not study.published and _unstated(study)
    if not is_read or len(table) > MOST_ROWS_TOLD or not is_solved:
        return
    sentence = "knobs solved; --published for the papers' settings"
    if published is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are those of the first answer
            papers = published(study.but(published=True, band=None))
        sentence += "".join(_times_as_long(rows_of(table), rows_of(papers)))
    typer.echo(lay_out(Display([], title=f"{sentence}.")), nl=False)


def papers_settings(study: Study | None) -> list[str]:
    """Name the knobs that --published set, and to which values or rules."""
    if study is None or not study.published:
        return []
    settings = _unstated(study)
    listed = "; ".join(f"{name} {' '.join(knobs)}" for name, knobs in settings.items())
    return [f"--published: {listed or 'no knob is set by a paper'}."]


def _unstated(study: Study) -> dict[str, list[str]]:
    """Knobs that a system's paper sets and the study does not, as KNOB=SETTING, by system."""
    stated = {*study.knobs, *study.zipped}
    settings: dict[str, list[str]] = {}
    for system in map(find_system, study.systems):
        for name, knob in system.knobs.items():
            if knob.published and name not in stated:
                setting = f"{name}={knob.published}"
                settings.setdefault(system.name, []).append(setting)
    return settings


def _times_as_long(rows: Rows, papers: Rows) -> list[str]:
    """Ratios of whole requests by papers' settings over solved ones, where they are notable."""
    ratios: dict[str, list[float]] = {}
    short: dict[str, str] = {}
    for row, paper in zip(rows, papers, strict=True):
        system = row.get("system", "")
        if row.get("total_s") and paper.get("total_s"):
            ratios.setdefault(system, []).append(paper["total_s"] / row["total_s"])
        elif row.get("total_s"):
            short[system] = f"; {system} does not always fit with them"
    clauses = []
    for system, of_system in ratios.items():
        least, most = min(of_system), max(of_system)
        if most > 1 + TOLD_BEYOND or least < 1 - TOLD_BEYOND:
            ends = dict.fromkeys(f"{ratio:.3g}" for ratio in (least, most))
            clauses.append(f"; {system} takes {' to '.join(ends)} times as long with them")
    return [*clauses, *short.values()]
