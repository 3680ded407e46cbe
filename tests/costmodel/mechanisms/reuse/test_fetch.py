"""Ways back of a prefix: where they cross, and that both ends meet."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.reuse.fetch import (
    both,
    crossover,
    layerwise,
    split,
)


def compute(tokens: Real) -> Real:
    """Linear layers and attention: seconds of the first tokens."""
    return 1e-4 * np.asarray(tokens) + 1e-8 * np.asarray(tokens) ** 2


def load(tokens: Real) -> Real:
    """A fixed part and bytes over a bandwidth."""
    return 0.01 + 5e-5 * np.asarray(tokens)


def test_both_ends_meet_and_no_split_is_faster() -> None:
    tokens = np.array([100.0, 1_000.0, 10_000.0])
    k = split(compute, load, tokens)
    assert np.ravel(compute(k))[1:] == pytest.approx(np.ravel(load(tokens - k))[1:])
    for prefix, best in zip(tokens, np.ravel(both(compute, load, tokens)), strict=True):
        tried = np.linspace(0, prefix, 4_001)
        least = np.min(np.maximum(compute(tried), load(prefix - tried)))
        assert best <= least * (1 + 1e-9)


def test_loading_pays_from_where_the_curves_cross() -> None:
    # 1e-4 p + 1e-8 p^2 = 0.01 + 5e-5 p at p = (-5e-5 + sqrt(25e-10 + 4e-10)) / 2e-8 = 192.6
    assert crossover(compute, load, 4_096) == 193
    assert crossover(compute, load, 193) == 193
    assert np.isnan(crossover(compute, load, 192))
    assert np.isnan(crossover(lambda p: 0 * np.asarray(p), load, 4_096))


def test_loading_pays_from_the_last_crossing() -> None:
    """Experts wake up to 100 tokens; then attention alone grows, and exceeds loading at last."""

    def experts(p: Real) -> Real:
        return 2e-3 * np.minimum(p, 100.0) + 1e-8 * np.asarray(p) ** 2

    # 1e-8 p^2 + 0.2 = 0.01 + 5e-4 p at p = (5e-4 + sqrt(25e-8 - 0.76e-8)) / 2e-8 = 49,617
    assert crossover(experts, lambda p: 0.01 + 5e-4 * np.asarray(p), 1e5) == 49_618


def test_layers_load_while_the_layers_before_are_computed() -> None:
    """4 layers of 3 s to load and 1 s to compute: 3 + 3 + 3 + 3, and the last layer's 1."""
    assert layerwise(12.0, 4.0, 4) == pytest.approx(13.0)
    assert layerwise(4.0, 12.0, 4) == pytest.approx(13.0)
    assert layerwise(4.0, 12.0, 1) == pytest.approx(16.0)
