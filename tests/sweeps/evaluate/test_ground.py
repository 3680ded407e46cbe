"""Columns on equal ground: what a system owns, in which bits, and who attends."""

from __future__ import annotations

import pytest

import nearkv
from nearkv.sweeps.evaluate.ground import bits

FAMILIES = "flexgen-ssd,hilos,inf2,hillinfer,l3,h2m2,gpu"


def test_rows_state_what_they_own_and_who_attends() -> None:
    """H2M2 owns the HBM of the GPU, of which there are as many as GPUs; 32 DIMMs are of a host."""
    table = nearkv.compare(
        FAMILIES, model="llama3.1-8b", context="8k", platform="common", sets={"gpu.count": [1, 4]}
    )
    four = table[table["gpu.count"] == 4].set_index("system")
    assert four["machine"]["h2m2"].startswith("4 hbm of h100-80gb, 4 lpddr5x-512gb, 8 h2m2-chip")
    assert four["machine"]["l3"] == "4 h100-80gb, 1 xeon-6342-1s, 32 ddr4-dimm-pim"
    assert four["attention_on"].to_dict() == {
        "flexgen-ssd": "host",
        "hilos": "csd",
        "inf2": "host and gpu",
        "hillinfer": "gpu",
        "l3": "dimm",
        "h2m2": "hbm and lpddr",
        "gpu": "gpu",
    }
    assert set(table["bits"]) == {"16"}
    assert table[["cost_usd", "power_w"]].notna().all(axis=None)


def test_a_share_decides_who_attends() -> None:
    table = nearkv.compare(
        "hilos",
        model="opt-66b",
        context="32k",
        knobs={"alpha": [0, 0.5, 1]},
        sets={"csd.count": 16},
    )
    assert list(table["attention_on"]) == ["csd", "csd and gpu", "gpu"]


@pytest.mark.parametrize(
    ("widths", "text"), [((2.0, 2.0, 2.0), "16"), ((0.53125, 2.0, 2.0), "4.25/16/16")]
)
def test_bits_are_one_number_where_they_are_alike(widths: tuple[float, ...], text: str) -> None:
    assert bits(widths) == text
