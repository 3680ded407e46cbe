"""The command `nearkv compare`: systems side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.drawing import (
    Chart,
    check_chart,
    check_figure,
    draw_table,
    is_figure,
    print_chart,
)
from nearkv.sweeps.commands.options import option
from nearkv.sweeps.commands.printing import (
    BRIEF,
    check_answered,
    check_output,
    print_table,
    save,
    tell_solved,
)

if TYPE_CHECKING:
    import pandas as pd


@options.with_options(options.of_study, options.of_load, options.View)
def compare(
    line: typer.Context,
    systems: options.Systems = [],
    ratio: Annotated[
        str,
        option(
            "COLUMNS",
            "Add ratios over the first system of these columns too: energy_j_tok,cost_usd.",
        ),
    ] = "",
    breakdown: options.Breakdown = False,
    chart: Chart = False,
    installable: options.Installable = False,
) -> None:
    """Put systems side by side; ratios are over the first, on its first platform and knob value.

    `speedup` compares decode steps, `total_speedup` whole requests, prefill included. `note`
    says where devices or precision differ: compare per dollar with --ratio tok_s_per_kusd.

    Example: nearkv compare flexgen-ssd flexgen-dram hilos --model opt-66b --context 16k:128k:x2
    """
    from nearkv.sweeps.study.sizes import comma_list

    systems = [*options.chosen_of(line, systems)]
    if not systems:
        raise InputError("name systems, as in nearkv compare flexgen-ssd hilos")
    view, study = options.view_of(line), options.study_of(line, systems)
    ratios = comma_list(ratio)
    if view.columns:
        named = comma_list(view.columns)
        added = [f"{name}_ratio" for name in ratios if f"{name}_ratio" not in named]
        view = replace(view, columns=",".join([*named, *added]))
    if chart:
        check_chart(view, breakdown)
    options.check_shown(view, study, breakdown)
    if view.file:
        (check_figure if is_figure(view.file) else check_output)(view.file)

    # pandas is loaded only once the question is known to be sound
    from nearkv.sweeps.api import questions

    table = questions.compare(
        study, ratio=ratios, breakdown=breakdown, also=comma_list(view.columns), empty=True
    )
    if is_figure(view.file):
        baseline = systems[0] if len(systems) > 1 else ""
        draw_table(table, study, view.file, view.columns, baseline)
        view = replace(view, file="")
    if chart and view.file:
        save(table, view.written, study, view.file)
    if chart:
        print_chart(table, study, view)
        check_answered(table)
        return
    print_table(table, view, BRIEF, study, pinned(table, breakdown))
    tell_solved(study, view, table, questions.compare)


def pinned(table: pd.DataFrame, breakdown: bool) -> list[str]:
    """Columns that readers see at any width: ratios, their bands, and busy resources."""
    shown = ["step_ms", "speedup"] if breakdown else []
    # of requests that arrive there is no rate of decoding, and no band of its ratio
    has_rate = table["speedup"].notna().any()
    of_ratio = ("speedup_p", "faster_share")
    band = of_ratio if has_rate else tuple(f"total_{name}" for name in of_ratio)
    for name in map(str, table):
        is_busy = name.startswith("time_s:") and (table[name] > 0).any()
        if name.endswith("_ratio") or name.startswith(band) or is_busy:
            shown.append(name)
    return shown
