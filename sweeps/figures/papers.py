"""Figures of the papers: what we predict along their axes, and beside what they state.

A study file says in its table `[figure]` how it is drawn; numbers that the paper states in words
stand below, each beside our prediction.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.files import names, path_of, read_toml
from nearkv.sweeps.evaluate.columns import ON_REQUEST, on_request, table
from nearkv.sweeps.figures.bars import bars, tick_of
from nearkv.sweeps.figures.breakdown import breakdown, draw_stacks
from nearkv.sweeps.figures.lines import lines
from nearkv.sweeps.figures.series import columns_of, distinct_values
from nearkv.sweeps.figures.style import (
    PAGE_WIDTHS,
    SETTINGS,
    colour,
    load_pyplot,
    spelled,
    without_legend,
)
from nearkv.sweeps.study.sizes import KnobValue, comma_list
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import either, load_study
from nearkv.sweeps.tables.labels import label_of, stem_and_unit
from nearkv.sweeps.validation.claims import Claim, load, papers
from nearkv.sweeps.validation.prediction import predict

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_HEIGHT, LEGEND_HEIGHT = 2.0, 0.16
"""Heights of a row of panels and of a line of their legend [inch]."""

LEGEND_COLUMNS = 3

CATALOGUED_COLUMNS = ("system", "platform", "model")
"""Columns whose values are names, which say themselves what they are."""

SERIES = "series"
"""The column that names a bar where several columns do."""

FIGURE_KINDS = ("bars", "lines", "breakdown", "stack")

STATEMENT_WIDTH = 52
"""Characters of a line of a statement; it has two at most."""

BOUND_MARKERS = {"at_most": "<", "at_least": ">"}
"""A bound points to the side where the prediction may lie."""

LINE_HEIGHT, AXIS_HEIGHT, KEY_HEIGHT = 0.24, 0.5, 0.3
"""Heights of a statement, around those of one unit, and of the legend [inch]."""

RANGE = "#BBDDF4"
"""Colour of a bar between the lowest and the highest prediction."""

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

GIB = 2**30
"""Bytes of a GiB."""


@dataclass(frozen=True)
class Drawing:
    """Description of a figure, `[figure]` of a study file.

    Attributes:
        kind: bars, lines, breakdown (seconds by resource) or stack (columns on top of each other).
        value: the column that is drawn; of a stack several, comma-separated.
        over: the column along the axis.
        by: columns whose values, in a row, name a bar or a line.
        baseline: such a name; every group is divided by it.
        panels: the column with a panel for each of its values.
        log: bars on a logarithmic scale.
    """

    kind: str
    value: str = ""
    over: str = ""
    by: tuple[str, ...] = ("system",)
    baseline: str = ""
    panels: str = ""
    log: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are drawn."""
        return comma_list(self.value)


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper, predicted.

    Attributes:
        title: which figure it is, and what it shows.
        drawing: how it is drawn.
        table: the predictions, a row per design point.
        statements: what the paper states of it in words -> the lowest and the highest prediction.
        varied: what is not the paper's, in words; empty where all is.
    """

    title: str
    drawing: Drawing
    table: pd.DataFrame
    statements: Mapping[Claim, Numbers] = field(default_factory=dict)
    varied: str = ""


def figure_titles() -> dict[str, str]:
    """Return the title of every study that says how it is drawn, by its name."""
    titles = {}
    for name in names("study"):
        study = read_toml(path_of("study", name), "study")
        if "figure" in study:
            titles[name] = str(study["title"])
    return titles


def paper_figure(
    name: str, axes: Study | None = None, stated: Mapping[str, str] = NO_OPTIONS
) -> PaperFigure:
    """Evaluate a figure of a paper.

    Args:
        name: a study of the catalogue, as `hilos-fig10`, or a file.
        axes: what goes before the figure's own study.
        stated: the fields of `axes` that do, in words; stated numbers are then left out.

    Raises:
        InputError: there is no such figure.

    Example:
        >>> import nearkv
        >>> figure = nearkv.plot.paper_figure("hilos-fig10")
        >>> drawn = nearkv.plot.draw(figure)
    """
    import pandas as pd

    content = read_toml(path_of("study", name), "study")
    drawing = drawing_of(content, name)
    study = either(name, axes, stated) if axes else load_study(name)
    extra = ON_REQUEST if drawing.kind == "breakdown" else on_request(drawing.values)
    rows = pd.DataFrame(table(study, extra))
    _check_drawn(rows, drawing, name)
    rows[SERIES] = _series(rows, drawing, study)
    if drawing.kind in ("bars", "lines"):
        places = [SERIES, *_places(drawing), drawing.value]
        rows = rows.drop_duplicates(places)
    title = str(content.get("title", name))
    if stated:
        changed = f"not the paper's: {', '.join(stated.values())}"
        return PaperFigure(title, drawing, rows, varied=changed)
    statements = _statements_of(content.get("cite", ""), Path(name).stem)
    return PaperFigure(title, drawing, rows, statements)


def drawing_of(content: Mapping[str, Any], name: str) -> Drawing:
    """Return how a study file says that it is drawn.

    Raises:
        InputError: it does not say so, or not in keys and kinds that exist.
    """
    options = content.get("figure")
    if not isinstance(options, dict):
        raise InputError(
            f"{name} has no [figure] table, which says how it is drawn; "
            "`nearkv figure` lists studies that do"
        )
    known = [key.name for key in fields(Drawing)]
    check_known("key", options, known, f"{name}: figure")
    check_known("kind", [str(options.get("kind"))], FIGURE_KINDS, f"{name}: figure")
    by = options.get("by", ["system"])
    if not isinstance(by, list) or {type(column) for column in by} - {str}:
        raise InputError(f"{name}: figure: by must be a list of columns, as ['system']")
    for key, value in options.items():
        kind, word = (bool, "true or false") if key == "log" else (str, "text")
        if key != "by" and not isinstance(value, kind):
            raise InputError(f"{name}: figure: {key} must be {word}, not {value!r}")
    for key in ("baseline", "log"):
        if options.get(key) and options["kind"] != "bars":
            raise InputError(f"{name}: figure: {key} is of bars, not of {options['kind']}")
    return Drawing(**(options | {"by": tuple(by)}))


def _check_drawn(rows: pd.DataFrame, drawing: Drawing, name: str) -> None:
    """Check that the table has every column that the drawing names, and those that it needs.

    Raises:
        InputError: naming the key and the column.
    """
    named = {"value": drawing.values, "by": drawing.by, "over": comma_list(drawing.over)}
    named["panels"] = comma_list(drawing.panels)
    for key, columns in named.items():
        if drawing.kind != "breakdown" and key in ("value", "over") and not columns:
            raise InputError(
                f"{name}: figure: {key} is missing; name a column of the table"
            )
        check_known("column", columns, columns_of(rows), f"{name}: figure: {key}")


def _places(drawing: Drawing) -> list[str]:
    """Return the columns that say where a mark stands: along the axis, and in which panel."""
    return [column for column in (drawing.over, drawing.panels) if column]


def _series(rows: pd.DataFrame, drawing: Drawing, study: Study) -> list[str]:
    """Return the name of every row's bar, without what its system does not depend on."""
    by = {}
    for name, own in rows.groupby("system"):
        by[name] = [column for column in drawing.by if _matters(own, column, drawing)]
    return [_name(row, by[row["system"]], study) for row in rows.to_dict("records")]


