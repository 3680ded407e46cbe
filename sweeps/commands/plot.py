"""The commands `nearkv plot FIGURE`, `figure` and `report`: pictures of tables and of studies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands import options
from nearkv.sweeps.commands.files import place_ending
from nearkv.sweeps.commands.messages import tell
from nearkv.sweeps.commands.options import argument, arguments, flag, option, with_options

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.figures.papers import PaperFigure


Figure = Annotated[
    str, option("FILE", "The figure to write: .pdf, .svg or .png.", "--output-file", "-o")
]
Font = Annotated[str, option("NAME", "Font of all text: Times New Roman.")]

ValueOption = Annotated[str, option("COLUMN", "The column that is drawn.")]
Over = Annotated[str, option("COLUMN", "The column along the axis; default: what varies.")]
ColourOption = Annotated[
    str, option("COLUMN", "The column whose values have colours of their own.")
]
Width = Annotated[str, option("NAME", "column (3.33 inch) or page (7 inch) of a paper.")]
Across = Annotated[str, option("COLUMN", "The column across.", "--x")]
Upwards = Annotated[str, option("COLUMN", "The column upwards.", "--y")]


def of_figure(
    table: Annotated[
        str,
        argument(
            "TABLE", "A .csv, .jsonl or .parquet table of nearkv; - reads CSV from a pipe."
        ),
    ],
    file: Figure,
    where: Annotated[
        list[str],
        option("COLUMN=VALUES", "Keep only rows with these: context_tok=64k,128k."),
    ] = [],
    title: Annotated[str, option("TEXT", "Title above the figure.")] = "",
    labels: Annotated[
        list[str],
        option(
            "NAME=TEXT", "Print a name of the figure as this: hilos=Ours; may be repeated."
        ),
    ] = [],
    font: Font = "",
    ylim: Annotated[str, option("LOW:HIGH", "Ends of the upright axis.")] = "",
    legend: Annotated[str, option("PLACE", "above, right or none.")] = "",
) -> None:
    """Options of every figure: the table, the file, and what the figure says."""


def draw(
    line: typer.Context, figure: str | Callable[[pd.DataFrame], str], **drawn: Any
) -> None:
    """Draw the rows of a table that are kept, and write the figure as the options say.

    Args:
        line: of a command that takes the options of every figure.
        figure: name of the function of `nearkv.plot`, which takes the command's own options, or
            what chooses it.
        drawn: options in place of the command's own.
    """
    from nearkv.sweeps.commands.drawing import check_figure, save_figure
    from nearkv.sweeps.figures import plot
    from nearkv.sweeps.figures.reading import kept, read_table
    from nearkv.sweeps.figures.style import restyle, use_font
    from nearkv.sweeps.study.sizes import pairs

    stated = line.params
    check_figure(stated["file"])
    use_font(stated["font"])
    rows = kept(read_table(stated["table"]), stated["where"])
    name = figure if isinstance(figure, str) else figure(rows)
    axes = getattr(plot, name)(rows, **arguments(line, of_figure) | drawn)
    labels = pairs(stated["labels"], "--labels")
    restyle(axes, stated["title"], labels, stated["ylim"], stated["legend"])
    save_figure(axes.figure, stated["file"])


@with_options(of_figure)
def bars(
    line: typer.Context,
    value: ValueOption = "throughput_tok_s",
    over: Over = "",
    by: ColourOption = "system",
    baseline: Annotated[
        str, option("NAME", "Divide every group by this value of --by.")
    ] = "",
    log: Annotated[bool, flag("--log", "Make the scale of the bars logarithmic.")] = False,
    width: Width = "page",
) -> None:
    """Draw grouped bars; cells that do not fit are marked OOM, bars too small carry their number.

    Example: nearkv plot bars out.csv --value decode_tok_s --baseline flexgen-ssd -o bars.pdf
    """
    draw(line, "bars")


@with_options(of_figure)
def lines(
    line: typer.Context,
    value: ValueOption = "throughput_tok_s",
    over: Over = "",
    by: ColourOption = "system",
    width: Width = "page",
) -> None:
    """Draw lines over the context, the batch or any other column of numbers.

    Example: nearkv plot lines out.csv --value step_ms --over context_tok -o lines.pdf
    """
    draw(line, "lines")


@with_options(of_figure)
def breakdown(
    line: typer.Context,
    by: ColourOption = "system",
    relative: Annotated[
        bool,
        flag("--relative", "Draw shares of the total instead of seconds."),
    ] = False,
    width: Width = "page",
) -> None:
    """Draw stacked bars of the seconds attributed to each resource.

    Example: nearkv plot breakdown out.csv --relative -o breakdown.pdf
    """
    draw(line, "breakdown")


@with_options(of_figure)
def policy_map(
    line: typer.Context,
    value: ValueOption = "",
    x: Across = "context_tok",
    y: Upwards = "batch",
    by: ColourOption = "",
    boundaries: Annotated[
        str,
        option(
            "FILE",
            "Borders between the best, as `solve crossover` or `design` writes them.",
        ),
    ] = "",
    width: Width = "page",
) -> None:
    """Draw which system is best over two axes, and by how much.

    Of a grid of `design`, a map of technologies for each budget, and the margins; of its break-even
    contours of the value.

    Example: nearkv plot map out.csv --x context_tok --y batch --boundaries flips.csv -o map.pdf
    """
    from nearkv.sweeps.figures.reading import read_table

    edges = read_table(boundaries, may_be_empty=True) if boundaries else ()
    draw(line, _map_of, boundaries=edges if len(edges) else None)


def _map_of(table: pd.DataFrame) -> str:
    """The map that suits a table: of a break-even, a grid of machines, or of systems."""
    if "owner_wins" in table:
        return "break_even_map"
    return "region_map" if "technology" in table else "policy_map"


@with_options(of_figure)
def pareto(
    line: typer.Context,
    x: Across = "cost_usd",
    y: Upwards = "throughput_tok_s",
    by: ColourOption = "system",
    colour: Annotated[str, option("COLUMN", "A third column, which colours points.")] = "",
    width: Width = "page",
) -> None:
    """Draw designs and the Pareto front of each workload, its knee marked.

    Example: nearkv pareto ... --format csv | nearkv plot pareto - -o front.pdf
    """
    draw(line, "pareto")


@with_options(of_figure)
def tornado(line: typer.Context, width: Width = "column") -> None:
    """Draw how far each uncertain number moves a prediction, or its share of the variance.

    Example: nearkv sensitivity ... --format csv | nearkv plot tornado - -o tornado.pdf
    """
    draw(line, "tornado")


@with_options(of_figure)
def roofline(line: typer.Context, width: Width = "column") -> None:
    """Draw the operators of a prediction below the roofs of what they run on.

    Example: nearkv estimate ... --explain --format csv | nearkv plot roofline - -o roofline.pdf
    """
    draw(line, "roofline")


@with_options(of_figure)
def footprint(line: typer.Context, width: Width = "column") -> None:
    """Draw what lies in each memory, and how much of it that is.

    Example: nearkv estimate ... --footprint --format csv | nearkv plot footprint - -o memory.pdf
    """
    draw(line, "footprint")


@with_options(of_figure)
def parity(
    line: typer.Context, by: ColourOption = "paper", width: Width = "column"
) -> None:
    """Draw predictions over what the papers state.

    Example: nearkv validate --format csv | nearkv plot parity - -o parity.pdf
    """
    draw(line, "parity")


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
    stated = options.stated_words(line)
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
    from nearkv.sweeps.evaluate.provenance import command, write_text
    from nearkv.sweeps.figures.report import report_page

    place = place_ending(file, ".html")
    chosen = options.study_or_file(line, study_file, system)
    write_text(place, report_page(chosen, command()))
    tell(f"wrote {file}")
