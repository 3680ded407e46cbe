"""Tables in a terminal: what varies, in columns that fit; what does not, in a line."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import zip_longest
from textwrap import wrap

from rich.box import Box
from rich.console import Console
from rich.table import Table

from nearkv.sweeps.tables.layout import (
    COLUMN_GAP,
    KEY,
    SENTENCES,
    is_numeric,
    layout,
    wraps,
)
from nearkv.sweeps.tables.table import Display, cell_text

TALL = 16
"""An answer of more quantities is shown in two columns."""
WIDE = 72
"""Characters of a line from which on there is a second column."""
NARROWEST_TEXT = 24
"""Characters of the longest value that stands beside others; longer ones follow below."""
PIPED = 220
"""Characters of a line where output goes to no terminal, unless COLUMNS says how many."""
HEADER_RULE = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)
"""A rule below the header, and blanks between columns."""


def width_of_output() -> int:
    """Characters of a line: the terminal's; many where output is piped, so that nothing wraps."""
    return shutil.get_terminal_size(fallback=(PIPED, 24)).columns


def lay_out(shown: Display) -> str:
    """A table as a terminal shows it, in plain letters where output goes to none.

    Args:
        shown: one row is shown upright; pinned columns that are too wide for one line continue
            in a second table below.

    Returns:
        The text, ending in a newline; no line is longer than the terminal's but for a long word.
    """
    width = width_of_output()
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        if shown.title:
            console.print(shown.title)
        if len(shown.rows) > 1:
            _print_table(console, shown)
        elif shown.rows:
            _print_upright(console, shown)
        elif not shown.title:
            console.print("no rows")
        for line in "\n".join(shown.below).splitlines():
            # a word that is too long stays whole: a command in it can be copied
            parts = wrap(line, width, break_long_words=False, break_on_hyphens=False)
            console.print("\n".join(parts), soft_wrap=True)
    lines = map(str.rstrip, captured.get().splitlines())
    return "\n".join(lines) + "\n"


def _print_table(console: Console, shown: Display) -> None:
    """Several rows: what all share, the columns that fit, notes, and what does not fit."""
    chosen = layout(shown, console.width)
    if chosen.common:
        console.print(chosen.common)
    for names in _tables(chosen.widths, console.width):
        table = Table(
            box=HEADER_RULE,
            show_edge=False,
            pad_edge=False,
            padding=(0, COLUMN_GAP - 1, 0, 0),
        )
        for name in names:
            table.add_column(
                name,
                justify="right" if is_numeric(chosen.rows, name) else "left",
                width=None if wraps(chosen.rows, name) else chosen.widths[name],
                overflow="fold",  # a cell too wide for the line continues below
                style="yellow" if name == "bottleneck" else "",
            )
        for row in chosen.rows:
            failed = row.get("status", "ok") != "ok"
            cells = [cell_text(row[name]) for name in names]
            table.add_row(*cells, style="red" if failed else "")
        console.print(table)
    for note in chosen.notes:
        console.print(note)
    if chosen.left_out:
        console.print(f"also: {', '.join(chosen.left_out)} (--columns, --format csv)")


def _tables(widths: Mapping[str, int], width: int) -> list[list[str]]:
    """Columns in as many tables as lines of a width need, each begun by what names a row."""
    names = list(widths)
    count = sum(name in (*KEY, "id", "number") for name in names)
    naming = names[: max(count, 1)]
    if sum(widths[name] + COLUMN_GAP for name in naming) > width // 2:
        naming = naming[:1]
    tables = [naming]
    for name in names[len(naming) :]:
        wider = [*tables[-1], name]
        fits = sum(widths[each] + COLUMN_GAP for each in wider) <= width + COLUMN_GAP
        if fits or tables[-1] == naming:
            tables[-1] = wider
        else:
            tables.append([*naming, name])
    return tables


def _print_upright(console: Console, shown: Display) -> None:
    """One row, a line per quantity that has a value; many short ones stand in two columns."""
    (row,) = shown.rows
    short: list[tuple[str, str]] = []
    long: list[tuple[str, str]] = []
    for name in shown.names:
        if row[name] in (None, "") and name not in shown.pinned:
            continue
        text = cell_text(row[name])
        is_long = name in SENTENCES or len(text) > NARROWEST_TEXT
        (long if is_long else short).append((name, text))
    is_tall = len(short) > TALL and console.width >= WIDE
    half = (len(short) + 1) // 2 if is_tall else len(short)
    beside = Table.grid(padding=(0, COLUMN_GAP, 0, 0))
    for left, right in zip_longest(short[:half], short[half:], fillvalue=("", "")):
        beside.add_row(*left, *right)
    below = Table.grid(padding=(0, COLUMN_GAP, 0, 0))
    for line in long:
        below.add_row(*line)
    for grid in (beside, below):
        if grid.row_count:
            console.print(grid)
