"""Answers as rows, columns and DataFrames hold the same cells."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.sweeps.api.tables import Findings, findings_of
from nearkv.sweeps.tables.table import Columns, Rows

ROWS: Rows = [{"batch": 16.0, "step_ms": 2.5}, {"batch": 32.0, "reason": "GPU is short"}]
COLUMNS: Columns = {
    "batch": np.array([16.0, 32.0]),
    "step_ms": np.array([2.5, np.nan]),
    "reason": np.array(["", "GPU is short"]),
}


def test_what_a_row_lacks_is_none() -> None:
    found = Findings(ROWS)
    assert found.rows[1] == {"batch": 32, "step_ms": None, "reason": "GPU is short"}
    assert found.columns == {
        "batch": [16, 32],
        "step_ms": [2.5, None],
        "reason": [None, "GPU is short"],
    }


@pytest.mark.parametrize("cells", [ROWS, COLUMNS, []], ids=["rows", "columns", "none"])
def test_a_table_has_the_rows_and_the_conclusion(cells: Columns | Rows) -> None:
    found = Findings(cells, ["All fit."])
    back = findings_of(found.table())
    assert (back.rows, len(back), back.conclusion) == (found.rows, len(found), ["All fit."])
