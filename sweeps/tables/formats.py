"""Tables as text: for a terminal, in CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from nearkv.hardware.errors import check_known
from nearkv.sweeps.tables.labels import label_of
from nearkv.sweeps.tables.layout import SENTENCES, is_numeric, layout
from nearkv.sweeps.tables.table import Display, Rows, cell_text, is_number
from nearkv.sweeps.tables.terminal import lay_out

TABLE_FORMATS = ("table", "csv", "json", "markdown", "latex")

PAGE = 80
"""Characters of a line that fit the page of a paper."""
LONG = 40
"""A column of longer texts is a paragraph in LaTeX."""
TEXT_KEY = ("system", "model", "platform", "part", "trace")
"""Columns of names, which a paper prints where they begin."""
MOST_DECIMALS = 4
"""A column of a paper that needs more decimals than this prints each number by itself."""


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
    if form == "json":
        return _json(shown.rows)
    if form == "markdown":
        return _markdown(shown)
    if form == "latex":
        return _latex(shown, caption, label)
    return lay_out(shown)


def _json(rows: Rows) -> str:
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
    from tabulate import tabulate

    rows, names = shown.rows, shown.names
    remark, notes = "", [shown.title] if shown.title else []
    if len(rows) == 1:  # upright: a line per quantity that has a value
        row = {name: value for name, value in rows[0].items() if value not in (None, "")}
        notes += [
            f"{name}: {row[name]}" for name in names if name in row and name in SENTENCES
        ]
        lines = [name for name in names if name in row and name not in SENTENCES]
        rows = [{"quantity": label_of(name), "value": row[name]} for name in lines]
        names = ["quantity", "value"]
    elif rows:
        chosen = layout(shown, PAGE)
        rows, names = chosen.rows, list(chosen.widths)
        notes += [chosen.common, *chosen.notes] if chosen.common else chosen.notes
        if chosen.left_out:
            remark = f"% --columns shows {', '.join(chosen.left_out)} too\n"
    columns = []
    for name in names:
        cells = [row[name] for row in rows]
        # quantities that stand upright have units of their own
        is_of_one_unit = len(shown.rows) > 1
        columns.append(_printed(cells) if is_of_one_unit else list(map(_cell, cells)))
    body = _named_once(list(zip(*columns, strict=True)), names)
    header = [label_of(name) for name in names]
    text = tabulate(body, header, tablefmt="latex_booktabs", disable_numparse=True)
    _, *lines = text.replace("|", r"\textbar{}").splitlines()
    parts = [rf"\begin{{tabular}}{{{_sides(rows, names)}}}", *lines]
    if notes:
        below = r" \\ ".join(map(_escaped, notes))
        parts.append(rf"\par\smallskip{{\footnotesize {below}\par}}")
    if caption or label:
        above = [rf"\caption{{{_escaped(caption)}}}"] if caption else []
        above += [rf"\label{{{label}}}"] if label else []
        parts = [r"\begin{table}", r"\centering", *above, *parts, r"\end{table}"]
    return "\n".join([f"{remark}{parts[0]}", *parts[1:]]) + "\n"


def _sides(rows: Rows, names: Sequence[str]) -> str:
    """LaTeX alignment of each column: numbers on the right, long texts as paragraphs."""
    sides = ""
    for name in names:
        is_long = max(len(str(row[name])) for row in rows) > LONG
        sides += "r" if is_numeric(rows, name) else "p{6cm}" if is_long else "l"
    return sides


def _printed(cells: Sequence[Any]) -> list[str]:
    """The cells of a column as a paper prints them: numbers with equally many decimals.

    They are as many as three digits of the largest need, and two of the least.

    >>> _printed([12.5, 0.5, 3, "OOM"])
    ['12.50', '0.50', '3.00', 'OOM']
    """
    numbers = [cell for cell in cells if is_number(cell) and math.isfinite(cell)]
    sizes = [abs(number) for number in numbers if number]
    if not any(isinstance(number, float) for number in numbers) or not sizes:
        return list(map(_cell, cells))
    largest, least = (math.floor(math.log10(end)) for end in (max(sizes), min(sizes)))
    decimals = max(2 - largest, 1 - least, 0)
    if decimals > MOST_DECIMALS:
        return list(map(_cell, cells))
    return [f"{cell:,.{decimals}f}" if cell in numbers else _cell(cell) for cell in cells]


def _cell(value: object) -> str:
    """A cell as people read it; a tree keeps its indentation."""
    text = cell_text(value)
    indent = len(text) - len(text.lstrip())
    return "\N{NO-BREAK SPACE}" * indent + text.lstrip()


def _named_once(rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[str]]:
    """Rows in which a name, as of a system, stands only where it begins."""
    leading = 0
    while leading < len(names) - 1 and names[leading] in TEXT_KEY:
        leading += 1
    shown = []
    above: Sequence[str] = ()
    for row in rows:
        repeated = 0
        while repeated < leading and above and row[repeated] == above[repeated]:
            repeated += 1
        shown.append([*[""] * repeated, *row[repeated:]])
        above = row
    return shown


def _escaped(text: str) -> str:
    """A text as LaTeX prints it."""
    from tabulate import LATEX_ESCAPE_RULES

    rules = {**LATEX_ESCAPE_RULES, "|": r"\textbar{}"}
    return "".join(rules.get(letter, letter) for letter in text)
