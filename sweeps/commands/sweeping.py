"""The command `nearkv sweep`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from nearkv.sweeps.commands.drawing import check_figure, is_figure, write_figure
from nearkv.sweeps.commands.options import (
    Breakdown,
    Format,
    Named,
    Only,
    Out,
    StudyFile,
    with_axes,
)
from nearkv.sweeps.commands.printing import BRIEF, check_shown, show_columns
from nearkv.sweeps.commands.running import (
    BestPer,
    By,
    Jobs,
    Quiet,
    Resume,
    Scheduler,
    Top,
    Yes,
)

if TYPE_CHECKING:
    from nearkv.sweeps.evaluation.evaluate import Columns
    from nearkv.sweeps.jobs.execute import SweepRun
    from nearkv.sweeps.jobs.reduce import Reducer
    from nearkv.sweeps.space.study import Study


@with_axes
def sweep(
    study: Study,
    study_file: StudyFile = "",
    system: Named = "",
    breakdown: Breakdown = False,
    columns: Only = "",
    form: Format = "",
    file: Out = "",
    top: Top = None,
    by: By = "",
    best_per: BestPer = "",
    jobs: Jobs = 1,
    scheduler: Scheduler = "",
    resume: Resume = False,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a grid of design points into a file, or keep only the best.

    FILE.csv, FILE.jsonl or FILE.parquet (a folder of parts) appears when complete; a sweep that
    was stopped or killed goes on with --resume. STUDY is a file or a study of the catalogue.

    Example: nearkv sweep --system hilos --model opt-66b --context 8k:128k:x2 -o out.csv
    """
    from nearkv.sweeps.jobs.execute import SweepRun
    from nearkv.sweeps.jobs.reduce import reducer_of
    from nearkv.sweeps.runtime.workers import Workers
    from nearkv.sweeps.space.study import comma_list
    from nearkv.sweeps.space.study_files import either

    chosen = either(study_file, replace(study, systems=comma_list(system)))
    reducer = reducer_of(top, by, comma_list(best_per))
    run = SweepRun(
        Workers(jobs, scheduler), quiet, resume, tell, lambda text: yes or ask(text)
    )
    check_use(run, file, bool(reducer), form)
    check_shown(columns, breakdown, (), chosen.method)
    only = _columns(chosen, columns, breakdown)
    if reducer:
        _keep_best(chosen, reducer, run, only, file, form)
    elif file:
        _write(chosen, file, only, run)
    else:
        _print(chosen, only, form)


def _columns(study: Study, named: str, breakdown: bool) -> tuple[str, ...]:
    """Columns by name; none is the usual ones, or with a breakdown all there are."""
    from nearkv.sweeps.jobs.plan import all_columns
    from nearkv.sweeps.space.study import comma_list

    only = comma_list(named)
    return all_columns(study) if breakdown and not only else only


def _keep_best(
    study: Study,
    reducer: Reducer,
    run: SweepRun,
    only: tuple[str, ...],
    file: str,
    form: str,
) -> None:
    from nearkv.sweeps.jobs.best import best

    rows = best(study, reducer, run, only)
    if is_figure(file):
        write_figure(rows, study, file, ",".join(only) or reducer.by)
    elif file:
        save(rows, study, file)
    else:
        usual = [*BRIEF, reducer.by, *reducer.per]
        show_columns(rows, form or "csv", ",".join(only), usual, study=study)


def _write(study: Study, file: str, only: tuple[str, ...], run: SweepRun) -> None:
    from pathlib import Path

    from nearkv.sweeps.evaluation.evaluate import table
    from nearkv.sweeps.jobs.execute import to_file

    if is_figure(file):
        write_figure(table(study, _requested(only)), study, file, ",".join(only))
    else:
        to_file(study, Path(file), only, run)


def _print(study: Study, only: tuple[str, ...], form: str) -> None:
    from nearkv.sweeps.evaluation.evaluate import table

    rows = table(study, _requested(only))
    show_columns(rows, form or "csv", ",".join(only), study=study)


def _requested(only: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds of columns that a table has only where one of them is named."""
    from nearkv.sweeps.evaluation.cells import ON_REQUEST

    return ON_REQUEST if any(name.startswith(ON_REQUEST) for name in only) else ()


def check_drawing(run: SweepRun, file: str, form: str) -> None:
    """Refuse options that do nothing for a figure, and a place where none can be written.

    Raises:
        InputError: workers, something to resume, or a format of printing.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.runtime.workers import Workers

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
    from nearkv.sweeps.evaluation.table import check_format
    from nearkv.sweeps.jobs.outputs import form_of
    from nearkv.sweeps.runtime.workers import Workers

    check_format(form or "csv")
    if is_figure(file):
        check_drawing(run, file, form)
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


def check_output(file: str) -> None:
    """Refuse a file that a table could not be written to.

    Raises:
        InputError: no form is known by that name, or something is in the way.
    """
    from pathlib import Path

    from nearkv.sweeps.jobs.execute import check_place

    check_place(Path(file))


def save(table: Columns, study: Study, file: str) -> None:
    """Write a table, and beside it where every number comes from."""
    from pathlib import Path

    from nearkv.sweeps.jobs.execute import write_table

    tell(write_table(table, Path(file), study))


def tell(line: str) -> None:
    """Say something that is not part of the output, to whoever listens."""
    with suppress(OSError):
        typer.echo(line, err=True)


def ask(question: str) -> bool:
    """Ask the user, where there is one; else the answer is no."""
    import sys

    try:
        return sys.stdin.isatty() and typer.confirm(question, err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None
