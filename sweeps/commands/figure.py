"""The command `nearkv figure`: a figure of a paper, predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.options import argument, option
from nearkv.sweeps.commands.plot import Font

if TYPE_CHECKING:
    from nearkv.sweeps.figures.papers import PaperFigure


@options.with_options(options.of_study)
def figure(
    line: typer.Context,
    name: Annotated[
        str,
        argument(
            "FIGURE",
            "A study with a [figure] table, of the catalogue or FILE.toml; none lists them.",
        ),
    ] = "",
    file: Annotated[
        str,
        option(
            "FILE",
            "Write FILE.pdf, .svg or .png; default: the figure's name with .pdf.",
            "--output-file",
            "-o",
        ),
    ] = "",
    system: options.SystemNames = "",
    font: Font = "",
) -> None:
    """Draw a figure of a paper: our predictions, and beside them what the paper states.

    Options vary the figure's study; it then says what is not the paper's, and compares nothing.

    Example: nearkv figure hilos-fig10 --part gpu=h100-sxm -o fig10.pdf
    """
    from pathlib import Path

    from nearkv.sweeps.commands.drawing import check_figure, save_figure
    from nearkv.sweeps.commands.printing import print_table
    from nearkv.sweeps.figures.papers import draw, figure_titles, paper_figure
    from nearkv.sweeps.figures.style import use_font

    if not name:
        titles = figure_titles()
        print_table([{"figure": name, "what": title} for name, title in titles.items()])
        return
    path = file or f"{Path(name).stem}.pdf"
    check_figure(path)
    use_font(font)
    stated = options.stated(line)
    drawn = paper_figure(name, options.study_of(line, system), stated)
    save_figure(draw(drawn), path, f"; {summary(drawn)}")


def summary(drawn: PaperFigure) -> str:
    """Return in words how much of a figure is stated."""
    from nearkv.sweeps.tables.table import counted

    count = len(drawn.statements)
    if drawn.varied:
        return f"{drawn.title}; {drawn.varied}"
    if not count:
        return f"{drawn.title}; the paper's text states none of its numbers"
    return f"{drawn.title}; {counted(count, 'statement')} of the paper beside it"
