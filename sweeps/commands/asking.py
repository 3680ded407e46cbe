"""The commands `estimate` and `compare`: what a system does, and which is best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.bands import ratio_columns, show_band
from nearkv.sweeps.commands.drawing import (
    Chart,
    check_figure,
    is_figure,
    print_chart,
    write_figure,
)
from nearkv.sweeps.commands.options import (
    Breakdown,
    Format,
    Only,
    Out,
    System,
    Systems,
    with_axes,
)
from nearkv.sweeps.commands.printing import (
    check_shown,
    is_readable,
    show,
    show_columns,
    show_point,
)
from nearkv.sweeps.commands.sweeping import check_output, save

if TYPE_CHECKING:
    from nearkv.sweeps.space.study import Study

Explain = Annotated[
    bool, typer.Option("--explain", help="Print where the time goes, line by line.")
]
Ratio = Annotated[
    str,
    typer.Option(
        metavar="COLUMNS",
        help="Ratios over the first of more columns: energy_j_tok,cost_usd.",
    ),
]


@with_axes
def estimate(
    study: Study, system: System, explain: Explain = False, form: Format = "table"
) -> None:
    """Predict one system on one workload.

    Example: nearkv estimate hilos --model opt-66b --context 64k --set csd.count=16 --explain
    """
    from nearkv.sweeps.evaluation.table import records
    from nearkv.sweeps.explore.explain import explain as explain_point

    columns, tree = explain_point(replace(study, systems=(system,)))
    (point,) = records(columns)
    if not explain:
        show_point(point, form)
    elif point["status"] == "ok":
        show_tree(point, tree, form)
        if study.band and form == "table":
            show_band(replace(study, systems=(system,)))
    else:
        typer.echo(
            f"{system} has no time to explain: {shortage(point)}", err=form != "table"
        )
        if form != "table":
            show([point], form)


def show_tree(point: dict[str, Any], tree: list[dict[str, Any]], form: str) -> None:
    """Print the time tree of a design point."""
    from nearkv.sweeps.evaluation.table import indented

    title = f"{point['system']}: {point['total_s']:.4g} s from the first prompt to the last token"
    rows = indented(tree, "span") if form == "table" else tree
    columns = ("span", "seconds", "share", "resource", "equation", "amount", "unit", "word")
    show(rows, form, columns if form == "table" else (), title=title)


def shortage(point: dict[str, Any]) -> str:
    """Why a design point has no answer, in words."""
    if point["status"] == "infeasible":
        return f"{point['reason']} by {point['short_gb']:.4g} GB"
    return str(point["reason"])


@with_axes
def compare(
    study: Study,
    systems: Systems,
    ratio: Ratio = "",
    breakdown: Breakdown = False,
    columns: Only = "",
    form: Format = "table",
    file: Out = "",
    chart: Chart = False,
) -> None:
    """Put systems side by side; ratios are over the first, on its first platform and knob value.

    `speedup` compares decode steps, `total_speedup` whole requests, prefill included. `note`
    says where devices or precision differ: compare per dollar with --ratio tok_s_per_kusd.

    Example: nearkv compare flexgen-ssd flexgen-dram hilos --model opt-66b --context 16k:128k:x2
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.cells import TIMES
    from nearkv.sweeps.evaluation.comparison import compare as compared
    from nearkv.sweeps.evaluation.table import select
    from nearkv.sweeps.space.study import comma_list

    chosen = replace(study, systems=tuple(systems))
    if chart and form != "table":
        raise InputError("--chart draws with letters; leave out --format")
    check_shown(columns, breakdown, comma_list(ratio), study.method)
    if file:
        (check_figure if is_figure(file) else check_output)(file)
    table = compared(chosen, comma_list(ratio), (TIMES,) if breakdown else ())
    if is_figure(file):
        baseline = systems[0] if len(systems) > 1 else ""
        write_figure(table, chosen, file, columns, baseline)
    elif file:
        save(select(table, columns), chosen, file)
    if chart:
        print_chart(table, chosen, columns)
        return
    if not file or is_readable(table, form):
        show_columns(table, form, columns, study=chosen, requested=ratio_columns(table))
