"""Replay a trace of blocks against a cache of two tiers, access by access."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ADMISSIONS = ("all", "second-touch")
"""Which victims of the first tier are written to the second."""


@dataclass(frozen=True)
class Replay:
    """What two tiers did with a trace.

    Attributes:
        hits: blocks of each request that each tier had, from the prompt's head on: (requests, 2).
        written: blocks written to the second tier [1].
    """

    hits: NDArray[np.int64]
    written: int


def replay(
    requests: Iterable[Sequence[int]], first: int, second: int, admission: str
) -> Replay:
    """Replay requests against LRU in both tiers, with the victims of the first in the second.

    A request reuses the blocks from its head up to the first that neither tier has; all its blocks
    are in the first tier afterwards. A victim of the first tier is written to the second unless it
    lies there already: then it is refreshed. A hit in the second tier refreshes that copy, which
    stays, and enters the first.

    Args:
        requests: blocks of each, in order.
        first, second: capacities of the tiers [blocks]; 0 of a second tier is none.
        admission: `all` writes every victim, `second-touch` those accessed twice since the start.
    """
    near: OrderedDict[int, None] = OrderedDict()
    far: OrderedDict[int, None] = OrderedDict()
    accessed: Counter[int] = Counter()
    takes_all = admission == "all"
    hits = array("q")
    written = 0
    for blocks in requests:
        in_near = in_far = 0
        is_prefix = True
        for block in blocks:
            if not takes_all:
                accessed[block] += 1
            if block in near:
                in_near += is_prefix
                near.move_to_end(block)
                continue
            if block in far:
                in_far += is_prefix
                far.move_to_end(block)
            else:
                is_prefix = False
            near[block] = None
            if len(near) <= first:
                continue
            victim, _ = near.popitem(last=False)
            if victim in far:
                far.move_to_end(victim)
            elif second and (takes_all or accessed[victim] > 1):
                far[victim] = None
                written += 1
                if len(far) > second:
                    far.popitem(last=False)
        hits.extend((in_near, in_far))
    return Replay(np.asarray(hits).reshape(-1, 2), written)
