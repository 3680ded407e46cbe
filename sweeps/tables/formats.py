"""Tables as text: for a terminal, in CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence

from nearkv.hardware.errors import check_known
from nearkv.sweeps.tables.labels import stem_and_unit
from nearkv.sweeps.tables.layout import SENTENCES, is_numeric, layout
from nearkv.sweeps.tables.table import Display, Row, cell_text
from nearkv.sweeps.tables.terminal import lay_out

TABLE_FORMATS = ("table", "csv", "json", "markdown", "latex")

PAGE = 80
"""Characters of a line that fit the page of a paper."""
LONG = 40
"""A column of longer texts is a paragraph in LaTeX."""
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
        InputError: not one of `TABLE_FORMATS`.
    """
    check_known("format", [name], TABLE_FORMATS, "--format")
    return name


def render(shown: Display, form: str, caption: str = "", label: str = "") -> str:
    """A table as text.

    Args:
        shown: CSV and JSON hold every column of its rows, whichever are chosen for readers.
        form: one of `TABLE_FORMATS`.
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
    remark, notes = "", [shown.title] if shown.title else []
    if len(rows) == 1:  # upright: a line per quantity that has a value
        row = {name: value for name, value in rows[0].items() if value not in (None, "")}
        notes += [
            f"{name}: {row[name]}" for name in names if name in row and name in SENTENCES
        ]
        lines = [name for name in names if name in row and name not in SENTENCES]
        rows = [{"quantity": _in_words(name), "value": row[name]} for name in lines]
        names = ["quantity", "value"]
    elif rows:
        chosen = layout(shown, PAGE)
        rows, names = chosen.rows, list(chosen.widths)
        notes += [chosen.common, *chosen.notes] if chosen.common else chosen.notes
        if chosen.left_out:
            remark = f"% --columns shows {', '.join(chosen.left_out)} too\n"
    sides = ""
    for name in names:
        is_long = max(len(str(row[name])) for row in rows) > LONG
        sides += "r" if is_numeric(rows, name) else "p{6cm}" if is_long else "l"
    header = [_escaped(_in_words(name)) for name in names]
    body = [[_escaped(cell_text(row[name])) for name in names] for row in rows]
    parts = [rf"\begin{{tabular}}{{{sides}}}", r"\toprule", rf"{' & '.join(header)} \\"]
    parts += [r"\midrule", *(rf"{' & '.join(cells)} \\" for cells in body)]
    parts += [r"\bottomrule", r"\end{tabular}"]
    if notes:
        text = r" \\ ".join(map(_escaped, notes))
        parts.append(rf"\par\smallskip{{\footnotesize {text}\par}}")
    if caption or label:
        above = [rf"\caption{{{_escaped(caption)}}}"] if caption else []
        above += [rf"\label{{{label}}}"] if label else []
        parts = [r"\begin{table}", r"\centering", *above, *parts, r"\end{table}"]
    return "\n".join([f"{remark}{parts[0]}", *parts[1:]]) + "\n"


def _in_words(name: str) -> str:
    """A column's name in words, its unit in brackets."""
    stem, unit = stem_and_unit(name)
    words = stem.replace("_", " ")
    return f"{words} [{unit}]" if unit else words


def _escaped(text: str) -> str:
    """A text as LaTeX prints it; what is indented stays so."""
    indent = len(text) - len(text.lstrip())
    return r"\quad " * (indent // 2) + text.lstrip().translate(SPECIAL)
