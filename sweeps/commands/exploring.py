"""The commands `pareto` and `sensitivity`: which designs pay, and what an answer depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands.options import (
    Named,
    Of,
    StudyFile,
    System,
)
from nearkv.sweeps.commands.printing import show_columns, show_rows
from nearkv.sweeps.commands.running import Yes, ask
from nearkv.sweeps.commands.views import View
from nearkv.sweeps.commands.writing import tell

if TYPE_CHECKING:
    from nearkv.sweeps.study.study import Study

DESIGN = [
    "system",
    "model",
    "platform",
    "batch",
    "context_tok",
    "output_tokens",
    "devices",
    "step_ms",
]

FrontOf = Annotated[
    str,
    typer.Option("--by", metavar="COLUMNS", help="The two or three columns to trade off."),
]
Sobol = Annotated[
    bool,
    typer.Option(
        "--sobol", help="Shares of the band's variance, and what measuring a number buys."
    ),
]
Where = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN<=VALUE",
        help="Keep only such designs: step_ms<=200. = stands for the better side.",
    ),
]

PER = "model,context_tok,output_tokens,trace"
Per = Annotated[
    str,
    typer.Option(
        "--per",
        metavar="COLUMNS",
        help="What makes a workload; designs are compared within one only.",
    ),
]


def pareto(
    study: Study,
    view: View,
    study_file: StudyFile = "",
    system: Named = "",
    by: FrontOf = "throughput_tok_s,cost_usd",
    where: Where = [],
    per: Per = PER,
    yes: Yes = False,
) -> None:
    """Keep the designs of a sweep that no other beats in every column.

    More is better of rates and endurance, less of all else.

    Example: nearkv pareto --system hilos --model opt-66b --batch 1:64:+1 --set csd.count=1:16:+1
    """
    from nearkv.sweeps.explore.pareto import pareto as front_of
    from nearkv.sweeps.jobs.running import SweepRun
    from nearkv.sweeps.jobs.workers import Workers
    from nearkv.sweeps.study.study import comma_list
    from nearkv.sweeps.study.study_files import either
    from nearkv.sweeps.tables.table import counted

    chosen = either(study_file, replace(study, systems=comma_list(system)))
    run = SweepRun(Workers(), False, False, tell, lambda text: yes or ask(text))
    front = front_of(chosen, by, where, per, run, comma_list(view.columns))
    first, *others = comma_list(by)
    extremes = front[first].astype(float)
    reach = f"{extremes.min():.4g} to {extremes.max():.4g}"
    if extremes.min() == extremes.max():
        reach = f"{extremes[0]:.4g}"
    sides = " and ".join([first, *others])
    compared = f"that no other of the same workload beats in {sides}"
    designs = f"{counted(len(extremes), 'design')} {compared}; {first} {reach}."
    show_columns(front, view, [*DESIGN, first, *others, "note"], chosen, below=[designs])


def sensitivity(
    study: Study,
    view: View,
    system: System,
    of: Of = "throughput_tok_s",
    sobol: Sobol = False,
) -> None:
    """Say which hardware numbers a prediction depends on, and how far its assumptions reach.

    With --sobol, the share of the band's variance that each unknown explains alone and in total,
    and how wide the band is once it is known: what to measure before you believe the prediction.

    Example: nearkv sensitivity hilos --model opt-66b --batch 16 --context 64k
    """
    from nearkv.sweeps.explore.sensitivity import sensitivity as elasticities

    chosen = replace(study, systems=(system,))
    if sobol:
        show_importance(chosen, of, view)
        return
    rows, band = elasticities(chosen, of)
    reach = (
        f"{of} = {band[of]:.4g}; its {band['level']:g} % band over {band['factors']} uncertain "
        f"numbers and the model error: {band['low']:.4g} to {band['high']:.4g}."
    )
    below = [reach]
    if band["fits_share"] < 1:
        below.append(f"The design fits in {100 * band['fits_share']:.3g} % of the draws.")
    show_rows(rows, view, below=below, study=chosen)


def show_importance(study: Study, of: str, view: View) -> None:
    """Print what a band is made of, and what to measure first."""
    from nearkv.sweeps.explore.sensitivity import importance

    answer = importance(study, of)
    width = f"{of} = {answer.value:.4g}, in a band {answer.width:.3g}x wide"
    show_rows(answer.rows, view, below=[width, *answer.advice], study=study)
