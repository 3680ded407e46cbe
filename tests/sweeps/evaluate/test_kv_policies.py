"""Tiers against a simulator with lists, and moves by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from support.tiers_by_hand import simulate, walks

from nearkv.sweeps.evaluate.kv_policies import ADMISSIONS, REUSE_POLICIES, BlockHits, tier_hits
from nearkv.sweeps.study.prompt_blocks import PromptBlocks


def prompts(requests: list[list[str]], snapshot: float = 0.0) -> PromptBlocks:
    """Requests that are written as lists of blocks."""
    numbers: dict[str, int] = {}
    blocks = [numbers.setdefault(block, len(numbers)) for each in requests for block in each]
    return PromptBlocks(np.array(blocks), np.cumsum(list(map(len, requests))), snapshot)


def played(
    requests: str, *sizes: float, policy: str = "exclusive", admission: str = "all"
) -> BlockHits:
    """Prompts of one block each, as a word of letters."""
    return tier_hits(prompts([[one] for one in requests]), sizes, policy, admission)


def assert_as_simulated(seed: int, most: int) -> None:
    """Every policy and admission over one to three tiers of sizes at random."""
    rng = random.Random(seed)
    requests = walks(rng, rng.randint(50, most))
    distinct = len({block for each in requests for block in each})
    for count in (1, 2, 3):
        largest = rng.choice((4, 20, distinct))
        sizes = [rng.randint(0, largest) for _ in range(count)]
        for policy in REUSE_POLICIES:
            for admission in ADMISSIONS:
                hits, written = simulate(requests, sizes, policy, admission)
                answer = tier_hits(prompts(requests), sizes, policy, admission)
                question = f"seed {seed}: {sizes} {policy} {admission}"
                assert answer.found.tolist() == hits, question
                assert answer.written.tolist() == written, question


@pytest.mark.parametrize("seed", range(8))
def test_tiers_hit_and_write_as_simulated(seed: int) -> None:
    assert_as_simulated(seed, most=300)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(8, 300))
def test_tiers_hit_and_write_as_simulated_in_depth(seed: int) -> None:
    assert_as_simulated(seed, most=2_000)


@pytest.mark.parametrize("policy", REUSE_POLICIES)
def test_one_tier_is_the_same_under_all_policies(policy: str) -> None:
    """A hit that stays is no write: of abcab through three blocks three are written."""
    answer = played("abcab", 3, policy=policy)
    assert answer.found[:, 0].tolist() == [0, 0, 0, 1, 1]
    assert answer.written.tolist() == [3]


def test_an_exclusive_tier_that_holds_all_writes_nothing_below() -> None:
    assert played("abcabcd", 4, 9).written.tolist() == [4, 0]


@pytest.mark.parametrize(
    ("policy", "found", "written"),
    [
        # abab through one block each: the victim goes down, and comes back from there
        ("exclusive", 2, [4, 3]),
        ("victim", 2, [4, 2]),
        ("inclusive", 0, [4, 4]),
        ("write-through", 0, [4, 4]),
    ],
)
def test_moves_of_policies(policy: str, found: int, written: list[int]) -> None:
    answer = played("abab", 1, 2 if policy == "victim" else 1, policy=policy)
    assert np.sum(answer.found[:, 1]) == found
    assert answer.written.tolist() == written


def test_hits_above_refresh_inclusive_tiers_and_no_others() -> None:
    """a is asked again and again above; below c and d come between, and b is older than a."""
    requests, sizes = "abacadab", (2, 3)
    inclusive = played(requests, *sizes, policy="inclusive")
    through = played(requests, *sizes, policy="write-through")
    assert inclusive.found[:, 0].tolist() == through.found[:, 0].tolist()
    assert played("aabacad", 1, 2, policy="write-through").found[-1].sum() == 0


def test_second_touch_writes_what_was_asked_for_twice() -> None:
    assert played("abaca", 1, 9, policy="victim").written[1] == 3
    answer = played("abaca", 1, 9, policy="victim", admission="second-touch")
    assert answer.written[1] == 1  # only a, at its second turn
    assert answer.found[:, 1].tolist() == [0, 0, 0, 0, 1]


def test_tails_are_evicted_before_heads() -> None:
    """A prompt of three blocks through two: its head stays, and is found."""
    answer = tier_hits(prompts([["a", "ab", "abc"], ["a", "ab", "abc"]]), [2], "victim", "all")
    assert answer.found[:, 0].tolist() == [0, 2]
    assert answer.written.tolist() == [2]


def test_hits_end_where_a_snapshot_lies() -> None:
    """States at the ends of prompts: the head of another prompt has none, a turn before has one."""
    turns = [["a", "ab"], ["a", "ab", "abc"], ["a", "ax"]]
    plain = tier_hits(prompts(turns), [99], "exclusive", "all")
    stateful = tier_hits(prompts(turns, snapshot=2.0), [99], "exclusive", "all")
    assert plain.found[:, 0].tolist() == [0, 2, 1]
    assert stateful.found[:, 0].tolist() == [0, 2, 0]
    # 2 + 2 blocks, then one and a state of two, then one and a state
    assert stateful.written.tolist() == [4 + 3 + 3]


def test_snapshots_take_room() -> None:
    """Prompts of one block and a state of three: two fit in eight blocks, the third evicts."""
    repeated = prompts([[one] for one in "abab"], snapshot=3.0)
    assert np.sum(tier_hits(repeated, [8.0], "victim", "all").found) == 2
    assert np.sum(tier_hits(repeated, [7.9], "victim", "all").found) == 0
