"""The commands `nearkv validate`, `calibrate` and `coverage`: predictions beside runs."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.files import place_ending
from nearkv.sweeps.commands.messages import tell
from nearkv.sweeps.commands.options import argument, flag, option
from nearkv.sweeps.commands.printing import print_table
from nearkv.sweeps.validation.claims import papers

CLAIM_COLUMNS = (
    "paper,id,stated,predicted,verdict,unit,claim,error,bound,where,explanation,command"
)
"""Columns a terminal shows of a claim; CSV and JSON hold all."""
VERDICT_COLUMNS = ("id", "stated", "predicted", "error", "verdict")
"""Columns that a verdict follows from, shown at any width."""
VALIDATION_HEADING = """# Validation: every published claim beside its prediction

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
    from nearkv.sweeps.api.tables import findings_of
    from nearkv.sweeps.commands.below import counted_by
    from nearkv.sweeps.study.sizes import comma_list
    from nearkv.sweeps.tables.table import Display
    from nearkv.sweeps.tables.terminal import lay_out

    view = options.view_of(line)
    verdicts = comma_list(verdict)
    table = evidence.validate(
        paper, ids=ids, claims=claims, verdicts=verdicts, record=record
    )
    rows, counts = findings_of(table).rows, table.attrs["counts"]
    below = []
    if counts and view.form == "markdown":
        typer.echo(VALIDATION_HEADING)
        print_table(counts, options.View(form="markdown"))
        typer.echo()
    elif counts and view.is_for_people:
        below = [lay_out(Display(counts)).rstrip()]
    below.append(counted_by(rows, "verdict", "claim"))
    print_table(rows, view, CLAIM_COLUMNS, extra=VERDICT_COLUMNS, below=below)
    for sentence in table.attrs["worse"]:
        typer.echo(f"nearkv: {sentence}", err=True)
    if table.attrs["worse"]:
        raise typer.Exit(1)


def calibrate(
    claims: Annotated[str, option("PAPER", "Fit to its measured claims: hilos.")] = "",
    measurements: Annotated[
        str,
        option(
            "FILE.csv", "Fit to runs: system,model,batch,context,output_tokens,step_ms."
        ),
    ] = "",
    platform: Annotated[
        str,
        option("PLATFORM", "The machine; default: that of the claims, or of the system."),
    ] = "",
    factor: Annotated[
        list[str], option("ROLE.KEY", "A number to fit: derate.pcie. At most six.")
    ] = [],
    file: Annotated[
        str, option("FILE.toml", "Write the fitted platform.", "--output-file", "-o")
    ] = "",
    columns: options.ColumnsOption = "",
    form: options.Format = "table",
) -> None:
    """Fit assumed numbers of a platform inside their ranges; say what the rows do not determine.

    By default those of kind assumed or fitted that move the rows most, at most six. Intervals
    hold for all factors at once with 95 %. A row left out is predicted by a fit to the others.
    FILE.toml then serves as --platform.

    Example: nearkv calibrate --measurements my.csv --platform aipc-4090 -o my.toml
    """
    from nearkv.sweeps.api import evidence
    from nearkv.sweeps.api.tables import findings_of
    from nearkv.sweeps.tables.formats import check_format

    check_format(form)
    place = place_ending(file, ".toml") if file else None
    fit = evidence.calibrate(
        measurements or None,
        claims=claims,
        platform=platform,
        factors=factor,
    )
    if place:
        fit.save(place)
        tell(f"wrote {place}; use it as --platform {place}")
    view = options.View(columns, form)
    is_whole = form == "table" and not columns
    print_table(findings_of(fit.factors), view, below=() if is_whole else fit.summary)
    if is_whole:
        print_table(findings_of(fit.residuals), view, below=fit.summary)


COVERAGE_HEADING = """# Coverage: how many measured runs lie in the bands

For those who ask whether bands are as wide as errors are.

Every measured and simulated row whose metric is a column (inputs of the models, one-sided bounds
and rows that contradict their own paper left out), each in a band whose model error is estimated
from *other* sources alone. inside is the share of the rows that lie inside their 90 % band,
inside_by_source the mean of the sources' shares; a row that states a range does so with both ends.
width is the upper over the lower end of the band (median), score its interval score in logarithms
(mean; less is better, and a wide band does not pay). strangers are rows of sources that no fit has
seen. `make bands` writes this page and the model errors.
"""

COVERAGE_COLUMNS = [
    "inside: share of the rows inside their 90 % band; inside_by_source: the mean of the sources' "
    "shares; width: upper over lower end of the band, the median; score: interval score in "
    "logarithms, less is better; strangers: rows of sources that no fit has seen."
]
"""Meaning of the columns of a coverage, below its table."""


@options.with_options(options.View)
def coverage(
    line: typer.Context,
    record: Annotated[
        bool,
        flag("--record", "Pool the model errors anew, for every later band."),
    ] = False,
) -> None:
    """Say how many measured runs lie in the bands that are predicted without them.

    A claim's band has the model error of the rows of other papers and sources.

    Example: nearkv coverage --format csv
    """
    from nearkv.sweeps.api import evidence
    from nearkv.sweeps.api.tables import findings_of

    table = evidence.coverage(record=record)
    view = options.view_of(line)
    if view.form == "markdown":
        typer.echo(COVERAGE_HEADING)
    print_table(findings_of(table), view, below=COVERAGE_COLUMNS)
