"""Ratios over the first system, and what differs besides the system."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.compare import compare_systems, conclusion
from nearkv.sweeps.study.study import Study

STUDY = Study(
    ("flexgen-ssd", "hilos"),
    ("opt-30b", "opt-66b"),
    batch="1,8",
    context="8k:32k:x2",
    knobs={"devices": "4,8"},
)


def test_speedup_is_against_the_first_system_at_the_same_point() -> None:
    rows = compare_systems(STUDY)
    names = ("model", "batch", "context_tok")
    points = list(zip(*[rows[name] for name in names], strict=True))
    rates = rows["decode_tok_s"]
    base = dict(zip(points[:12], rates[:12], strict=True))  # flexgen-ssd's 2 x 2 x 3 points
    assert len(base) == 12
    for point, rate, speedup in zip(points, rates, rows["speedup"], strict=True):
        assert speedup == pytest.approx(rate / base[point])


def test_ratios_are_over_the_first_row_of_each_design_point() -> None:
    """Two values of a knob of one system are compared like two systems."""
    table = compare_systems(
        Study(("hilos", "flexgen-ssd"), ("opt-66b",), context="1k,2k", knobs={"devices": "4,8"}),
        ratios=("energy_j_tok",),
    )
    rates = table["decode_tok_s"].astype(float)
    first = np.tile(rates[[0, 2]], 3)  # 4 devices, then 8, at each context; then flexgen-ssd
    assert table["devices"][:4].astype(float).tolist() == [4, 8, 4, 8]
    np.testing.assert_allclose(table["speedup"].astype(float)[:4], rates[:4] / rates[[0, 0, 2, 2]])
    np.testing.assert_allclose(table["speedup"].astype(float)[4:], rates[4:] / first[:2])
    energy = table["energy_j_tok"].astype(float)
    ratio = table["energy_j_tok_ratio"].astype(float)
    np.testing.assert_allclose(ratio[:4], energy[:4] / energy[[0, 0, 2, 2]])


def test_a_note_says_where_platforms_differ() -> None:
    platforms = ("hilos-a100", "dgx-a100-pim")
    study = Study(("hilos",), ("opt-66b",), context="1k", platforms=platforms)
    assert compare_systems(study)["status"].tolist() == ["ok", "not-modelled"]
    table = compare_systems(replace(study, platforms=("hilos-a100", "hilos-h100")))
    before, after = table["cost_usd"]
    dearer = f"costs {after / before:.3g} times as much as the first"
    first, second = table["note"]
    assert "against" not in first
    assert second.endswith(f"on hilos-h100 against hilos-a100; {dearer}")
    assert table["speedup"][1] > 1


def test_a_comparison_says_where_prices_differ() -> None:
    """16 SmartSSDs of 2,400 USD cost 19,200 more than 8; 8 cost what the first row costs."""
    study = Study(("hilos",), ("opt-66b",), knobs={"devices": "8,16"})
    rows = compare_systems(study)
    first, second = rows["cost_usd"].astype(float)
    assert second - first == 8 * 2400
    assert "costs" not in rows["note"][0]
    assert f"costs {second / first:.3g} times as much as the first" in rows["note"][1]


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (100.004, "hilos decodes fastest (decode_tok_s 100), 0.004 % above flexgen-ssd."),
        (104.0, "hilos decodes fastest (decode_tok_s 104), 4 % above flexgen-ssd."),
        (180.0, "hilos decodes fastest (decode_tok_s 180), 1.8 times flexgen-ssd."),
        (
            100.0 * (1 + 1e-12),
            "flexgen-ssd and hilos are equal and decode fastest (decode_tok_s 100).",
        ),
    ],
)
def test_a_conclusion_says_a_small_lead_in_percent(rate: float, said: str) -> None:
    study = Study(("flexgen-ssd", "hilos"), ("opt-66b",))
    table = compare_systems(study)
    table["decode_tok_s"] = np.array([100.0, rate])
    table["speedup"] = np.array([1.0, rate / 100.0])
    assert conclusion(study, table) == [said]


def test_a_system_that_lacks_a_role_is_a_row_and_no_end() -> None:
    """A workstation has no drives that compute; the others are answered as without it."""
    study = Study(("hilos",), ("opt-30b",), context="1k,2k", platforms=("workstation-5090",))
    table = compare_systems(study.but(systems=("hilos", "flexgen-dram")))
    alone = compare_systems(study.but(systems=("flexgen-dram",)))
    assert table["status"].tolist() == ["not-modelled"] * 2 + ["ok"] * 2
    assert "lacks what hilos reads: csd" in table["reason"][0]
    assert table["context_tok"].tolist() == [1024, 2048] * 2
    assert table["step_ms"][2:].tolist() == alone["step_ms"].tolist()
    assert np.isnan(table["step_ms"][:2]).all()
    with pytest.raises(InputError, match="lacks what hilos reads"):
        compare_systems(study)


def test_a_system_may_lack_the_number_that_its_knob_stands_for() -> None:
    """HillInfer's `memory` is `host.kv_memory`, of which the bed of HILOS says nothing."""
    beside = Study(("hillinfer", "hilos"), ("llama2-7b",), context="4k", platforms=("hilos-a100",))
    table = compare_systems(beside)
    assert table["status"].tolist() == ["not-modelled", "ok"]
    assert "host.kv_memory" in table["reason"][0]


def test_the_winner_of_a_point_is_by_the_first_rate_that_all_its_answers_have() -> None:
    """L3 has no rate of decoding where prompts ride in its steps; at shorter contexts it has."""
    study = Study(
        ("gpu", "l3"),
        ("llama3.1-70b",),
        batch="16",
        context="8k,1M",
        platforms=("common",),
        sets={"gpu.count": "4"},
    )
    table = compare_systems(study)
    last = table["decode_tok_s"][table["context_tok"] == 1 << 20].astype(float)
    assert np.isnan(last).any()
    (sentence,) = conclusion(study, table)
    assert "l3 decodes fastest at 1 of 2 points" in sentence
