"""Commands for reviewers: every published claim beside its prediction, and fits of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.options import Format, Only
from nearkv.sweeps.commands.printing import laid_out, show_rows
from nearkv.sweeps.commands.views import View

if TYPE_CHECKING:
    from pathlib import Path

SHOWN = (
    "paper",
    "id",
    "stated",
    "predicted",
    "verdict",
    "unit",
    "claim",
    "error",
    "bound",
    "where",
    "explanation",
    "command",
)
"""Columns a terminal shows of a claim; CSV and JSON hold all."""
HEADING = """# Validation: every published claim beside its prediction

Match: within 10 %; near: within 25 %; miss: further, explained in misses.md; inconsistent: the
paper contradicts itself, its tables or physics, with the proof (errata.md). Runs are measured and
simulated rows. Of these, runs_input state a number that the model takes as an input and so match by
themselves, and one-sided bounds are kept or not (bounds_kept); all others are predicted: close
counts those within 25 %, and the errors are theirs. Blind when predicted: 43 claims that nobody
here had read until the model was finished. The paper called independent is measurements by others,
to which nothing is fitted.
"""


PaperName = Annotated[
    str,
    typer.Argument(
        metavar="PAPER", help="hilos, inf2, hillinfer, l3, h2m2 or independent."
    ),
]
Ids = Annotated[
    list[str],
    typer.Option("--id", metavar="ID", help="Compare only this claim: hilos-tput-max."),
]
ClaimsFile = Annotated[
    str, typer.Option(metavar="FILE.csv", help="Your own claims, in the form of ours.")
]
Verdicts = Annotated[
    str, typer.Option(metavar="VERDICTS", help="Show only these verdicts: miss,near.")
]
Record = Annotated[
    bool, typer.Option("--record", help="Compare later changes with these verdicts.")
]


def validate(
    view: View,
    paper: PaperName = "",
    ids: Ids = [],
    claims: ClaimsFile = "",
    verdict: Verdicts = "",
    record: Record = False,
) -> None:
    """Compare every published claim with what the model predicts.

    A prediction within 10 % matches, within 25 % is near. Exits with 1 where a verdict is worse
    than the recorded one. FILE.csv needs id, low, unit, metric and system; model, batch, context,
    output_tokens, knob, set, platform, over, over_knob, over_platform and take say the rest
    (docs/claims.md).

    Example: nearkv validate --id hilos-tput-max
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.study.study import comma_list
    from nearkv.sweeps.validation import validate as reviewed
    from nearkv.sweeps.validation.sources import by_source
    from nearkv.sweeps.validation.summary import summary

    if claims and (paper or record):
        raise InputError(
            "--claims FILE.csv has no paper and records nothing; leave these out"
        )
    verdicts = reviewed.check_verdicts(comma_list(verdict))
    if claims:
        rows = reviewed.validate_file(claims, ids)
    else:
        rows = reviewed.validate(reviewed.check_paper(paper), ids)
    whole = not (ids or claims)
    if view.form == "markdown" and whole:
        typer.echo(HEADING)
        show_rows(summary(rows), View("markdown"))
        typer.echo()
    shown = reviewed.with_verdicts(rows, verdicts)
    counts = by_source if paper == "independent" else summary
    below = [laid_out(counts(rows))] if view.is_for_people and whole else []
    show_rows(shown, view, SHOWN, below=[*below, verdict_counts(shown)])
    if record:
        reviewed.record(rows)
    worse = [] if claims else reviewed.worse(rows)
    for sentence in worse:
        typer.echo(f"nearkv: {sentence}", err=True)
    if worse:
        raise typer.Exit(1)


def verdict_counts(rows: Sequence[dict[str, Any]]) -> str:
    """How many claims there are, by verdict."""
    from nearkv.sweeps.tables.table import counted

    counts = Counter(row["verdict"] for row in rows)
    parts = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{counted(len(rows), 'claim')}: {parts}."


Paper = Annotated[
    str, typer.Option(metavar="PAPER", help="Fit to its measured claims: hilos.")
]
Runs = Annotated[
    str,
    typer.Option(
        metavar="FILE.csv",
        help="Fit to runs: system,model,batch,context,output_tokens,step_ms.",
    ),
]
Bed = Annotated[
    str,
    typer.Option(
        metavar="PLATFORM",
        help="The machine; default: that of the claims, or of the system.",
    ),
]
Factors = Annotated[
    list[str],
    typer.Option(metavar="ROLE.KEY", help="A number to fit: derate.pcie. At most six."),
]
LeftOut = Annotated[
    list[str], typer.Option(metavar="ROW", help="Leave out: 'line 5', or a claim's id.")
]
TomlFile = Annotated[
    str,
    typer.Option(
        "--output-file", "-o", metavar="FILE.toml", help="Write the fitted platform."
    ),
]
Residuals = Annotated[
    bool, typer.Option("--residuals", help="Print the rows instead of the factors.")
]


def calibrate(
    claims: Paper = "",
    measurements: Runs = "",
    platform: Bed = "",
    factor: Factors = [],
    without: LeftOut = [],
    file: TomlFile = "",
    residuals: Residuals = False,
    columns: Only = "",
    form: Format = "table",
) -> None:
    """Fit assumed numbers of a platform inside their ranges; say what the rows do not determine.

    By default the derates that some row depends on. Intervals hold for all factors at once with
    95 %. A row left out is predicted by a fit to the others. FILE.toml then serves as --platform.

    Example: nearkv calibrate --measurements my.csv --platform aipc-4090 -o my.toml
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluate.provenance import write_text
    from nearkv.sweeps.tables.formats import check_format
    from nearkv.sweeps.validation import fit_report
    from nearkv.sweeps.validation.calibration import calibrate as fit
    from nearkv.sweeps.validation.claimed_runs import claimed
    from nearkv.sweeps.validation.evidence import without as left_out
    from nearkv.sweeps.validation.measured_runs import measured

    check_format(form)
    if bool(claims) == bool(measurements):
        raise InputError("calibrate needs either --claims PAPER or --measurements FILE.csv")
    place = _toml_place(file) if file else None
    evidence = claimed(claims, platform) if claims else measured(measurements, platform)
    calibration = fit(left_out(evidence, without), factor)
    if place:
        write_text(place, fit_report.platform_file(calibration))
        typer.echo(f"wrote {place}; use it as --platform {place}", err=True)
    view = View(form, columns)
    below = fit_report.sentences(calibration)
    is_whole = form == "table" and not columns
    if not residuals:
        show_rows(
            fit_report.factor_rows(calibration), view, below=[] if is_whole else below
        )
    if is_whole or residuals:
        show_rows(fit_report.residual_rows(calibration), view, below=below)


def _toml_place(file: str) -> Path:
    """Where a fitted platform can be written, checked before the fit."""
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluate.provenance import check_writable, place_of

    if not file.endswith(".toml"):
        raise InputError(f"--output-file {file}: a platform is a .toml file; name it so")
    place = place_of(file)
    if place.is_dir():
        raise InputError(f"--output-file {file}: is a folder; name a file in it")
    check_writable(place)
    return place
