"""The command `nearkv estimate`: one system on one workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import flag
from nearkv.sweeps.commands.printing import check_answered, print_table

if TYPE_CHECKING:
    from nearkv.sweeps.api.estimate import Prediction
    from nearkv.sweeps.study.grid import Block

TREE = "span,seconds,share,resource,equation,amount,unit,word"
"""Columns that a terminal shows of a time tree."""


@options.with_options(options.of_study, options.of_load, options.View)
def estimate(
    line: typer.Context,
    system: options.SystemArgument,
    explain: Annotated[
        bool, flag("--explain", "Print where the time goes, line by line.")
    ] = False,
    footprint: Annotated[
        bool,
        flag("--footprint", "Print what lies in each memory, and what it can hold."),
    ] = False,
) -> None:
    """Predict one system on one workload.

    Example: nearkv estimate hilos --model opt-66b --context 64k --set csd.count=16 --explain
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.api import estimate
    from nearkv.sweeps.commands.papers import tell_solved
    from nearkv.sweeps.evaluate.no_effect import warn_of_no_effect
    from nearkv.sweeps.study.sizes import comma_list

    view = options.view_of(line)
    if explain and footprint:
        raise InputError("--explain and --footprint print two tables; ask for one")
    study = options.study_of(line, [system])
    if not (explain or footprint):
        options.check_shown(view, study)
    point = estimate.estimate(study, also=comma_list(view.columns))
    warn_of_no_effect(study, [point.block])
    if explain:
        point.check_has_tree()
    if explain and point.status == "ok":
        show_tree(point, view)
        return
    if explain:
        sentence = f"{system} has no time to explain: {point.shortage}"
        typer.echo(sentence, err=not view.is_for_people)
    rows = [dict(point.values)]
    if footprint or (explain and view.is_for_people):
        contents = filter(None, [point.contents, point.lifted_by])
        print_table(point.footprint, view, study=point.study, below=contents)
    else:
        lifted = filter(None, [point.lifted_by])
        print_table(rows, view, study=point.study, below=lifted)
    check_answered(rows)
    tell_solved(study, view, rows, lambda other: [dict(estimate.estimate(other).values)])


def show_tree(point: Prediction, view: options.View) -> None:
    """Print the time tree of a design point, then its total time."""
    from nearkv.sweeps.tables.table import indented

    people = view.is_for_people
    rows = indented(point.tree, "span") if people else point.tree
    below = [point.conclusion]
    print_table(rows, view, TREE if people else "", below=below, study=point.study)
    if point.study.band and people:
        show_band(point.block)


def show_band(block: Block) -> None:
    """Print what the band of a design point is made of."""
    from nearkv.sweeps.uncertainty.made_of import error_rows, number_rows

    assert block.band
    title = f"drawn {block.band.samples:,} times for the {block.band.level:g} % band"
    print_table(number_rows(block), title=title)
    title = "error of the models: spread of ln(predicted / measured) beyond these ranges"
    print_table(error_rows(block), title=title)
