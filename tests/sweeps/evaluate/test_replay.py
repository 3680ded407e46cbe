"""Two tiers by hand, and one tier against stack distances."""

from __future__ import annotations

import numpy as np
from support.stack_distances import stack_distances

from nearkv.sweeps.evaluate.replay import replay


def test_one_tier_is_lru() -> None:
    rng = np.random.default_rng(3)
    for capacity in (1, 4, 9):
        blocks = rng.integers(0, 15, 300).tolist()
        hits = replay([[block] for block in blocks], capacity, 0, "all").hits[:, 0]
        assert hits.tolist() == (stack_distances(np.array(blocks)) <= capacity).tolist()


def test_victims_are_written_once_and_stay_after_a_hit() -> None:
    """Tiers of one block each: 1 2 1 2 writes 1, then 2, and finds both there."""
    played = replay([[1], [2], [1], [2]], 1, 2, "all")
    assert played.hits.tolist() == [[0, 0], [0, 0], [0, 1], [0, 1]]
    assert played.written == 2  # the victims 1 and 2; 1 lies there already when 2 returns


def test_second_touch_writes_what_was_asked_for_twice() -> None:
    requests = [[1], [2], [1], [3], [1]]
    assert replay(requests, 1, 9, "all").written == 3
    played = replay(requests, 1, 9, "second-touch")
    assert played.written == 1  # only 1, at its second turn
    assert played.hits[:, 1].tolist() == [0, 0, 0, 0, 1]


def test_a_prefix_ends_at_the_first_block_that_is_missing() -> None:
    """Block 2 was evicted: 3 behind it is in the tier, and is computed all the same."""
    played = replay([[1, 2], [1, 3], [1, 2, 3]], 2, 0, "all")
    assert played.hits[:, 0].tolist() == [0, 1, 1]
