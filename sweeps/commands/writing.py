"""Write answers to files, and say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearkv.sweeps.study.sizes import comma_list

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.study.study import Study
    from nearkv.sweeps.tables.table import Row


def check_output(file: str) -> None:
    """Refuse a file that a table could not be written to.

    Raises:
        InputError: no form is known by that name, or something is in the way.
    """
    from nearkv.sweeps.jobs.outputs import check_place

    check_place(Path(file))


def text_format(file: str) -> str:
    """The format of a file for readers; empty for files of rows, of which all are written."""
    if not file:
        return ""
    from nearkv.sweeps.jobs.outputs import TEXTS

    return TEXTS.get(Path(file).suffix, "")


def save(
    table: pd.DataFrame | Sequence[Row], only: str, study: Study | None, file: str
) -> None:
    """Write the columns of a comma-separated list, and beside them where every number comes from.

    Raises:
        InputError: a name that is no column, or a file that cannot be written.
    """
    from nearkv.sweeps.jobs.outputs import form_of

    save_bytes(encoded(table, only, form_of(Path(file))), len(table), study, file)


def encoded(table: pd.DataFrame | Sequence[Row], only: str, form: str) -> bytes:
    """The columns of a comma-separated list as a program reads them.

    Raises:
        InputError: a name that is no column.
    """
    import pandas as pd

    from nearkv.sweeps.jobs.formats import encoded, table_of
    from nearkv.sweeps.tables.table import check_columns

    frame, names = pd.DataFrame(table), list(comma_list(only))
    check_columns(frame, names)
    return encoded(table_of(frame[names] if names else frame), form)


def save_bytes(content: bytes, rows: int, study: Study | None, file: str) -> None:
    """Write a table to a file, and beside it where every number comes from."""
    from nearkv.sweeps.jobs.outputs import write_content

    tell(write_content(content, rows, Path(file), study))


def printable(line: str) -> str:
    """The line without characters that move a terminal's cursor, as a file's name may hold."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def tell(line: str) -> None:
    """Print a line on standard error, beside the output; a terminal's lines wrap at words."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with suppress(OSError):
        console.print(printable(line), soft_wrap=not console.is_terminal, crop=False)


def ask(question: str) -> bool:
    """Ask the user; where there is no terminal to ask on, the answer is no."""
    import sys

    try:
        return sys.stdin.isatty() and typer.confirm(question, err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None


def write_toml(name: str, text_of: Callable[[str], str], option: str) -> None:
    """Write NAME.toml, and say which option takes it.

    Args:
        name: of the file, with or without its ending.
        text_of: the text, from the name without its ending.
        option: what takes the file.

    Raises:
        InputError: the file exists, or cannot be written.
    """
    file = Path(f"{name.removesuffix('.toml')}.toml")
    write_new(file, text_of(file.stem))
    typer.echo(printable(f"wrote {file}; use it as {option} {file}"))


def check_new(file: Path) -> None:
    """Refuse a file that exists, or cannot be written.

    Raises:
        InputError: it is such a file.
    """
    import os

    from nearkv.hardware.errors import InputError
    from nearkv.sweeps.evaluate.provenance import place_of

    place_of(file)
    if os.path.lexists(file):
        raise InputError(f"{file}: cannot be written (File exists); choose another name")


def write_new(file: Path, text: str) -> None:
    """Write a file that does not exist yet.

    Raises:
        InputError: it does, or cannot be written.
    """
    from nearkv.sweeps.evaluate.provenance import write_text

    check_new(file)
    write_text(file, text)


def report_problems(file: str, sentences: Sequence[str]) -> None:
    """Print what is wrong with a file of the user's; exit 1 where something is."""
    for sentence in sentences or [f"{file}: nothing is wrong"]:
        typer.echo(printable(sentence))
    if sentences:
        raise typer.Exit(1)
