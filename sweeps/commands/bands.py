"""The options of bands, and what a band is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nearkv.sweeps.commands.printing import show_rows

if TYPE_CHECKING:
    from nearkv.sweeps.evaluate.evaluate import Columns
    from nearkv.sweeps.study.study import Study

Band = Annotated[
    float | None,
    typer.Option(
        "--band",
        metavar="PERCENT",
        help="Add the interval that holds this share of the draws, and their median: 90.",
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        "--samples",
        metavar="N",
        help="Number of draws for --band.",
    ),
]


def show_band(study: Study) -> None:
    """Print what the band of a design point is made of."""
    from nearkv.sweeps.study.study import blocks
    from nearkv.sweeps.uncertainty.made_of import error_rows, number_rows

    (block,) = blocks(study)
    title = f"drawn {study.samples:,} times for the {study.band:g} % band"
    show_rows(number_rows(block), title=title)
    title = "error of the models: spread of ln(predicted / measured) beyond these ranges"
    show_rows(error_rows(block), title=title)


def ratio_columns(table: Columns) -> list[str]:
    """Columns of a comparison that a terminal shows whatever fits: ratios and their bands."""
    names = [name for name in table if name.endswith("_ratio")]
    if "faster_share" in table:
        names += [name for name in table if name.startswith("speedup_p")]
        names.append("faster_share")
    return names
