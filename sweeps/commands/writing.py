"""Write answers to files, and say so."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearkv.sweeps.evaluate.evaluate import Columns
    from nearkv.sweeps.study.study import Study


def check_output(file: str) -> None:
    """Refuse a file that a table could not be written to.

    Raises:
        InputError: no form is known by that name, or something is in the way.
    """
    from pathlib import Path

    from nearkv.sweeps.jobs.execute import check_place

    check_place(Path(file))


def text_format(file: str) -> str:
    """The format of a file for readers; empty for files of rows, of which all are written."""
    if not file:
        return ""
    from pathlib import Path

    from nearkv.sweeps.jobs.outputs import TEXTS

    return TEXTS.get(Path(file).suffix, "")


def save(table: Columns, study: Study | None, file: str) -> None:
    """Write a table, and beside it where every number comes from."""
    from pathlib import Path

    from nearkv.sweeps.jobs.execute import write_table

    tell(write_table(table, Path(file), study))


def save_text(text: str, rows: int, study: Study | None, file: str) -> None:
    """Write a formatted table, and beside it where every number comes from."""
    from pathlib import Path

    from nearkv.sweeps.jobs.execute import write_content

    tell(write_content(text.encode(), rows, Path(file), study))


def tell(line: str) -> None:
    """Print a line on standard error, beside the output; a terminal's lines wrap at words."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with suppress(OSError):
        console.print(line, soft_wrap=not console.is_terminal, crop=False)
