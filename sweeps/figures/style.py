"""Style of figures: a paper's widths, colours, hatches, embedded text, saving to a file."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from nearkv.hardware.errors import InputError, check_known, unknown
from nearkv.hardware.files import is_known, path_of, read_toml
from nearkv.sweeps.evaluate.provenance import replacing
from nearkv.sweeps.tables.labels import label_of
from nearkv.sweeps.tables.unequal import unequal

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

PAGE_WIDTHS: Mapping[str, float] = {"column": 3.33, "page": 7.0}
"""Figure widths of a two-column paper [inch]."""

HEIGHT = 2.4
"""Height of every figure [inch]."""

TICK_WIDTH = 0.35
"""Width of a number under an axis, and the gap to the next [inch]."""

LETTER_WIDTH, HANDLE_WIDTH = 0.055, 0.42
"""Widths of a letter in a legend, and of what stands before and after a name [inch]."""

LABEL_WIDTH = 0.65
"""Width of what stands left of axes, where a legend does not begin [inch]."""

LEGEND_LINE = 0.16
"""Height of a line of a legend [inch]."""

SMALL_PRINT = 5.0
"""Height of letters below a figure [point]."""

LETTER_SHARE, LINE_SHARE = 0.55, 1.25
"""Width of a letter and height of a line over the height of letters [1]."""

POINTS_AN_INCH = 72.0

MOST_PANEL_COLUMNS = 4
"""Names of a legend in a row."""

LARGEST_IN_FULL = 1e5
"""Largest number on a logarithmic axis that is written in full."""

IMAGE_ENDINGS = (".pdf", ".svg", ".png")
"""Files of these endings are figures."""

NAME_COLUMNS = ("system", "model", "series", "paper")
"""Columns of names that are drawn as papers print them."""

UNDATED: Mapping[str, Any] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""No date in a file, so that the same numbers give the same bytes."""

COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#000000",
    "#888888",
)
"""Colours that readers with any colour vision tell apart (Okabe and Ito, 2008).

Grey is in place of their yellow, which is too light for a line on white.
"""

HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "++++", "||||", "//--")
"""Patterns of lines that tell bars apart in a black-and-white print."""

SERIES_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

DASHES = ("-", "--", ":", "-.")

MOST_WHITE, MOST_BLACK = 0.5, 0.5
"""Shares of white and of black in the first and in the last of several steps of a hue."""

SETTINGS: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "legend.fontsize": 7.0,
    "legend.title_fontsize": 7.0,
    "figure.titlesize": 8.0,
    "figure.labelsize": 8.0,
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


def styled(
    draw: Callable[Concatenate[pd.DataFrame, P], Axes],
) -> Callable[Concatenate[pd.DataFrame, P], Axes]:
    """Make a function draw with the settings every figure shares, and names as papers print them.

    Raises:
        InputError: when called where the drawing library is not installed.
    """

    @functools.wraps(draw)
    def drawn(table: pd.DataFrame, /, *args: P.args, **kwargs: P.kwargs) -> Axes:
        named = {name: table[name].map(spelled) for name in NAME_COLUMNS if name in table}
        with load_pyplot().rc_context(SETTINGS):
            return draw(table.assign(**named), *args, **kwargs)

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
    check_known("width", [width], PAGE_WIDTHS)
    size = (PAGE_WIDTHS[width], height)
    _, created = load_pyplot().subplots(figsize=size, layout="constrained")
    return created  # type: ignore[no-any-return]


def log_scale(axes: Axes, along: str, base: float = 10.0) -> None:
    """Make one axis logarithmic; its numbers are plain, as no text is read as a formula.

    Args:
        along: `x` or `y`.
        base: of the logarithm, on whose powers the numbers stand.
    """
    from matplotlib.ticker import LogFormatter

    getattr(axes, f"set_{along}scale")("log", base=base)
    axis = getattr(axes, f"{along}axis")
    axis.set_major_formatter(lambda number, _: plain_power(number))
    axis.set_minor_formatter(LogFormatter(base))


def plain_power(number: float) -> str:
    """Return a power as an axis shows it: in full up to 100,000.

    >>> plain_power(1e5), plain_power(0.01), plain_power(1e14)
    ('100,000', '0.01', '1e+14')
    """
    return f"{number:,.10g}" if number <= LARGEST_IN_FULL else f"{number:.0e}"


def most_ticks(axes: Axes) -> int:
    """Return how many numbers fit along axes."""
    return max(2, int(panel_width(axes) / TICK_WIDTH))


def panel_width(axes: Axes) -> float:
    """Return the width of axes [inch], whose panel may be one of several in a row."""
    place = axes.get_subplotspec()
    panels = place.get_gridspec().ncols if place else 1
    return float(figure_of(axes).get_figwidth() / panels)


