"""Solved knobs over what is unknown: how far they move, what they cost, which is robust."""

from __future__ import annotations

from typing import Any

import pytest

import nearkv
from nearkv.hardware.errors import InputError

POINT: dict[str, Any] = {"context": "64k", "band": 80, "samples": 256}


def solved(**options: Any) -> dict[str, Any]:
    table = nearkv.solve("alpha", "opt-66b", **POINT, **options)
    return {str(name): table[name][0] for name in table}


@pytest.mark.slow
def test_the_robust_knob_has_the_least_quantile() -> None:
    """`step_ms_p90` of a comparison is that at a fixed alpha, over the same draws."""
    row = solved(robust=0.9)
    alphas = [row["value"], row["robust"], 0.3, 0.45, 0.6, 0.8]
    table = nearkv.compare("hilos", "opt-66b", knobs={"alpha": alphas}, **POINT)
    high = table["step_ms_p90"].to_numpy()
    assert high[0] == pytest.approx(row["value_step_ms"])
    assert high[1] == pytest.approx(row["robust_step_ms"])
    assert high[1] == high.min()
    assert row["robust_step_ms"] < 0.95 * row["value_step_ms"]


@pytest.mark.slow
@pytest.mark.parametrize(("context", "batch"), [("32k", "4"), ("64k", "16")])
def test_the_robust_knob_loses_nothing_to_a_finer_grid(context: str, batch: str) -> None:
    point: dict[str, Any] = {"context": context, "batch": batch, "band": 80, "samples": 64}
    robust = nearkv.solve("alpha", "opt-66b", robust=0.9, **point)["robust_step_ms"][0]
    alphas = [place / 800 for place in range(801)]
    table = nearkv.compare("hilos", "opt-66b", knobs={"alpha": alphas}, **point)
    assert robust <= 1.0001 * table["step_ms_p90"].min()


@pytest.mark.slow
def test_a_value_chosen_at_the_stated_numbers_loses_elsewhere() -> None:
    row = solved()
    assert row["value_p10"] < row["value"] < row["value_p90"]
    assert 0 <= row["regret_p10"] <= row["regret_p50"] <= row["regret_p90"]
    assert 0 < row["regret_mean"] < row["regret_p90"]


def test_a_robust_knob_needs_a_band() -> None:
    with pytest.raises(InputError, match="give --band"):
        nearkv.solve("alpha", "opt-66b", robust=0.9)
    with pytest.raises(InputError, match=r"from 0.5 to below 1"):
        solved(robust=0.2)
    with pytest.raises(InputError, match=r"from 0.5 to below 1"):
        solved(robust=1)
