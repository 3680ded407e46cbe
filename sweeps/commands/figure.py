"""The command `nearkv figure`: a figure of a paper, predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from nearkv.sweeps.figures.papers import PaperFigure


def figure(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE",
            help="A study with a [figure] table, of the catalogue or FILE.toml; none lists them.",
        ),
    ] = "",
    file: Annotated[
        str,
        typer.Option(
            "--output-file",
            "-o",
            metavar="FILE",
            help="Write FILE.pdf, .svg or .png; default: the figure's name with .pdf.",
        ),
    ] = "",
) -> None:
    """Draw a figure of a paper: our predictions, and beside them what the paper states.

    Example: nearkv figure hilos-fig10 -o fig10.pdf
    """
    from pathlib import Path

    from nearkv.sweeps.commands.drawing import check_figure, save_figure
    from nearkv.sweeps.figures.papers import draw, paper_figure

    if not name:
        list_figures()
        return
    path = file or f"{Path(name).stem}.pdf"
    check_figure(path)
    drawn = paper_figure(name)
    save_figure(draw(drawn), path, f"; {summary(drawn)}")


def list_figures() -> None:
    """Print the name and the title of every figure."""
    from nearkv.sweeps.commands.printing import print_table
    from nearkv.sweeps.figures.papers import figure_titles

    rows = [{"figure": name, "what": title} for name, title in figure_titles().items()]
    print_table(rows)


def summary(drawn: PaperFigure) -> str:
    """Return in words how much of a figure is stated."""
    from nearkv.sweeps.tables.table import counted

    count = len(drawn.statements)
    if not count:
        return f"{drawn.title}; the paper's text states none of its numbers"
    return f"{drawn.title}; {counted(count, 'statement')} of the paper beside it"
