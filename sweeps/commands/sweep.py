"""The command `nearkv sweep`: a grid of design points, in a file or on the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.drawing import check_figure, draw_table, is_figure
from nearkv.sweeps.commands.options import option
from nearkv.sweeps.commands.printing import BRIEF, print_table
from nearkv.sweeps.commands.writing import ask, check_output, save, tell, text_format

if TYPE_CHECKING:
    from nearkv.sweeps.jobs.best import Reducer
    from nearkv.sweeps.jobs.progress import SweepRun
    from nearkv.sweeps.study.study import Study
    from nearkv.sweeps.tables.table import Columns

Top = Annotated[int | None, option("N", "Keep only the N best rows.")]
By = Annotated[
    str, option("COLUMN", "What --top and --best-per compare by; throughput_tok_s.")
]
BestPer = Annotated[
    str, option("COLUMNS", "Keep only the best row for each of their values.")
]
Jobs = Annotated[int, option("N", "Processes that evaluate.")]
Scheduler = Annotated[
    str, option("ADDRESS", "Evaluate on a Dask cluster: tcp://host:8786.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a file that was not finished.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show neither estimate nor progress.")]


@options.taking(options.of_study, options.of_load, options.of_table)
def sweep(
    line: typer.Context,
    study_file: options.StudyFile = "",
    system: options.SystemNames = "",
    breakdown: options.Breakdown = False,
    top: Top = None,
    by: By = "",
    best_per: BestPer = "",
    jobs: Jobs = 1,
    scheduler: Scheduler = "",
    resume: Resume = False,
    yes: options.Yes = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a grid of design points into a file, or keep only the best.

    FILE.csv, FILE.jsonl or FILE.parquet (a folder of parts) appears when complete; a sweep that
    was stopped or killed goes on with --resume. STUDY is a file or a study of the catalogue.

    Example: nearkv sweep --system hilos --model opt-66b --context 8k:128k:x2 -o out.csv
    """
    from nearkv.sweeps.jobs.best import reducer_of
    from nearkv.sweeps.jobs.progress import SweepRun
    from nearkv.sweeps.jobs.workers import Workers
    from nearkv.sweeps.study.sizes import comma_list
    from nearkv.sweeps.study.study_files import either

    view = options.view_of(line)
    study = either(study_file, options.study_of(line, system), options.given(line))
    reducer = reducer_of(top, by, comma_list(best_per))
    run = SweepRun(
        Workers(jobs, scheduler), quiet, resume, tell, lambda text: yes or ask(text)
    )
    check_use(run, view.file, bool(reducer), view.form)
    options.check_shown(view, breakdown, (), study.method)
    only = _columns(study, view.columns, breakdown)
    view = replace(view, columns=",".join(only))
    if reducer:
        _keep_best(study, reducer, run, view)
    elif view.file and not text_format(view.file):
        _check_unarranged(view)
        _write(study, view.file, only, run)
    else:
        _print(study, only, view)


def _check_unarranged(view: options.View) -> None:
    """Refuse a pivot of a file, which holds a row for every point.

    Raises:
        InputError: there is one.
    """
    from nearkv.hardware.errors import InputError

    if view.pivot:
        use = f"--pivot arranges what is printed, and {view.file} holds a row a point"
        raise InputError(f"{use}; leave out one of them")


def _columns(study: Study, named: str, breakdown: bool) -> tuple[str, ...]:
    """Columns by name; none is the usual ones, or with a breakdown all there are."""
    from nearkv.sweeps.jobs.plan import all_columns
    from nearkv.sweeps.study.study import comma_list

    only = comma_list(named)
    return all_columns(study) if breakdown and not only else only


def _keep_best(study: Study, reducer: Reducer, run: SweepRun, view: options.View) -> None:
    from nearkv.sweeps.api.tables import table_of_columns
    from nearkv.sweeps.jobs.best import best
    from nearkv.sweeps.study.sizes import comma_list

    named = comma_list(view.columns)
    # what rows are compared by is told, where it is not shown
    wanted = dict.fromkeys((*named, *reducer.by, *reducer.per)) if named else ()
    columns = best(study, reducer, run, tuple(wanted))
    rows = table_of_columns(columns, _ranked_by(columns, reducer))
    if is_figure(view.file):
        draw_table(rows, study, view.file, view.columns or ",".join(reducer.by))
    elif view.file and not text_format(view.file):
        save(rows, view.columns, study, view.file)
    else:
        usual = ",".join([BRIEF, *reducer.by, *reducer.per])
        asked = (*reducer.per, *reducer.by)
        print_table(rows, _printed(view), usual, study, asked)


