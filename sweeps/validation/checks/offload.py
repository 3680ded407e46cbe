"""Checks that both papers of near-storage attention need, HILOS and INF²."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import estimate_of, workload
from nearkv.sweeps.validation.checks.shared import CONTEXT, step_bytes

Values = NDArray[np.float64]
CONTEXTS = np.array([16384.0, 32768.0, 65536.0, 131072.0])
"""Contexts up to the 128K that the text states (HILOS sec. 6.1); figures may show others."""
KV_LEAVES = ("/read_cache/", "/write_cache/", "prefill/layers/cache/")
"""Leaves of a baseline's time tree that move the KV cache."""


@check
def traffic_ratio(
    platform: str, base: str, base_link: str, ans: str, ans_link: str, knobs: str
) -> Real:
    """Bytes of the baseline over those of ANS on the interconnect, both ways, over s + 1 [1].

    Source: Eq. 3 of both papers.
    """
    base_bytes: Real = 0.0
    ans_bytes: Real = 0.0
    for direction in ("in", "out"):
        base_bytes = base_bytes + step_bytes(platform, base, f"{base_link}.{direction}")
        ans_bytes = ans_bytes + step_bytes(platform, ans, f"{ans_link}.{direction}", knobs)
    return base_bytes / ans_bytes / (CONTEXT + 1)


@check
def kv_time_share(platform: str, system: str, batch: str, *models: str) -> Values:
    """Share of the whole run that moves the KV cache, 16K to 128K [%].

    Source: HILOS fig. 2b, INF² fig. 3b.
    """
    shares = []
    for model in models:
        total = estimate_of(platform, system, model, workload(CONTEXTS, batch)).total
        moved: Real = 0.0
        for path, seconds in total.breakdown().items():
            if any(leaf in path for leaf in KV_LEAVES):
                moved = moved + seconds
        shares.append(100 * moved / total.seconds)
    return np.array(shares)
