"""The command `nearkv validate`: every published claim beside what the model predicts."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import argument, flag, option
from nearkv.sweeps.commands.printing import counted_by, print_table
from nearkv.sweeps.validation.claims import papers

SHOWN = "paper,id,stated,predicted,verdict,unit,claim,error,bound,where,explanation,command"
"""Columns a terminal shows of a claim; CSV and JSON hold all."""
JUDGED = ("id", "stated", "predicted", "error", "verdict")
"""Columns that a verdict follows from, shown at any width."""
HEADING = """# Validation: every published claim beside its prediction

Match: within 10 %; near: within 25 %; miss: further, explained in misses.md; inconsistent: the
paper contradicts itself, its tables or physics, with the proof (misses.md). Errors are those of
numbers that a measurement or a simulation gave. Counted apart are yes_no and bounds, which hold or
do not, restated inputs, identities and arithmetic, and rows that a number was fitted_to. Of the
numbers, blind ones had not been read until the model was finished, and unfitted ones do not move
with any fitted number. The paper called independent is measurements by others, to which nothing is
fitted.
"""


@options.with_options(options.View)
def validate(
    line: typer.Context,
    paper: Annotated[
        str,
        argument("PAPER", f"{', '.join(papers()[:-1])} or {papers()[-1]}."),
    ] = "",
    ids: Annotated[
        list[str], option("ID", "Compare only this claim: hilos-tput-max.", "--id")
    ] = [],
    claims: Annotated[
        str, option("FILE.csv", "Your own claims, in the form of ours.")
    ] = "",
    verdict: Annotated[
        str, option("VERDICTS", "Show only these, largest errors first: miss,near.")
    ] = "",
    record: Annotated[
        bool, flag("--record", "Compare later changes with these verdicts.")
    ] = False,
) -> None:
    """Compare every published claim with what the model predicts.

    A prediction within 10 % matches, within 25 % is near. Exits with 1 where a verdict is worse
    than the recorded one. FILE.csv needs id, low, unit, metric and system; model, batch, context,
    output_tokens, knob, set, platform, over, over_knob, over_platform and take say the rest
    (docs/claims.md).

    Example: nearkv validate --id hilos-tput-max
    """
    from nearkv.sweeps.api import evidence
    from nearkv.sweeps.api.tables import rows_of
    from nearkv.sweeps.study.sizes import comma_list
    from nearkv.sweeps.tables.table import Display
    from nearkv.sweeps.tables.terminal import lay_out

    view = options.view_of(line)
    verdicts = comma_list(verdict)
    table = evidence.validate(
        paper, ids=ids, claims=claims, verdicts=verdicts, record=record
    )
    rows, counts = rows_of(table), table.attrs["counts"]
    below = []
    if counts and view.form == "markdown":
        typer.echo(HEADING)
        print_table(counts, options.View(form="markdown"))
        typer.echo()
    elif counts and view.is_for_people:
        below = [lay_out(Display(counts)).rstrip()]
    below.append(counted_by(rows, "verdict", "claim"))
    print_table(rows, view, SHOWN, extra=JUDGED, below=below)
    for sentence in table.attrs["worse"]:
        typer.echo(f"nearkv: {sentence}", err=True)
    if table.attrs["worse"]:
        raise typer.Exit(1)
