"""GPUs that serve a queue of requests, split by tensor, data, pipeline and expert parallelism.

`gpu` holds everything in the memory of GPUs, `hbf` what is only read in flash behind it. A decode
step is `GpuServers.iteration` in `mechanisms/serving/gpu_servers.py`.

Symbols: tp, dp, pp, ep degrees of parallelism.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, ByName, Real, choose, total
from nearkv.costmodel.mechanisms.gpu_layer import unmeasured_kernels
from nearkv.costmodel.mechanisms.prompt_chunks import PREFIX
from nearkv.costmodel.mechanisms.serving.engines import (
    engine_memory,
    engine_rule,
    usable_memory,
    weights_held,
)
from nearkv.costmodel.mechanisms.serving.fluid import POLICY, steady
from nearkv.costmodel.mechanisms.serving.gpu_servers import GpuServers
from nearkv.costmodel.mechanisms.serving.parallel import (
    on_gpus,
    ring,
    tensor_parallel,
)
from nearkv.costmodel.mechanisms.serving.request_bytes import (
    cache_needed,
    seen_by_type,
    tokens_held,
)
from nearkv.costmodel.mechanisms.serving.shared_prefix import (
    SharedPrefix,
    divided,
    not_shareable,
)
from nearkv.costmodel.mechanisms.serving.split import (
    GpuSplit,
    indivisible,
    node_size,
    splits,
    unjoined,
)
from nearkv.costmodel.model.estimate import Estimate, fits, missed
from nearkv.costmodel.model.layers import LAYER_CLASS
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import (
    ANY,
    MONOTONE_COLUMNS,
    Knob,
    KnobRule,
    Reversal,
    choice,
    system,
)
from nearkv.costmodel.model.resources import flash
from nearkv.costmodel.model.workload import Serving, Workload
from nearkv.hardware.machine import Machine

# --- rules of papers and engines --------------------------------------------------------------


def fewest_gpus(hw: Machine, llm: LLM, work: Workload, stated: ByName) -> Real:
    """Fewest GPUs, a power of two, within `policy.weights_per_gpu` (L3 Table 3) [1]."""
    return tensor_parallel(hw, llm)


def gpus_of_a_node(hw: Machine, llm: LLM, work: Workload, stated: ByName) -> Real:
    """The GPUs of a node share every product (HILOS sec. 6.6, its baseline) [1]."""
    return np.minimum(hw.gpu.count, node_size(hw))


def a_stage_a_node(hw: Machine, llm: LLM, work: Workload, stated: ByName) -> Real:
    """Each node is a stage (HILOS sec. 6.6, its baseline) [1]."""
    return np.maximum(np.floor(hw.gpu.count / node_size(hw)), 1.0)


def remaining(hw: Machine, llm: LLM, work: Workload, stated: ByName) -> Real:
    """Replicas on the GPUs that tp and pp leave [1]."""
    of_a_replica = stated.get("tp", 1.0) * stated.get("pp", 1.0)
    return np.maximum(np.floor(hw.gpu.count / of_a_replica), 1.0)


# --- knobs ------------------------------------------------------------------------------------

MOST_GPUS = 1024
"""GPUs that share one model, at most [1]."""


def degree(text: str, **rules: KnobRule) -> Knob:
    """A degree of parallelism.

    Args:
        text: what it divides.
        rules: of papers and engines, by name.
    """
    return Knob(text, low=1, high=MOST_GPUS, kind="count", rules=rules)


KNOBS = {
    "tp": degree(
        "GPUs that share every product (`l3`: the fewest by policy.weights_per_gpu; `node`)",
        l3=fewest_gpus,
        node=gpus_of_a_node,
    ),
    "pp": degree(
        "stages of layers, one after the other (`nodes`: one a node)",
        nodes=a_stage_a_node,
    ),
    "dp": degree(
        "replicas, each with requests of its own (`remaining`: on all GPUs left)",
        remaining=remaining,
    ),
    "ep": degree("GPUs, or groups of them, with other experts each"),
    "attention": choice(
        "tp: GPUs share the heads of a sequence; dp: each attends to sequences of its own; auto, "
        "but tp where tp is stated",
        ("tp", "dp"),
        default="auto",
        follows="tp",
    ),
    "offload": Knob(
        "GB of weights a GPU leaves in host memory and reads from there (vLLM, cpu_offload_gb)",
        high=1e4,
        default=0,
        kind="number",
    ),
    "mtp": choice(
        "multi-token prediction: its layer drafts a token, which the next pass checks "
        "(DeepSeek-V3)",
        ("off", "on"),
    ),
    "accepted": Knob(
        "share of drafted tokens that are accepted, 0.85 to 0.9 (DeepSeek-V3, sec. 5.4.3)",
        default=0.85,
        kind="number",
        is_given=True,
    ),
    "policy": POLICY,
    "chunk": Knob(
        "tokens of an iteration, decoding ones among them, in which prompts ride where requests "
        "arrive (vLLM's max_num_batched_tokens); 0: prompts whole and first",
        high=131_072,
        default="engine",
        kind="count",
        rules={"engine": engine_rule("chunk")},
    ),
    "sequences": Knob(
        "requests that a replica runs at once, at most (vLLM's max_num_seqs); 0: what memory holds",
        high=65_536,
        default="engine",
        kind="number",
        rules={"engine": engine_rule("sequences")},
    ),
    "prefix": PREFIX,
    "shared": choice(
        "off: each request has a prefix of its own; on: all share one, which is kept and read "
        "once",
        ("off", "on"),
        is_given=True,
    ),
}


# --- the systems ------------------------------------------------------------------------------

CHOSEN_FOR_THE_BATCH = Reversal(
    ("prefill_s", "step_ms"),
    (ANY,),
    "a split is chosen for the whole batch, and prompts or a step may take longer on it",
)
FEWER_STACKS_EACH = Reversal(
    (*MONOTONE_COLUMNS, "status"),
    ("gpu.count",),
    "the stacks of flash are spread over all GPUs, of which some may idle",
)


@system(
    "gpu",
    platform="hgx-h200",
    cite="vllm",
    installable=True,
    technology="GPU memory",
    owns=("gpu", "host"),
    several_gpus=True,
    attends=tuple(LAYER_CLASS),
    knobs=KNOBS,
    reversals=(CHOSEN_FOR_THE_BATCH, ring("nvlink.count")),
    combinations=splits,
)
def gpu_servers(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
    """Weights and KV cache in GPU memory, split over GPUs; prompts first, or in chunks.

    Args:
        hw, llm, work: as of `served`.
        knobs: as of `KNOBS`.

    Returns:
        Prefill, one decode step of all rounds, and what fits.
        Source: Shoeybi et al. 2019, sec. 3 (two all-reduces per layer); Kwon et al., SOSP 2023,
        sec. 4 (the paged cache); DeepSeek-V3, sec. 3.4 (experts and attention apart).
    """
    return served(hw, llm, work, knobs)


@system(
    "hbf",
    variant_of="gpu",
    platform="h3",
    cite="hbf",
    installable=False,
    technology="flash beside HBM",
    owns=("gpu", "host", "hbf"),
    knobs={name: knob for name, knob in KNOBS.items() if name != "offload"},
    reversals=(CHOSEN_FOR_THE_BATCH, ring("nvlink.count"), FEWER_STACKS_EACH),
)
def hbf(hw: Machine, llm: LLM, work: Workload, **knobs: Real) -> Estimate:
    """Weights and a shared prefix in flash behind the memory of GPUs, all else as `gpu`.

    Flash is only read, through the interface of HBM, and layer by layer in an order known before,
    so buffers hide its latency. Experts alone are chosen late: each layer of them waits for a read.

    Args:
        hw: roles as of `gpu`, and hbf (count: stacks behind all GPUs).
        llm, work: what runs.
        knobs: as of `gpu`, without `offload`.

    Returns:
        As `gpu`. Source: H3 (Ha et al., IEEE CAL 2026), Eq. 1 and set-up as others report them; its
        abstract alone was read.
    """
    return served(hw, llm, work, {**knobs, "offload": 0.0}, in_flash=True)


def served(
    hw: Machine, llm: LLM, work: Workload, knobs: ByName, in_flash: bool = False
) -> Estimate:
    """Serve a queue on GPUs that share a model.

    Args:
        hw: roles gpu, nvlink (count: GPUs that it joins) or gpu_link (likewise, cards on PCIe),
            fabric between nodes (count: adapters of one), host where weights are offloaded, hbf.
        llm, work: what runs; a prefix that requests share is read once for all of them
            (Hydragen, Juravsky et al. 2024, sec. 3).
        knobs: as of `KNOBS`.
        in_flash: whether weights and what is shared lie in flash behind the GPUs' memory.

    Returns:
        Prefill, one decode step of all rounds, and what fits.
    """
    work, prefix = divided(work, knobs["prefix"], knobs["shared"])
    mtp, chunk, policy = knobs["mtp"], knobs["chunk"], knobs["policy"]
    split = split_at_work(hw, work, knobs)
    servers = servers_at_work(hw, llm, split, prefix, knobs, in_flash)

    read_only = {"weights": servers.weights - servers.offloaded}
    if prefix:
        read_only["shared KV cache"] = prefix.stored_bytes(llm, split)
    on_gpu = {} if in_flash else read_only
    together = np.where(chunk > 0, chunk, work.prompt)
    by_engine = engine_memory(hw, llm, split, together)
    fullest = split.fullest(llm.layers)
    usable = usable_memory(servers.hw) / fullest
    room = np.maximum(usable - by_engine - total(on_gpu.values()), 0.0)
    # the layer that drafts keeps a cache, too
    caches = 1 + mtp * llm.mtp_layers / llm.layers
    of_layer = partial(on_gpus, hw, llm, split=split)
    serving = Serving(
        iteration=servers.iteration,
        prefill=servers.prefill,
        capacity=tokens_held(room / caches, llm, work, policy, of_layer),
        replicas=split.replicas,
        chunked=np.where(chunk > 0, 1.0, 0.0) if work.arrivals is not None else 0.0,
        budget=chunk,
        sequences=choose(knobs["sequences"] > 0, knobs["sequences"], np.inf),
        reserve=policy,
        by_type=seen_by_type(llm, work),
        before=work.before,
    )
    written = {
        "activations and buffers": by_engine,
        "KV cache and states": caches * cache_needed(llm, work, serving, of_layer),
    }
    memories: dict[str, tuple[ByName, Real]] = {"gpu": ({**on_gpu, **written}, usable)}
    if in_flash:
        behind = servers.hw.hbf
        memories["hbf"] = (read_only, behind.count * behind.memory / fullest)
    if np.any(servers.offloaded):
        on_host = {"weights": servers.offloaded}
        memories["host"] = (on_host, hw.host.count * hw.host.memory)
    possible = fits(**memories).without(refused(hw, llm, work, split, knobs))
    degrees = {name: knobs[name] for name in ("tp", "dp", "pp", "ep")}
    answer = steady(work, serving, possible)
    notes = {**answer.notes, **unmeasured_kernels(hw, llm)}
    stated = "HILOS measured weights in host memory to take vLLM about five times as long"
    return missed(
        replace(answer, columns=degrees, notes=notes),
        stated,
        "hilos-multinode",
        np.greater(knobs["offload"], 0),
    )


def split_at_work(hw: Machine, work: Workload, knobs: ByName) -> GpuSplit:
    """The split over replicas that have requests, or hold experts for those that have.

    Args:
        hw: the machine, whose links join GPUs to nodes.
        work: the requests.
        knobs: as of `KNOBS`.
    """
    tp, ep = knobs["tp"], knobs["ep"]
    for_experts = np.ceil(np.maximum(ep / tp, 1.0))
    needed = np.maximum(np.floor(work.batch), for_experts)
    dp = np.minimum(knobs["dp"], needed)
    return GpuSplit(tp, dp, knobs["pp"], ep, knobs["attention"], node_size(hw))


def servers_at_work(
    hw: Machine,
    llm: LLM,
    split: GpuSplit,
    prefix: SharedPrefix | None,
    knobs: ByName,
    in_flash: bool,
) -> GpuServers:
    """The GPUs that serve, each with its links, flash and weights; the rest idles.

    Args:
        hw, llm, knobs, in_flash: as of `served`.
        split: over the GPUs that serve.
        prefix: that all requests share, if any.
    """
    roles = ("gpu", "nvlink", "gpu_link")
    counts = {f"{role}.count": split.gpus for role in roles if role in hw.roles}
    if in_flash:
        counts["hbf.count"] = hw.hbf.count * split.gpus / hw.gpu.count
    used = hw.with_values(counts)
    weights = weights_held(hw, llm, split, knobs["mtp"])
    return GpuServers(
        used,
        llm,
        split,
        mtp=knobs["mtp"],
        accepted=knobs["accepted"],
        weights=weights,
        offloaded=np.minimum(1e9 * knobs["offload"] * split.gpus, weights),
        chunk=knobs["chunk"],
        prefix=prefix,
        behind=flash(used) if in_flash else None,
    )


def refused(
    hw: Machine, llm: LLM, work: Workload, split: GpuSplit, knobs: ByName
) -> dict[str, Booleans]:
    """Mask of knobs that machine, model or load do not allow, by the sentence that says why."""
    gpus = split.tp * knobs["dp"] * split.pp
    drafts, offloads = np.greater(knobs["mtp"], 0), np.greater(knobs["offload"], 0)
    queued = np.array(work.arrivals is not None)
    return {
        "tp x dp x pp is more than gpu.count": np.greater(gpus, hw.gpu.count),
        **indivisible(llm, split),
        **unjoined(hw, split),
        "the model has no layers of multi-token prediction": drafts & (llm.mtp_layers == 0),
        "no link to host memory is known, so no weights lie there": offloads
        & ("gpu_link" not in hw.roles),
        "prompts that arrive at random are not timed over stages of layers; take pp=1": queued
        & (split.pp > 1),
        **not_shareable(llm, knobs["prefix"] * knobs["shared"]),
    }
