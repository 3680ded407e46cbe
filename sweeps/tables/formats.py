"""Tables as text: for a terminal, in CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from nearkv.hardware.errors import unknown
from nearkv.sweeps.tables.labels import stem_and_unit
from nearkv.sweeps.tables.layout import SENTENCES, Display, is_numeric, layout
from nearkv.sweeps.tables.table import Row, cell_text
from nearkv.sweeps.tables.terminal import lay_out

FORMATS = ("table", "csv", "json", "markdown", "latex")

PAGE = 80
"""Characters of a line that fit the page of a paper."""
LONG = 40
"""A column of longer texts is a paragraph in LaTeX."""
MOST_ACROSS = 6
"""One row of more quantities stands upright in LaTeX."""
SPECIAL = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
    }
)
"""Letters that LaTeX does not print as they are -> what prints them."""


def check_format(name: str) -> str:
    """Refuse an unknown format.

    Raises:
        InputError: not one of `FORMATS`.
    """
    if name not in FORMATS:
        raise unknown("format", name, FORMATS, "--format")
    return name


def render(shown: Display, form: str, caption: str = "", label: str = "") -> str:
    """A table as text.

    Args:
        shown: CSV and JSON hold every column of its rows, whatever is chosen for readers.
        form: one of `FORMATS`.
        caption, label: of a table in LaTeX.

    Returns:
        The text, ending in a newline.
    """
    if form == "csv":
        return _csv(shown.rows)
    if form == "json":
        return _json(shown.rows)
    if form == "markdown":
        return _markdown(shown)
    if form == "latex":
        return _latex(shown, caption, label)
    return lay_out(shown)


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _json(rows: Sequence[Row]) -> str:
    """JSON has no infinity: it is null."""
    finite = [
        {name: None if cell == math.inf else cell for name, cell in row.items()}
        for row in rows
    ]
    return json.dumps(finite, indent=2, allow_nan=False) + "\n"


def _markdown(shown: Display) -> str:
    from tabulate import tabulate

    names = shown.names
    cells = [
        [cell_text(row[name]).replace("|", r"\|") for name in names] for row in shown.rows
    ]
    sides = ["right" if is_numeric(shown.rows, name) else "left" for name in names]
    text = tabulate(cells, names, tablefmt="github", disable_numparse=True, colalign=sides)
    return f"{text}\n"


def _latex(shown: Display, caption: str, label: str) -> str:
    """A table for LaTeX's booktabs: the columns that fit a page, notes below in small print."""
    rows, names = shown.rows, shown.names
    notes = [shown.title] if shown.title else []
    remarks = []
    if len(rows) > 1:
        chosen = layout(shown, PAGE)
        rows, names = chosen.rows, list(chosen.widths)
        common = ", ".join(f"{name} {text}" for name, text in chosen.common.items())
        notes += [common, *chosen.notes] if common else chosen.notes
        if chosen.left_out:
            remarks = [f"% --columns shows {', '.join(chosen.left_out)} too"]
    if len(rows) == 1 and len(names) > MOST_ACROSS:
        lines, sentences = _upright(rows[0], names)
        notes += sentences
    else:
        lines = _across(rows, names)
    if notes:
        text = r" \\ ".join(map(_escaped, notes))
        lines.append(rf"\par\smallskip{{\footnotesize {text}\par}}")
    if caption or label:
        head = [r"\begin{table}", r"\centering"]
        head += [rf"\caption{{{_escaped(caption)}}}"] if caption else []
        head += [rf"\label{{{label}}}"] if label else []
        lines = [*head, *lines, r"\end{table}"]
    return "\n".join([*remarks, *lines]) + "\n"


def _across(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """The tabular of some rows under a header."""
    sides = [
        "r" if is_numeric(rows, name) else _side_of([str(row[name]) for row in rows])
        for name in names
    ]
    body = [[_latex_cell(row[name]) for name in names] for row in rows]
    return _tabular("".join(sides), [_header(name) for name in names], body)


def _upright(row: Row, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tabular of one row, a line per quantity that has a value, and its sentences."""
    filled = [name for name in names if row[name] not in (None, "")]
    sentences = [f"{name}: {row[name]}" for name in filled if name in SENTENCES]
    lines = [name for name in filled if name not in SENTENCES]
    body = [[_header(name), _latex_cell(row[name])] for name in lines]
    side = _side_of([str(row[name]) for name in lines]).replace("l", "r")
    return _tabular(f"l{side}", [], body), sentences


def _side_of(texts: Sequence[str]) -> str:
    """The type of a column of texts: a paragraph where one is long."""
    return "p{6cm}" if max(map(len, texts), default=0) > LONG else "l"


def _tabular(sides: str, header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    top = [rf"{' & '.join(header)} \\", r"\midrule"] if header else []
    lines = [rf"{' & '.join(cells)} \\" for cells in body]
    return [
        rf"\begin{{tabular}}{{{sides}}}",
        r"\toprule",
        *top,
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _header(name: str) -> str:
    """A column's name in words, its unit in brackets."""
    stem, unit = stem_and_unit(name)
    words = stem.replace("_", " ")
    return _escaped(f"{words} [{unit}]" if unit else words)


def _latex_cell(value: Any) -> str:
    return r"$\infty$" if value == math.inf else _escaped(cell_text(value))


def _escaped(text: str) -> str:
    """A text as LaTeX prints it; what is indented stays so."""
    indent = len(text) - len(text.lstrip())
    return r"\quad " * (indent // 2) + text.lstrip().translate(SPECIAL)
