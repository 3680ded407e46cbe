"""The split of K and V over what is unknown."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import nearkv


@pytest.mark.slow
def test_a_split_that_is_solved_point_by_point_keeps_its_points() -> None:
    """Beta has a value of its own at each design point; the draws are one more axis."""
    options: dict[str, Any] = {"platform": "aipc-4090", "band": 90, "samples": 64}
    both = nearkv.solve("beta", "qwen-7b", batch=8, context=["8k", "12k"], **options)
    last = nearkv.solve("beta", "qwen-7b", batch=8, context="12k", **options)
    ends = ["step_ms_p05", "step_ms_p50", "step_ms_p95"]
    assert both[ends].iloc[1].tolist() == pytest.approx(last[ends].iloc[0].tolist())


@pytest.mark.slow
def test_the_split_of_beta_has_a_band() -> None:
    """The shares of all draws give the same betas; no draw loses by solving it anew."""
    options: dict[str, Any] = {"platform": "aipc-4090", "batch": 8, "context": "8k", "samples": 64}
    row = nearkv.solve("beta", "qwen-7b", band=90, **options).iloc[0]
    shares = nearkv.estimate(
        "hillinfer", "qwen-7b", knobs={"hot_share": "auto"}, band=90, **options
    )
    assert row["value_p05"] < row["value"] < row["value_p95"]
    for end in ("p05", "p95"):
        share = shares[f"hot_share_{end}"]
        assert row[f"value_{end}"] == pytest.approx(share / (1 - share), rel=0.02)
    assert 0 <= row["regret_p05"] < row["regret_p95"]


def test_a_request_that_is_shortest_without_the_drive_has_no_beta() -> None:
    """Beta is what host DRAM holds over what the drive holds, here nothing."""
    table = nearkv.solve("beta", "qwen-7b", batch=2, context=1, output_tokens=512)
    row = table.iloc[0]
    assert pd.isna(row["auto_value"])
    assert row["auto_total_s"] < row["total_s"]
    (sentence,) = table.attrs["conclusion"]
    assert sentence.endswith("s with nothing on the drive, which auto takes.")


def test_beta_splits_what_shorter_chunks_leave_off_the_gpu() -> None:
    """A chunk takes less of the GPU than a whole prompt, so that more of the cache is there.

    T_CPU is proportional to the bytes that host DRAM scores and sends.
    """
    asked: dict[str, Any] = {"model": "opt-6.7b", "batch": 1, "context": "64k"}
    whole, chunked = (
        nearkv.solve("beta", knobs={"chunk": chunk, "placement": "capacity"}, **asked).iloc[0]
        for chunk in (0, 1024)
    )
    less = chunked["t_cpu_ms"] / whole["t_cpu_ms"]
    assert less < 0.9
    assert less == pytest.approx(chunked["kv_host_gb"] / whole["kv_host_gb"], rel=1e-3)
    for row in (whole, chunked):
        longer = max(row["t_cpu_ms"], row["t_csd_ms"])
        assert longer == pytest.approx(row["bound_ms"] * (1 + row["gap"]), rel=1e-9)
