"""Commands a reviewer asks for: every published claim beside its prediction."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.options import Format, show

SHOWN = ("paper", "id", "where", "stated", "unit", "bound", "predicted", "error", "verdict", "hangs_on")
"""Columns a terminal shows of a claim; CSV and JSON hold all."""


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(validate)


def validate(
    paper: Annotated[str, typer.Argument(metavar="[PAPER]", help="hilos, inf2, hillinfer, l3 or h2m2.")] = "",
    only: Annotated[str, typer.Option("--verdict", help="Show only these, apart by commas: miss,near.")] = "",
    record: Annotated[bool, typer.Option("--record", help="Hold later changes to these verdicts.")] = False,
    form: Format = "table",
) -> None:
    """Compare every published claim with what the model predicts.

    A prediction within 10 % matches, within 25 % is near. Exits with 1 where a verdict is worse than
    the recorded one.

    Example: nearkv validate hilos --format markdown
    """
    from sweeps import validate as reviewed
    from sweeps.table import check_format

    check_format(form)
    rows = reviewed.validate(reviewed.check_paper(paper))
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    show([row for row in rows if not wanted or row["verdict"] in wanted], form, SHOWN)
    if form == "table":
        show(reviewed.summary(rows), form)
    if record:
        reviewed.record(rows)
    worse = reviewed.worse(rows)
    for sentence in worse:
        typer.echo(f"nearkv: {sentence}", err=True)
    if worse:
        raise typer.Exit(1)
