"""Common draws: the same number has the same rank in every answer of a study."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


@lru_cache(maxsize=8)
def ranks(names: tuple[str, ...], samples: int, seed: int) -> Mapping[str, Numbers]:
    """Ranks of some numbers, spread evenly over all of them at once (scrambled Sobol sequence).

    The scrambling depends on the names and the seed alone, so that the same question has the same
    draws in every process.

    Args:
        names: of the numbers, in any order.
        samples: how many draws [1].
        seed: another one gives other draws.

    Returns:
        Name -> ranks in (0, 1), one a draw [1].
    """
    from scipy.stats import qmc

    ordered = sorted(set(names))
    if not ordered:
        return {}
    digest = hashlib.sha256(json.dumps([ordered, seed]).encode()).digest()
    entropy = int.from_bytes(digest[:16], "big")
    sequence = qmc.Sobol(len(ordered), rng=np.random.default_rng(entropy))
    exponent = int(np.ceil(np.log2(samples)))
    drawn = sequence.random_base2(exponent)[:samples]
    inside = np.clip(drawn, 2.0**-32, 1 - 2.0**-32)
    columns = np.ascontiguousarray(inside.T)
    return dict(zip(ordered, columns, strict=True))
