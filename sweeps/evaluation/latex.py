"""Print a table as papers do: booktabs, numbers aligned by siunitx, units in the header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from nearkv.sweeps.evaluation.text_columns import cell_text, is_number

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
SPECIAL = re.compile(r"([&%$#_{}])")


@dataclass(frozen=True)
class Paper:
    """How a paper prints a table.

    Attributes:
        caption, label: of the table; none where empty, and then there is no float around it.
        over: the column whose values fill the last columns, which have one header; empty for none.
        by: the column whose values these are.
        under: how many they are.
    """

    caption: str = ""
    label: str = ""
    over: str = ""
    by: str = ""
    under: int = 0


def latex(rows: Sequence[Mapping[str, Any]], names: Sequence[str], paper: Paper) -> str:
    """A table for LaTeX with the packages booktabs and siunitx.

    Columns of numbers are of siunitx's type S, which aligns them at the decimal point.
    """
    numeric = {name: _is_numeric(rows, name) for name in names}
    layout = "".join("S" if numeric[name] else "l" for name in names)
    header = " & ".join(_header(name) for name in names)
    lines = [rf"\begin{{tabular}}{{{layout}}}", r"\toprule", *_spanning(len(names), paper)]
    lines += [rf"{header} \\", r"\midrule"]
    for row in rows:
        cells = [_cell(row[name], numeric[name]) for name in names]
        lines.append(f"{' & '.join(cells)} \\\\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(_floating(lines, paper)) + "\n"


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
    return SPECIAL.sub(r"\\\1", text)
