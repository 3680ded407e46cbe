"""The command `coverage`: how many measured runs lie in the bands predicted without them."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import flag
from nearkv.sweeps.commands.printing import print_table

HEADING = """# Coverage: how many measured runs lie in the bands

For those who ask whether bands are as wide as errors are.

Every measured and simulated row whose metric is a column (inputs of the models, one-sided bounds
and rows that contradict their own paper left out), each in a band whose model error is estimated
from *other* sources alone. inside is the share of the rows that lie inside their 90 % band,
inside_by_source the mean of the sources' shares; a row that states a range does so with both ends.
width is the upper over the lower end of the band (median), score its interval score in logarithms
(mean; less is better, and a wide band does not pay). strangers are rows of sources that no fit has
seen. `make bands` writes this page and the model errors.
"""


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

    table = evidence.coverage(record=record)
    view = options.view_of(line)
    if view.form == "markdown":
        typer.echo(HEADING)
    print_table(table, view)
