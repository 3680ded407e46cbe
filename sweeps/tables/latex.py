"""Print a table as papers do: booktabs, numbers aligned by siunitx, units in the header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from nearkv.sweeps.tables.layout import SENTENCES, layout, named
from nearkv.sweeps.tables.text_columns import Row, cell_text, is_number

UNITS = {
    "ms": r"\milli\second",
    "s": r"\second",
    "us": r"\micro\second",
    "gb": r"\giga\byte",
    "tok": "tok",
    "usd": "USD",
    "j_tok": r"\joule/tok",
    "tok_s": r"tok/\second",
    "tok_s_per_kusd": r"tok/\second/kUSD",
}
"""What a column's name ends in -> its unit as siunitx reads it."""
LONE = {"tok_s_per_kusd": "throughput per price"}
"""Quantities whose column is named by its unit alone."""
INFINITE = r"{$\infty$}"
SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
"""Letters that LaTeX does not print as they are -> what prints them."""
NUMBER = re.compile(r"-?\d+(\.\d+)?")
"""A number without an exponent."""
LINE = 80
"""Characters of a line that fit the page of a paper."""
LONG = 40
"""A column of longer texts is a paragraph."""
PARAGRAPH = r"p{6cm}"
MOST_ACROSS = 6
"""One row of more quantities stands upright."""


@dataclass(frozen=True)
class Paper:
    """How a paper prints a table.

    Attributes:
        caption, label: of the table; none where empty, and then there is no float around it.
        over: the column whose values fill the last columns, which have one header; empty for none.
        by: the column whose values these are.
        under: how many they are.
        notes: lines below the table.
        remarks: lines that LaTeX does not print.
    """

    caption: str = ""
    label: str = ""
    over: str = ""
    by: str = ""
    under: int = 0
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def latex_of(
    rows: Sequence[Row], order: Sequence[str], pinned: Sequence[str], paper: Paper
) -> str:
    """A table that fits a page: columns are chosen as for a terminal, one row stands upright.

    Args:
        rows: all with the same keys.
        order: columns to show, the most important first; all where none is named.
        pinned: columns to show whatever their width.
        paper: caption, label and a header over several columns.
    """
    names = named(rows[0], order, pinned) if rows else []
    if len(rows) == 1 and len(names) > MOST_ACROSS:
        return _upright(rows[0], names, paper)
    if len(rows) < 2:
        return latex(rows, names, paper)
    table = layout(rows, order, pinned, LINE)
    same = [f"{name} {text}" for name, text in table.same.items()]
    notes = [", ".join(same), *table.sentences] if same else table.sentences
    remark = f"% --columns shows {', '.join(table.left_out)} too"
    remarks = (remark,) if table.left_out else ()
    names = [column.name for column in table.columns]
    names += [table.description] if table.description else []
    return latex(table.rows, names, replace(paper, notes=tuple(notes), remarks=remarks))


def _upright(row: Row, names: Sequence[str], paper: Paper) -> str:
    """One row, a line per quantity that has a value."""
    filled = [name for name in names if row[name] not in (None, "")]
    cells = {
        name: _escaped(cell_text(row[name])) for name in filled if name not in SENTENCES
    }
    kind = PARAGRAPH if max(map(len, cells.values()), default=0) > LONG else "r"
    lines = [rf"\begin{{tabular}}{{l{kind}}}", r"\toprule"]
    lines += [rf"{_header(name)[1:-1]} & {cell} \\" for name, cell in cells.items()]
    notes = [f"{name}: {row[name]}" for name in names if name in SENTENCES and row[name]]
    lines += [r"\bottomrule", r"\end{tabular}"]
    return _text(lines, replace(paper, notes=tuple(notes)))


def latex(rows: Sequence[Mapping[str, Any]], names: Sequence[str], paper: Paper) -> str:
    """A table for LaTeX with the packages booktabs and siunitx.

    Columns of numbers are of siunitx's type S, which aligns them at the decimal point.
    """
    numeric = {name: _is_numeric(rows, name) for name in names}
    kinds = "".join(
        _numbers(rows, name) if numeric[name] else _texts(rows, name) for name in names
    )
    header = " & ".join(_header(name) for name in names)
    lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", *_spanning(len(names), paper)]
    lines += [rf"{header} \\", r"\midrule"]
    for row in rows:
        cells = [_cell(row[name], numeric[name]) for name in names]
        lines.append(f"{' & '.join(cells)} \\\\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return _text(lines, paper)


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """The type of a column of numbers, with the digits before and behind the point."""
    cells = [_cell(row[name], numeric=True) for row in rows]
    digits = [cell.partition(".") for cell in cells if NUMBER.fullmatch(cell)]
    if len(digits) < sum(not cell.startswith("{") for cell in cells):
        return "S"
    whole = max((len(before.lstrip("-")) for before, _, _ in digits), default=1)
    fraction = max((len(after) for _, _, after in digits), default=0)
    sign = "-" if any(before.startswith("-") for before, _, _ in digits) else ""
    return f"S[table-format={sign}{whole}.{fraction}]"


def _texts(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """The type of a column of texts."""
    longest = max((len(str(row[name])) for row in rows), default=0)
    return PARAGRAPH if longest > LONG else "l"


def _text(lines: list[str], paper: Paper) -> str:
    """A table with what stands below it."""
    notes = r" \\ ".join(map(_escaped, paper.notes))
    below = [rf"\par\smallskip{{\footnotesize {notes}\par}}"] if notes else []
    return "\n".join([*paper.remarks, *_floating([*lines, *below], paper)]) + "\n"


def _floating(lines: list[str], paper: Paper) -> list[str]:
    if not paper.caption and not paper.label:
        return lines
    head = [r"\begin{table}", r"\centering"]
    if paper.caption:
        head.append(rf"\caption{{{_escaped(paper.caption)}}}")
    if paper.label:
        head.append(rf"\label{{{paper.label}}}")
    return [*head, *lines, r"\end{table}"]


def _spanning(columns: int, paper: Paper) -> list[str]:
    """A header over the last columns, with a rule below it."""
    if not paper.under:
        return []
    first = columns - paper.under + 1
    title = f"{{{_header(paper.over)[1:-1]} by {_header(paper.by)[1:-1]}}}"
    over = rf"\multicolumn{{{paper.under}}}{{c}}{title}"
    return [rf"{'& ' * (first - 1)}{over} \\", rf"\cmidrule(lr){{{first}-{columns}}}"]


def _header(name: str) -> str:
    """A column's name with its unit in brackets, in braces so that siunitx leaves it alone."""
    for suffix in sorted(UNITS, key=len, reverse=True):
        if name.endswith(f"_{suffix}") or name == suffix:
            quantity = name.removesuffix(suffix).strip("_").replace("_", " ")
            return rf"{{{quantity or LONE.get(name, name)} [\unit{{{UNITS[suffix]}}}]}}"
    return f"{{{_escaped(name.replace('_', ' '))}}}"


def _cell(value: Any, numeric: bool) -> str:
    text = cell_text(value)
    if not numeric:
        return _escaped(text)
    if not isinstance(value, int | float):
        return "{--}"
    return text.replace(",", "") if isfinite(value) else INFINITE


def _is_numeric(rows: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(is_number(row[name]) for row in rows)


def _escaped(text: str) -> str:
    indent = len(text) - len(text.lstrip())
    printed = "".join(SPECIAL.get(letter, letter) for letter in text[indent:])
    return r"\quad " * (indent // 2) + printed
