"""The command `nearkv sensitivity`: what a prediction depends on."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import flag
from nearkv.sweeps.commands.printing import print_table


@options.with_options(options.of_study, options.View)
def sensitivity(
    line: typer.Context,
    system: options.SystemArgument,
    of: options.Of = "throughput_tok_s",
    sobol: Annotated[
        bool,
        flag("--sobol", "Shares of the band's variance, and what measuring a number buys."),
    ] = False,
) -> None:
    """Say which hardware numbers a prediction depends on, and how far its assumptions reach.

    With --sobol, the share of the band's variance that each unknown explains alone and in total,
    and how wide the band is once it is known: what to measure before you believe the prediction.

    Example: nearkv sensitivity hilos --model opt-66b --batch 16 --context 64k
    """
    from nearkv.sweeps.api import questions

    view, study = options.view_of(line), options.study_of(line, [system])
    table = questions.sensitivity(study, of=of, sobol=sobol)
    print_table(table, view, study=study)
