"""Blocks of KV that tiers hit and write as requests come, by what each tier keeps.

A prompt is a list of blocks, each numbered for itself and all before it. A request looks its blocks
up from the head on, the nearest tier first, up to the first that no tier has; then it touches
blocks in each tier, which is LRU:

- the first tier: all blocks of the prompt;
- `inclusive`: in every tier all of them, so that nearer tiers hold copies;
- `write-through`: those that no nearer tier had, as an engine stores what it computes at once;
- `victim`: those that were found there, and what left the tier before;
- `exclusive`: what left the tier before; what moved nearer leaves.

Of one prompt the last block is the oldest, so that heads outlive their tails. A block is written to
a tier if it lies there after a request and did not before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.study.prompt_blocks import PromptBlocks

REUSE_POLICIES = ("victim", "exclusive", "inclusive", "write-through")
"""Policies by which a tier keeps blocks beside the one above it."""
ADMISSIONS = ("all", "second-touch")
"""Blocks that enter the tiers behind the first: all, or those that were accessed twice."""


@dataclass(frozen=True)
class BlockHits:
    """Hits and writes of tiers over a trace.

    Attributes:
        found: blocks of each request that each tier had: (requests, tiers).
        written: blocks written to each tier: (tiers,).
    """

    found: NDArray[np.int64]
    written: NDArray[np.float64]


def tier_hits(
    prompts: PromptBlocks, capacities: Sequence[float], policy: str, admission: str
) -> BlockHits:
    """Hits and writes of tiers.

    Args:
        prompts: that come one after the other.
        capacities: of each tier, the nearest first [blocks].
        policy, admission: of `REUSE_POLICIES` and `ADMISSIONS`.
    """
    if is_stack(policy, admission, len(capacities)) and not prompts.snapshot:
        whole = np.floor(capacities)
        return (
            _inclusive(prompts, whole)
            if policy == "inclusive"
            else _exclusive(prompts, whole)
        )
    return _replay(prompts, capacities, policy, admission)


def is_stack(policy: str, admission: str, tiers: int) -> bool:
    """True if tiers are parts of one LRU stack, whose hits rise with their sizes."""
    if tiers == 1:
        return True
    return policy in ("exclusive", "inclusive") and admission == "all"


# --- an LRU stack ---------------------------------------------------------------------------------


def _within(prompts: PromptBlocks, sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Blocks of each request among the most recent of some sizes: (requests, sizes)."""
    requests = len(prompts.ends)
    counts = [
        np.bincount(prompts.request[prompts.recency < size], minlength=requests)
        for size in sizes
    ]
    return np.stack(counts, axis=1)


def _inclusive(prompts: PromptBlocks, capacities: NDArray[np.float64]) -> BlockHits:
    """Every tier is an LRU cache of all accesses, and the nearest that has a block is read."""
    upto = _within(prompts, np.maximum.accumulate(capacities))
    entered = [
        np.count_nonzero((prompts.position < size) & (prompts.recency >= size))
        for size in capacities
    ]
    return BlockHits(np.diff(upto, axis=1, prepend=0), np.array(entered, float))


def _exclusive(prompts: PromptBlocks, capacities: NDArray[np.float64]) -> BlockHits:
    """Tiers are parts of one LRU stack, one behind the other.

    A request of n blocks puts these on top. Of the k others that lay nearer than a tier, the i-th
    then lies at n + i, and enters the tier if that is in it; so does a block of the request whose
    place is in it, unless it lay there.
    """
    outer = np.cumsum(capacities)
    inner = outer - capacities
    upto = _within(prompts, outer)
    nearer = np.hstack([np.zeros((len(upto), 1), np.int64), upto[:, :-1]])
    lengths = (prompts.ends - prompts.starts)[:, np.newaxis]
    others = np.minimum(inner, prompts.known[:, np.newaxis]) - nearer
    first = np.maximum(inner - lengths, 0)
    demoted = np.maximum(np.minimum(outer - lengths, others) - first, 0)
    place, recency = prompts.position, prompts.recency
    placed = [
        np.count_nonzero(
            (place >= low) & (place < high) & ((recency < low) | (recency >= high))
        )
        for low, high in zip(inner, outer, strict=True)
    ]
    return BlockHits(upto - nearer, np.sum(demoted, axis=0) + np.array(placed, float))


