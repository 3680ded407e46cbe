"""Write answers to files, and say so."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nearkv.sweeps.evaluation.evaluate import Columns
    from nearkv.sweeps.space.study import Study


def check_output(file: str) -> None:
    """Refuse a file that a table could not be written to.

    Raises:
        InputError: no form is known by that name, or something is in the way.
    """
    from pathlib import Path

    from nearkv.sweeps.jobs.execute import check_place

    check_place(Path(file))


def save(table: Columns, study: Study | None, file: str) -> None:
    """Write a table, and beside it where every number comes from."""
    from pathlib import Path

    from nearkv.sweeps.jobs.execute import write_table

    tell(write_table(table, Path(file), study))


def tell(line: str) -> None:
    """Say something that is not part of the output, to whoever listens."""
    with suppress(OSError):
        typer.echo(line, err=True)
