"""HillInfer: tokens scored where they live, in host DRAM and in one SmartSSD (HillInfer sec. 4).

Symbols: M_c, M_s bytes of K and V in host DRAM (hot) and in the SmartSSD (cold), beta = M_c / M_s,
alpha retained share, sigma skew, m chunks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Real, Span, overlap, serial
from nearkv.costmodel.mechanisms.gpu_layer import output_head
from nearkv.costmodel.mechanisms.near_storage.eviction import (
    ATTENDS,
    CHUNK,
    LACKS,
    MORE_ON_GPU,
    PLACEMENT,
    RETENTION,
    WEIGHTS_BESIDE_CACHE,
    Storage,
    Tiers,
    arriving_weights,
    fits_in,
    gpu_layer,
    place_cache,
    prefill,
    where_kv_lives,
)
from nearkv.costmodel.mechanisms.near_storage.scoring import (
    SCORE_PRECISIONS,
    SCORE_SOURCES,
    Pools,
    cpu_path,
    csd_path,
    narrow_copies,
)
from nearkv.costmodel.mechanisms.prompt_chunks import LARGEST_CHUNK
from nearkv.costmodel.model.estimate import Estimate, Fits, fits, missed
from nearkv.costmodel.model.layers import Recurrent, pipelined_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import NO_KNOBS, Knob, choice, system
from nearkv.costmodel.model.resources import csd, drives, gpu, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

DRAM_IS_FULL = 16_384.0
"""Context from which on the gain over baselines falls on the test bed (docs/misses.md) [tokens]."""
STATIC_HOT_SHARE = 0.75
"""60 of the 80 % off the GPU (sec. 3.2): HKM without APP."""


def static_split(hw: Machine, llm: LLM, work: Workload, _: ByName = NO_KNOBS) -> Real:
    """60/20 between host and SmartSSD (sec. 3.2) [1]."""
    return STATIC_HOT_SHARE


HOT_SHARE = Knob(
    "share of the KV off the GPU that host DRAM holds, beta / (1 + beta) (APP, sec. 4.3)",
    rules={"static": static_split},
)
SIGMA = Knob(
    "skew: share of the cold pool's retained tokens that the hot pool serves (HKM, sec. 4.3)",
    high=0.99,
    default=0.5,
    is_given=True,
)
HOP = choice(
    "how tokens leave the SmartSSD: straight to the GPU (eq. 4), or through the host (sec. 5.4)",
    ("direct", "through-host"),
    default=1,
)
CHUNKS = Knob(
    "score blocks per layer, m (HIE, sec. 4.2)", low=1, high=256, default=16, kind="count"
)
SCORE_PRECISION = choice(
    "width of a key where it is scored (CEC, sec. 4.4)", SCORE_PRECISIONS, default=1
)
SCORE_SOURCE = choice(
    "where scoring reads keys: FP16 in flash, or a narrow copy in flash or the accelerator's DRAM",
    SCORE_SOURCES,
)
KV_MEMORY = Knob(
    "DRAM the KV cache may take, M_0 (eq. 3)", kind="count", sets="host.kv_memory"
)


@system(
    "hillinfer",
    platform="aipc-4090",
    cite="hillinfer",
    technology="SmartSSD with eviction",
    owns=("gpu", "host", "csd", "chassis"),
    knobs={
        "chunk": CHUNK,
        "weights": WEIGHTS_BESIDE_CACHE,
        "hot_share": HOT_SHARE,
        "retention": RETENTION,
        "sigma": SIGMA,
        "hop": HOP,
        "chunks": CHUNKS,
        "score_precision": SCORE_PRECISION,
        "score_source": SCORE_SOURCE,
        "placement": PLACEMENT,
        "memory": KV_MEMORY,
    },
    attends=ATTENDS,
    lacks=LACKS,
    reversals=(MORE_ON_GPU, LARGEST_CHUNK),
)
def hillinfer(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    weights: Real,
    hot_share: Real,
    retention: Real,
    sigma: Real,
    hop: Real,
    chunks: Real,
    score_precision: Real,
    score_source: Real,
    placement: Real,
) -> Estimate:
    """CPU and SmartSSD score their own pools a layer ahead of the GPU; only retained tokens move.

    Args:
        hw: roles gpu, gpu_link, host (with kv_memory), csd, csd_link.
        llm, work: what runs.
        weights: 0 filling the GPU, the rest in host DRAM, 1 on the GPU.
        hot_share: M_c / (M_c + M_s) [1].
        retention: alpha [1].
        sigma: share of the cold pool's selected tokens that HKM has moved to the hot pool [1].
        hop: 0 straight to the GPU, 1 stored in the host first.
        chunks: score blocks per layer [1].
        score_precision, score_source: index into PRECISIONS and SOURCES.
        placement: sets the GPU's share only: 0 static, 1 by capacity.

    Returns:
        Prefill, one decode step and what fits; `host` is M_c <= M_0.
        Source: HillInfer sec. 4.2 to 4.4, eq. 2, 3.
    """
    placed = place_cache(hw, llm, work, placement, weights)
    off_gpu = 1 - placed.gpu
    tiers = replace(placed, host=hot_share * off_gpu, drive=(1 - hot_share) * off_gpu)
    launches = np.minimum(work.batch, 1.0)
    attended = placed.gpu + retention * off_gpu

    def stages(layer_type: LLM) -> dict[str, Span]:
        layer = gpu_layer(layer_type, work, attended, gpu(hw))
        if isinstance(layer_type, Recurrent):
            return {"gpu": layer}
        kv = layer_type.kv_bytes(work.batch, work.context)
        pools = Pools(tiers.host * kv, tiers.drive * kv, retention, sigma, hop)
        csd_ = csd_path(
            hw, layer_type, pools, score_precision, score_source, chunks, launches
        )
        return {
            "prefetch": prefetch(hw, layer_type, work, tiers, pools, csd_),
            "gpu": layer,
        }

    prompt = prefill(hw, llm, work, tiers, partial(storage, hw))
    head = output_head(llm, work.batch, gpu(hw))
    answer = Estimate(
        prefill=serial(layers=prompt, head=head),
        step=serial(layers=pipelined_layers(llm, stages), head=head),
        fits=memories(hw, llm, work, tiers, score_precision, score_source),
        work=work,
        batch_run=work.batch,
        accelerator_power={"csd": csd(hw, llm.group).kernel_power},
        columns=where_kv_lives(llm, work, tiers),
    )
    beyond = np.greater_equal(work.prompt, DRAM_IS_FULL)
    return missed(answer, "its paper gains more at longer contexts", "HI-006", beyond)


def prefetch(
    hw: Machine, llm: LLM, work: Workload, tiers: Tiers, pools: Pools, csd_: Span
) -> Span:
    """Scoring and fetching of both pools, and demotion, all a layer ahead of the GPU."""
    smartssd = storage(hw, llm)
    return overlap(
        cpu=cpu_path(hw, pools),
        csd=csd_,
        store_new=smartssd.store_new(llm.kv_bytes(work.batch, 1), tiers),
        # behind the step leave as many tokens as are promoted (BKP, sec. 4.2)
        demote=smartssd.write(pools.fetched_cold, "demoted KV, sec. 4.2"),
        **arriving_weights(hw, llm, work.batch, tiers),
    )


def storage(hw: Machine, llm: LLM) -> Storage:
    """The path between SmartSSD, host and GPU."""
    return Storage(
        csd(hw, llm.group), link(hw, "csd_link", "pcie"), link(hw, "gpu_link", "pcie")
    )


def memories(
    hw: Machine, llm: LLM, work: Workload, tiers: Tiers, precision: Real, source: Real
) -> Fits:
    """Bytes on GPU, host, flash and the accelerator's DRAM; the host up to M_0 (eq. 3)."""
    cold = tiers.drive * llm.kv_cache_bytes(work.batch, work.final)
    copies = narrow_copies(llm, cold, precision, source)
    capacity = drives(hw, "csd").capacity
    in_dram = {"copies of keys": copies.dram}
    beside_copies = fits_in(hw, llm, work, tiers, "csd", capacity, copies.flash)
    return fits(**beside_copies, csd_dram=(in_dram, hw.csd.count * hw.csd.memory))
