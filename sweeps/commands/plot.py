"""The commands `nearkv plot FIGURE`: a figure of a table that another command wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearkv.sweeps.commands.drawing import check_figure, save_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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


Where = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN=VALUES", help="Keep only rows with these: context_tok=64k,128k."
    ),
]


def draw(
    table: str,
    file: str,
    figure: Callable[[pd.DataFrame], Axes],
    where: Sequence[str] = (),
) -> None:
    """Draw the rows of a table that are kept; the figure's name is checked first."""
    from nearkv.sweeps.figures.reading import kept, read_table

    check_figure(file)
    save_figure(figure(kept(read_table(table), where)).figure, file)


def bars(
    table: Table,
    file: Figure,
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
    where: Where = [],
) -> None:
    """Draw grouped bars; cells that do not fit are marked OOM, bars too small carry their number.

    Example: nearkv plot bars out.csv --value decode_tok_s --baseline flexgen-ssd -o bars.pdf
    """
    from nearkv.sweeps.figures.bars import bars

    options: dict[str, Any] = {"over": over, "by": by, "baseline": baseline, "width": width}
    draw(table, file, lambda rows: bars(rows, value, log=log, **options), where)


def lines(
    table: Table,
    file: Figure,
    value: Value = "throughput_tok_s",
    over: Over = "",
    by: By = "system",
    width: Width = "page",
    where: Where = [],
) -> None:
    """Draw lines over the context, the batch or any other column of numbers.

    Example: nearkv plot lines out.csv --value step_ms --over context_tok -o lines.pdf
    """
    from nearkv.sweeps.figures.lines import lines

    draw(table, file, lambda rows: lines(rows, value, over=over, by=by, width=width), where)


def breakdown(
    table: Table,
    file: Figure,
    by: By = "system",
    relative: Annotated[
        bool,
        typer.Option("--relative", help="Draw shares of the total instead of seconds."),
    ] = False,
    width: Width = "page",
    where: Where = [],
) -> None:
    """Draw stacked bars of the seconds attributed to each resource.

    Example: nearkv plot breakdown out.csv --relative -o breakdown.pdf
    """
    from nearkv.sweeps.figures.breakdown import breakdown

    draw(
        table,
        file,
        lambda rows: breakdown(rows, by=by, relative=relative, width=width),
        where,
    )


def policy_map(
    table: Table,
    file: Figure,
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
    where: Where = [],
) -> None:
    """Draw which system is best over two axes, and by how much.

    Example: nearkv plot map out.csv --x context_tok --y batch --boundaries flips.csv -o map.pdf
    """
    from nearkv.sweeps.figures.policy_map import policy_map
    from nearkv.sweeps.figures.reading import read_table

    edges = read_table(boundaries) if boundaries else None
    axes: dict[str, Any] = {"x": x, "y": y, "by": by, "width": width}
    draw(table, file, lambda rows: policy_map(rows, value, boundaries=edges, **axes), where)


def pareto(
    table: Table,
    file: Figure,
    x: Across = "cost_usd",
    y: Upwards = "throughput_tok_s",
    by: By = "system",
    width: Width = "page",
    where: Where = [],
) -> None:
    """Draw the designs of a Pareto front.

    Example: nearkv pareto ... --format csv | nearkv plot pareto - -o front.pdf
    """
    from nearkv.sweeps.figures.scatter import pareto

    draw(table, file, lambda rows: pareto(rows, x, y, by=by, width=width), where)


def tornado(table: Table, file: Figure, width: Width = "column") -> None:
    """Draw how far each uncertain number moves a prediction.

    Example: nearkv sensitivity ... --format csv | nearkv plot tornado - -o tornado.pdf
    """
    from nearkv.sweeps.figures.tornado import tornado

    draw(table, file, lambda rows: tornado(rows, width=width))


def parity(table: Table, file: Figure, by: By = "paper", width: Width = "column") -> None:
    """Draw predictions over what the papers state.

    Example: nearkv validate --format csv | nearkv plot parity - -o parity.pdf
    """
    from nearkv.sweeps.figures.scatter import parity

    draw(table, file, lambda rows: parity(rows, by=by, width=width))


def reliability(
    table: Table, file: Figure, by: By = "rows_of", width: Width = "column"
) -> None:
    """Draw how many measurements lie in bands, over how many should.

    Example: nearkv coverage --reliability --format csv | nearkv plot reliability - -o bands.pdf
    """
    from nearkv.sweeps.figures.scatter import reliability

    draw(table, file, lambda rows: reliability(rows, by=by, width=width))
