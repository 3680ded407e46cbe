"""What HillInfer compares with: the full KV cache and three ways to evict it, on an ordinary SSD (sec. 5.2).

The paper names the systems; their flows per layer are modelled here from what it says of them.

Symbols: C, S bytes of K and V in host DRAM and on the SSD, alpha retained share, L layers.
"""

from __future__ import annotations

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import overlap, pipeline, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.eviction import (
    PLACEMENT,
    RETENTION,
    Tiers,
    cpu_scoring,
    fits_in,
    gpu_layer,
    place,
    prefill_layer,
    put_away,
    scattered,
    where_kv_lives,
)
from nearkv.costmodel.mechanisms.offload import output_head
from nearkv.costmodel.registry import Knob, system
from nearkv.costmodel.resources import Drives, Link, drives, gpu, link
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

OWNS = ("gpu", "host", "ssd")


def answer(hw: Machine, llm: LLM, work: Workload, tiers: Tiers, layers: Span) -> Estimate:
    """Wrap the layers of one decode step into an estimate; head, prefill and placement are alike for all four."""
    head = output_head(llm, work.batch, gpu(hw))
    store, gpu_link, lanes = ssd(hw)
    put = put_away(llm.kv_bytes(work.batch, work.prompt), tiers, gpu_link, lanes, store.write)
    return Estimate(
        prefill=serial(layers=llm.layers * prefill_layer(llm, work, gpu(hw), put), head=head),
        step=serial(layers=layers, head=head),
        fits=fits(**fits_in(hw, llm, work, tiers, "ssd", store.capacity)),
        work=work,
        batch_run=work.batch,
        also=where_kv_lives(llm, work, tiers),
    )


def ssd(hw: Machine) -> tuple[Drives, Link, Link]:
    """The SSD, the GPU's link and the SSD's own."""
    return drives(hw, "ssd"), link(hw, "gpu_link", "pcie"), link(hw, "ssd_link", "pcie")


def fetch(
    hw: Machine,
    llm: LLM,
    work: Workload,
    tiers: Tiers,
    share: Real,
    in_sequence: Real,
    sigma: Real = 0.0,
) -> Span:
    """Bring a share of the K and V off the GPU to it: S/B_ssd beside (C + S)/B_c.

    Args:
        share: how much of them [1].
        in_sequence: 1 where the SSD reads in sequence, 0 where token by token.
        sigma: share of the SSD's part that DRAM serves instead [1].
    """
    store, gpu_link, lanes = ssd(hw)
    kv = share * llm.kv_bytes(work.batch, work.context)
    cold, off_gpu = (1 - sigma) * tiers.drive * kv, (tiers.host + tiers.drive) * kv
    return overlap(
        sequence=store.read(in_sequence * cold, "S / B_ssd"),
        gather=scattered(hw, "ssd", store)((1 - in_sequence) * cold, "S / B_ssd, token by token"),
        ssd_link=lanes.inward(cold, "S"),
        gpu_link=gpu_link.inward(off_gpu, "(C + S) / B_c"),
    )


def evict(
    hw: Machine, llm: LLM, work: Workload, tiers: Tiers, alpha: Real, scored: Real, in_sequence: Real,
    sigma: Real = 0.0,
) -> Estimate:  # fmt: skip
    """Score what stands for the keys, fetch the retained tokens, a layer ahead of the GPU.

    Args:
        alpha: share of tokens retained [1].
        scored: bytes read for scoring, over the bytes of K and V [1].
        in_sequence, sigma: as in `fetch`.
    """
    b, s = work.batch, work.context
    store, gpu_link, lanes = ssd(hw)
    proxy = scored * llm.kv_bytes(b, s)
    prefetch = overlap(
        score_and_fetch=serial(
            read=stream(
                tiers.drive * proxy,
                "what stands for keys on the SSD",
                flash=store.read,
                link=lanes.inward,
            ),
            score=cpu_scoring(hw)((tiers.host + tiers.drive) * proxy, "scores on the CPU"),
            fetch=fetch(hw, llm, work, tiers, alpha, in_sequence, sigma),
        ),
        put_away=put_away(llm.kv_bytes(b, 1), tiers, gpu_link, lanes, store.write),
    )
    attended = tiers.gpu + alpha * (tiers.host + tiers.drive)
    layers = pipeline(llm.layers, prefetch=prefetch, gpu=gpu_layer(llm, work, attended, gpu(hw)))
    return answer(hw, llm, work, tiers, layers)


