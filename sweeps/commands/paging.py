"""Print a table; a long one on a terminal goes through a pager."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nearkv.sweeps.tables.latex import Paper


def show(
    rows: Sequence[dict[str, Any]],
    form: str,
    columns: Iterable[str] = (),
    title: str = "",
    pinned: Iterable[str] = (),
    below: Iterable[str] = (),
    paper: Paper | None = None,
) -> None:
    """Print rows in a format; a long table on a terminal goes through a pager.

    Raises:
        InputError: an unknown format, or a standard output that is closed.
    """
    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.tables.table import check_format, render

    if sys.stdout is None:
        raise InputError("standard output is closed; send it somewhere")
    text = render(rows, check_format(form), columns, title, pinned, paper, below)
    if form == "table" and sys.stdout.isatty() and _is_long(text):
        _page(text)
    else:
        typer.echo(text, nl=False)


def _page(text: str) -> None:
    """Show a text in the user's pager."""
    import os
    import pydoc

    os.environ.setdefault("LESS", "-FRSX")
    pydoc.pager(text)


def _is_long(text: str) -> bool:
    """Whether a text has more lines than the terminal."""
    import shutil

    return text.count("\n") >= shutil.get_terminal_size().lines
