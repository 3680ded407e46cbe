"""Rows that run and lack the number that they are compared by."""

from __future__ import annotations

import pytest

from nearkv.hardware.errors import NearkvWarning
from nearkv.sweeps.explore.pareto import ALONE, find_front
from nearkv.sweeps.jobs.best import best
from nearkv.sweeps.jobs.search import Best
from nearkv.sweeps.study.study import Study


def test_rows_that_run_and_have_no_such_number_are_told() -> None:
    """L3's prompts ride in its steps: it has no rate of decoding to be the best by."""
    pair = Study(("l3", "gpu"), ("gpt-175b",), traces=("openr1",))
    sentence = "--by decode_tok_s: l3 run at design points without decode_tok_s"
    with pytest.warns(NearkvWarning, match=sentence):
        answer = find_front(pair, "decode_tok_s,energy_j_tok", [])
    assert answer["system"].tolist() == ["gpu"]
    with pytest.warns(NearkvWarning, match=sentence):
        kept = best(pair, Best(("decode_tok_s",), (True,), most=2), ALONE)
    assert kept["system"].tolist() == ["gpu"]