def figure_of(axes: Axes) -> Any:
    """Return the whole figure that axes stand in."""
    return axes.get_figure(root=True)


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


@dataclass(frozen=True)
class Look:
    """Style of a series: colour and marker or pattern differ from those of any other.

    Attributes:
        colour: as matplotlib takes it.
        hatch: of bars.
        marker, dash: of lines.
    """

    colour: Any
    hatch: str
    marker: str
    dash: str

    @property
    def bar(self) -> dict[str, Any]:
        """Options of bars."""
        return {
            "facecolor": self.colour,
            "hatch": self.hatch,
            "edgecolor": "white",
            "linewidth": 0,
        }

    @property
    def line(self) -> dict[str, Any]:
        """Options of lines."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash}


def looks(names: Sequence[object]) -> list[Look]:
    """Return how each series looks: a hue a system, in steps where a knob of it has several values.

    Values of a second knob have a pattern each, in steps that begin anew.

    >>> [look.hatch for look in looks(["HILOS, devices 4", "HILOS, devices 8", "FLEX(SSD)"])]
    ['', '', '////']
    """
    texts = [str(name) for name in names]
    hues = [text.partition(", ")[0] for text in texts]
    knobs = {re.sub(r" [\d.].*", "", text) for text in texts}  # "alpha 0.5" is one of alpha
    numbers = all(isinstance(name, int | float | np.number) for name in names)
    if numbers or (len(knobs) == 1 and "," not in "".join(texts)):
        hues = [""] * len(texts)
    order = list(dict.fromkeys(hues))
    series = []
    for index, hue in enumerate(hues):
        place = order.index(hue)
        turn = place // len(COLOURS)  # after all colours patterns move on by one
        own = [text for text, other in zip(texts, hues, strict=True) if other == hue]
        further = list(dict.fromkeys(map(_further, own)))
        pattern = further.index(_further(texts[index]))
        alike = [text for text in own if _further(text) == further[pattern]]
        count, number = len(alike), alike.index(texts[index])
        shade = 2 * number / (count - 1) - 1 if count > 1 else -float(turn > 0)
        look = Look(
            _shaded(colour(place), shade),
            HATCHES[(place + turn + pattern) % len(HATCHES)],
            SERIES_MARKERS[index % len(SERIES_MARKERS)],
            DASHES[(index // len(SERIES_MARKERS)) % len(DASHES)],
        )
        series.append(look)
    return series


def _further(text: str) -> str:
    """Return the knobs of a series behind its system and the first of them."""
    return text.partition(", ")[2].partition(", ")[2]


def _shaded(name: str, shade: float) -> tuple[float, ...]:
    """Return a colour mixed with white at -1 and with black at 1, as it is at 0."""
    from matplotlib.colors import to_rgb

    ground = 1.0 if shade < 0 else 0.0
    share = MOST_WHITE * -shade if shade < 0 else MOST_BLACK * shade
    return tuple(share * ground + (1 - share) * channel for channel in to_rgb(name))


@cache
def spelling(name: str) -> str:
    """Return the name of a system or a model as papers print it; any other as it is."""
    printed = read_toml(Path(str(files("nearkv.sweeps.figures") / "names.toml")), "names")
    if name not in printed and is_known("model", name):
        model = read_toml(path_of("model", name), "model")
        return str(model["title"]).partition(" as ")[0]
    return str(printed.get(name, name))


def spelled(text: object) -> object:
    """Return a name, or several with commas between them, as papers print it.

    >>> spelled("hilos, devices 4")
    'HILOS, devices 4'
    """
    return ", ".join(map(spelling, text.split(", "))) if isinstance(text, str) else text


def legend_above(axes: Axes, by: str = "") -> None:
    """Put the legend above the axes, as many names in a row as its width holds.

    Args:
        axes: where lines and bars have names.
        by: the column that they are values of; it stands above them where they are numbers.
    """
    handles, names = axes.get_legend_handles_labels()
    if not names:
        return
    widest = max(len(name) for name in names) * LETTER_WIDTH + HANDLE_WIDTH
    fitting = int((panel_width(axes) - LABEL_WIDTH) / widest)
    columns = max(1, min(len(names), MOST_PANEL_COLUMNS, fitting))
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
    if by and by not in NAME_COLUMNS and names[0][:1].isdigit():
        place["title"] = label_of(by)
    axes.legend(handles, names, ncols=columns, frameon=False, **place)
    root = figure_of(axes)
    is_alone = axes.figure is root and root.axes == [axes]
    lines = -(-len(names) // columns)
    if is_alone:  # the axes keep their height
        root.set_figheight(HEIGHT + LEGEND_LINE * max(lines - 1, 0))


def use_font(name: str) -> None:
    """Draw all text from now on in a font; an empty name leaves it.

    Raises:
        InputError: no such font is installed.
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import get_font_names

    if name and name not in get_font_names():
        raise unknown("font", name, sorted(get_font_names()), "--font")
    if name:
        rcParams["font.family"] = name


