"""Columns of what a model keeps in memory, on request."""

from __future__ import annotations

import pytest

from nearkv.sweeps.evaluate.columns import on_request
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study


def test_weights_and_cache_are_those_of_the_model() -> None:
    """OPT-66B: 64 layers of 72 heads of 128, K and V of 2 bytes, at the last token."""
    study = Study(
        ("hilos", "gpu-only"), ("opt-66b",), batch="1,16", context="1k", output_tokens="24"
    )
    rows = table(study, on_request(["system", "footprint_gb:kv"]))
    per_token = 2 * 64 * 72 * 128 * 2
    held = [batch * (1024 + 24) * per_token / 1e9 for batch in (1, 16)]
    assert rows["footprint_gb:kv"].tolist() == pytest.approx([*held, *held])
    assert rows["footprint_gb:weights"] == pytest.approx([2 * 65.7] * 4, rel=0.01)


def test_a_table_has_them_only_where_they_are_named() -> None:
    assert not [name for name in table(Study(("hilos",), ("opt-66b",))) if "footprint" in name]
    assert on_request(["step_ms", "bottleneck"]) == ("bottleneck",)
