"""L3: weights and prompts on GPUs, decode attention at the banks of DIMMs, sub-batches in turn.

Its baselines attend in HBM, or at the ranks of DIMMs; the paper prints no equations of them.

Source: L3 sec. 2.6, 5, 6.1.

Symbols: n decoding sequences, l prompt tokens, D hidden size, L layers, R ranksets, P0, P1 the two
sub-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, serial, stream
from nearkv.costmodel.mechanisms.serving.dimm import (
    KV_PLACEMENT,
    dimms,
    fullest_rankset,
    rank_unit_area,
    unit_power,
)
from nearkv.costmodel.mechanisms.serving.engines import CHUNK
from nearkv.costmodel.mechanisms.serving.fluid import POLICY, steady
from nearkv.costmodel.mechanisms.serving.parallel import (
    HEADS_AND_STATES,
    LACKS,
    activations_and_buffers,
    all_prompts_alone,
    beside_weights,
    copies,
    data_parallel,
    decode_attention,
    in_use,
    linear,
    on_gpus,
    paired,
    prefill_attention,
    products_and_states,
    prompt_in_flight,
    prompts_to_dimms,
    ring,
    tensor_parallel,
)
from nearkv.costmodel.mechanisms.serving.request_bytes import (
    cache_needed,
    longest_requests,
    seen_by_type,
    tokens_beside_states,
    tokens_held,
    weights_and_states,
)
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.layers import Recurrent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import MONOTONE_COLUMNS, Knob, Reversal, choice, system
from nearkv.costmodel.model.resources import gpu, link
from nearkv.costmodel.model.workload import Load, Serving, Workload, over_layer_types
from nearkv.hardware.machine import Machine

RANKSETS = Knob(
    "ranks per channel, each of another rankset (sec. 5.1)",
    kind="count",
    sets="dimm.ranksets",
)
INTERLEAVE = choice(
    "two sub-batches in turn, which read the weights twice, or one batch (sec. 5.2, fig. 11)",
    ("off", "on"),
    default="auto",
)
OVERLAP_COMM = choice(
    "KV of prompts moves beside computing, or before it (sec. 5.1)",
    ("off", "on"),
    default=1,
)
PROMPTS_RIDE = Reversal(
    MONOTONE_COLUMNS,
    ("batch", "context", "output_tokens", "dimm.capacity", "dimm.count"),
    "a batch that fits computes all prompts before it decodes; prompts of one that does not, "
    "ride in decode steps, which may be faster (L3 sec. 5.2)",
)


@system(
    "l3",
    platform="dgx-a100-pim",
    cite="l3",
    technology="DIMMs with units",
    owns=("gpu", "host", "dimm"),
    several_gpus=True,
    attends=HEADS_AND_STATES,
    lacks=LACKS,
    knobs={
        "chunk": CHUNK,
        "ranksets": RANKSETS,
        "interleave": INTERLEAVE,
        "overlap_comm": OVERLAP_COMM,
        "homes": replace(KV_PLACEMENT, default=2),
        "policy": POLICY,
    },
    reversals=(ring("gpu.count"), PROMPTS_RIDE),
)
def l3(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    interleave: Real,
    overlap_comm: Real,
    homes: Real,
    policy: Real,
) -> Estimate:
    """GPUs compute prompts and products, DIMMs hold all KV and attend; two sub-batches in turn.

    An iteration takes max(T_GPU0, T_PIM1) + max(T_GPU1, T_PIM0) with even sub-batches.

    Args:
        hw: roles gpu, nvlink, gpu_link, dimm.
        llm, work: what runs.
        interleave: 1 two sub-batches, 0 one batch.
        overlap_comm: 1 one rankset receives while the others compute, 0 all stop.
        homes: 0 random, 1 balanced, 2 the least loaded rankset in each layer.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits.
        Source: L3 sec. 5.1 to 5.3, eqs. 1 to 4 with each chunk in its own sub-batch (erratum).
    """
    answer = served_from_dimms(
        hw,
        llm,
        work,
        lambda used, load: iteration(used, llm, load, interleave, overlap_comm),
        homes,
        policy,
        interleave,
        chunked=1.0,
    )
    power = {"dimm.banks": dimms(hw).power}
    return replace(answer, columns=pu_overhead(hw), accelerator_power=power)


def served_from_dimms(
    hw: Machine,
    llm: LLM,
    work: Workload,
    iteration: Callable[[Machine, Load], Span],
    homes: Real,
    policy: Real,
    interleave: Real = 0.0,
    chunked: Real = 0.0,
) -> Estimate:
    """Serve a queue whose KV lies in DIMMs, which attend to it.

    Args:
        hw, llm, work: as in `l3`.
        iteration: the GPUs that serve, a load -> one token more for every sequence of it.
        homes, policy, interleave: as in `l3`.
        chunked: 1 where prompts ride in iterations, 0 where they come first.
    """
    memory = dimms(hw)
    hosted = longest_requests(memory.capacity, llm, work)
    hw = in_use(hw, llm, most=np.minimum(hosted, work.batch))

    def in_sub_batch(sequences: Real) -> Real:
        """Sequences that the DIMMs attend to at once [1]."""
        paired_share = interleave * paired(sequences, data_parallel(hw, llm))
        return sequences / (1 + paired_share)

    serving = Serving(
        iteration=lambda load: iteration(hw, load),
        prefill=lambda prompts, load: prompts_to_dimms(hw, llm, work, prompts, load),
        capacity=tokens_beside_states(hw, llm, work, memory.capacity, policy),
        replicas=data_parallel(hw, llm),
        chunked=chunked,
        reserve=policy,
        skew=fullest_rankset(hw, homes, in_sub_batch),
        minimum_chunk=chunked * hw.policy.minimum_chunk,
        by_type=seen_by_type(llm, work),
    )
    held = weights_and_states(llm, work, serving) | prompt_in_flight(hw, llm, work)
    memories = fits(
        gpu=(held, gpu(hw).memory),
        dimm=({"KV cache": cache_needed(llm, work, serving)}, memory.capacity),
    )
    return replace(steady(work, serving, memories), attention={"dimm": 1.0})


def in_turns(share: Real, turn: Span, undivided: Span) -> Span:
    """Two sub-batches in turn for a share of the time, one batch for the rest.

    The choice weighs the two trees; one of them runs no time.
    """
    return serial(interleaved=2 * share * turn, one_batch=(1 - share) * undivided)


def iteration(
    hw: Machine, llm: LLM, load: Load, interleave: Real, overlap_comm: Real
) -> Span:
    """One token more for every sequence: two sub-batches in turn, or one batch.

    A sequence that is alone on its replica is no second sub-batch (sec. 5.2).
    """
    share = interleave * paired(load.sequences, data_parallel(hw, llm))

    def layer(layer_type: LLM, seen: Load) -> Span:
        turn = phase(hw, llm, seen.share(0.5), overlap_comm, layer_type)
        undivided = one_batch(hw, llm, seen, overlap_comm, layer_type)
        return in_turns(share, turn, undivided)

    return over_layer_types(llm, load, layer)


def phase(hw: Machine, llm: LLM, load: Load, overlap_comm: Real, layer_type: LLM) -> Span:
    """One layer while the GPU computes a sub-batch and the banks attend for the other (fig. 7).

    Args:
        hw, llm, overlap_comm: as in `l3`.
        load: of one sub-batch; the other is as large.
        layer_type: a model of such layers.
    """
    if isinstance(layer_type, Recurrent):
        return states_on_gpu(hw, llm, load, layer_type)
    return overlap(
        gpu=gpu_side(hw, llm, load, layer_type),
        pim=pim_side(hw, layer_type, load, overlap_comm),
        cache=prompt_cache(hw, layer_type, load, overlap_comm),
    )


def one_batch(
    hw: Machine, llm: LLM, load: Load, overlap_comm: Real, layer_type: LLM
) -> Span:
    """One layer without sub-batches: attention of prompts and of decoding overlap (fig. 3b)."""
    if isinstance(layer_type, Recurrent):
        return states_on_gpu(hw, llm, load, layer_type)
    tokens = load.sequences + load.prompt
    products = overlap(
        gpu=linear(hw, llm, tokens, layer_type=layer_type, logits=load.sequences),
        cache=prompt_cache(hw, layer_type, load, overlap_comm),
    )
    attention = overlap(
        gpu=prefill_attention(hw, layer_type, load.squares),
        pim=pim_side(hw, layer_type, load, overlap_comm),
    )
    return serial(linear=products, attention=attention)


def states_on_gpu(hw: Machine, llm: LLM, load: Load, layer_type: LLM) -> Span:
    """A layer with a recurrent state has nothing at the banks: the GPU updates it."""
    return serial(
        gpu=gpu_side(hw, llm, load, layer_type),
        states=decode_attention(hw, llm, load, layer_type),
    )


def gpu_side(hw: Machine, llm: LLM, load: Load, layer_type: LLM | None = None) -> Span:
    """T_GPU of one layer: t_batch of decoding requests and chunks, t_p of the chunks (eq. 1)."""
    tokens = load.sequences + load.prompt
    return serial(
        linear=linear(hw, llm, tokens, layer_type=layer_type, logits=load.sequences),
        prefill=prefill_attention(hw, layer_type or llm, load.squares),
    )


def pim_side(hw: Machine, llm: LLM, load: Load, overlap_comm: Real) -> Span:
    """T_PIM of one layer: t_d, t_comm of Q, K, V and outputs, t_overlap of prompts (eq. 2).

    docs/l3.md, eq. L3-1 and L3-2.

    The fullest rankset decides t_d. One rankset of R is engaged as long as prompts' KV arrives,
    at the rate of the slower of PCIe and bus; without the overlap the transfer stops them all
    (sec. 5.1).
    """
    memory, pcie = dimms(hw), link(hw, "gpu_link", "link")
    arriving = np.minimum(pcie.outward.rate, memory.bus.rate)
    engaged = Port("dimm.banks", "wait", hw.dimm.ranksets * arriving)
    to_dimms = {"link": pcie.outward, "bus": memory.bus}
    to_gpus = {"bus": memory.bus, "link": pcie.inward}
    queries = llm.query_bytes(load.sequences)
    new_kv = llm.kv_bytes(load.sequences, 1)
    cache = llm.kv_bytes(load.kept_share * load.prompt, 1)
    return serial(
        offload=stream(queries + new_kv, "6 D n, t_comm", **to_dimms),
        attend=memory.banks(llm.kv_bytes(load.hottest, 1), "kappa tokens / L, t_d"),
        onload=stream(queries, "2 D n, t_comm", **to_gpus),
        receive=engaged(overlap_comm * cache, "t_overlap, one rankset of R"),
        stop=stream((1 - overlap_comm) * cache, "4 D l, all stop", **to_dimms),
    )


def prompt_cache(hw: Machine, llm: LLM, load: Load, overlap_comm: Real) -> Span:
    """KV of the chunks leaves beside projection and feed-forward (sec. 5.1)."""
    bus, to_dimms = dimms(hw).bus, link(hw, "gpu_link", "link").outward
    cache = overlap_comm * llm.kv_bytes(load.kept_share * load.prompt, 1)
    return stream(cache, "4 D l", link=to_dimms, bus=bus)


def pu_overhead(hw: Machine) -> dict[str, Real]:
    """Share of a buffer chip's area and of a DIMM's power that the units take (sec. 6.4) [%]."""
    area = rank_unit_area(hw) / hw.dimm.buffer_area
    power = unit_power(hw) / hw.dimm.power
    return {"rank_pu_area_pct": 100 * area, "pu_power_pct": 100 * power}


# --- baselines with units in memory -----------------------------------------------------------

SUB_BATCHES = choice(
    "two sub-batches in turn (L3 sec. 6.1, NeuPIMs), or one batch (AttAcc)",
    ("off", "on"),
    default=1,
)

FEWER_AT_ONCE = Reversal(
    ("step_ms", "total_s"),
    ("context", "output_tokens"),
    "as many run at once as fit; rounds of fewer, each in two sub-batches, may be faster",
)


@system(
    "hbm-pim",
    variant_of="l3",
    technology="HBM with units",
    owns=("gpu", "host"),
    knobs={"chunk": CHUNK, "interleave": SUB_BATCHES, "policy": POLICY},
    reversals=(ring("gpu.count"), FEWER_AT_ONCE),
)
def hbm_pim(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    interleave: Real,
    policy: Real,
) -> Estimate:
    """Attention at the banks of HBM, two sub-batches in turn, prompts first (NeuPIMs, AttAcc).

    While one sub-batch computes on the GPU the other attends in memory, max(fc(b0), a1) +
    max(fc(b1), a0): every sub-batch reads the weights. Double row buffers let both use the HBM at
    once (sec. 6.1), so the banks are a resource of their own. One batch takes fc(b) + a.

    Args:
        hw: roles gpu (with pim_bandwidth), nvlink.
        llm, work: what runs.
        interleave: 1 two sub-batches, 0 one batch.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1, Table 2.
    """
    hw = in_use(hw, llm, most=work.batch)
    banks = Port("gpu.banks", "read", hw.gpu.count * hw.gpu.pim_bandwidth)

    def layer(layer_type: LLM, load: Load) -> Span:
        head_copies = copies(layer_type, tensor_parallel(hw, llm))

        def parts(part: Load) -> dict[str, Span]:
            cache = head_copies * layer_type.kv_bytes(part.tokens, 1)
            return {
                "gpu": products_and_states(hw, llm, part, layer_type),
                "pim": banks(cache, "kappa tokens / L"),
            }

        return in_turns(
            interleave * paired(load.sequences, data_parallel(hw, llm)),
            overlap(**parts(load.share(0.5))),
            serial(**parts(load)),
        )

    kept = partial(on_gpus, hw, llm)
    serving = Serving(
        iteration=lambda load: over_layer_types(llm, load, layer),
        prefill=lambda prompts, load: all_prompts_alone(hw, llm, work.chunk, prompts, load),
        capacity=tokens_held(beside_weights(hw, llm, work), llm, work, policy, kept),
        replicas=data_parallel(hw, llm),
        reserve=policy,
        by_type=seen_by_type(llm, work),
    )
    needed = {
        "weights": serving.replicas * llm.weight_bytes,
        "activations and buffers": activations_and_buffers(hw, llm, work),
        "KV cache and states": cache_needed(llm, work, serving, kept),
    }
    return steady(work, serving, fits(gpu=(needed, gpu(hw).memory)))


@system(
    "rank-pim",
    variant_of="l3",
    knobs={"chunk": CHUNK, "homes": KV_PLACEMENT, "policy": POLICY},
    reversals=(ring("gpu.count"),),
)
def rank_pim(
    hw: Machine, llm: LLM, work: Workload, *, homes: Real, policy: Real
) -> Estimate:
    """Attention at the ranks of DIMMs, one batch, prompts first, transfers hidden (Hermes, R-PIM).

    In one layer a request's KV lies on one rank of each channel, by default a random one: the even
    layout is what L3 adds (sec. 5.1).

    Args:
        hw: roles gpu, nvlink, gpu_link, dimm.
        llm, work: what runs.
        homes: 0 random, 1 balanced, 2 the least loaded rankset in each layer.
        policy: 0 paged, 1 reserve.

    Returns:
        Prefill, one decode step of all rounds, and what fits. Source: L3 sec. 2.6, 6.1.
    """
    ranks = dimms(hw).ranks

    def iteration(used: Machine, load: Load) -> Span:
        def layer(layer_type: LLM, seen: Load) -> Span:
            attention = ranks(layer_type.kv_bytes(seen.hottest, 1), "kappa tokens / L")
            products = products_and_states(used, llm, seen, layer_type)
            return serial(linear=products, attention=attention)

        return over_layer_types(llm, load, layer)

    return served_from_dimms(hw, llm, work, iteration, homes, policy)
