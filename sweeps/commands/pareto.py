"""The command `nearkv pareto`: the non-dominated designs of a sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import option
from nearkv.sweeps.commands.printing import ask, print_table, tell

DESIGN = "system,model,platform,batch,context_tok,output_tokens,devices,step_ms"
"""Columns that a terminal shows of a design."""


@options.with_options(options.of_study, options.View)
def pareto(
    line: typer.Context,
    study_file: options.StudyFile = "",
    system: options.SystemNames = "",
    by: Annotated[
        str, option("COLUMNS", "The two or three columns to trade off.")
    ] = "throughput_tok_s,cost_usd",
    where: Annotated[
        list[str],
        option(
            "COLUMN<=VALUE",
            "Keep only such designs: step_ms<=200; step_ms=200 means the better side.",
        ),
    ] = [],
    yes: options.Yes = False,
) -> None:
    """Keep the Pareto-optimal designs of a sweep.

    More is better of rates and endurance, less of all else.

    Example: nearkv pareto --system hilos --model opt-66b --batch 1:64:+1 --set csd.count=1:16:+1
    """
    from nearkv.sweeps.api import questions
    from nearkv.sweeps.jobs.progress import SweepRun
    from nearkv.sweeps.jobs.workers import Workers
    from nearkv.sweeps.study.sizes import comma_list
    from nearkv.sweeps.study.study_files import either

    view = options.view_of(line)
    study = either(study_file, options.study_of(line, system), options.stated(line))
    run = SweepRun(Workers(), False, False, tell, lambda text: yes or ask(text))
    also = comma_list(view.columns)
    front = questions.pareto(study, by=by, where=where, also=also, run=run, empty=True)
    print_table(front, view, f"{DESIGN},{by},note", study, comma_list(by))
