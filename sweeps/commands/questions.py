"""The commands `nearkv compare`, `sweep`, `pareto` and `sensitivity`: questions on many points."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.files import check_output, holds_rows, is_figure, save
from nearkv.sweeps.commands.messages import ask, tell
from nearkv.sweeps.commands.options import flag, option
from nearkv.sweeps.commands.printing import BRIEF, check_answered, print_table
from nearkv.sweeps.study.sizes import comma_list

if TYPE_CHECKING:
    from nearkv.sweeps.api.tables import Findings
    from nearkv.sweeps.jobs.progress import SweepRun
    from nearkv.sweeps.jobs.search import Best
    from nearkv.sweeps.study.study import Study
    from nearkv.sweeps.tables.table import CellArray, Columns


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
    chart: Annotated[
        bool,
        flag("--chart", "Print bars of the first of --columns in place of a table."),
    ] = False,
    installable: options.Installable = False,
) -> None:
    """Put systems side by side; ratios are over the first, on its first platform and knob value.

    `speedup` compares decode steps, `total_speedup` whole requests, prefill included. `note`
    says where devices or precision differ: compare per dollar with --ratio tok_s_per_kusd. With
    -o FILE.pdf, .svg or .png the rows are drawn.

    Example: nearkv compare flexgen-ssd flexgen-dram hilos --model opt-66b --context 16k:128k:x2
    """
    from nearkv.sweeps.commands import drawing

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
        drawing.check_chart(view, breakdown)
    options.check_shown(view, study, breakdown)
    if view.file:
        (drawing.check_figure if is_figure(view.file) else check_output)(view.file)

    from nearkv.sweeps.api.questions import compare_findings
    from nearkv.sweeps.commands.papers import tell_solved

    found = compare_findings(study, ratios, breakdown, comma_list(view.columns))
    if is_figure(view.file):
        baseline = systems[0] if len(systems) > 1 else ""
        drawing.draw_table(found.table(), study, view.file, view.columns, baseline)
        view = replace(view, file="")
    if chart and view.file:
        save(found, view.written, study, view.file)
    if chart:
        drawing.print_chart(found, study, view)
        check_answered(found)
        return
    print_table(found, view, BRIEF, study, pinned(found.columns, breakdown))
    tell_solved(study, view, found, compare_findings)


def pinned(columns: Mapping[str, Sequence[Any] | CellArray], breakdown: bool) -> list[str]:
    """Columns that readers see at any width: ratios, their bands, and busy resources."""
    import numpy as np

    shown = ["step_ms", "speedup"] if breakdown else []
    # of requests that arrive there is no rate of decoding, and no band of its ratio
    has_rate = np.isfinite(columns["speedup"]).any()
    of_ratio = ("speedup_p", "faster_share")
    band = of_ratio if has_rate else tuple(f"total_{name}" for name in of_ratio)
    for name, values in columns.items():
        is_busy = name.startswith("time_s:") and np.greater(values, 0).any()
        if name.endswith("_ratio") or name.startswith(band) or is_busy:
            shown.append(name)
    return shown


@options.with_options(options.of_study, options.of_load, options.View)
def sweep(
    line: typer.Context,
    study_file: options.StudyFile = "",
    system: options.SystemNames = "",
    breakdown: options.Breakdown = False,
    top: Annotated[int | None, option("N", "Keep only the N best rows.")] = None,
    by: Annotated[
        str,
        option(
            "COLUMN",
            "Compare by this with --top and --best-per; throughput_tok_s by default.",
        ),
    ] = "",
    best_per: Annotated[
        str, option("COLUMNS", "Keep only the best row for each of their values.")
    ] = "",
    jobs: Annotated[int, option("N", "Processes that evaluate.")] = 1,
    scheduler: Annotated[
        str, option("ADDRESS", "Evaluate on a Dask cluster: tcp://host:8786.")
    ] = "",
    resume: Annotated[
        bool, flag("--resume", "Go on with a file that was not finished.")
    ] = False,
    yes: options.Yes = False,
    quiet: Annotated[bool, flag("--quiet", "Show neither estimate nor progress.")] = False,
) -> None:
    """Evaluate a grid of design points into a file, or keep only the best.

    FILE.csv, FILE.jsonl or FILE.parquet (a folder of parts) appears when complete; a sweep that
    was stopped or killed goes on with --resume. With FILE.pdf, .svg or .png the rows are drawn.
    STUDY is a file or a study of the catalogue.

    Example: nearkv sweep --system hilos --model opt-66b --context 8k:128k:x2 -o out.csv
    """
    from nearkv.sweeps.api.questions import sweep_findings
    from nearkv.sweeps.jobs.best import reducer_of
    from nearkv.sweeps.jobs.parts import to_file
    from nearkv.sweeps.jobs.plan import all_columns
    from nearkv.sweeps.jobs.progress import SweepRun
    from nearkv.sweeps.jobs.workers import Workers

    view, study = options.view_of(line), options.study_or_file(line, study_file, system)
    reducer = reducer_of(top, by, comma_list(best_per))
    run = SweepRun(
        Workers(jobs, scheduler), quiet, resume, tell, lambda text: yes or ask(text)
    )
    check_use(run, view, bool(reducer))
    options.check_shown(view, study, breakdown)
    only = comma_list(view.columns)
    if breakdown and not only:
        only = all_columns(study)
    view = replace(view, columns=",".join(only))
    if reducer:
        _keep_best(study, reducer, run, view)
    elif holds_rows(view.file):
        # rows go into the file part by part: a grid may be larger than memory
        to_file(study, Path(view.file), only, run)
    else:
        # all columns: sentences below the table name values that the chosen ones leave out
        _show(sweep_findings(study, only), study, view, BRIEF)


def _keep_best(study: Study, reducer: Best, run: SweepRun, view: options.View) -> None:
    from nearkv.sweeps.api.tables import Findings
    from nearkv.sweeps.jobs.best import best

    named = comma_list(view.columns)
    # columns that rows are compared by are named below the table where they are not shown
    wanted = dict.fromkeys((*named, *reducer.by, *reducer.per)) if named else ()
    columns = best(study, reducer, run, tuple(wanted))
    found = Findings(columns, _ranked_by(columns, reducer))
    if holds_rows(view.file):
        save(found, view.columns, study, view.file)
    else:
        compared = (*reducer.per, *reducer.by)
        _show(found, study, view, ",".join([BRIEF, *compared]), compared)


def _ranked_by(rows: Columns, reducer: Best) -> list[str]:
    """Columns by which the best rows are compared, from the lowest to the highest."""
    import numpy as np

    from nearkv.sweeps.evaluate.slo import higher_is_better
    from nearkv.sweeps.tables.table import reach

    (by,) = reducer.by
    if np.isnan(rows[by].astype(float)).all():
        return []
    side = "highest" if higher_is_better(by) else "lowest"
    group = f" of each {', '.join(reducer.per)}" if reducer.per else ""
    return [f"The {side} {by}{group}: {reach(rows[by])}."]


def _show(
    found: Findings,
    study: Study,
    view: options.View,
    usual: str,
    compared: Sequence[str] = (),
) -> None:
    """Draw or print rows; where no format is named, a table for a reader and else CSV."""
    from nearkv.sweeps.commands.drawing import draw_table
    from nearkv.sweeps.tables.table import MOST_ROWS_SHOWN

    if is_figure(view.file):
        draw_table(found.table(), study, view.file, view.columns or ",".join(compared))
        return
    is_terminal = bool(sys.stdout and sys.stdout.isatty())
    is_read = bool(view.file) or (len(found) <= MOST_ROWS_SHOWN and is_terminal)
    view = replace(view, form=view.form or ("table" if is_read else "csv"))
    print_table(found, view, usual, study, compared)


def check_use(run: SweepRun, view: options.View, reducer: bool) -> None:
    """Refuse options that would do nothing, and a file that could not be written, before any work.

    Raises:
        InputError: there is nothing to resume, nothing for workers to do, nothing to print in a
            format, nothing to arrange, or no place for the file.
    """
    from nearkv.sweeps.commands.drawing import check_figure
    from nearkv.sweeps.jobs.outputs import form_of
    from nearkv.sweeps.jobs.workers import Workers

    file, form = view.file, view.form
    is_drawn, is_data = is_figure(file), holds_rows(file)
    has_workers = run.workers != Workers()
    of_files = "--jobs, --scheduler and --resume are for .csv, .jsonl and .parquet"
    printed = f"--format {form} is for what is printed"
    refusals = {
        "--resume goes on with a file of all rows; --top and --best-per start anew": (
            run.resume and reducer
        ),
        "--resume goes on with a file; give the -o that it was begun with": (
            run.resume and not file
        ),
        f"{of_files}, not for {file}": (
            not is_data and file and (run.resume or (has_workers and not reducer))
        ),
        "--jobs and --scheduler write files or keep the best rows; a table needs neither": (
            has_workers and not (file or reducer)
        ),
        f"{printed}; {file} is a figure": is_drawn and form,
        f"{printed}; the end of -o {file} says what is written": (
            is_data and form and form != form_of(Path(file))
        ),
        f"--pivot arranges what is printed, not {file}; leave out one of them": (
            is_data and view.pivot and not reducer
        ),
    }
    for sentence, applies in refusals.items():
        if applies:
            raise InputError(sentence)
    if is_drawn:
        check_figure(file)
    elif file and (reducer or not is_data):
        check_output(file)


FRONT_COLUMNS = "system,model,platform,batch,context_tok,output_tokens,devices,step_ms"
"""Columns that a terminal shows of a design."""


@options.with_options(options.of_study, options.View)
def pareto(
    line: typer.Context,
    study_file: options.StudyFile = "",
    system: options.SystemNames = "",
    by: Annotated[
        str, option("COLUMNS", "The two or three columns to trade off.")
    ] = "throughput_tok_s,cost_usd",
    where: Annotated[
        list[str],
        option(
            "COLUMN<=VALUE",
            "Keep only such designs: step_ms<=200; step_ms=200 means the better side.",
        ),
    ] = [],
    yes: options.Yes = False,
) -> None:
    """Keep the Pareto-optimal designs of a sweep.

    More is better of rates and endurance, less of all else.

    Example: nearkv pareto --system hilos --model opt-66b --batch 1:64:+1 --set csd.count=1:16:+1
    """
    from nearkv.sweeps.api.questions import pareto_findings
    from nearkv.sweeps.jobs.progress import SweepRun
    from nearkv.sweeps.jobs.workers import Workers

    view, study = options.view_of(line), options.study_or_file(line, study_file, system)
    run = SweepRun(Workers(), False, False, tell, lambda text: yes or ask(text))
    front = pareto_findings(study, by, where, comma_list(view.columns), run)
    print_table(front, view, f"{FRONT_COLUMNS},{by},note", study, comma_list(by))


@options.with_options(options.of_study, options.View)
def sensitivity(
    line: typer.Context,
    system: options.SystemArgument,
    of: options.Of = "throughput_tok_s",
    sobol: Annotated[
        bool,
        flag("--sobol", "Shares of the band's variance, and what measuring a number buys."),
    ] = False,
) -> None:
    """Say which hardware numbers a prediction depends on, and how far its assumptions reach.

    With --sobol, the share of the band's variance that each unknown explains alone and in total,
    and how wide the band is once it is known: what to measure before you believe the prediction.

    Example: nearkv sensitivity hilos --model opt-66b --batch 16 --context 64k
    """
    from nearkv.sweeps.api.questions import sensitivity_findings

    view, study = options.view_of(line), options.study_of(line, [system])
    found, _ = sensitivity_findings(study, of, sobol)
    print_table(found, view, study=study)