# --- a replay -------------------------------------------------------------------------------------


class _Tier:
    """An LRU cache of blocks [blocks]."""

    def __init__(self, capacity: float, snapshot: float) -> None:
        self.lying: OrderedDict[int, None] = OrderedDict()
        self.capacity, self.snapshot = capacity, snapshot
        self.held = self.written = 0.0

    def size(self, block: int) -> float:
        """Room that a block takes; numbers below 0 are snapshots."""
        return 1.0 if block >= 0 else self.snapshot

    def touch(self, blocks: Sequence[int], leaving: Collection[int] = ()) -> list[int]:
        """Put blocks before all others, the first of them most recent.

        Returns:
            What no longer fits, the most recent first.
        """
        new = {block for block in blocks if block not in self.lying}
        for block in reversed(blocks):
            self.lying[block] = None
            self.lying.move_to_end(block)
        gone = [block for block in leaving if block in self.lying]
        for block in gone:
            del self.lying[block]
        self.held += sum(map(self.size, new)) - sum(map(self.size, gone))
        victims = []
        while self.held > self.capacity:
            victim, _ = self.lying.popitem(last=False)
            self.held -= self.size(victim)
            victims.append(victim)
        self.written += sum(map(self.size, new.difference(victims)))
        return victims[::-1]


def _replay(
    prompts: PromptBlocks, capacities: Sequence[float], policy: str, admission: str
) -> BlockHits:
    """Let requests come one by one."""
    tiers = [_Tier(capacity, prompts.snapshot) for capacity in capacities]
    found = np.zeros((len(prompts.ends), len(tiers)), np.int64)
    known: set[int] = set()
    admitted: set[int] = set()
    for number, own in enumerate(np.split(prompts.blocks, prompts.ends[:-1])):
        prompt = own.tolist()
        reused = _reused(tiers, prompt, prompts.snapshot > 0)
        found[number] = [sum(block >= 0 for block in blocks) for blocks in reused]
        if prompts.snapshot and prompt:
            prompt += [
                -1 - prompt[-1],
                *(block for each in reused for block in each if block < 0),
            ]
        admitted |= known.intersection(prompt)
        known.update(prompt)
        nearer: set[int] = set()
        victims: list[int] = []
        for place, tier in enumerate(tiers):
            blocks, leaving = prompt, set()
            if place and policy == "write-through":
                blocks = [block for block in prompt if block not in nearer]
            elif place and policy == "victim":
                blocks = reused[place] + victims
            elif place and policy == "exclusive":
                blocks = victims
                leaving = {
                    b for b in prompt if any(b in near.lying for near in tiers[:place])
                }
            if place and admission == "second-touch":
                blocks = [b for b in blocks if b in admitted or b in tier.lying]
            victims = tier.touch(blocks, leaving)
            nearer.update(reused[place])
    return BlockHits(found, np.array([tier.written for tier in tiers]))


def _reused(
    tiers: Sequence[_Tier], prompt: Sequence[int], has_states: bool
) -> list[list[int]]:
    """Blocks from the head up to the first that no tier has, by the nearest that has each.

    With recurrent states the prefix ends at the last block whose snapshot lies in a tier, too, and
    that snapshot comes with the blocks.
    """

    def nearest(block: int) -> int | None:
        return next((i for i, tier in enumerate(tiers) if block in tier.lying), None)

    reused: list[list[int]] = [[] for _ in tiers]
    prefix: list[tuple[int, int]] = []
    for block in prompt:
        place = nearest(block)
        if place is None:
            break
        prefix.append((block, place))
    while has_states and prefix:
        snapshot = -1 - prefix[-1][0]
        place = nearest(snapshot)
        if place is not None:
            reused[place].append(snapshot)
            break
        prefix.pop()
    for block, place in prefix:
        reused[place].append(block)
    return reused
