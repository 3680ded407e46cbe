"""HillInfer's inconsistencies, each with its numbers (docs/errata.md)."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.mechanisms.near_storage.scoring import SCORE_BYTES
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.sizes import size
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.checks.hillinfer import (
    best_beta_over_bound,
    kv_share,
    ranking_overlap,
)
from nearkv.sweeps.validation.claims import load
from nearkv.sweeps.validation.prediction import predict
from nearkv.sweeps.validation.questions import arithmetic

STATED = {claim.id: claim for claim in load("hillinfer")}
NUMBERS = load_platform("aipc-4090").roles


def footprint(batch: int, context: int, bits: int) -> float:
    """Weights at 16 bit and KV at a number of bits of Llama-2-13B [GB]."""
    kv = f"{batch} * {context} * llama2-13b:kv_bytes * {bits} / 16"
    return float(arithmetic(f"( llama2-13b:weight_bytes + {kv} ) / 1e9"))


def test_combined_memory_is_88_gb() -> None:
    # HI-026, sec. 3.1 prints 84
    assert predict(STATED["HI-026"])[0] == 88


def test_int2_fits_the_memory_it_is_said_to_exceed() -> None:
    # HI-024, HI-025, HI-028; sec. 3.1: 240 GB natively, 96 GB with INT2, above 88
    whole, int2 = (footprint(8, 32768, bits) for bits in (16, 2))
    assert whole == pytest.approx(240.8, abs=0.1)
    assert int2 == pytest.approx(52.9, abs=0.1)
    # a 16-bit scale and zero for every 32 values are one bit more a value
    assert footprint(8, 32768, 3) == pytest.approx(66.3, abs=0.1)


def test_16k_exceeds_memory_at_batch_8_only() -> None:
    # HI-027
    assert footprint(8, 16384, 16) == pytest.approx(133.4, abs=0.1)
    assert footprint(1, 16384, 16) == pytest.approx(39.5, abs=0.1)


def test_half_of_all_kv_cannot_migrate() -> None:
    # sec. 3.2: 20/60/20, and 20 to 50 % migrate: the drive's tokens up and as many down are 40 %
    on_gpu, in_dram, stored = (kv_share(tier) for tier in ("gpu", "host", "drive"))
    assert [on_gpu, in_dram, stored] == pytest.approx([20, 60, 20])
    moved = 2 * min(in_dram, stored)
    assert moved == pytest.approx(40)
    assert moved / (in_dram + stored) == pytest.approx(0.5)


def test_the_smartssd_is_on_pcie_3() -> None:
    # HI-062: sec. 4.3 names Gen4 x4, 7.88 GB/s; its peak of 3.2 GB/s (sec. 5.2) fits Gen3 x4
    link, peak = NUMBERS["csd_link"].numbers["bandwidth"].si, NUMBERS["csd"].numbers["read"].si
    assert peak < link == 3.94e9


def test_the_solved_bound_is_where_eq3_binds() -> None:
    # HI-057: beta = M_0 / (M - M_0) at 36K
    assert best_beta_over_bound() == pytest.approx(1, rel=1e-9)


def test_llama_13b_does_not_fit_the_gpu() -> None:
    # sec. 5.2 runs it on 24 GB at FP16
    rows = table(Study(("full-cache",), ("llama-13b",), "1", "2k", "1"))
    assert rows["short_of"][0] == "gpu"


def test_batch_25_needs_no_cold_tier() -> None:
    # HI-020, sec. 5.4: "aggressive memory pressure"
    rows = table(Study(("full-cache",), ("opt-6.7b",), "25", "1920", "128"))
    whole = sum(rows[f"kv_{tier}_gb"][0].item() for tier in ("gpu", "host", "drive"))
    assert whole == pytest.approx(26.8, abs=0.1)
    assert whole * 1e9 < NUMBERS["host"].numbers["kv_memory"].si


def test_half_precision_positions_are_exact_to_2048() -> None:
    # HI-050: position and score in half precision, whose 11 digits hold 2^11 positions
    assert 2 * np.dtype(np.float16).itemsize == SCORE_BYTES
    exact = 2 ** (np.finfo(np.float16).nmant + 1)
    longest = STATED["HI-001"].context
    assert size(longest.split(",")[-1], "context") > exact


def test_raw_scores_do_not_rank_the_sum_over_heads() -> None:
    # HI-066: true of one head, false of the sum of sec. 4.1
    assert ranking_overlap("1") == 1
    assert ranking_overlap("32") < 0.7


def test_exact_attention_keeps_up_with_one_drive() -> None:
    # HI-081; HILOS Table 3: 11.9 GFLOP/s on one KU15P
    assert predict(STATED["HI-081"])[0] == 1
