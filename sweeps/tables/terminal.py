"""Lay a table out for a terminal: what varies, in columns that fit; what does not, in a line."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nearkv.sweeps.tables.layout import KEY, SENTENCES, layout, named
from nearkv.sweeps.tables.text_columns import (
    GAP,
    Column,
    Row,
    blocks_of,
    cell_text,
    is_number,
)

TALL = 16
"""An answer of more quantities is shown in two columns."""
NARROW = 24
"""Characters of the longest value that stands in one of two columns."""
PIPED = 220
"""Characters of a line where output goes to no terminal, unless COLUMNS says how many."""
INDENT = "    "
BOLD, RED, YELLOW, RESET = "\033[1m", "\033[31m", "\033[33m", "\033[0m"


def width_of_output() -> int:
    """Characters of a line: the terminal's; many where output is piped, so that nothing is cut."""
    return shutil.get_terminal_size(fallback=(PIPED, 24)).columns


def wrapped(text: str, indent: str = "") -> str:
    """A text in lines that fit; all but the first are indented."""
    lines = textwrap.wrap(
        text,
        width_of_output(),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def is_coloured() -> bool:
    """Whether somebody looks at standard output and wants colours (https://no-color.org)."""
    return bool(sys.stdout and sys.stdout.isatty()) and not os.environ.get("NO_COLOR")


def lay_out(
    rows: Sequence[Row],
    names: Iterable[str] = (),
    pinned: Iterable[str] = (),
    title: str = "",
    below: Iterable[str] = (),
) -> str:
    """Lay rows out for a terminal.

    Args:
        rows: one mapping per row, all with the same keys.
        names: columns to show, the most important first, as far as they fit; all where none
            is named.
        pinned: columns to show whatever their width: those that vary or were asked for.
        title: put above.
        below: sentences to end with: the conclusion; a table in lines of its own stays so.

    Returns:
        The text, ending in a newline; no line is longer than the terminal's. One row is shown
        upright. Pinned columns too wide for a line are continued in a second table below.
    """
    order, always = list(names), list(pinned)
    lines = [wrapped(title)] if title else []
    if not rows:
        lines += [] if title else ["no rows"]
    elif len(rows) == 1:
        lines += _upright(rows[0], named(rows[0], order, always), always)
    else:
        lines += _table(rows, order, always)
    lines += [text if "\n" in text else wrapped(text) for text in below]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row], order: Sequence[str], pinned: Sequence[str]) -> list[str]:
    table = layout(rows, order, pinned, width_of_output())
    lines = [_heading(table.same)] if table.same else []
    lines += _lines(table.rows, table.columns, table.description)
    lines += [wrapped(sentence, INDENT) for sentence in table.sentences]
    if table.left_out:
        lines.append(
            wrapped(f"also: {', '.join(table.left_out)} (--columns, --format csv)")
        )
    return lines


def _heading(same: Mapping[str, str]) -> str:
    """What all rows have in common; a name stays in one line with its value."""
    pairs = [f"{name} {text}".replace(" ", "\0") for name, text in same.items()]
    return wrapped(", ".join(pairs)).replace("\0", " ")


def _lines(rows: Sequence[Row], columns: Sequence[Column], description: str) -> list[str]:
    """The columns side by side, in as many blocks as lines of the terminal's width need."""
    names = sum(column.name in (*KEY, "id", "number") for column in columns)
    lines: list[str] = []
    for block in blocks_of(columns, max(names, 1), width_of_output()):
        header, rule, *body = zip(*(column.padded() for column in block), strict=True)
        lines += [GAP.join(header).rstrip(), GAP.join(rule)]
        for index, cells in enumerate(body):
            lines.append(_coloured(rows, index, block, cells))
            if description and rows[index][description] not in (None, ""):
                text = f"{INDENT}{rows[index][description]}"
                lines.append(wrapped(text, INDENT))
        description = ""
    return lines


def _coloured(
    rows: Sequence[Row], index: int, block: Sequence[Column], cells: Sequence[str]
) -> str:
    """One line: red without an answer; else the bottleneck is yellow and the best bold."""
    line = GAP.join(cells).rstrip()
    if not is_coloured():
        return line
    if rows[index].get("status", "ok") != "ok":
        return f"{RED}{line}{RESET}"
    colours = {"bottleneck": YELLOW}
    if _is_best(rows, index):
        colours["speedup"] = BOLD
    painted = []
    for column, cell in zip(block, cells, strict=True):
        colour = colours.get(column.name, "")
        painted.append(f"{colour}{cell}{RESET}" if colour else cell)
    return GAP.join(painted).rstrip()


def _is_best(rows: Sequence[Row], index: int) -> bool:
    """Whether a row has the largest speed-up of its workload."""

    def workload(row: Row) -> list[Any]:
        return [row.get(name) for name in KEY if name not in ("system", "platform")]

    speedup: Any = rows[index].get("speedup")
    if not is_number(speedup):
        return False
    own = workload(rows[index])
    rivals: list[Any] = [row.get("speedup") for row in rows if workload(row) == own]
    return all(speedup >= rival for rival in rivals if is_number(rival))


def _upright(row: Row, names: Sequence[str], pinned: Sequence[str]) -> list[str]:
    """One row, a line per quantity; blank ones are left out, sentences stand below."""
    shown = [name for name in names if name in pinned or row[name] not in (None, "")]
    longest = max((len(name) for name in shown), default=0)
    room = width_of_output() - longest - len(GAP)
    if len(shown) > TALL:
        room = min(room, NARROW)
    lines, sentences = [], []
    for name in shown:
        text = cell_text(row[name])
        if len(text) > room or name in SENTENCES:
            sentences.append(wrapped(f"{name}: {text}", INDENT))
        else:
            lines.append(f"{name.ljust(longest)}{GAP}{text}")
    return [*_side_by_side(lines), *sentences]


def _side_by_side(lines: list[str]) -> list[str]:
    """Many lines in two columns, where these fit; the first half stands on the left."""
    if len(lines) <= TALL:
        return lines
    half = (len(lines) + 1) // 2
    left, right = lines[:half], lines[half:]
    width = max(map(len, left))
    if width + len(GAP) + max(map(len, right)) > width_of_output():
        return lines
    return list(_joined(left, [*right, *[""] * (half - len(right))], width))


def _joined(left: Sequence[str], right: Sequence[str], width: int) -> Iterator[str]:
    for one, other in zip(left, right, strict=True):
        yield f"{one.ljust(width)}{GAP}{other}".rstrip()