def _matters(rows: pd.DataFrame, column: str, drawing: Drawing) -> bool:
    """Return whether a system's rows need a column to tell its bars apart."""
    is_apart = drawing.kind in ("bars", "lines") and column in rows
    if column in CATALOGUED_COLUMNS or not is_apart or rows[column].nunique() < 2:
        return True
    others = [name for name in drawing.by if name != column and name in rows]
    beside = [*others, *_places(drawing)]
    alike = rows.groupby(beside, dropna=False)[drawing.value]
    distinct = alike.nunique(dropna=False)
    return bool((distinct > 1).any())


def _name(row: Mapping[Any, Any], by: Sequence[str], study: Study) -> str:
    """Return the name of a row's bar; a knob that its system lacks is left out of it."""
    words = []
    for column in by:
        value = _option_of(row.get(column), study.knobs.get(column, ()))
        if value in ("", "nan"):
            continue
        words.append(
            value if column in CATALOGUED_COLUMNS else _stated(column, value, row[column])
        )
    return ", ".join(words)


def _stated(column: str, text: str, value: object) -> str:
    """Return a value with its name and its unit, in GiB where it is a whole number of these.

    >>> _stated("dimm.capacity_gb", "17.18", 17.179869184), _stated("alpha", "0.5", 0.5)
    ('dimm.capacity 16 GiB', 'alpha 0.5')
    """
    stem, unit = stem_and_unit(column)
    if unit == "GB" and isinstance(value, float) and (value * 1e9 / GIB).is_integer():
        text, unit = f"{value * 1e9 / GIB:g}", "GiB"
    return f"{stem} {text} {unit}".strip()


