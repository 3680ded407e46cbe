"""Baselines of HillInfer: the full KV cache and three ways to evict from it, on an SSD.

The paper names the systems (sec. 5.2); their flows per layer are modelled here from what it says
of them.

Symbols: C, S bytes of K and V in host DRAM and on the SSD, alpha retained share, L layers.
"""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Real, Span, overlap, serial
from nearkv.costmodel.mechanisms.gpu_layer import output_head
from nearkv.costmodel.mechanisms.near_storage.eviction import (
    CHUNK,
    EXCHANGED,
    MIGRATION,
    MORE_IN_DRAM,
    MORE_ON_GPU,
    PLACEMENT,
    RETENTION,
    WEIGHTS_BESIDE_CACHE,
    Tiers,
    arriving_weights,
    cpu_scoring,
    fits_in,
    gpu_layer,
    place_cache,
    prefill,
    scattered,
    storage,
    where_kv_lives,
)
from nearkv.costmodel.mechanisms.prompt_chunks import LARGEST_CHUNK
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.layers import over_layers, pipelined_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, system
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine


def with_prefill(
    hw: Machine, llm: LLM, work: Workload, tiers: Tiers, layers: Span
) -> Estimate:
    """Complete an estimate: the prefill, head and memory check that all four systems share."""
    disk = storage(hw)
    head = output_head(llm, work.batch, gpu(hw))
    prompts = prefill(hw, llm, work, tiers, lambda layer_type: disk)
    return Estimate(
        prefill=serial(layers=prompts, head=head),
        step=serial(layers=layers, head=head),
        fits=fits(**fits_in(hw, llm, work, tiers, "ssd", disk.drives.capacity)),
        work=work,
        batch_run=work.batch,
        columns=where_kv_lives(llm, work, tiers),
    )


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
        hw, llm, work: as in `full_cache`.
        tiers: where the KV cache lives.
        share: how much of the KV cache [1].
        in_sequence: 1 where the SSD reads in sequence, 0 where token by token.
        sigma: share of the SSD's part that DRAM serves instead [1].
    """
    disk = storage(hw)
    kv = share * llm.kv_bytes(work.batch, work.context)
    cold = (1 - sigma) * tiers.drive * kv
    gather = scattered(hw, disk.drives)
    return overlap(
        sequence=disk.drives.read(in_sequence * cold, "S / B_ssd"),
        gather=gather((1 - in_sequence) * cold, "S / B_ssd, token by token"),
        ssd_link=disk.drive_link.inward(cold, "S"),
        gpu_link=disk.gpu_link.inward(tiers.off_gpu * kv, "(C + S) / B_c"),
    )


def evict(
    hw: Machine,
    llm: LLM,
    work: Workload,
    tiers: Tiers,
    alpha: Real,
    scored: Real,
    in_sequence: Real,
    migration: Real,
    sigma: Real = 0.0,
) -> Estimate:
    """Score what stands for the keys, fetch the retained tokens, a layer ahead of the GPU.

    Args:
        hw, llm, work: as in `full_cache`.
        tiers: where the KV cache lives.
        alpha: share of tokens retained [1].
        scored: bytes read for scoring, over the bytes of K and V [1].
        in_sequence, sigma: as in `fetch`; HKM demotes less by the same share.
        migration: share of the KV cache that leaves DRAM for the SSD in a step [1].
    """
    disk = storage(hw)
    # the GPU attends to all it holds and to what is retained of the rest
    attended = tiers.gpu + alpha * tiers.off_gpu

    def stages(layer_type: LLM) -> dict[str, Span]:
        kv = layer_type.kv_bytes(work.batch, work.context)
        proxy = scored * kv
        read = disk.read(tiers.drive * proxy, "what stands for keys on the SSD")
        score = cpu_scoring(hw)(tiers.off_gpu * proxy, "scores on the CPU")
        retained = fetch(hw, layer_type, work, tiers, alpha, in_sequence, sigma)
        prefetch = overlap(
            score_and_fetch=serial(read=read, score=score, fetch=retained),
            store_new=disk.store_new(layer_type.kv_bytes(work.batch, 1), tiers),
            demote=disk.demote(kv, tiers, (1 - sigma) * migration),
            **arriving_weights(hw, layer_type, work.batch, tiers),
        )
        return {"prefetch": prefetch, "gpu": gpu_layer(layer_type, work, attended, gpu(hw))}

    return with_prefill(hw, llm, work, tiers, pipelined_layers(llm, stages))


@system(
    "full-cache",
    variant_of="hillinfer",
    technology="host memory",
    owns=("gpu", "host", "ssd"),
    reversals=(),
    knobs={"chunk": CHUNK, "weights": WEIGHTS_BESIDE_CACHE, "placement": PLACEMENT},
)
def full_cache(
    hw: Machine, llm: LLM, work: Workload, *, weights: Real, placement: Real
) -> Estimate:
    """All K and V every step, fetched a layer ahead: max(GPU, S/B_ssd, (C + S)/B_c).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        weights: 0 filling the GPU, the rest in host DRAM, 1 on the GPU.
        placement: 0 static 20/60/20, 1 by capacity.

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 5.2, baseline 1.
    """
    tiers = place_cache(hw, llm, work, placement, weights)

    def stages(layer_type: LLM) -> dict[str, Span]:
        prefetch = overlap(
            fetch=fetch(hw, layer_type, work, tiers, share=1.0, in_sequence=1.0),
            store_new=storage(hw).store_new(layer_type.kv_bytes(work.batch, 1), tiers),
            **arriving_weights(hw, layer_type, work.batch, tiers),
        )
        return {"prefetch": prefetch, "gpu": gpu_layer(layer_type, work, 1.0, gpu(hw))}

    return with_prefill(hw, llm, work, tiers, pipelined_layers(llm, stages))


@system(
    "h2o",
    variant_of="full-cache",
    technology="host memory with eviction",
    knobs={
        "chunk": CHUNK,
        "weights": WEIGHTS_BESIDE_CACHE,
        "placement": PLACEMENT,
        "migration": MIGRATION,
    },
    reversals=(EXCHANGED, LARGEST_CHUNK),
)
def h2o(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    weights: Real,
    placement: Real,
    migration: Real,
) -> Estimate:
    """Scores need all K and V on the GPU first: GPU + S/B_ssd + (C + S)/B_c, serially (H2O-like).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link.
        llm, work: what runs.
        weights: 0 filling the GPU, the rest in host DRAM, 1 on the GPU.
        placement: 0 static 20/60/20, 1 by capacity.
        migration: share of the KV cache that leaves DRAM for the SSD in a step [1].

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 3.1, 5.2, baseline 2.
    """
    tiers = place_cache(hw, llm, work, placement, weights)
    disk = storage(hw)

    def layer(layer_type: LLM) -> Span:
        kv = layer_type.kv_bytes(work.batch, work.context)
        return serial(
            **arriving_weights(hw, layer_type, work.batch, tiers),
            from_ssd=disk.read(tiers.drive * kv, "S / B_ssd"),
            to_gpu=disk.gpu_link.inward(tiers.off_gpu * kv, "(C + S) / B_c"),
            gpu=gpu_layer(layer_type, work, 1.0, gpu(hw)),
            store_new=disk.store_new(layer_type.kv_bytes(work.batch, 1), tiers),
            demote=disk.demote(kv, tiers, migration),
        )

    return with_prefill(hw, llm, work, tiers, over_layers(llm, layer))


@system(
    "infinigen",
    variant_of="h2o",
    knobs={
        "chunk": CHUNK,
        "weights": WEIGHTS_BESIDE_CACHE,
        "retention": RETENTION,
        "partial": Knob("share of each key's elements that scoring reads", default=0.3),
        "sigma": Knob(
            "skew: HillInfer's HKM added to this system (sec. 5.4, fig. 16a)",
            high=0.99,
            default=0.0,
            is_given=True,
        ),
        "placement": PLACEMENT,
        "migration": MIGRATION,
    },
    reversals=(MORE_ON_GPU, MORE_IN_DRAM, LARGEST_CHUNK),
)
def infinigen(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    weights: Real,
    retention: Real,
    partial: Real,
    sigma: Real,
    placement: Real,
    migration: Real,
) -> Estimate:
    """Partial keys scored on the CPU, retained tokens fetched a layer ahead (prefetch-based).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link; derates cpu_scoring, gather.
        llm, work: what runs.
        retention: share of tokens retained, alpha [1].
        partial: share of each key that scoring reads; InfiniGen's own default is 0.3 [1].
        sigma: share of the SSD's retained tokens that DRAM serves; 0 without HKM [1].
        weights: 0 filling the GPU, the rest in host DRAM, 1 on the GPU.
        placement: 0 static 20/60/20, 1 by capacity.
        migration: share of the KV cache that leaves DRAM for the SSD in a step [1].

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 3.1, 5.2, baseline 3.
    """
    tiers = place_cache(hw, llm, work, placement, weights)
    return evict(
        hw,
        llm,
        work,
        tiers,
        alpha=retention,
        scored=partial / 2,  # of K and V
        in_sequence=0.0,
        migration=migration,
        sigma=sigma,
    )


@system(
    "leoam",
    variant_of="infinigen",
    knobs={
        "chunk": CHUNK,
        "weights": WEIGHTS_BESIDE_CACHE,
        "retention": RETENTION,
        "abstract": Knob(
            "tokens per chunk that one abstract stands for",
            low=1,
            high=1024,
            default=64,
            kind="count",
        ),
        "placement": PLACEMENT,
        "migration": MIGRATION,
    },
)
def leoam(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    weights: Real,
    retention: Real,
    abstract: Real,
    placement: Real,
    migration: Real,
) -> Estimate:
    """Two keys stand for a chunk of tokens; the best chunks are fetched whole (LeoAM-like).

    Args:
        hw: roles gpu, gpu_link, host, ssd, ssd_link; derate cpu_scoring.
        llm, work: what runs.
        retention: share of tokens retained, alpha [1].
        abstract: tokens per chunk [1].
        weights: 0 filling the GPU, the rest in host DRAM, 1 on the GPU.
        placement: 0 static 20/60/20, 1 by capacity.
        migration: share of the KV cache that leaves DRAM for the SSD in a step [1].

    Returns:
        Prefill, one decode step and what fits. Source: HillInfer sec. 5.2, baseline 4
        (KV-Abstract).
    """
    tiers = place_cache(hw, llm, work, placement, weights)
    return evict(
        hw,
        llm,
        work,
        tiers,
        alpha=retention,
        scored=1 / abstract,  # two keys per chunk, each half of K and V of a token
        in_sequence=1.0,
        migration=migration,
    )
