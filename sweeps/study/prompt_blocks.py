"""Blocks of prompts in order of arrival, and how recent each is when its request comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PromptBlocks:
    """Prompts in order of arrival, block by block.

    Attributes:
        blocks: of all prompts from head to tail, each standing for all before it: (accesses,).
        ends: where the blocks of each prompt end: (requests,).
        snapshot: a recurrent state, kept at the end of each prompt; 0 where none is [blocks].
    """

    blocks: NDArray[np.int64]
    ends: NDArray[np.int64]
    snapshot: float = 0.0

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First block of each prompt: (requests,)."""
        return np.append(0, self.ends[:-1])

    @cached_property
    def request(self) -> NDArray[np.int64]:
        """The request of each access: (accesses,)."""
        return np.repeat(np.arange(len(self.ends)), self.ends - self.starts)

    @cached_property
    def position(self) -> NDArray[np.int64]:
        """Blocks before each in its prompt: (accesses,)."""
        return np.arange(len(self.blocks)) - self.starts[self.request]

    @cached_property
    def recency(self) -> NDArray[np.float64]:
        """Blocks more recent than each when its request comes; infinite of a first: (accesses,).

        An LRU cache of more than these hits (Mattson et al. 1970). Prompts are accessed from the
        tail, so the distance to the access before counts, beside blocks of other requests, those
        behind it in its own prompt, which come later here.
        """
        last = self.ends[self.request] - 1
        backwards = self.starts[self.request] + last - np.arange(len(self.blocks))
        distances = stack_distances(self.blocks[backwards])[backwards]
        behind = last - np.arange(len(self.blocks))
        recency: NDArray[np.float64] = distances - behind
        return recency

    @cached_property
    def known(self) -> NDArray[np.int64]:
        """Distinct blocks before each request: (requests,)."""
        firsts = np.bincount(self.request[np.isinf(self.recency)], minlength=len(self.ends))
        return np.cumsum(firsts) - firsts

    @cached_property
    def footprint(self) -> NDArray[np.float64]:
        """Distinct blocks of 1, 2, ... requests in a row, on average: (requests,).

        Between two requests for a block that are g apart lie max(g - n, 0) rows of n requests
        without it (average footprint: Xiang et al., PACT 2011).
        """
        requests = len(self.ends)
        order = np.argsort(self.blocks, kind="stable")
        asker, is_new = self.request[order], np.diff(self.blocks[order], prepend=-1) > 0
        before = np.where(is_new, -1, np.roll(asker, 1))
        after = requests - asker[np.roll(is_new, -1)]
        gaps = np.bincount(np.append(asker - before, after), minlength=requests + 1)
        longer = np.cumsum(gaps[::-1])[::-1]
        without = np.cumsum(longer[::-1])[::-1] - longer
        rows = requests - np.arange(requests)
        distinct: NDArray[np.float64] = np.sum(is_new) - without[1:] / rows
        return distinct


def stack_distances(blocks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Distinct blocks between the access before to each block and it: (accesses,).

    Of the blocks between two accesses i < j to one block, those count whose own access before lies
    before i: the first of each in the window. Their number is that of accesses up to j whose access
    before is less than i, without those up to i, which all are. Infinite at a first access.

    Args:
        blocks: accessed blocks in order: (accesses,).
    """
    order = np.argsort(blocks, kind="stable")
    is_again = blocks[order[1:]] == blocks[order[:-1]]
    previous = np.full(len(blocks), -1, np.int64)
    previous[order[1:][is_again]] = order[:-1][is_again]
    distances = (_smaller_before(previous) - previous - 1).astype(float)
    return np.where(previous >= 0, distances, np.inf)


def _smaller_before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Earlier values that are less than each, counted by merging sorted runs: (values,)."""
    total = len(values)
    counted = np.zeros(total, np.int64)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    # of equal values the later one has the greater rank, and does not count the earlier
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    lowest = (np.cumsum(counts) - counts)[inverse]
    run_of = np.arange(total)
    while run_of[-1:].any():
        is_right = run_of % 2 == 1
        left = np.sort(ranks[~is_right] + run_of[~is_right] * total)
        of_pair = (run_of[is_right] - 1) * total
        smaller = np.searchsorted(left, lowest[is_right] + of_pair)
        counted[is_right] += smaller - np.searchsorted(left, of_pair)
        run_of = run_of // 2
    return counted