def _option_of(value: object, stated: Sequence[KnobValue]) -> str:
    """Return a value as text; `auto` where a knob was solved for it, blank where there is none."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    options = [item if isinstance(item, str) else item.text for item in stated]
    solved = "auto" in options and text not in options
    return "auto" if solved and text != "nan" else text


def _statements_of(paper: str, study: str) -> dict[Claim, Numbers]:
    """Return the numbers that a paper states of a figure, and our predictions.

    Args:
        paper: whose.
        study: name of its study, which ends in the figure's: `hilos-fig10`, `inf2-fig15a`.
    """
    label = study.partition("-fig")[2]
    claims = load(paper) if label and paper in papers() else []
    return {
        claim: predict(claim)
        for claim in claims
        if is_about(claim, label) and claim.metric and not claim.is_yes_or_no
    }


def is_about(claim: Claim, label: str) -> bool:
    """Return whether a claim's address names a figure, or a panel of it.

    >>> is_about(Claim("", "s6.3; Fig10a", "", "", "", "", "", ""), "10")
    True
    >>> is_about(Claim("", "s6.3; Fig10a", "", "", "", "", "", ""), "1")
    False
    """
    panel = "" if label[-1:].isalpha() else "[a-z]?"
    return bool(re.search(rf"\bFig\.? ?{label}{panel}(?![0-9a-z])", claim.where))


def draw(figure: PaperFigure) -> Figure:
    """Draw a figure of a paper: a panel for each value of a column, statements below them.

    Args:
        figure: what `paper_figure` returned.

    Returns:
        The figure, to restyle and to save.
    """
    pyplot = load_pyplot()
    legend_lines = -(-figure.table[SERIES].nunique() // LEGEND_COLUMNS)
    heights = [PANEL_HEIGHT + LEGEND_HEIGHT * legend_lines]
    units = list(dict.fromkeys(claim.unit for claim in figure.statements))
    if units:
        lines = LINE_HEIGHT * len(figure.statements)
        heights.append(KEY_HEIGHT + AXIS_HEIGHT * len(units) + lines)
    with pyplot.rc_context(SETTINGS):
        size = (PAGE_WIDTHS["page"], sum(heights))
        drawn = pyplot.figure(figsize=size, layout="constrained")
        parts = drawn.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
        _draw_panels(parts[0, 0], figure)
        if units:
            _draw_statements(parts[1, 0], figure.statements, units)
    return drawn  # type: ignore[no-any-return]


def _draw_panels(part: Any, figure: PaperFigure) -> None:
    """Draw the panels beside each other, under one legend."""
    column, rows = figure.drawing.panels, figure.table
    panels = {figure.title: rows}
    if column:
        panels = {
            str(spelled(level))
            if isinstance(level, str)
            else f"{label_of(column)}: {level:g}": rows[rows[column] == level]
            for level in distinct_values(rows, column)
        }
    part.supxlabel(figure.varied)
    drawn = part.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, own) in zip(drawn, panels.items(), strict=True):
        _draw_panel(axes, figure.drawing, own)
        axes.set_title(title)
        without_legend(axes)
        if axes is not drawn[0]:
            axes.set_ylabel("")
    _add_legend(part, drawn, "center")


def _add_legend(part: Any, panels: Iterable[Axes], side: str) -> None:
    """Name what panels show above them, each name once."""
    entries: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    look = {"loc": f"outside upper {side}", "ncols": LEGEND_COLUMNS, "frameon": False}
    part.legend(entries.values(), entries, **look)


def _draw_panel(axes: Axes, drawing: Drawing, rows: pd.DataFrame) -> None:
    """Draw one panel; a legend is made even for one name, and removed by the caller."""
    if drawing.kind == "bars":
        options: dict[str, Any] = {"over": drawing.over, "by": SERIES, "log": drawing.log}
        bars(rows, drawing.value, baseline=drawing.baseline, axes=axes, **options)
        axes.legend()
    elif drawing.kind == "lines":
        lines(rows, drawing.value, over=drawing.over, by=SERIES, axes=axes)
    elif drawing.kind == "stack":
        _draw_stack(axes, drawing, rows)
    else:
        breakdown(rows, by=SERIES, axes=axes)


def _draw_stack(axes: Axes, drawing: Drawing, rows: pd.DataFrame) -> None:
    """Draw a bar for each value along the axis, of columns on top of each other."""
    heights = {}
    for name in drawing.values:
        before, _, part = name.partition(":")
        label = part or stem_and_unit(before)[0].replace("_", " ")
        heights[label] = rows[name].astype(float).to_numpy()
    ticks = [tick_of(value) for value in rows[drawing.over]]
    draw_stacks(axes, ticks, heights)
    first, _, _ = drawing.values[0].partition(":")
    _, unit = stem_and_unit(first)
    axes.set(xlabel=label_of(drawing.over), ylabel=unit)
    axes.legend()


def _draw_statements(
    part: Any, statements: Mapping[Claim, Numbers], units: Sequence[str]
) -> None:
    """Draw a bar for each prediction and a mark for what is stated, one axis a unit.

    Args:
        part: of a figure.
        statements: claims, and the lowest and the highest prediction of each.
        units: of them, top down.
    """
    groups = [[claim for claim in statements if claim.unit == unit] for unit in units]
    heights = [LINE_HEIGHT * len(group) for group in groups]
    panels = part.subplots(len(units), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, unit, group in zip(panels, units, groups, strict=True):
        for place, claim in enumerate(group[::-1]):
            low, high = statements[claim]
            axes.barh(place, low, 0.6, color=colour(5), label="predicted")
            if low < high:
                label = "predicted, up to"
                axes.barh(place, high - low, 0.6, left=low, color=RANGE, label=label)
            stated = [float(claim.low), float(claim.high)]
            mark = BOUND_MARKERS.get(claim.bound, "D")
            look: dict[str, Any] = {"color": "black", "markersize": 4, "linewidth": 1.0}
            axes.plot(stated, [place, place], marker=mark, label="stated", **look)
        axes.set_ylim(-0.6, len(group) - 0.4)
        texts = [_in_two_lines(claim) for claim in group[::-1]]
        axes.set_yticks(range(len(group)), texts, fontsize=6)
        axes.set(xlabel=f"Stated and predicted ({unit})", xlim=(0, None))
    _add_legend(part, panels[:1], "right")


def _in_two_lines(claim: Claim) -> str:
    """Return a statement in two lines at most, its name behind it."""
    # a line seldom ends with its last letter
    most = 2 * STATEMENT_WIDTH - 17 - len(claim.id)
    words = textwrap.shorten(claim.claim, most, placeholder=" ...")
    text = f"{words} [{claim.id}]"
    return "\n".join(textwrap.wrap(text, STATEMENT_WIDTH, break_on_hyphens=False))
