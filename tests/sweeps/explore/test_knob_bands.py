"""Solved knobs over what is unknown: how far they move, and what they lose."""

from __future__ import annotations

from typing import Any

import pytest

import nearkv

POINT: dict[str, Any] = {"context": "64k", "band": 80, "samples": 256}


@pytest.mark.slow
def test_a_value_chosen_at_the_stated_numbers_loses_elsewhere() -> None:
    row = nearkv.solve("alpha", "opt-66b", **POINT).iloc[0]
    assert row["value_p10"] < row["value"] < row["value_p90"]
    assert 0 <= row["regret_p10"] <= row["regret_p50"] <= row["regret_p90"]
    assert 0 < row["regret_mean"] < row["regret_p90"]
