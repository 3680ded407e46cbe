"""L3: weights and prompts on GPUs, decode attention at the banks of DIMMs, sub-batches in turn.

Source: L3 sec. 5.

Symbols: n decoding sequences, l prompt tokens, D hidden size, L layers, R ranksets, P0, P1 the two
sub-batches.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.dimm import (
    dimms,
    imbalance,
    least_loaded,
    rank_unit_area,
    unit_power,
)
from nearkv.costmodel.mechanisms.fluid import POLICY, memory_needed, steady, switch
from nearkv.costmodel.mechanisms.serving import (
    LACKS,
    data_parallel,
    in_use,
    kv_token_bytes,
    linear,
    prefill_attention,
    prompts_to_dimms,
)
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.registry import Knob, system
from nearkv.costmodel.resources import gpu, link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

RANKSETS = Knob(
    "ranks per channel, each of another rankset (sec. 5.1)",
    kind="count",
    sets="dimm.ranksets",
)
INTERLEAVE = switch(
    "two sub-batches in turn, which read the weights twice, or one batch (sec. 5.2, fig. 11)",
    default="auto",
)
OVERLAP_COMM = switch("KV of prompts moves beside computing, or before it (sec. 5.1)")
PLACEMENT = Knob(
    "ranksets of a request's KV: a random one, all alike, or in each layer the least loaded one",
    high=2,
    default=1,
    kind="choice",
    choices=("random", "balanced", "layerwise"),
)
"""Sec. 5.1, fig. 6b: in one layer a request lies on one rankset, so `balanced` is an ideal."""


@system(
    "l3",
    platform="dgx-a100-pim",
    cite="l3",
    owns=("gpu", "host", "dimm"),
    lacks=LACKS,
    knobs={
        "ranksets": RANKSETS,
        "interleave": INTERLEAVE,
        "overlap_comm": OVERLAP_COMM,
        "placement": PLACEMENT,
        "policy": POLICY,
    },
)
def l3(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    interleave: Real,
    overlap_comm: Real,
    placement: Real,
    policy: Real,
) -> Estimate:
    """GPUs compute prompts and products, DIMMs hold all KV and attend; two sub-batches in turn.

    An iteration takes max(T_GPU0, T_PIM1) + max(T_GPU1, T_PIM0) with even sub-batches.

    Args:
        hw: roles gpu, nvlink, gpu_link, dimm.
        llm, work: what runs.
        interleave: 1 two sub-batches, 0 one batch.
        overlap_comm: 1 one rankset receives while the others compute, 0 all stop.
        placement: 0 random, 1 balanced, 2 the least loaded rankset in each layer.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits.
        Source: L3 sec. 5.1 to 5.3, eqs. 1 to 4 with each chunk in its own sub-batch (erratum).
    """
    memory, kappa = dimms(hw), kv_token_bytes(llm)
    hw = in_use(hw, llm, most=memory.capacity / (kappa * work.longest))

    def skew(sequences: Real) -> Real:
        """Fullest rankset over the mean, in one sub-batch [1]."""
        in_sub_batch = sequences / (1 + interleave)
        sizes = work.spread.context_square
        random = imbalance(in_sub_batch, hw.dimm.ranksets, sizes)
        layerwise = least_loaded(in_sub_batch, hw.dimm.ranksets, sizes)
        choices = [np.equal(placement, 0), np.equal(placement, 1)]
        return np.select(choices, [random, 1.0], layerwise)[()]

    serving = Serving(
        iteration=lambda load: iteration(hw, llm, load, interleave, overlap_comm),
        prefill=lambda prompts, load: prompts_to_dimms(hw, llm, prompts, load),
        room=memory.capacity / kappa,
        replicas=data_parallel(hw, llm),
        chunked=1.0,
        reserve=policy,
        skew=skew,
        minimum_chunk=hw.policy.minimum_chunk,
    )
    memories = fits(
        gpu=(serving.replicas * llm.weight_bytes, gpu(hw).memory),
        dimm=(kappa * memory_needed(work, serving), memory.capacity),
    )
    return steady(work, serving, memories, pu_overhead(hw), {"dimm.banks": memory.power})


def iteration(
    hw: Machine, llm: LLM, load: Load, interleave: Real, overlap_comm: Real
) -> Span:
    """One token more for every sequence: two sub-batches in turn, or one batch.

    A choice weighs the two trees; one of them runs no time.
    """
    half = load.share(0.5)
    return llm.layers * serial(
        interleaved=(2 * interleave) * phase(hw, llm, half, overlap_comm),
        one_batch=(1 - interleave) * one_batch(hw, llm, load, overlap_comm),
    )


def phase(hw: Machine, llm: LLM, load: Load, overlap_comm: Real) -> Span:
    """One layer while the GPU computes a sub-batch and the banks attend for the other (fig. 7).

    Args:
        hw, llm, overlap_comm: as in `l3`.
        load: of one sub-batch; the other is as large.
    """
    return overlap(
        gpu=gpu_side(hw, llm, load),
        pim=pim_side(hw, llm, load, overlap_comm),
        cache=prompt_cache(hw, llm, load, overlap_comm),
    )


def one_batch(hw: Machine, llm: LLM, load: Load, overlap_comm: Real) -> Span:
    """One layer without sub-batches: attention of prompts and of decoding overlap (fig. 3b)."""
    products = overlap(
        gpu=linear(hw, llm, load.sequences + load.prompt),
        cache=prompt_cache(hw, llm, load, overlap_comm),
    )
    attention = overlap(
        gpu=prefill_attention(hw, llm, load.squares),
        pim=pim_side(hw, llm, load, overlap_comm),
    )
    return serial(linear=products, attention=attention)


def gpu_side(hw: Machine, llm: LLM, load: Load) -> Span:
    """T_GPU of one layer: t_batch of decoding requests and chunks, t_p of the chunks (eq. 1)."""
    return serial(
        linear=linear(hw, llm, load.sequences + load.prompt),
        prefill=prefill_attention(hw, llm, load.squares),
    )


def pim_side(hw: Machine, llm: LLM, load: Load, overlap_comm: Real) -> Span:
    """T_PIM of one layer: t_d, t_comm of Q, K, V and outputs, t_overlap of prompts (eq. 2).

    The fullest rankset decides t_d. One rankset of R is engaged as long as prompts' KV arrives,
    at the rate of the slower of PCIe and bus; without the overlap the transfer stops them all
    (sec. 5.1).
    """
    memory, pcie = dimms(hw), link(hw, "gpu_link", "link")
    arriving = np.minimum(pcie.outward.rate, memory.bus.rate)
    engaged = Port("dimm.banks", "wait", hw.dimm.ranksets * arriving)
    to_dimms = {"link": pcie.outward, "bus": memory.bus}
    to_gpus = {"bus": memory.bus, "link": pcie.inward}
    queries, new_kv = llm.query_bytes(load.sequences), llm.kv_bytes(1, load.sequences)
    cache = llm.kv_bytes(1, load.prompt)
    return serial(
        offload=stream(queries + new_kv, "6 D n, t_comm", **to_dimms),
        attend=memory.banks(llm.kv_bytes(1, load.hottest), "kappa tokens / L, t_d"),
        onload=stream(queries, "2 D n, t_comm", **to_gpus),
        receive=engaged(overlap_comm * cache, "t_overlap, one rankset of R"),
        stop=stream((1 - overlap_comm) * cache, "4 D l, all stop", **to_dimms),
    )


def prompt_cache(hw: Machine, llm: LLM, load: Load, overlap_comm: Real) -> Span:
    """KV of the chunks leaves beside projection and feed-forward (sec. 5.1)."""
    bus, to_dimms = dimms(hw).bus, link(hw, "gpu_link", "link").outward
    cache = overlap_comm * llm.kv_bytes(1, load.prompt)
    return stream(cache, "4 D l", link=to_dimms, bus=bus)


def pu_overhead(hw: Machine) -> dict[str, Real]:
    """Share of a buffer chip's area and of a DIMM's power that the units take (sec. 6.4) [%]."""
    area = rank_unit_area(hw) / hw.dimm.buffer_area
    power = unit_power(hw) / hw.dimm.power
    return {"rank_pu_area_pct": 100 * area, "pu_power_pct": 100 * power}
