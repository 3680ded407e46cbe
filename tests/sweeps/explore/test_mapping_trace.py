"""Dynamic lengths (H2M2 sec. 5.3): requests that grow, finish and are replaced."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.model.llm import llm_of
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.explore.mapping_trace import (
    SYSTEMS,
    LengthTrace,
    migrated_bytes,
    random_trace,
    replay,
)

HW = load_platform("gh-decoders").machine()

GPT3 = llm_of(
    {key: number.si for key, number in load_llm("gpt3-175b").numbers.items()}, HW["precision"]
)


def test_a_trace_grows_by_a_token_and_replaces_who_finished() -> None:
    trace = random_trace(8, 300, 0.05, 10, 60, seed=4)
    before, after, new = trace.lengths[:-1], trace.lengths[1:], trace.new[1:]
    np.testing.assert_array_equal(after[~new], before[~new] + 1)
    assert np.all(new[before >= 60])
    assert 10 <= trace.lengths.min() <= trace.lengths.max() <= 60
    assert 0.05 < new.mean() < 0.1
    np.testing.assert_array_equal(random_trace(8, 300, 0.05, 10, 60, seed=4).lengths, trace.lengths)
    assert np.any(random_trace(8, 300, 0.05, 10, 60, seed=5).lengths != trace.lengths)


def test_replay_ranks_systems_as_fig_16_does() -> None:
    found = replay(HW, GPT3, random_trace(32, 128, 0.02, 1, 2048, seed=0), SYSTEMS)
    base, flexgen, h2m2, oracle = found["speedup"].astype(float)
    assert 1 == base < flexgen < h2m2 < oracle
    assert h2m2 / oracle > 0.95
    assert np.all(found["speedup_migrating"].astype(float) <= found["speedup"].astype(float))
    assert list(found["moves"].astype(float) > 0) == [False, False, True, True]


def test_equal_lengths_migrate_nothing() -> None:
    still = LengthTrace(np.full((5, 32), 1024), np.zeros((5, 32), dtype=bool))
    found = replay(HW, GPT3, still, SYSTEMS)
    assert np.all(found["migrated_mb"].astype(float) == 0)
    np.testing.assert_allclose(
        found["speedup"].astype(float), found["speedup_migrating"].astype(float)
    )


def test_a_head_that_changes_sides_takes_its_bytes_along() -> None:
    context = np.array([100.0, 101.0, 102.0])
    work = Workload(32.0, context, 1.0, fixed_context=context)
    moved = migrated_bytes(
        GPT3,
        work,
        [np.array([10.0, 11.0, 11.0]), np.array([5.0, 5.0, 3.0]), np.array([0.0, 0.0, 0.0])],
    )
    kv_head = 96 * 2 * 128 * 32 * 101  # L x 2 d x sum(S)
    qkv_head = 96 * 12288 * 3 * 128
    assert list(moved) == [0, kv_head, 2 * qkv_head]


@pytest.mark.parametrize(
    ("values", "requested"),
    [
        ((0, 5, 0.1, 1, 10), "0 requests"),
        ((5, 0, 0.1, 1, 10), "0 iterations"),
        ((5, 5, 0.1, 11, 10), "shortest <= longest"),
        ((5, 5, 1.5, 1, 10), "from 0 to 1"),
    ],
)
def test_an_empty_trace_is_refused(
    values: tuple[int, int, float, int, int], requested: str
) -> None:
    with pytest.raises(InputError, match=requested):
        random_trace(*values, seed=0)
