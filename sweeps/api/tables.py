"""Columns and rows as pandas DataFrames, and back; a table keeps its conclusion beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.tables.table import Columns, is_number, is_whole, plain, records

if TYPE_CHECKING:
    import pandas as pd


def table_of_columns(
    columns: Mapping[str, NDArray[np.generic]], conclusion: Sequence[str] = ()
) -> pd.DataFrame:
    """A table with a row per design point; columns of whole numbers are integers.

    Args:
        columns: of one length.
        conclusion: sentences that the table proves, kept in its `attrs`.
    """
    import pandas as pd

    narrowed = {name: _narrowed(values) for name, values in columns.items()}
    return _concluding(pd.DataFrame(narrowed), conclusion)


def table_of_rows(
    rows: Sequence[Mapping[str, Any]], conclusion: Sequence[str] = ()
) -> pd.DataFrame:
    """A table of rows that all have the same keys; what is missing in a row is NaN."""
    import pandas as pd

    plain_rows = [{name: plain(value) for name, value in row.items()} for row in rows]
    return _concluding(pd.DataFrame(plain_rows), conclusion)


def columns_of(table: pd.DataFrame | Sequence[Mapping[str, Any]]) -> Columns:
    """The columns of a table as arrays: numbers where all that is not blank is one, else text."""
    import pandas as pd

    columns: Columns = {}
    for name, values in pd.DataFrame(table).items():
        array = values.to_numpy()
        columns[str(name)] = array if array.dtype.kind in "fiub" else _unboxed(array)
    return columns


def _unboxed(values: NDArray[np.object_]) -> NDArray[np.generic]:
    """Values of several types as numbers or text; what is missing is NaN or blank."""
    cells = [plain(value) for value in values]
    numbers = [cell for cell in cells if is_number(cell)]
    if numbers and len(numbers) == sum(cell not in (None, "") for cell in cells):
        return np.array([cell if is_number(cell) else np.nan for cell in cells], float)
    texts = [" ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in cells]
    return np.array(["" if text is None else str(text) for text in texts])


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries of plain values."""
    return records({str(name): values.to_numpy() for name, values in table.items()})


def _concluding(table: pd.DataFrame, conclusion: Sequence[str]) -> pd.DataFrame:
    table.attrs["conclusion"] = list(conclusion)
    return table


def csv_number(value: object) -> str:
    """A number as the command line writes it to CSV, for `DataFrame.to_csv(float_format=...)`.

    >>> csv_number(2.0), csv_number(0.1)
    ('2', '0.1')
    """
    return str(plain(value))


def _narrowed(values: NDArray[np.generic]) -> NDArray[np.generic]:
    if values.dtype.kind != "f":
        return values
    numbers = values.astype(float)
    if not np.all(np.isfinite(numbers)):
        return values
    return numbers.astype(np.int64) if is_whole(numbers) else values
