"""Lengths that change (H2M2 sec. 5.3): requests that grow, finish and are replaced."""

from __future__ import annotations

import numpy as np

from nearkv.sweeps.validation.checks.h2m2 import (
    DYNAMIC_STEPS,
    MODEL_CONTEXTS,
    dynamic_speedup,
    random_lengths,
)


def test_lengths_rise_in_equal_steps_to_the_longest_of_fig_3() -> None:
    """GPT3's to 2,048 tokens, of the others to twice as many each."""
    longest = {name: lengths[-1] for name, lengths in MODEL_CONTEXTS.items()}
    assert longest == {"gpt3-175b": 2048, "chinchilla-70b": 4096, "llama2-70b": 8192}
    for lengths in MODEL_CONTEXTS.values():
        assert np.array_equal(lengths, lengths[0] * np.arange(1, len(lengths) + 1))


def test_requests_grow_by_a_token_and_start_anew_at_the_longest() -> None:
    lengths = random_lengths(64, np.array([10.0, 30.0, 60.0]))
    before, after = lengths[:-1], lengths[1:]
    grown = after == before + 1
    assert lengths.shape == (DYNAMIC_STEPS, 64)
    assert not np.any(grown & (before >= 60))
    assert 10 <= lengths.min() <= lengths.max() <= 60
    # a chance of 2 %, and one of about 50 steps from 10 to 60
    assert 0.02 < 1 - grown.mean() < 0.1


def test_systems_rank_as_in_fig_16() -> None:
    static, greedy, best = (
        dynamic_speedup("gpt3-175b", name, "lpddr-only")
        for name in ("flexgen-mapping", "h2m2", "oracle")
    )
    assert 1 < static < greedy < best
    assert greedy / best > 0.95
