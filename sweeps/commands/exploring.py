"""The commands `pareto` and `sensitivity`: which designs pay, and what an answer depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands.options import (
    Format,
    Named,
    Of,
    Only,
    StudyFile,
    System,
    with_axes,
)
from nearkv.sweeps.commands.printing import show, show_columns

if TYPE_CHECKING:
    from nearkv.sweeps.space.study import Study

DESIGN = [
    "system",
    "model",
    "platform",
    "batch",
    "context_tok",
    "output_tok",
    "devices",
    "step_ms",
]

FrontOf = Annotated[
    str, typer.Option("--by", metavar="COLUMNS", help="Two or three columns.")
]
Sobol = Annotated[
    bool,
    typer.Option(
        "--sobol", help="Shares of the band's variance, and what measuring a number buys."
    ),
]
Where = Annotated[
    list[str],
    typer.Option(metavar="COLUMN<=VALUE", help="Leave out the rest: step_ms<=200."),
]


@with_axes
def pareto(
    study: Study,
    study_file: StudyFile = "",
    system: Named = "",
    by: FrontOf = "throughput_tok_s,cost_usd",
    where: Where = [],
    columns: Only = "",
    form: Format = "table",
) -> None:
    """Keep the designs of a sweep that no other beats in every column.

    More is better of rates and endurance, less of all else.

    Example: nearkv pareto --system hilos --model opt-66b --batch 1:64:+1 --set csd.count=1:16:+1
    """
    from nearkv.sweeps.explore.pareto import pareto as front_of
    from nearkv.sweeps.space.study import comma_list
    from nearkv.sweeps.space.study_files import either

    chosen = either(study_file, replace(study, systems=comma_list(system)))
    front = front_of(chosen, by, where)
    show_columns(front, form, columns, [*DESIGN, *comma_list(by)], chosen)


@with_axes
def sensitivity(
    study: Study,
    system: System,
    of: Of = "throughput_tok_s",
    sobol: Sobol = False,
    form: Format = "table",
) -> None:
    """Say which hardware numbers a prediction depends on, and how far its assumptions reach.

    With --sobol, the share of the band's variance that each unknown explains alone and in total,
    and how wide the band is once it is known: what to measure before you believe the prediction.

    Example: nearkv sensitivity hilos --model opt-66b --batch 16 --context 64k
    """
    from nearkv.sweeps.explore.sensitivity import sensitivity as elasticities

    point = replace(study, systems=(system,))
    if sobol:
        show_importance(point, of, form)
        return
    rows, band = elasticities(point, of)
    show(rows, form)
    if form != "table":
        return
    typer.echo(
        f"{of} = {band[of]:.4g}; 5 % to 95 % of {band['samples']:,} quasi-random samples over the "
        f"ranges of {band['factors']} assumed or fitted numbers: "
        f"{band['q05']:.4g} to {band['q95']:.4g}"
    )
    if band["unfit"]:
        typer.echo(f"{band['unfit']:,} samples did not fit")


def show_importance(study: Study, of: str, form: str) -> None:
    """Print what a band is made of, and what to measure first."""
    from nearkv.sweeps.evaluation.table import check_format
    from nearkv.sweeps.explore.importance import importance

    check_format(form)
    answer = importance(study, of)
    show(answer.rows, form)
    if form == "table":
        typer.echo(f"{of} = {answer.value:.4g}, in a band {answer.width:.3g}x wide")
        for sentence in answer.advice:
            typer.echo(sentence)