@system(
    "full-cache", platform="aipc-4090", cite="hillinfer", owns=OWNS, knobs={"placement": PLACEMENT}
)
def full_cache(hw: Machine, llm: LLM, work: Workload, *, placement: Real) -> Estimate:
    """All K and V every step, fetched a layer ahead: max(GPU, S/B_ssd, (C + S)/B_c).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        placement: 0 static 20/60/20, 1 by capacity.

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 5.2, baseline 1.
    """
    tiers = place(hw, llm, work, placement)
    store, gpu_link, lanes = ssd(hw)
    prefetch = overlap(
        fetch=fetch(hw, llm, work, tiers, 1.0, 1.0),
        put_away=put_away(llm.kv_bytes(work.batch, 1), tiers, gpu_link, lanes, store.write),
    )
    layers = pipeline(llm.layers, prefetch=prefetch, gpu=gpu_layer(llm, work, 1.0, gpu(hw)))
    return answer(hw, llm, work, tiers, layers)


@system("h2o", platform="aipc-4090", cite="hillinfer", owns=OWNS, knobs={"placement": PLACEMENT})
def h2o(hw: Machine, llm: LLM, work: Workload, *, placement: Real) -> Estimate:
    """Scores need all K and V on the GPU first: GPU + S/B_ssd + (C + S)/B_c, one after the other.

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        placement: 0 static 20/60/20, 1 by capacity.

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 3.1, 5.2, baseline 2 (H2O-like).
    """
    tiers = place(hw, llm, work, placement)
    store, gpu_link, lanes = ssd(hw)
    kv = llm.kv_bytes(work.batch, work.context)
    layer = serial(
        from_ssd=stream(tiers.drive * kv, "S / B_ssd", flash=store.read, link=lanes.inward),
        to_gpu=gpu_link.inward((tiers.host + tiers.drive) * kv, "(C + S) / B_c"),
        gpu=gpu_layer(llm, work, 1.0, gpu(hw)),
        put_away=put_away(llm.kv_bytes(work.batch, 1), tiers, gpu_link, lanes, store.write),
    )
    return answer(hw, llm, work, tiers, llm.layers * layer)


@system(
    "infinigen",
    platform="aipc-4090",
    cite="hillinfer",
    owns=OWNS,
    knobs={
        "retention": RETENTION,
        "partial": Knob("share of each key's elements that scoring reads", default=0.3),
        "sigma": Knob(
            "skew: HillInfer's HKM added to this system (sec. 5.4, fig. 16a)",
            high=0.99,
            default=0.0,
        ),
        "placement": PLACEMENT,
    },
)
def infinigen(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    retention: Real,
    partial: Real,
    sigma: Real,
    placement: Real,
) -> Estimate:
    """Partial keys scored on the CPU, retained tokens fetched one by one, a layer ahead (prefetch-based).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link; derates cpu_scoring, gather.
        llm, work: what runs.
        retention: share of tokens retained, alpha [1].
        partial: share of each key that scoring reads; InfiniGen's own default is 0.3 [1].
        sigma: share of the SSD's retained tokens that DRAM serves; 0 without HKM [1].
        placement: 0 static 20/60/20, 1 by capacity.

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 3.1, 5.2, baseline 3.
    """
    tiers = place(hw, llm, work, placement)
    return evict(hw, llm, work, tiers, retention, partial / 2, 0.0, sigma)


@system(
    "leoam",
    platform="aipc-4090",
    cite="hillinfer",
    owns=OWNS,
    knobs={
        "retention": RETENTION,
        "abstract": Knob(
            "tokens a chunk that one abstract stands for",
            low=1,
            high=1024,
            default=64,
            kind="count",
        ),
        "placement": PLACEMENT,
    },
)
def leoam(
    hw: Machine, llm: LLM, work: Workload, *, retention: Real, abstract: Real, placement: Real
) -> Estimate:
    """Two keys stand for a chunk of tokens; the best chunks are fetched whole, a layer ahead (LeoAM-like).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link; derate cpu_scoring.
        llm, work: what runs.
        retention: share of tokens retained, alpha [1].
        abstract: tokens a chunk [1].
        placement: 0 static 20/60/20, 1 by capacity.

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 5.2, baseline 4 (KV-Abstract).
    """
    tiers = place(hw, llm, work, placement)
    return evict(
        hw, llm, work, tiers, retention, 1 / abstract, 1.0
    )  # two keys, half of K and V each