def _ranked_by(rows: Columns, reducer: Reducer) -> list[str]:
    """What the best rows are compared by, from the lowest to the highest; nothing without any."""
    import numpy as np

    from nearkv.sweeps.evaluate.slo import higher_is_better
    from nearkv.sweeps.tables.table import reach

    (by,) = reducer.by
    if np.isnan(rows[by].astype(float)).all():
        return []
    side = "highest" if higher_is_better(by) else "lowest"
    group = f" of each {', '.join(reducer.per)}" if reducer.per else ""
    return [f"The {side} {by}{group}: {reach(rows[by])}."]


def _write(study: Study, file: str, only: tuple[str, ...], run: SweepRun) -> None:
    from pathlib import Path

    from nearkv.sweeps.api.questions import sweep as answer
    from nearkv.sweeps.jobs.parts import to_file

    if is_figure(file):
        draw_table(answer(study, also=only, empty=True), study, file, ",".join(only))
    else:  # rows go into the file part by part: a grid may be larger than memory
        to_file(study, Path(file), only, run)


def _print(study: Study, only: tuple[str, ...], view: options.View) -> None:
    from nearkv.sweeps.api.questions import sweep as answer

    # all columns, for what the chosen ones leave out is told below them
    table = answer(study, also=only, empty=True)
    print_table(table, _printed(view, len(table)), BRIEF, study)


def _printed(view: options.View, rows: int = 0) -> options.View:
    """How a sweep is printed where no format is named: a table to a reader, else CSV."""
    import sys

    from nearkv.sweeps.tables.table import MOST_SHOWN

    is_read = rows <= MOST_SHOWN and bool(sys.stdout and sys.stdout.isatty())
    is_read = is_read or bool(text_format(view.file))
    return replace(view, form=view.form_or("table" if is_read else "csv"))


def _check_readers_file(run: SweepRun, file: str, reducer: bool) -> None:
    """Refuse options that do nothing for a file for readers.

    Raises:
        InputError: something to resume, or workers without a search of the best.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.jobs.workers import Workers

    if run.resume or (run.workers != Workers() and not reducer):
        options = "--jobs, --scheduler and --resume"
        raise InputError(f"{options} are for .csv, .jsonl and .parquet, not for {file}")
    check_output(file)


def check_drawing(run: SweepRun, file: str, form: str) -> None:
    """Refuse options that do nothing for a figure, and a place where none can be written.

    Raises:
        InputError: workers, something to resume, or a format of printing.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.jobs.workers import Workers

    if run.resume or run.workers != Workers():
        raise InputError(
            "a figure is drawn from a table in memory; --jobs, --scheduler and --resume are "
            "for files of rows"
        )
    if form:
        raise InputError(f"--format {form} is for what is printed; {file} is a figure")
    check_figure(file)


def check_use(run: SweepRun, file: str, reducer: bool, form: str) -> None:
    """Refuse options that would do nothing, and a file that could not be written, before any work.

    Raises:
        InputError: there is nothing to resume, nothing for workers to do, nothing to print in a
            format, or no place for the file.
    """
    from pathlib import Path

    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.jobs.outputs import form_of
    from nearkv.sweeps.jobs.workers import Workers
    from nearkv.sweeps.tables.formats import check_format

    check_format(form or "csv")
    if is_figure(file):
        check_drawing(run, file, form)
        return
    if text_format(file):
        _check_readers_file(run, file, reducer)
        return
    if run.resume and reducer:
        raise InputError(
            "--resume goes on with a file of all rows; --top and --best-per start anew"
        )
    if run.resume and not file:
        raise InputError("--resume goes on with a file; give the -o that it was begun with")
    if run.workers != Workers() and not (file or reducer):
        use = "--jobs and --scheduler write files, -o FILE, or keep the best rows"
        raise InputError(f"{use}; a table needs neither")
    if form and file and form != form_of(Path(file)):
        ending = f"the end of -o {file} says what is written"
        raise InputError(f"--format {form} is for what is printed; {ending}")
    if file and reducer:
        check_output(file)
