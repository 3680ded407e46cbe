"""The command `nearkv sweep`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.options import (
    BRIEF,
    BestPer,
    By,
    Format,
    Jobs,
    Named,
    Only,
    Out,
    Pareto,
    Quiet,
    Resume,
    Scheduler,
    Top,
    Yes,
    show_columns,
    with_axes,
)

if TYPE_CHECKING:
    from sweeps.execute import Run
    from sweeps.run import Columns
    from sweeps.study import Study


@with_axes
def sweep(
    study: Study,
    file_of_study: Annotated[str, typer.Argument(metavar="[STUDY.toml]", help="A study, instead of axes.")] = "",
    system: Named = "",
    columns: Only = "",
    form: Format = "csv",
    file: Out = "",
    top: Top = 0,
    by: By = "throughput_tok_s",
    pareto: Pareto = "",
    best_per: BestPer = "",
    jobs: Jobs = 1,
    scheduler: Scheduler = "",
    resume: Resume = False,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate a grid of design points into a file, or keep only the best.

    FILE.csv, FILE.jsonl or FILE.parquet (a folder of parts) appears when complete; a sweep that was stopped
    or killed goes on with --resume.

    Example: nearkv sweep --system hilos --model opt-66b --context 8k:128k:x2 --set csd.count=4,8,16 -o out.csv
    """
    from sweeps.execute import Run, best, to_file
    from sweeps.export import place_of
    from sweeps.reduce import reducer_of
    from sweeps.run import table
    from sweeps.study import either, split
    from sweeps.table import check_format, select
    from sweeps.workers import Workers

    chosen = either(file_of_study, replace(study, systems=split(system)))
    reducer = reducer_of(top, by, split(pareto), split(best_per))
    run = Run(Workers(jobs, scheduler), quiet, resume, tell, lambda question: yes or ask(question))
    check_format(form)
    check_use(run, bool(file), bool(reducer))
    if file and not reducer:
        to_file(chosen, place_of(file), split(columns), run)
    elif file and reducer:
        save(select(best(chosen, reducer, run), columns), chosen, file)
    else:
        found = best(chosen, reducer, run) if reducer else table(chosen)
        show_columns(found, form, columns, [*BRIEF, *reducer.by, *reducer.per] if reducer else BRIEF)


def check_use(run: Run, file: bool, reducer: bool) -> None:
    """Refuse options that would do nothing.

    Raises:
        InputError: there is nothing to resume, or too little for workers.
    """
    from hardware.errors import InputError
    from sweeps.workers import Workers

    if run.resume and (reducer or not file):
        raise InputError("--resume goes on with a file of all rows; give the -o that it was begun with")
    if run.workers != Workers() and not (file or reducer):
        raise InputError("--jobs and --scheduler write files, -o FILE, or keep the best rows; a table needs neither")


def save(found: Columns, study: Study, file: str) -> None:
    """Write a table, and beside it where every number comes from."""
    from sweeps.execute import write_table
    from sweeps.export import place_of

    tell(write_table(found, place_of(file), study))


def tell(line: str) -> None:
    """Say something that is not part of the output."""
    typer.echo(line, err=True)


def ask(question: str) -> bool:
    """Ask the user, where there is one; else the answer is no."""
    import sys

    return sys.stdin.isatty() and typer.confirm(question, err=True)
