"""Two tiers by hand, and one tier against stack distances."""

from __future__ import annotations

import numpy as np
from support.stack_distances import stack_distances

from nearkv.sweeps.evaluate.replay import Replay, replay


def played(requests: list[list[int]], first: int, second: int, admission: str) -> Replay:
    """Replay requests that are written as lists of blocks."""
    blocks = np.array([block for request in requests for block in request])
    ends = np.cumsum([len(request) for request in requests])
    return replay(blocks, ends, first, second, admission)


def test_one_tier_is_lru() -> None:
    rng = np.random.default_rng(3)
    for capacity in (1, 4, 9):
        blocks = rng.integers(0, 15, 300).tolist()
        hits = played([[block] for block in blocks], capacity, 0, "all").hits[:, 0]
        assert hits.tolist() == (stack_distances(np.array(blocks)) <= capacity).tolist()


def test_victims_are_written_once_and_stay_after_a_hit() -> None:
    """Tiers of one block each: 1 2 1 2 writes 1, then 2, and finds both there."""
    answer = played([[1], [2], [1], [2]], 1, 2, "all")
    assert answer.hits.tolist() == [[0, 0], [0, 0], [0, 1], [0, 1]]
    assert answer.written == 2  # the victims 1 and 2; 1 lies there already when 2 returns


def test_second_touch_writes_what_was_asked_for_twice() -> None:
    requests = [[1], [2], [1], [3], [1]]
    assert played(requests, 1, 9, "all").written == 3
    answer = played(requests, 1, 9, "second-touch")
    assert answer.written == 1  # only 1, at its second turn
    assert answer.hits[:, 1].tolist() == [0, 0, 0, 0, 1]


def test_a_prefix_ends_at_the_first_block_that_is_missing() -> None:
    """Block 2 was evicted: 3 behind it is in the tier, and is computed all the same."""
    answer = played([[1, 2], [1, 3], [1, 2, 3]], 2, 0, "all")
    assert answer.hits[:, 0].tolist() == [0, 1, 1]
