"""Figures of the papers: what we predict along their axes, and beside what they state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearkv.hardware.files import read_toml
from nearkv.hardware.folders import names, path_of
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.evaluate.requested import ON_REQUEST, on_request
from nearkv.sweeps.figures.bars import bars, tick_of
from nearkv.sweeps.figures.described import Drawing, check_drawn, drawing_of
from nearkv.sweeps.figures.lines import lines
from nearkv.sweeps.figures.series import check_columns, levels
from nearkv.sweeps.figures.stacked import breakdown, draw_stacks
from nearkv.sweeps.figures.stated import (
    Statement,
    draw_statements,
    height_of,
    statements_of,
)
from nearkv.sweeps.figures.style import SETTINGS, WIDTHS, load_pyplot
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.study.study_files import load_study
from nearkv.sweeps.tables.labels import label_of, stem_and_unit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_HEIGHT, LEGEND_HEIGHT = 2.0, 0.16
"""Heights of a row of panels and of a line of their legend [inch]."""

LEGEND_COLUMNS = 3

SERIES = "series"
"""The column that names a bar where several columns do."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper, predicted.

    Attributes:
        title: which figure it is, and what it shows.
        drawing: how it is drawn.
        table: the predictions, a row per design point.
        statements: what the paper states of it in words, beside our predictions.
    """

    title: str
    drawing: Drawing
    table: pd.DataFrame
    statements: list[Statement] = field(default_factory=list)


def figure_names() -> list[str]:
    """Return the studies that say how they are drawn."""
    return [name for name in names("study") if "figure" in _file(name)]


def figure_titles() -> dict[str, str]:
    """Return the title of every figure by its name."""
    return {name: str(_file(name)["title"]) for name in figure_names()}


def _file(name: str) -> dict[str, Any]:
    return read_toml(path_of("study", name), "study")


def paper_figure(name: str) -> PaperFigure:
    """Evaluate a figure of a paper.

    Args:
        name: a study of the catalogue, as `hilos-fig10`.

    Raises:
        InputError: there is no such figure.
    """
    import pandas as pd

    content = _file(name)
    drawing = drawing_of(content, name)
    study = load_study(name)
    extra = ON_REQUEST if drawing.kind == "breakdown" else on_request(drawing.values)
    rows = pd.DataFrame(table(study, extra))
    check_drawn(rows, drawing, name)
    rows[SERIES] = _series(rows, drawing, study)
    if drawing.kind in ("bars", "lines"):
        places = [SERIES, drawing.over, *_panel_columns(drawing)]
        rows = rows.drop_duplicates([*places, drawing.value])
    statements = statements_of(content.get("cite", ""), Path(name).stem)
    return PaperFigure(str(content.get("title", name)), drawing, rows, statements)


def _series(rows: pd.DataFrame, drawing: Drawing, study: Study) -> list[str]:
    """Return the name of every row's bar, without what its system does not depend on."""
    by = {name: list(drawing.by) for name in rows["system"].unique()}
    if drawing.kind in ("bars", "lines"):
        places = [drawing.over, *_panel_columns(drawing)]
        for name, own in rows.groupby("system"):
            by[str(name)] = [
                column for column in drawing.by if _matters(own, column, drawing, places)
            ]
    return [_name(row, by[row["system"]], study) for row in rows.to_dict("records")]


def _matters(
    rows: pd.DataFrame, column: str, drawing: Drawing, places: Sequence[str]
) -> bool:
    """Return whether a system's rows need a column to tell its bars apart."""
    is_name = column in ("system", "platform", "model")
    if is_name or column not in rows or rows[column].nunique() < 2:
        return True
    others = [name for name in drawing.by if name != column and name in rows]
    alike = rows.groupby([*others, *places], dropna=False)[drawing.value]
    return bool((alike.nunique(dropna=False) > 1).any())


def _panel_columns(drawing: Drawing) -> list[str]:
    return [drawing.panels] if drawing.panels else []


def _name(row: Mapping[Any, Any], by: Sequence[str], study: Study) -> str:
    """Return the name of a row's bar; a knob that its system lacks is left out of it."""
    words = []
    for column in by:
        value = _requested(row.get(column), study.knobs.get(column, ""))
        if value in ("", "nan"):
            continue
        stem, unit = stem_and_unit(column)
        says_itself = column in ("system", "platform", "model")
        words.append(value if says_itself else f"{stem} {value} {unit}".strip())
    return ", ".join(words)


def _requested(value: object, knob: str) -> str:
    """Return a value as text; `auto` where a knob was solved for it, blank where there is none."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    options = knob.split(",")
    solved = "auto" in options and text not in options
    return "auto" if solved and text != "nan" else text


def draw(figure: PaperFigure) -> Figure:
    """Draw a figure of a paper: a panel for each value of a column, statements below them.

    Args:
        figure: what `paper_figure` returned.

    Returns:
        The figure, to restyle and to save.
    """
    pyplot = load_pyplot()
    heights = [PANEL_HEIGHT + LEGEND_HEIGHT * _legend_lines(figure)]
    if figure.statements:
        heights.append(height_of(figure.statements))
    with pyplot.rc_context(SETTINGS):
        size = (WIDTHS["page"], sum(heights))
        whole = pyplot.figure(figsize=size, layout="constrained")
        rooms = whole.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
        _draw_panels(rooms[0, 0], figure)
        if figure.statements:
            draw_statements(rooms[1, 0], figure.statements)
    return whole  # type: ignore[no-any-return]


def _legend_lines(figure: PaperFigure) -> int:
    """Return the lines of the legend."""
    return -(-figure.table[SERIES].nunique() // LEGEND_COLUMNS)


def _panels(figure: PaperFigure) -> dict[str, pd.DataFrame]:
    """Return the rows of every panel by its title."""
    column = figure.drawing.panels
    rows = figure.table
    if not column:
        return {figure.title: rows}
    panels = {}
    for level in levels(rows, column):
        title = level if isinstance(level, str) else f"{label_of(column)}: {level:g}"
        at_level = rows[column] == level
        panels[title] = rows[at_level]
    return panels


def _draw_panels(room: Any, figure: PaperFigure) -> None:
    """Draw the panels beside each other, under one legend."""
    panels = _panels(figure)
    drawn = room.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, rows) in zip(drawn, panels.items(), strict=True):
        _draw_panel(axes, figure.drawing, rows)
        axes.set_title(title)
        axes.get_legend().remove()
        if axes is not drawn[0]:
            axes.set_ylabel("")
    handles, labels = drawn[0].get_legend_handles_labels()
    place = "outside upper center"
    room.legend(handles, labels, loc=place, ncols=LEGEND_COLUMNS, frameon=False)


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
    check_columns(rows, drawing.over, *drawing.values)
    heights = {}
    for name in drawing.values:
        numbers = rows[name].astype(float)
        heights[_part(name)] = numbers.to_numpy()
    ticks = [tick_of(value) for value in rows[drawing.over]]
    draw_stacks(axes, ticks, heights)
    axes.set_xlabel(label_of(drawing.over))
    axes.set_ylabel(stem_and_unit(drawing.values[0].partition(":")[0])[1])
    axes.legend()


def _part(column: str) -> str:
    """Return what a column of a stack is called: its name without its unit."""
    before, _, part = column.partition(":")
    return part or stem_and_unit(before)[0].replace("_", " ")
