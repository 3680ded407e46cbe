"""Shares of a run, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nearkv.sweeps.validation.checks import near_storage


def test_time_of_the_cache_is_that_of_its_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 s of a run 2 s read the cache and 1 s writes it."""
    leaves = {"a/read_cache/ssd": 2.0, "a/write_cache/ssd": 1.0, "a/weights/ssd": 5.0}
    total = SimpleNamespace(breakdown=lambda: leaves, seconds=8.0)
    answer = SimpleNamespace(total=total)
    monkeypatch.setattr(near_storage, "estimate_of", lambda question: answer)
    shares = near_storage.kv_time_share("hilos-a100", "flexgen-ssd", "1", "opt-66b")
    assert shares.tolist() == [[37.5]]
