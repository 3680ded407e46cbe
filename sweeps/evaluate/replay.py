"""Replay a trace of blocks against a cache of two tiers, access by access."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Integers
from nearkv.costmodel.mechanisms.reuse.curve import previous_access

ADMISSIONS = ("all", "second-touch")
"""Which victims of the first tier are written to the second."""


@dataclass(frozen=True)
class Replay:
    """What two tiers did with a trace.

    Attributes:
        hits: blocks of each request that each tier had, from the prompt's head on: (requests, 2).
        written: blocks written to the second tier [1].
    """

    hits: Integers
    written: int


def replay(
    blocks: Integers, ends: Integers, first: int, second: int, admission: str
) -> Replay:
    """Replay requests against LRU in both tiers, with the victims of the first in the second.

    A request reuses the blocks from its head up to the first that neither tier has; all its blocks
    are in the first tier afterwards. A victim of the first tier is written to the second unless it
    lies there already: then it is refreshed. A hit in the second tier refreshes that copy, which
    stays, and enters the first.

    Args:
        blocks: accessed by all requests, in order: (accesses,).
        ends: where the blocks of each request end: (requests,).
        first, second: capacities of the tiers [blocks]; 0 of a second tier is none.
        admission: `all` writes every victim, `second-touch` those accessed twice since the start.
    """
    is_again = previous_access(blocks) >= 0
    is_admitted = is_again if admission == "second-touch" else np.ones_like(is_again)
    near: OrderedDict[int, bool] = OrderedDict()
    far: OrderedDict[int, None] = OrderedDict()
    hits = np.zeros((len(ends), 2), np.int64)
    written = 0
    starts = np.append(0, ends[:-1])
    for request, (start, end) in enumerate(zip(starts, ends, strict=True)):
        own = slice(start, end)
        in_near = in_far = 0
        is_prefix = True
        accesses = zip(blocks[own].tolist(), is_admitted[own].tolist(), strict=True)
        for block, is_taken in accesses:
            is_near = block in near
            near[block] = is_taken
            near.move_to_end(block)
            if is_near:
                in_near += is_prefix
                continue
            if block in far:
                in_far += is_prefix
                far.move_to_end(block)
            else:
                is_prefix = False
            if len(near) <= first:
                continue
            victim, is_written = near.popitem(last=False)
            if victim in far:
                far.move_to_end(victim)
            elif second and is_written:
                far[victim] = None
                written += 1
                if len(far) > second:
                    far.popitem(last=False)
        hits[request] = in_near, in_far
    return Replay(hits, written)
