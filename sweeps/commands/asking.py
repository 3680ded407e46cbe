"""The commands `estimate` and `compare`: what a system does, and which is best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.bands import ratio_columns, show_band
from nearkv.sweeps.commands.drawing import (
    Chart,
    check_chart,
    check_figure,
    is_figure,
    print_chart,
    write_figure,
)
from nearkv.sweeps.commands.options import Breakdown, System, Systems
from nearkv.sweeps.commands.printing import busy, show_columns, show_rows
from nearkv.sweeps.commands.views import View, check_shown
from nearkv.sweeps.commands.writing import check_output, save

if TYPE_CHECKING:
    from nearkv.sweeps.study.study import Study

Explain = Annotated[
    bool, typer.Option("--explain", help="Print where the time goes, line by line.")
]
Ratio = Annotated[
    str,
    typer.Option(
        metavar="COLUMNS",
        help="Add ratios over the first system of these columns too: energy_j_tok,cost_usd.",
    ),
]


def estimate(study: Study, view: View, system: System, explain: Explain = False) -> None:
    """Predict one system on one workload.

    Example: nearkv estimate hilos --model opt-66b --context 64k --set csd.count=16 --explain
    """
    from nearkv.sweeps.explore.explain import (
        check_has_tree,
        one_point,
        point_columns,
        time_tree,
    )
    from nearkv.sweeps.study.study import comma_list
    from nearkv.sweeps.tables.table import records

    chosen = replace(study, systems=(system,))
    block = one_point(chosen)
    if explain:
        check_has_tree(chosen.method)
    (point,) = records(point_columns(block, comma_list(view.columns)))
    if not explain:
        show_rows([point], view, study=chosen)
    elif point["status"] == "ok":
        show_tree(chosen, point, time_tree(block), view)
    else:
        typer.echo(
            f"{system} has no time to explain: {shortage(point)}",
            err=not view.is_for_people,
        )
        if not view.is_for_people:
            show_rows([point], view, study=chosen)


def show_tree(
    study: Study, point: dict[str, Any], tree: list[dict[str, Any]], view: View
) -> None:
    """Print the time tree of a design point, then its whole time."""
    from nearkv.sweeps.tables.table import indented

    people = view.is_for_people
    rows = indented(tree, "span") if people else tree
    columns = ("span", "seconds", "share", "resource", "equation", "amount", "unit", "word")
    whole = f"{point['total_s']:.4g} s from the first prompt to the last token"
    conclusion = f"{point['system']}: {whole}; {longest_wait(tree)}."
    show_rows(rows, view, columns if people else (), below=[conclusion], study=study)
    if study.band and people:
        show_band(study)


def longest_wait(tree: list[dict[str, Any]]) -> str:
    """The resource of a time tree with most of the time, in words."""
    from nearkv.sweeps.explore.explain import ONE_STEP

    shares: dict[str, float] = {}
    for row in tree:
        if row["word"] == "leaf" and not row["span"].startswith(ONE_STEP):
            shares[row["resource"]] = shares.get(row["resource"], 0.0) + row["share"]
    longest = max(shares, key=lambda resource: shares[resource])
    return f"{shares[longest]:.0%} of this time is spent on {longest}"


def shortage(point: dict[str, Any]) -> str:
    """Why a design point has no answer, in words."""
    if point["status"] == "infeasible":
        return f"{point['reason']} by {point['short_gb']:.4g} GB"
    return str(point["reason"])


def compare(
    study: Study,
    view: View,
    systems: Systems,
    ratio: Ratio = "",
    breakdown: Breakdown = False,
    chart: Chart = False,
) -> None:
    """Put systems side by side; ratios are over the first, on its first platform and knob value.

    `speedup` compares decode steps, `total_speedup` whole requests, prefill included. `note`
    says where devices or precision differ: compare per dollar with --ratio tok_s_per_kusd.

    Example: nearkv compare flexgen-ssd flexgen-dram hilos --model opt-66b --context 16k:128k:x2
    """
    from nearkv.sweeps.evaluate.compare import compare as compared
    from nearkv.sweeps.evaluate.compare import conclusion
    from nearkv.sweeps.evaluate.requested import TIMES, on_request
    from nearkv.sweeps.study.study import comma_list
    from nearkv.sweeps.tables.table import select

    chosen = replace(study, systems=tuple(systems))
    if chart:
        check_chart(view, breakdown)
    check_shown(view.columns, breakdown, comma_list(ratio), study.method)
    if view.file:
        (check_figure if is_figure(view.file) else check_output)(view.file)
    extra = on_request([*comma_list(view.columns), *([TIMES] if breakdown else [])])
    table = compared(chosen, comma_list(ratio), extra)
    if is_figure(view.file):
        baseline = systems[0] if len(systems) > 1 else ""
        write_figure(table, chosen, view.file, view.columns, baseline)
        view = replace(view, file="")
    if chart and view.file:
        save(select(table, view.columns), chosen, view.file)
    if chart:
        print_chart(table, chosen, view.columns)
        return
    below = conclusion(chosen, table)
    requested = [*ratio_columns(table), *busy(table)]
    if breakdown:
        requested += ["step_ms", "speedup"]
    show_columns(table, view, study=chosen, requested=requested, below=below)
