"""The commands `nearkv plot FIGURE`: a figure of a table that another command wrote."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from nearkv.sweeps.commands.drawing import check_figure, save_figure

Rows: TypeAlias = Any
"""A DataFrame, which is loaded only when something is drawn."""
Axes: TypeAlias = Any
"""Of matplotlib, likewise."""
Table = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A .csv, .jsonl or .parquet table of nearkv; - reads CSV from a pipe.",
    ),
]
Figure = Annotated[
    str,
    typer.Option(
        "--output-file",
        "-o",
        metavar="FILE",
        help="The figure to write: .pdf, .svg or .png.",
    ),
]
Where = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN=VALUES", help="Keep only rows with these: context_tok=64k,128k."
    ),
]
Title = Annotated[str, typer.Option(metavar="TEXT", help="What stands above the figure.")]
Labels = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=TEXT",
        help="Print a name of the figure as this: hilos=Ours; may be repeated.",
    ),
]
Font = Annotated[
    str, typer.Option(metavar="NAME", help="Font of all text: Times New Roman.")
]
Limits = Annotated[str, typer.Option(metavar="LOW:HIGH", help="Ends of the upright axis.")]
Legend = Annotated[str, typer.Option(metavar="PLACE", help="above, right or none.")]

Value = Annotated[str, typer.Option(metavar="COLUMN", help="The column that is drawn.")]
Over = Annotated[
    str,
    typer.Option(metavar="COLUMN", help="The column along the axis; default: what varies."),
]
By = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="The column whose values have colours of their own."
    ),
]
Width = Annotated[
    str,
    typer.Option(metavar="NAME", help="column (3.33 inch) or page (7 inch) of a paper."),
]
Across = Annotated[str, typer.Option("--x", metavar="COLUMN", help="The column across.")]
Upwards = Annotated[str, typer.Option("--y", metavar="COLUMN", help="The column upwards.")]


def figure_command(draw: Callable[..., Axes]) -> Callable[..., None]:
    """Return the command of a figure: read a table, draw its rows, write the figure.

    Args:
        draw: the rows first, then options of its own; its docstring is the command's help.
    """

    def command(
        table: Table,
        file: Figure,
        where: Where = [],
        title: Title = "",
        labels: Labels = [],
        font: Font = "",
        ylim: Limits = "",
        legend: Legend = "",
        **own: Any,
    ) -> None:
        from nearkv.sweeps.figures.reading import kept, read_table
        from nearkv.sweeps.figures.style import restyle, use_font
        from nearkv.sweeps.study.sizes import pairs

        check_figure(file)
        use_font(font)
        axes = draw(kept(read_table(table), where), **own)
        restyle(axes, title, pairs(labels, "--labels"), ylim, legend)
        save_figure(axes.figure, file)

    *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
    _, *own = inspect.signature(draw, eval_str=True).parameters.values()
    in_order = [*shared[:2], *own, *shared[2:]]
    command.__signature__ = inspect.Signature(in_order)  # type: ignore[attr-defined]
    command.__annotations__ |= {option.name: option.annotation for option in own}
    command.__name__, command.__doc__ = draw.__name__, draw.__doc__
    return command


@figure_command
def bars(
    rows: Rows,
    value: Value = "throughput_tok_s",
    over: Over = "",
    by: By = "system",
    baseline: Annotated[
        str, typer.Option(metavar="NAME", help="Divide every group by this value of --by.")
    ] = "",
    log: Annotated[
        bool, typer.Option("--log", help="Make the scale of the bars logarithmic.")
    ] = False,
    width: Width = "page",
) -> Axes:
    """Draw grouped bars; cells that do not fit are marked OOM, bars too small carry their number.

    Example: nearkv plot bars out.csv --value decode_tok_s --baseline flexgen-ssd -o bars.pdf
    """
    from nearkv.sweeps.figures.bars import bars

    options: dict[str, Any] = {"over": over, "by": by, "baseline": baseline}
    return bars(rows, value, log=log, width=width, **options)


@figure_command
def lines(
    rows: Rows,
    value: Value = "throughput_tok_s",
    over: Over = "",
    by: By = "system",
    width: Width = "page",
) -> Axes:
    """Draw lines over the context, the batch or any other column of numbers.

    Example: nearkv plot lines out.csv --value step_ms --over context_tok -o lines.pdf
    """
    from nearkv.sweeps.figures.lines import lines

    return lines(rows, value, over=over, by=by, width=width)


@figure_command
def breakdown(
    rows: Rows,
    by: By = "system",
    relative: Annotated[
        bool,
        typer.Option("--relative", help="Draw shares of the total instead of seconds."),
    ] = False,
    width: Width = "page",
) -> Axes:
    """Draw stacked bars of the seconds attributed to each resource.

    Example: nearkv plot breakdown out.csv --relative -o breakdown.pdf
    """
    from nearkv.sweeps.figures.breakdown import breakdown

    return breakdown(rows, by=by, relative=relative, width=width)


@figure_command
def policy_map(
    rows: Rows,
    value: Value = "throughput_tok_s",
    x: Across = "context_tok",
    y: Upwards = "batch",
    by: By = "system",
    boundaries: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="A table of `solve crossover`: where exactly the best changes.",
        ),
    ] = "",
    width: Width = "page",
) -> Axes:
    """Draw which system is best over two axes, and by how much.

    Example: nearkv plot map out.csv --x context_tok --y batch --boundaries flips.csv -o map.pdf
    """
    from nearkv.sweeps.figures.policy_map import policy_map
    from nearkv.sweeps.figures.reading import read_table

    edges = read_table(boundaries) if boundaries else None
    axes: dict[str, Any] = {"x": x, "y": y, "by": by, "width": width}
    return policy_map(rows, value, boundaries=edges, **axes)


@figure_command
def pareto(
    rows: Rows,
    x: Across = "cost_usd",
    y: Upwards = "throughput_tok_s",
    by: By = "system",
    colour: Annotated[
        str, typer.Option(metavar="COLUMN", help="A third column, which colours points.")
    ] = "",
    width: Width = "page",
) -> Axes:
    """Draw designs and the Pareto front of each workload, its knee marked.

    Example: nearkv pareto ... --format csv | nearkv plot pareto - -o front.pdf
    """
    from nearkv.sweeps.figures.scatter import pareto

    return pareto(rows, x, y, by=by, colour=colour, width=width)


@figure_command
def tornado(rows: Rows, width: Width = "column") -> Axes:
    """Draw how far each uncertain number moves a prediction, or its share of the variance.

    Example: nearkv sensitivity ... --format csv | nearkv plot tornado - -o tornado.pdf
    """
    from nearkv.sweeps.figures.tornado import tornado

    return tornado(rows, width=width)


@figure_command
def roofline(rows: Rows, width: Width = "column") -> Axes:
    """Draw the operators of a prediction below the roofs of what they run on.

    Example: nearkv estimate ... --explain --format csv | nearkv plot roofline - -o roofline.pdf
    """
    from nearkv.sweeps.figures.roofline import roofline

    return roofline(rows, width=width)


@figure_command
def footprint(rows: Rows, width: Width = "column") -> Axes:
    """Draw what lies in each memory, and how much of it that is.

    Example: nearkv estimate ... --footprint --format csv | nearkv plot footprint - -o memory.pdf
    """
    from nearkv.sweeps.figures.breakdown import footprint

    return footprint(rows, width=width)


@figure_command
def parity(rows: Rows, by: By = "paper", width: Width = "column") -> Axes:
    """Draw predictions over what the papers state.

    Example: nearkv validate --format csv | nearkv plot parity - -o parity.pdf
    """
    from nearkv.sweeps.figures.scatter import parity

    return parity(rows, by=by, width=width)


@figure_command
def reliability(rows: Rows, by: By = "rows_of", width: Width = "column") -> Axes:
    """Draw how many measurements lie in bands, over how many should.

    Example: nearkv coverage --reliability --format csv | nearkv plot reliability - -o bands.pdf
    """
    from nearkv.sweeps.figures.scatter import reliability

    return reliability(rows, by=by, width=width)