def restyle(
    axes: Axes, title: str, labels: Mapping[str, str], limits: str, legend: str
) -> None:
    """Change what a figure says: each text and each limit as asked for, empty ones as drawn.

    Args:
        axes: of the figure.
        title: above it.
        labels: texts in place of names, which are written as here or as papers print them.
        limits: of the upright axis, LOW:HIGH.
        legend: above, right or none.

    Raises:
        InputError: limits or a place of another form, or a name that the figure does not show.
    """
    low, _, high = limits.partition(":")
    try:
        if limits:
            axes.set_ylim(float(low), float(high))
    except ValueError:
        raise InputError(f"--ylim {limits} is not LOW:HIGH; write it as 0:2.5") from None
    if title:
        figure_of(axes).suptitle(title, fontsize=SETTINGS["font.size"])
    handles, names = axes.get_legend_handles_labels()
    if legend == "right":
        axes.legend(handles, names, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    elif legend == "none":
        without_legend(axes)
    elif legend not in ("", "above", "none"):
        raise unknown("legend", legend, ("above", "right", "none"), "--legend")
    _relabel(axes, labels)


def _relabel(axes: Axes, labels: Mapping[str, str]) -> None:
    """Print other texts in place of names, wherever they stand."""
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    printed = {str(spelled(name)): text for name, text in labels.items()}
    shown = set()
    for axis in (axes.xaxis, axes.yaxis):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FixedFormatter):
            shown |= {*formatter.seq}
            formatter.seq = [printed.get(text, text) for text in formatter.seq]
    texts: list[Any] = axes.findobj(Text)
    for text in texts:
        name = text.get_text().strip()
        shown.add(name)
        text.set_text(printed.get(name, text.get_text()))
    for name in printed:
        if name not in shown:
            raise unknown("name", name, sorted(shown - {""}), "--labels")


def without_legend(axes: Axes) -> None:
    """Take the legend away, where there is one."""
    if legend := axes.get_legend():
        legend.remove()


def say_empty(axes: Axes, table: pd.DataFrame, value: str) -> None:
    """Write in the middle of axes why no row of a table has a number to draw."""
    if np.isfinite(table[value].astype(float)).any():
        return
    short = [str(name) for name in table.get("short_of", []) if name]
    lacking = f":\nshort of memory\nin {', '.join(dict.fromkeys(short))}" if short else ""
    place: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "center"}
    axes.text(0.5, 0.4, f"no answer{lacking}", **place)
    axes.set_yticks([])


def say_unequal(axes: Axes, table: pd.DataFrame) -> None:
    """Write below a figure what its rivals own and who attends, where that differs.

    Args:
        axes: the only ones of a new figure, which grows by the text.
        table: what they show.
    """
    figure = axes.get_figure(root=True)
    rows = [
        {str(name): cell for name, cell in row.items()} for row in table.to_dict("records")
    ]
    sentences = unequal(rows, ())
    if figure is None or not sentences:
        return
    letters = int(figure.get_figwidth() * POINTS_AN_INCH / (SMALL_PRINT * LETTER_SHARE))
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, letters)]
    taller = len(lines) * SMALL_PRINT * LINE_SHARE / POINTS_AN_INCH
    figure.set_figheight(figure.get_figheight() + taller)
    text = "\n".join(lines)
    figure.supxlabel(
        text, x=0.01, horizontalalignment="left", fontsize=SMALL_PRINT, color="0.3"
    )


def check_format(path: str | Path) -> None:
    """Refuse a file name whose ending is no format of a figure.

    Raises:
        InputError: naming the endings that are.
    """
    if Path(path).suffix.lower() not in IMAGE_ENDINGS:
        endings = ", ".join(IMAGE_ENDINGS)
        raise InputError(f"{path}: the name of a figure's file ends in one of {endings}")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure, which takes its name only once complete.

    Raises:
        InputError: an unknown format, or a place that cannot be written.
    """
    import matplotlib as mpl

    check_format(path)
    target = Path(path)
    ending = target.suffix.lower()
    drawn = BytesIO()  # what draws cannot tell a full disk
    with mpl.rc_context(SETTINGS):
        figure.savefig(drawn, format=ending[1:], dpi=300, metadata=UNDATED.get(ending))
    with replacing(target) as file:
        file.buffer.write(drawn.getvalue())
