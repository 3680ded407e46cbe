"""Files that commands write: tables with their sources, figures, and files for a user to change."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearkv.hardware.errors import InputError
from nearkv.sweeps.commands.messages import printable, tell
from nearkv.sweeps.study.sizes import comma_list

if TYPE_CHECKING:
    from nearkv.sweeps.api.tables import Findings
    from nearkv.sweeps.study.study import Study
    from nearkv.sweeps.tables.table import Rows


def check_output(file: str) -> None:
    """Refuse a file that a table could not be written to.

    Raises:
        InputError: no form is known by that name, or something is in the way.
    """
    from nearkv.sweeps.jobs.outputs import check_place

    check_place(Path(file))


def place_ending(file: str, ending: str) -> Path:
    """Path of a file of one type, checked before any work is done for it.

    Raises:
        InputError: its name ends otherwise, or it cannot be written.
    """
    from nearkv.sweeps.evaluate.provenance import check_writable, place_of

    place = place_of(file)
    if place.is_dir() or place.suffix != ending:
        raise InputError(f"-o {file}: name a file that ends in {ending}")
    check_writable(place)
    return place


def text_format(file: str) -> str:
    """The format of a file for readers; empty for files of rows, of which all are written."""
    if not file:
        return ""
    from nearkv.sweeps.jobs.outputs import TEXTS

    return TEXTS.get(Path(file).suffix, "")


def is_figure(file: str) -> bool:
    """Return whether a file's name asks for a figure."""
    from nearkv.sweeps.figures.style import IMAGE_ENDINGS

    return bool(file) and Path(file).suffix.lower() in IMAGE_ENDINGS


def holds_rows(file: str) -> bool:
    """True if a file holds rows, as a program reads them, and is no text and no figure."""
    return bool(file) and not (text_format(file) or is_figure(file))


def save(table: Findings | Rows, only: str, study: Study | None, file: str) -> None:
    """Write the columns of a comma-separated list, and beside them where every number comes from.

    Raises:
        InputError: a name that is no column, or a file that cannot be written.
    """
    from nearkv.sweeps.jobs.outputs import form_of

    save_bytes(encoded(table, only, form_of(Path(file))), len(table), study, file)


def encoded(table: Findings | Rows, only: str, form: str) -> bytes:
    """The columns of a comma-separated list as a program reads them.

    Raises:
        InputError: a name that is no column.
    """
    from nearkv.sweeps.api.tables import Findings
    from nearkv.sweeps.jobs.formats import encoded, table_of
    from nearkv.sweeps.tables.table import check_columns

    found = Findings(table) if isinstance(table, list) else table
    columns, names = found.columns, list(comma_list(only))
    check_columns(columns, names)
    return encoded(table_of({name: columns[name] for name in names or columns}), form)


def save_bytes(content: bytes, rows: int, study: Study | None, file: str) -> None:
    """Write a table to a file, and beside it where every number comes from."""
    from nearkv.sweeps.jobs.outputs import write_content

    tell(write_content(content, rows, Path(file), study))


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
    for sentence in sentences or [f"{file}: no errors"]:
        typer.echo(printable(sentence))
    if sentences:
        raise typer.Exit(1)
