"""Recency of blocks, against a list kept by hand."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from support.tiers_by_hand import walks

from nearkv.sweeps.study.prompt_blocks import PromptBlocks, stack_distances


def depths(blocks: list[int]) -> list[float]:
    """Blocks above each in a list of all, the last accessed first."""
    stack: list[int] = []
    above = []
    for block in blocks:
        above.append(float(stack.index(block)) if block in stack else np.inf)
        if block in stack:
            stack.remove(block)
        stack.insert(0, block)
    return above


def numbered(requests: list[list[str]]) -> PromptBlocks:
    """Requests whose blocks have numbers."""
    numbers: dict[str, int] = {}
    blocks = [numbers.setdefault(block, len(numbers)) for each in requests for block in each]
    return PromptBlocks(np.array(blocks), np.cumsum(list(map(len, requests))))


def test_distances_are_depths_in_an_lru_stack() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        blocks = rng.integers(0, rng.integers(1, 20), rng.integers(1, 80))
        assert stack_distances(blocks).tolist() == depths(blocks.tolist())


def test_a_footprint_is_the_mean_over_all_rows_of_requests() -> None:
    rng = random.Random(2)
    for _ in range(50):
        requests = walks(rng, rng.randint(1, 30))
        footprint = numbered(requests).footprint
        assert len(footprint) == len(requests)
        for count, mean in enumerate(footprint, 1):
            starts = range(len(requests) - count + 1)
            distinct = [len({*itertools.chain(*requests[at : at + count])}) for at in starts]
            assert mean == pytest.approx(np.mean(distinct))


def test_recency_is_that_when_the_request_comes() -> None:
    """Blocks of a prompt are put before all others, their heads first."""
    rng = random.Random(1)
    for _ in range(50):
        requests = walks(rng, 30)
        prompts = numbered(requests)
        blocks = [each.tolist() for each in np.split(prompts.blocks, prompts.ends[:-1])]
        stack: list[int] = []
        expected = []
        known = []
        for each in blocks:
            known.append(len(stack))
            expected += [float(stack.index(b)) if b in stack else np.inf for b in each]
            stack = each + [block for block in stack if block not in each]
        assert prompts.recency.tolist() == expected
        assert prompts.known.tolist() == known
