"""Turn columns and rows into pandas DataFrames that hold what the command line prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nearkv.sweeps.tables.table import is_whole, plain


def table_of_columns(columns: Mapping[str, NDArray[np.generic]]) -> pd.DataFrame:
    """A table with a row per design point; columns of whole numbers are integers."""
    narrowed = {}
    for name, values in columns.items():
        narrowed[name] = _narrowed(values)
    return pd.DataFrame(narrowed)


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A table of rows that all have the same keys; what is missing in a row is NaN."""
    return pd.DataFrame([_plain_row(row) for row in rows])


def csv_number(value: object) -> str:
    """A number as the command line writes it to CSV, for `DataFrame.to_csv(float_format=...)`.

    >>> csv_number(2.0), csv_number(0.1)
    ('2', '0.1')
    """
    return str(plain(value))


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in row.items()}


def _narrowed(values: NDArray[np.generic]) -> NDArray[np.generic]:
    if values.dtype.kind != "f":
        return values
    numbers = values.astype(float)
    if not np.all(np.isfinite(numbers)):
        return values
    return numbers.astype(np.int64) if is_whole(numbers) else values
