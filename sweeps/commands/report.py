"""The command `nearkv report`: one page of a study that a browser opens."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.messages import tell
from nearkv.sweeps.commands.options import option


@options.with_options(options.of_study)
def report(
    line: typer.Context,
    file: Annotated[
        str,
        option("FILE.html", "The page to write.", "--output-file", "-o"),
    ],
    study_file: options.StudyFile = "",
    system: options.SystemNames = "",
) -> None:
    """Write one page with the answer, figures, the table, time trees and every source.

    The page needs no other file and no network; it sorts, filters and copies in the browser.

    Example: nearkv report --system flexgen-ssd,hilos --model opt-66b --context 16k,64k -o r.html
    """
    import shlex

    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluate.provenance import check_writable, place_of, write_text
    from nearkv.sweeps.figures.report import report_page

    if not file.endswith(".html"):
        raise InputError(f"-o {file}: a report is a page; its name ends in .html")
    path = place_of(file)
    check_writable(path)
    chosen = options.study_or_file(line, study_file, system)
    command = shlex.join(["nearkv", *sys.argv[1:]])
    write_text(path, report_page(chosen, command))
    tell(f"wrote {file}")
