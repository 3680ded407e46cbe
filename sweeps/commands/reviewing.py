"""Commands a reviewer asks for: every published claim beside its prediction, and fits in the open."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands.options import Format
from nearkv.sweeps.commands.printing import show

SHOWN = (
    "paper",
    "id",
    "where",
    "stated",
    "unit",
    "bound",
    "predicted",
    "error",
    "verdict",
    "explanation",
)
"""Columns a terminal shows of a claim; CSV and JSON hold all."""
HEADING = """# Validation: every published claim beside its prediction

Match: within 10 %; near: within 25 %; miss: further, explained in misses.md; inconsistent: the paper
contradicts itself, its tables or physics, with the proof (errata.md). Runs are measured and simulated
rows. Of these, runs_input state a number that the model takes as an input and so match by themselves,
and one-sided bounds are kept or not (bounds_kept); all others are predicted: close counts those within
25 %, and the errors are theirs. Blind when predicted: 43 claims that nobody here had read until the
model was finished. `make validation` writes this page.
"""


def validate(
    paper: Annotated[
        str, typer.Argument(metavar="[PAPER]", help="hilos, inf2, hillinfer, l3 or h2m2.")
    ] = "",
    only: Annotated[
        str, typer.Option("--verdict", help="Show only these, apart by commas: miss,near.")
    ] = "",
    record: Annotated[
        bool, typer.Option("--record", help="Hold later changes to these verdicts.")
    ] = False,
    form: Format = "table",
) -> None:
    """Compare every published claim with what the model predicts.

    A prediction within 10 % matches, within 25 % is near. Exits with 1 where a verdict is worse than
    the recorded one.

    Example: nearkv validate hilos --format markdown
    """
    from nearkv.sweeps.evaluation.table import check_format
    from nearkv.sweeps.validation import validate as reviewed
    from nearkv.sweeps.validation.summary import summary

    check_format(form)
    rows = reviewed.validate(reviewed.check_paper(paper))
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    if form == "markdown":
        typer.echo(HEADING)
        show(summary(rows), form)
        typer.echo()
    show([row for row in rows if not wanted or row["verdict"] in wanted], form, SHOWN)
    if form == "table":
        show(summary(rows), form)
    if record:
        reviewed.record(rows)
    worse = reviewed.worse(rows)
    for sentence in worse:
        typer.echo(f"nearkv: {sentence}", err=True)
    if worse:
        raise typer.Exit(1)


def calibrate(
    claims: Annotated[
        str, typer.Option(metavar="PAPER", help="Fit to its measured claims: hilos.")
    ] = "",
    measurements: Annotated[
        str,
        typer.Option(
            metavar="FILE.csv", help="Fit to runs: system,model,batch,context,output,step_ms."
        ),
    ] = "",
    platform: Annotated[
        str, typer.Option(help="The machine; default: that of the claims, or of the system.")
    ] = "",
    factor: Annotated[
        list[str],
        typer.Option(metavar="ROLE.KEY", help="A number to fit: derate.pcie. At most six."),
    ] = [],
    without: Annotated[
        list[str], typer.Option(metavar="ROW", help="Leave out: 'line 5', or a claim's id.")
    ] = [],
    file: Annotated[
        str,
        typer.Option("--output-file", "-o", metavar="FILE.toml", help="Write the fitted platform."),
    ] = "",
    residuals: Annotated[
        bool, typer.Option("--residuals", help="Print the rows instead of the factors.")
    ] = False,
    form: Format = "table",
) -> None:
    """Fit assumed numbers of a platform inside their ranges, and say what the rows cannot tell.

    By default the derates that some row hangs on. Intervals hold for all factors at once with 95 %.
    A row left out is predicted by a fit to the others. FILE.toml then serves as --platform.

    Example: nearkv calibrate --measurements my.csv --platform aipc-4090 --factor derate.pcie -o my.toml
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluation.provenance import place_of, write_text
    from nearkv.sweeps.evaluation.table import check_format
    from nearkv.sweeps.validation import fit_report
    from nearkv.sweeps.validation.calibration import calibrate as fit
    from nearkv.sweeps.validation.claimed_runs import claimed
    from nearkv.sweeps.validation.evidence import without as left_out
    from nearkv.sweeps.validation.measured_runs import measured

    check_format(form)
    if bool(claims) == bool(measurements):
        raise InputError("calibrate needs either --claims PAPER or --measurements FILE.csv")
    evidence = claimed(claims, platform) if claims else measured(measurements, platform)
    calibration = fit(left_out(evidence, without), factor)
    if file:
        write_text(place_of(file), fit_report.platform_file(calibration))
    if form == "table" or not residuals:
        show(fit_report.factor_rows(calibration), form)
    if form == "table" or residuals:
        show(fit_report.residual_rows(calibration), form)
    if form == "table":
        typer.echo("\n".join(fit_report.sentences(calibration)))
