"""Checks that both papers of near-storage attention need, HILOS and INF²."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.workload import Workload
from nearkv.sweeps.study.sizes import size
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import estimate_of, model_on, workload
from nearkv.sweeps.validation.checks.shared import CONTEXT, step_bytes

Values = NDArray[np.float64]
CONTEXTS = np.array([16384.0, 32768.0, 65536.0, 131072.0])
"""Contexts up to the 128K that the text states (HILOS sec. 6.1); figures may show others."""
KV_LEAVES = ("/read_cache/", "/write_cache/", "prefill/layers/cache/")
"""Leaves of a baseline's time tree that move the KV cache."""


@check
def kv_entry(model: str) -> Real:
    """K or V of one token and head [B] (HILOS sec. 4.3, INF² sec. 6)."""
    _, llm = model_on("hilos-a100", model)
    return llm.head_size * llm.kv_width


@check
def x_over_kv(model: str) -> Real:
    """Bytes of X over bytes of K and V (HILOS sec. 4.2, INF² sec. 4.3) [1]."""
    _, llm = model_on("hilos-a100", model)
    return llm.x_bytes(1, 1) / llm.kv_bytes(1, 1)


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
def fits_in(
    platform: str, system: str, model: str, batch: str, context: str, knobs: str = ""
) -> NDArray[np.bool_]:
    """1 where a workload fits, 0 where some memory is short."""
    work = workload(context, batch)
    return estimate_of(platform, system, model, work, knobs).fits.ok


@check
def short_of_memory(
    platform: str, system: str, model: str, batch: str, context: str, tier: str
) -> float:
    """1 where this memory is too small for a workload (HILOS sec. 6.3, INF² sec. 7.6)."""
    estimate = estimate_of(platform, system, model, workload(context, batch))
    return float(estimate.fits.short_of == tier)


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


@check
def gain_grows_with_output(
    platform: str, system: str, baseline: str, batch: str, context: str, *models: str
) -> float:
    """1 where the speed-up of the whole run rises with 16, 64, 256, 1024 output tokens.

    Source: Fig. 14 of both papers.
    """
    outputs = np.array([16.0, 64.0, 256.0, 1024.0])
    work = Workload(float(batch), size(context, "context"), outputs)
    for model in models:
        ours = estimate_of(platform, system, model, work).total.seconds
        theirs = estimate_of(platform, baseline, model, work).total.seconds
        if np.any(np.diff(theirs / ours) <= 0):
            return 0.0
    return 1.0
