"""Hit ratios against a list kept by hand; the stored curve against exact LRU."""

from __future__ import annotations

import numpy as np
import pytest
from support.stack_distances import smaller_before, stack_distances

from nearkv.costmodel.mechanisms.reuse.curve import reuse_curve


def lru_distances(blocks: list[int]) -> list[float]:
    """Depth of each block in a list of all, the last accessed first."""
    stack: list[int] = []
    depths = []
    for block in blocks:
        depths.append(stack.index(block) + 1.0 if block in stack else np.inf)
        if block in stack:
            stack.remove(block)
        stack.insert(0, block)
    return depths


def test_distances_are_depths_in_an_lru_stack() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        blocks = rng.integers(0, rng.integers(1, 20), rng.integers(1, 80))
        assert stack_distances(blocks).tolist() == lru_distances(blocks.tolist())


def test_smaller_values_before_each_are_counted_with_ties() -> None:
    values = np.array([3, 1, 1, 4, 0, 3, 2])
    assert smaller_before(values).tolist() == [0, 0, 0, 3, 0, 3, 3]


def test_the_footprint_is_the_mean_over_all_windows() -> None:
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 12, 60)
    curve = reuse_curve(blocks)
    for window, footprint in zip(curve.windows.astype(int), curve.footprint, strict=True):
        starts = range(len(blocks) - window + 1)
        mean = np.mean([len(set(blocks[start : start + window].tolist())) for start in starts])
        assert footprint == pytest.approx(mean, rel=1e-12)


def test_hits_from_the_curve_are_near_those_of_exact_lru() -> None:
    """Blocks of a Zipf popularity, whose reuse does not change over the trace."""
    rng = np.random.default_rng(2)
    blocks = np.minimum(rng.zipf(1.3, 20_000), 3_000)
    curve, distances = reuse_curve(blocks), stack_distances(blocks)
    for capacity in (10, 50, 200, 800, 2_000):
        exact = float(np.mean(distances <= capacity))
        assert float(curve.hit_ratio(np.array(capacity))) == pytest.approx(exact, abs=0.015)
    assert float(curve.hit_ratio(np.array(1e9))) == pytest.approx(curve.ceiling)


def test_drift_is_the_second_half_less_the_first() -> None:
    """Eight blocks once, then one block eight times: no reuse, then always one access before."""
    blocks = np.array([*range(8), *[9] * 8])
    curve = reuse_curve(blocks)
    assert curve.drift[0] == pytest.approx(7 / 8)
    assert not curve.is_stationary
    assert curve.half_band(np.array(1.0)) == pytest.approx(1.5 * 7 / 8)
    steady = reuse_curve(np.tile([1, 2], 20))
    assert steady.is_stationary
