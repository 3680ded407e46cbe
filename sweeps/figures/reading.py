"""Read the table that a command wrote, from a file or from a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nearkv.hardware.errors import InputError, a_few
from nearkv.sweeps.figures.series import check_drawable
from nearkv.sweeps.jobs.outputs import FORMS
from nearkv.sweeps.study.sizes import comma_list, pairs, size

if TYPE_CHECKING:
    import pandas as pd

LARGEST_FILE = 1 << 28
"""Bytes of the largest table that is drawn; larger ones have more rows than a figure shows."""


def read_table(source: str, may_be_empty: bool = False) -> pd.DataFrame:
    """Read a table of nearkv's.

    Args:
        source: a file that ends in .csv, .jsonl, .ndjson or .parquet, or the folder of parts that
            a sweep writes as .parquet; `-` for CSV on standard input.
        may_be_empty: whether no row is an answer, as of borders.

    Raises:
        InputError: the file does not exist, is none of these, is too large or cannot be read, or
            has no rows.
    """
    import pandas as pd

    if source == "-":
        text = sys.stdin.read(LARGEST_FILE)
        source = "standard input"
        table = _parsed(lambda: pd.read_csv(io.StringIO(text), low_memory=False), source)
    else:
        table = _read_files(Path(source))
    if table.empty and not may_be_empty:
        raise InputError(f"{source} has no rows; there is nothing to draw")
    return table


def _read_files(path: Path) -> pd.DataFrame:
    """The table of a file, or of the parts of a sweep."""
    import pandas as pd

    files = _files(path)
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        # as a whole: types that pandas guesses piece by piece may differ
        "csv": lambda file: pd.read_csv(file, low_memory=False),
        "jsonl": lambda file: pd.read_json(file, lines=True),
        "parquet": pd.read_parquet,
    }
    read = readers[FORMS[path.suffix]]
    return _parsed(lambda: pd.concat(map(read, files), ignore_index=True), str(path))


def _files(path: Path) -> list[Path]:
    """The files of a table: itself, or the parts of a sweep.

    Raises:
        InputError: there are none, one is no ordinary file, or they are too large.
    """
    if path.suffix not in FORMS:
        raise InputError(f"{path} is no table; name a file that ends in {', '.join(FORMS)}")
    if not path.exists():
        raise InputError(
            f"{path} does not exist; write it with `nearkv compare ... -o {path}`"
        )
    files = [path]
    if path.suffix == ".parquet" and path.is_dir():
        files = sorted(path.glob("part-*.parquet"))
    if not files:
        raise InputError(
            f"{path} is a folder without parts of a sweep; name the table itself"
        )
    for file in files:
        if not file.is_file():
            raise InputError(f"{file} is not an ordinary file; name the table itself")
    size = sum(file.stat().st_size for file in files)
    if size > LARGEST_FILE:
        raise InputError(
            f"{path} holds {size:,} bytes, too many for a figure (at most {LARGEST_FILE:,}); "
            "keep fewer rows with sweep --top or --best-per"
        )
    return files


def _parsed(read: Callable[[], pd.DataFrame], where: str) -> pd.DataFrame:
    """A table as pandas reads it.

    Raises:
        InputError: it cannot.
    """
    try:
        return read()
    except (ValueError, OSError, UnicodeError) as problem:
        reason = str(problem).splitlines()[0][:200]
        raise InputError(f"{where} is not a table that nearkv wrote ({reason})") from None


def kept(table: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    """The rows of a table that have some values.

    Args:
        table: rows.
        where: `COLUMN=VALUES`, comma-separated; sizes may be written as `64k`.

    Raises:
        InputError: not of this form, no such column, or no row has such a value.
    """
    for column, text in pairs(list(where), "--where").items():
        check_drawable(table, column)
        values = table[column]
        is_kept = values.astype(str).isin(comma_list(text))
        if values.dtype.kind in "if":
            wanted = [_number(value, f"--where {column}") for value in comma_list(text)]
            is_kept = values.isin(wanted)
        if not is_kept.any():
            known = a_few(map(str, values.drop_duplicates()), like=text)
            raise InputError(f"--where {column}={text}: no row has that; there are {known}")
        table = table[is_kept].reset_index(drop=True)
    return table


def _number(text: str, where: str) -> float:
    """A number, or a size such as `64k`."""
    try:
        return float(text)
    except ValueError:
        return size(text, where)
