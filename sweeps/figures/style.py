"""What every figure shares: a paper's widths, colours, hatches, embedded text, saving to a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.evaluate.provenance import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

WIDTHS: Mapping[str, float] = {"column": 3.33, "page": 7.0}
"""Figure widths of a two-column paper [inch]."""

HEIGHT = 2.4
"""Height of every figure [inch]."""

TICK_WIDTH = 0.35
"""Width of a number under an axis, and the gap to the next [inch]."""

LETTER_WIDTH, HANDLE_WIDTH = 0.055, 0.42
"""Widths of a letter in a legend, and of what stands before and after a name [inch]."""

MOST_COLUMNS = 4
"""Names of a legend in a row."""

FORMATS = ("pdf", "svg", "png")

UNDATED: Mapping[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
"""No date in a file, so that the same numbers give the same bytes."""

COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#F0E442",
    "#000000",
)
"""Eight colours that readers with any colour vision tell apart (Okabe and Ito, 2008)."""

HATCHES = ("", "//", "..", "\\\\", "xx", "++", "o", "--")
"""Patterns that tell bars apart in a black-and-white print."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

SETTINGS: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "legend.fontsize": 7.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "text.parse_math": False,
}
"""Matplotlib settings: small type, no box, text kept as text (TrueType in PDF, <text> in SVG).

Names are the user's: what stands between two dollars in one is no formula.
"""


def styled(draw: Callable[P, Axes]) -> Callable[P, Axes]:
    """Make a function draw with the settings every figure shares.

    Raises:
        InputError: when called where the drawing library is not installed.
    """

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Axes:
        with load_pyplot().rc_context(SETTINGS):
            return draw(*args, **kwargs)

    return drawn


def new_axes(axes: Axes | None, width: str = "page", height: float = HEIGHT) -> Axes:
    """Return the given axes, or those of a new figure.

    Args:
        axes: where to draw; None makes a figure.
        width: `column` or `page`, the width of the new figure.
        height: of the new figure [inch].

    Raises:
        InputError: the width has another name.
    """
    if axes is not None:
        return axes
    if width not in WIDTHS:
        raise unknown("width", width, WIDTHS)
    size = (WIDTHS[width], height)
    _, created = load_pyplot().subplots(figsize=size, layout="constrained")
    return created  # type: ignore[no-any-return]


def log_scale(axes: Axes, along: str, base: float = 10.0) -> None:
    """Make one axis logarithmic; its numbers are plain, as no text is read as a formula.

    Args:
        along: `x` or `y`.
        base: of the logarithm, on whose powers the numbers stand.
    """
    from matplotlib.ticker import LogFormatter

    if along == "x":
        axes.set_xscale("log", base=base)
    else:
        axes.set_yscale("log", base=base)
    axis = axes.xaxis if along == "x" else axes.yaxis
    axis.set_major_formatter(LogFormatter(base))
    axis.set_minor_formatter(LogFormatter(base))


def most_ticks(axes: Axes) -> int:
    """Return how many numbers fit along axes."""
    return max(2, int(_panel_width(axes) / TICK_WIDTH))


def _panel_width(axes: Axes) -> float:
    """Return the width of axes [inch], whose panel may be one of several in a row."""
    place = axes.get_subplotspec()
    panels = place.get_gridspec().ncols if place else 1
    figure: Any = axes.get_figure(root=True)
    return float(figure.get_figwidth() / panels)


def load_pyplot() -> Any:
    """Return `matplotlib.pyplot`, imported only when something is drawn.

    Raises:
        InputError: it is not installed; the sentence names the extra that brings it.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InputError(
            "figures need matplotlib, which is not installed; run `pip install 'nearkv[plot]'`"
        ) from None
    return pyplot


def colour(index: int) -> str:
    """Return the colour of the index-th series; they repeat after eight."""
    return COLOURS[index % len(COLOURS)]


def bar_style(index: int) -> dict[str, Any]:
    """Return how the index-th series of bars looks: a colour and a pattern of its own."""
    turn = index // len(COLOURS)  # after eight colours the patterns move on by one
    pattern = HATCHES[(index + turn) % len(HATCHES)]
    return {
        "color": colour(index),
        "hatch": pattern,
        "edgecolor": "white",
        "linewidth": 0.4,
    }


def line_style(index: int) -> dict[str, Any]:
    """Return how the index-th line looks: a colour and a marker of its own."""
    return {"color": colour(index), "marker": MARKERS[index % len(MARKERS)]}


def legend_above(axes: Axes) -> None:
    """Put the legend above the axes, as many names in a row as its width holds."""
    _, names = axes.get_legend_handles_labels()
    widest = max(len(name) for name in names) * LETTER_WIDTH + HANDLE_WIDTH
    fitting = int((_panel_width(axes) - HANDLE_WIDTH) / widest)
    columns = max(1, min(len(names), MOST_COLUMNS, fitting))
    axes.legend(ncols=columns, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))


def check_format(path: str | Path) -> None:
    """Refuse a file name whose ending is no format of a figure.

    Raises:
        InputError: naming the endings that are.
    """
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise InputError(f"{path}: the name of a figure's file ends in one of {endings}")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure, which takes its name only once complete.

    Raises:
        InputError: an unknown format, or a place that cannot be written.
    """
    import matplotlib as mpl

    check_format(path)
    target = Path(path)
    form = target.suffix.removeprefix(".").lower()
    drawn = BytesIO()  # what draws cannot tell a full disk
    with mpl.rc_context(SETTINGS):
        figure.savefig(drawn, format=form, dpi=300, metadata=UNDATED.get(form))
    with replacing(target) as file:
        file.buffer.write(drawn.getvalue())
