"""Answers as columns, rows and pandas DataFrames; each keeps its conclusion beside it.

Commands print rows; pandas, half a second to load, is for the tables of functions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.sweeps.evaluate.catalogue import column_rows
from nearkv.sweeps.evaluate.provenance import as_json, provenance
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.labels import stem_and_unit
from nearkv.sweeps.tables.table import CellArray, Columns, Rows, plain, records

if TYPE_CHECKING:
    import pandas as pd


WHOLE_COLUMNS = ("batch", "context_tok", "output_tokens")
"""Columns of integers, unless lengths are means of a trace; all other numbers are floats."""


@dataclass(frozen=True)
class Findings:
    """Cells that answer a question, and what they prove.

    Attributes:
        cells: columns of one length, or rows.
        conclusion: sentences.
        study: the question, whose units and sources a DataFrame of columns takes.
    """

    cells: Columns | Rows
    conclusion: Sequence[str] = ()
    study: Study | None = None

    @cached_property
    def columns(self) -> Mapping[str, Sequence[Any] | CellArray]:
        """The cells of each column."""
        if isinstance(self.cells, dict):
            return self.cells
        names = next(iter(self.rows), {})
        return {name: [row[name] for row in self.rows] for name in names}

    @cached_property
    def rows(self) -> Rows:
        """The cells of each row, as plain values."""
        if isinstance(self.cells, dict):
            return records(self.cells)
        names = dict.fromkeys(chain.from_iterable(self.cells))
        return [{name: plain(row.get(name)) for name in names} for row in self.cells]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def table(self, empty: bool = True) -> pd.DataFrame:
        """The DataFrame; without columns that hold no number, unless they are kept."""
        if isinstance(self.cells, dict):
            return table_of_columns(self.cells, self.conclusion, self.study, empty)
        return table_of_rows(self.cells, self.conclusion)


def table_of_columns(
    columns: Mapping[str, CellArray],
    conclusion: Sequence[str] = (),
    study: Study | None = None,
    empty: bool = True,
) -> pd.DataFrame:
    """A table with a row per design point.

    Args:
        columns: of one length.
        conclusion: sentences that the table proves, kept in its `attrs`.
        study: what the table answers; `attrs` then holds the `units` of its columns and, as JSON,
            the `provenance` of its numbers.
        empty: keep columns without any number.
    """
    import pandas as pd

    shown = {
        name: _whole(values) if name in WHOLE_COLUMNS else values
        for name, values in columns.items()
        if empty or not _is_empty(values)
    }
    table = pd.DataFrame(shown)
    table.attrs["conclusion"] = list(conclusion)
    if study is not None:
        units = {row["column"]: row["unit"] for row in column_rows()}
        units = {name: units.get(name) or stem_and_unit(name)[1] for name in shown}
        table.attrs["units"] = {name: unit for name, unit in units.items() if unit}
        table.attrs["provenance"] = as_json(provenance(blocks(study)))
    return table


def _whole(values: CellArray) -> CellArray:
    """Numbers as integers where all of them are."""
    integers = values.astype(np.int64)
    return integers if np.array_equal(integers, values) else values


def _is_empty(values: CellArray) -> bool:
    return values.dtype.kind == "f" and len(values) > 0 and bool(np.isnan(values).all())


def table_of_rows(
    rows: Sequence[Mapping[str, Any]], conclusion: Sequence[str] = ()
) -> pd.DataFrame:
    """A table of rows that all have the same keys; what is missing in a row is NaN."""
    import pandas as pd

    plain_rows = [{name: plain(value) for name, value in row.items()} for row in rows]
    table = pd.DataFrame(plain_rows)
    table.attrs["conclusion"] = list(conclusion)
    return table


def findings_of(table: pd.DataFrame) -> Findings:
    """The cells of a DataFrame, and its conclusion."""
    columns = {str(name): values.to_numpy() for name, values in table.items()}
    return Findings(columns, table.attrs.get("conclusion", ()))


def rows_of(table: Findings | Rows) -> Rows:
    """The rows of a table as dictionaries of plain values; rows as they are."""
    return table if isinstance(table, list) else table.rows
