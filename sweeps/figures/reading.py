"""Read the table that a command wrote, from a file or from a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nearkv.hardware.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 1 << 28
"""Bytes of the largest table that is drawn; larger ones have more rows than a figure shows."""

ENDINGS = (".csv", ".jsonl", ".parquet")


def read_table(source: str) -> pd.DataFrame:
    """Read a table of nearkv's.

    Args:
        source: a file that ends in .csv, .jsonl or .parquet; `-` for CSV on standard input.

    Raises:
        InputError: the file does not exist, is none of these, is too large or cannot be read.
    """
    import pandas as pd

    if source == "-":
        text = sys.stdin.read(LARGEST)
        return _parsed(lambda: pd.read_csv(io.StringIO(text)), "standard input")
    path = Path(source)
    _check_file(path)
    readers = {
        ".csv": lambda: pd.read_csv(path),
        ".jsonl": lambda: pd.read_json(path, lines=True),
        ".parquet": lambda: pd.read_parquet(path),
    }
    return _parsed(readers[path.suffix], source)


def _check_file(path: Path) -> None:
    if path.suffix not in ENDINGS:
        raise InputError(
            f"{path}: is no table; name a file that ends in {', '.join(ENDINGS)}"
        )
    if not path.exists():
        raise InputError(
            f"{path}: does not exist; write it with `nearkv compare ... -o {path}`"
        )
    if not path.is_file():
        raise InputError(f"{path}: is not an ordinary file; name the table itself")
    size = path.stat().st_size
    if size > LARGEST:
        raise InputError(
            f"{path}: holds {size:,} bytes, too many for a figure (at most {LARGEST:,}); "
            "keep fewer rows with sweep --top or --best-per"
        )


def _parsed(read: Callable[[], pd.DataFrame], where: str) -> pd.DataFrame:
    try:
        table = read()
    except (ValueError, OSError, UnicodeError) as problem:
        reason = str(problem).splitlines()[0][:200]
        raise InputError(f"{where}: is not a table that nearkv wrote ({reason})") from None
    if table.empty:
        raise InputError(f"{where}: has no rows; there is nothing to draw")
    return table
