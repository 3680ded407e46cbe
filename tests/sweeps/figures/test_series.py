"""Marks that a figure draws of a table, and tables that it refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.figures import TABLE

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures import plot
from nearkv.sweeps.figures.series import axes_in, band_of

SET = pd.DataFrame(
    {
        "system": ["csd", "csd", "dram", "dram"],
        "csd.count": [4, 8, 4, 8],
        "devices": [4.0, 8.0, np.nan, np.nan],
        "step_ms": [3.0, 2.0, 5.0, 5.0],
    }
)


def test_repeated_rows_name_the_column_that_is_left_over() -> None:
    twice = pd.concat([TABLE.assign(batch=1), TABLE.assign(batch=2)])
    with pytest.raises(InputError, match="keep one value of batch"):
        plot.bars(twice, "decode_tok_s", over="context_tok")


def test_an_unknown_column_gets_the_nearest_name() -> None:
    with pytest.raises(InputError, match="decode_tok_s"):
        plot.bars(TABLE, "decode_toks")


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(InputError, match="no rows"):
        plot.bars(TABLE.iloc[:0], "decode_tok_s", over="context_tok")


@pytest.mark.parametrize("value", ["note", "empty", "endless"])
def test_a_column_without_a_number_is_refused(value: str) -> None:
    table = TABLE[:2].assign(note="1,2", empty=float("nan"), endless=float("inf"))
    for draw in (plot.bars, plot.lines):
        with pytest.raises(InputError, match=f"{value} holds n"):
            draw(table, value)


def test_ends_of_a_band_between_whole_percentiles() -> None:
    rows = SET[:2].assign(**{"step_ms_p02.5": [2.0, 1.0], "step_ms_p97.5": [4.0, 3.0]})
    assert band_of(rows, "step_ms") == ("step_ms_p02.5", "step_ms_p97.5")
    assert axes_in(rows) == ["csd.count"]
