"""The rows of a report as a page reads them: the columns a reader needs first, cells as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SPEED = "throughput_tok_s"

WORKLOAD = ("model", "platform", "batch", "context_tok", "output_tokens", "trace")
"""Columns that say where systems are compared: what differs beside them is a choice."""

ALWAYS = ("system", "status", SPEED, f"{SPEED}_p05", f"{SPEED}_p95", "step_ms", "total_s")
"""Columns that a page begins with, where the table has them."""

MOST_COLUMNS = 14
"""Columns that vary and that a page begins with."""

PERCENTILE = re.compile(r"_p[\d.]+$")
"""The end of a column of a band."""

LEADING = ("system", *WORKLOAD, "status", "short_of", *ALWAYS[2:], "prefill_s", "alpha")
"""Columns in the order of a page; all others follow."""


def rows_as_json(
    whole: pd.DataFrame, places: Sequence[tuple[int, int]], trees: Sequence[Any]
) -> str:
    """Return the rows, trees and column choices as JSON that is safe inside a page."""
    table = whole[_in_order(whole)]
    names = [str(name) for name in table.columns]
    rows = [[_value(value) for value in row] for row in table.to_numpy(dtype=object)]
    shown = [names.index(name) for name in _shown(table)]
    data = {
        "columns": names,
        "shown": shown,
        "rows": rows,
        "places": places,
        "trees": trees,
    }
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c")


def _in_order(table: pd.DataFrame) -> list[str]:
    """Return the columns: what is asked first, then the answers, then the rest."""
    names = [str(name) for name in table.columns]
    leading = [name for name in LEADING if name in names]
    return [*leading, *(name for name in names if name not in leading)]


def _shown(table: pd.DataFrame) -> list[str]:
    """Return the columns that a page begins with: the answers, and what else varies."""
    names = [str(name) for name in table.columns]
    many = [name for name in names if table[name].nunique(dropna=False) > 1]
    telling = [name for name in many if not PERCENTILE.search(name)][:MOST_COLUMNS]
    return [name for name in names if name in telling or name in ALWAYS]


def _value(value: object) -> object:
    """Return a cell as JSON takes it: blank numbers as null, whole numbers without a point."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, int | float | np.number):
        return str(value)
    number = float(value)
    if np.isnan(number):
        return None
    if np.isinf(number):
        return str(number)
    return int(number) if number.is_integer() else number
