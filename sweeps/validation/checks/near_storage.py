"""Checks that both papers of near-storage attention need, HILOS and INF²: traffic, time of KV."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.questions import WordedStudy, estimate_of, model_on

CONTEXTS = "16k,32k,64k,128k"
"""Contexts up to the 128K that the text states (HILOS sec. 6.1); figures may show others."""
CONTEXT = 32768.0
"""Context of the step whose traffic is compared [tokens]."""
PAPER_BATCH = 16.0
PUBLISHED = "weights=paper"
"""Weights lie where the papers say."""
KV_LEAVES = ("/read_cache/", "/write_cache/", "prefill/layers/cache/")
"""Leaves of a baseline's time tree that move the KV cache."""


@check
def step_bytes(platform: str, system: str, resource: str, knobs: str = "") -> Real:
    """Bytes that a resource carries in one decode step of OPT-66B, per layer, sequence and hidden
    unit [B].
    """
    # of two tokens the one decoded sees the prompt and the first
    question = WordedStudy(
        system,
        "opt-66b",
        platform=platform,
        knob=f"{PUBLISHED};{knobs}",
        batch=f"{PAPER_BATCH:g}",
        context=f"{CONTEXT - 1:.0f}",
        output_tokens="2",
    )
    traffic = estimate_of(question).step.traffic()
    carried = sum(amount for (name, _), amount in traffic.items() if name == resource)
    _, llm = model_on(platform, "opt-66b")
    return carried / (llm.layers * PAPER_BATCH * llm.hidden)


@check
def step_bytes_a_token(platform: str, system: str, resource: str, knobs: str = "") -> Real:
    """`step_bytes` per token of context (HILOS sec. 4.1, INF² sec. 2.2) [B]."""
    return step_bytes(platform, system, resource, knobs) / CONTEXT


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
def kv_time_share(platform: str, system: str, batch: str, *models: str) -> Numbers:
    """Share of the run that moves the KV cache, 16K to 128K [%].

    Source: HILOS fig. 2b, INF² fig. 3b.
    """
    shares = []
    for model in models:
        question = WordedStudy(
            system, model, platform=platform, knob=PUBLISHED, batch=batch, context=CONTEXTS
        )
        total = estimate_of(question).total
        moved: Real = 0.0
        for path, seconds in total.breakdown().items():
            if any(leaf in path for leaf in KV_LEAVES):
                moved = moved + seconds
        shares.append(np.ravel(100 * moved / total.seconds))
    return np.array(shares)
