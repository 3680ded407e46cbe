"""GPUs that serve a queue of requests, split by tensor, data, pipeline and expert parallelism.

`gpu` holds everything in the memory of GPUs, `hbf` what is only read in flash behind it.

Symbols: n decoding sequences, tp, dp, pp, ep degrees of parallelism, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    ByName,
    Numbers,
    Port,
    Real,
    Span,
    choose,
    overlap,
    quotient,
    serial,
    total,
)
from nearkv.costmodel.mechanisms.gpu_layer import (
    output_head,
    prompt_kernel,
    unmeasured_kernels,
)
from nearkv.costmodel.mechanisms.prompt_chunks import PREFIX
from nearkv.costmodel.mechanisms.serving.experts import through
from nearkv.costmodel.mechanisms.serving.fluid import POLICY, steady
from nearkv.costmodel.mechanisms.serving.parallel import (
    chunks_each,
    copies,
    decode_attention,
    engine_memory,
    engine_rule,
    gpu_attention,
    linear,
    looked_up_on_host,
    on_gpus,
    prefill_attention,
    ring,
    tensor_parallel,
    undivided,
    usable_memory,
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
    hand_over,
    node_size,
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
from nearkv.costmodel.model.resources import flash, gpu, link
from nearkv.costmodel.model.workload import Load, Serving, Workload, over_layer_types
from nearkv.hardware.machine import Machine

NO_DRAFTS = "the model has no layers of multi-token prediction"
ONE_STAGE = "prompts that arrive at random are not timed over stages of layers; take pp=1"
NO_LINK = "no link to host memory is known, so no weights lie there"

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


TP = degree(
    "GPUs that share every product (`l3`: the fewest by policy.weights_per_gpu; `node`)",
    l3=fewest_gpus,
    node=gpus_of_a_node,
)
PP = degree(
    "stages of layers, one after the other (`nodes`: one a node)",
    nodes=a_stage_a_node,
)
DP = degree(
    "replicas, each with requests of its own (`remaining`: on all GPUs left)",
    remaining=remaining,
)
EP = degree("GPUs, or groups of them, with other experts each")
ATTENTION = choice(
    "tp: GPUs share the heads of a sequence; dp: each attends to sequences of its own; auto, "
    "but tp where tp is stated",
    ("tp", "dp"),
    default="auto",
    follows="tp",
)
OFFLOAD = Knob(
    "GB of weights a GPU leaves in host memory and reads from there (vLLM, cpu_offload_gb)",
    high=1e4,
    default=0,
    kind="number",
)
MTP = choice(
    "multi-token prediction: its layer drafts a token, which the next pass checks (DeepSeek-V3)",
    ("off", "on"),
)
ACCEPTED = Knob(
    "share of drafted tokens that are accepted, 0.85 to 0.9 (DeepSeek-V3, sec. 5.4.3)",
    default=0.85,
    kind="number",
)
CHUNK = Knob(
    "tokens of an iteration, decoding ones among them, in which prompts ride where requests "
    "arrive (vLLM's max_num_batched_tokens); 0: prompts whole and first",
    high=131_072,
    default="engine",
    kind="count",
    rules={"engine": engine_rule("chunk")},
)
SEQUENCES = Knob(
    "requests that a replica runs at once, at most (vLLM's max_num_seqs); 0: what memory holds",
    high=65_536,
    default="engine",
    kind="number",
    rules={"engine": engine_rule("sequences")},
)
SHARED = replace(
    choice(
        "off: each request has a prefix of its own; on: all share one, which is kept and read "
        "once",
        ("off", "on"),
    ),
    is_sent=True,
)
KNOBS = {
    "tp": TP,
    "pp": PP,
    "dp": DP,
    "ep": EP,
    "attention": ATTENTION,
    "offload": OFFLOAD,
    "mtp": MTP,
    "accepted": ACCEPTED,
    "policy": POLICY,
    "chunk": CHUNK,
    "sequences": SEQUENCES,
    "prefix": PREFIX,
    "shared": SHARED,
}


def splits(hw: Machine, llm: LLM) -> Mapping[str, Numbers]:
    """All splits that GPUs, heads, layers and experts allow.

    Args:
        hw: role gpu; of several counts, those of the largest are tried.
        llm: the model.

    Returns:
        Values of each knob, as many as there are splits [1].
    """
    most = int(np.max(hw.gpu.count))
    degrees = np.arange(1, most + 1.0)
    if np.all(hw.engine.by_layers):
        one = np.ones_like(degrees)
        return {"tp": one, "pp": degrees, "dp": one, "ep": one, "attention": 0 * one}
    layer_types = tuple(llm.layer_types.values()) or (llm,)
    fullest = np.ceil(np.ravel(llm.layers)[:, np.newaxis] / degrees)
    # stages beyond the fewest with as many layers in the fullest have no more room
    pps = np.unique(np.ceil(np.ravel(llm.layers)[:, np.newaxis] / fullest))
    shares_heads = {
        tp: any(np.any(np.mod(kind.heads, tp) == 0) for kind in layer_types)
        for tp in degrees
    }
    experts = np.ravel(llm.most_of_a_layer(lambda layer: layer.experts * layer.is_moe))
    eps = [ep for ep in degrees if ep == 1 or np.any(np.mod(experts[experts > 0], ep) == 0)]
    tried = list[tuple[float, ...]]()
    for tp, pp in product(degrees, pps):
        attention = [0.0] if shares_heads[tp] else []
        if tp > 1:
            attention.append(1.0)
        for dp in degrees[: int(most // (tp * pp))]:
            own = [ep for ep in eps if ep <= tp * dp and (ep % tp == 0 or tp % ep == 0)]
            tried += product([tp], [pp], [dp], own, attention)
    names = ("tp", "pp", "dp", "ep", "attention")
    return dict(zip(names, np.array(tried).T, strict=True))


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


# --- the systems ------------------------------------------------------------------------------


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
        knobs: as of `served`.

    Returns:
        Prefill, one decode step of all rounds, and what fits.
        Source: Shoeybi et al. 2019, sec. 3 (two all-reduces per layer); Kwon et al., SOSP 2023,
        sec. 4 (the paged cache); DeepSeek-V3, sec. 3.4 (experts and attention apart).
    """
    return served(hw, llm, work, False, **knobs)


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
    return served(hw, llm, work, True, offload=0.0, **knobs)


def served(
    hw: Machine,
    llm: LLM,
    work: Workload,
    in_flash: bool,
    /,
    *,
    tp: Real,
    pp: Real,
    dp: Real,
    ep: Real,
    attention: Real,
    offload: Real,
    mtp: Real,
    accepted: Real,
    policy: Real,
    chunk: Real,
    sequences: Real,
    prefix: Real,
    shared: Real,
) -> Estimate:
    """Serve a queue on GPUs that share a model.

    Args:
        hw: roles gpu, nvlink (count: GPUs that it joins) or gpu_link (likewise, cards on PCIe),
            fabric between nodes (count: adapters of one), host where weights are offloaded, hbf.
        llm, work: what runs.
        in_flash: whether weights and what is shared lie in flash behind the GPUs' memory.
        tp, pp, dp, ep: degrees of tensor, pipeline, data and expert parallelism [1].
        attention: 0 tp GPUs share the heads, 1 each attends to sequences of its own.
        offload: weights that each GPU leaves in host memory [GB].
        mtp: tokens drafted for each sequence in a step [1].
        accepted: share of them that the step keeps [1].
        policy: 0 paged, 1 reserve.
        chunk: tokens of an iteration where requests arrive, 0 whole prompts first [1].
        sequences: requests that a replica runs at once, at most; 0 where memory alone decides [1].
        prefix: tokens that the cache holds before each prompt [1].
        shared: 1 where all requests share the prefix, whose K and V are read once for all of them
            (Hydragen, Juravsky et al. 2024, sec. 3).

    Returns:
        Prefill, one decode step of all rounds, and what fits.
    """
    work, common = divided(work, prefix, shared)
    split = GpuSplit(
        tp, replicas_at_work(work, tp, dp, ep), pp, ep, attention, node_size(hw)
    )
    weights = weights_held(hw, llm, split, mtp)
    offloaded = np.minimum(1e9 * offload * split.gpus, weights)
    working, share = at_work(hw, split, in_flash), offloaded / weights
    servers = GpuServers(working, llm, split, mtp, share, chunk, common, in_flash)
    read_only = servers.read_only(weights - offloaded)
    together = np.where(np.greater(chunk, 0), chunk, work.prompt)
    kept_by_engine = engine_memory(hw, llm, split, together)
    taken = 0.0 if in_flash else total(read_only.values())
    beside = np.maximum(servers.usable - kept_by_engine - taken, 0.0)
    # the layer that drafts keeps a cache, too
    caches = 1 + mtp * llm.mtp_layers / llm.layers
    kept = partial(on_gpus, hw, llm, split=split)
    serving = Serving(
        iteration=lambda load: (1 / (1 + mtp * accepted)) * servers.iteration(load),
        prefill=servers.prefill,
        capacity=tokens_held(beside / caches, llm, work, policy, kept),
        replicas=split.replicas,
        chunked=np.where(chunk > 0, 1.0, 0.0) if work.arrivals is not None else 0.0,
        budget=chunk,
        sequences=choose(np.greater(sequences, 0), sequences, np.inf),
        reserve=policy,
        by_type=seen_by_type(llm, work),
        before=work.before,
    )
    written = {
        "activations and buffers": kept_by_engine,
        "KV cache and states": caches * cache_needed(llm, work, serving, kept),
    }
    memories = servers.memories(read_only, written)
    if np.any(offload):
        memories["host"] = ({"weights": offloaded}, hw.host.count * hw.host.memory)
    queued = np.array(work.arrivals is not None)
    possible = fits(**memories).without(
        impossible(hw, llm, split, dp, mtp, offload)
        | {ONE_STAGE: np.greater(pp, 1) & queued}
        | not_shareable(llm, prefix * shared)
    )
    answer = steady(work, serving, possible)
    answer = replace(
        answer,
        also={"tp": tp, "dp": dp, "pp": pp, "ep": ep},
        notes={**answer.notes, **unmeasured_kernels(hw, llm)},
    )
    stated = "HILOS measured weights in host memory to take vLLM about five times as long"
    return missed(answer, stated, "hilos-multinode", np.greater(offload, 0))


def replicas_at_work(work: Workload, tp: Real, dp: Real, ep: Real) -> Real:
    """Replicas that serve: a request stays on one, and those without any share experts alone [1].

    Args:
        work: the requests.
        tp, dp, ep: degrees of parallelism [1].
    """
    for_experts = np.ceil(np.maximum(ep / tp, 1.0))
    return np.minimum(dp, np.maximum(np.floor(work.batch), for_experts))


def weights_held(hw: Machine, llm: LLM, split: GpuSplit, mtp: Real) -> Real:
    """Weights on all GPUs at work, or offloaded from them, with the layer that drafts [B]."""
    drafting = split.dp * mtp * llm.mtp_parameters * llm.weight_width
    on_host = split.dp * looked_up_on_host(hw, llm)
    return split.weight_bytes(llm, hw.engine.padding) + drafting - on_host


def at_work(hw: Machine, split: GpuSplit, in_flash: bool) -> Machine:
    """The machine with the GPUs that serve, each with its links and flash; the rest idles."""
    roles = ("gpu", "nvlink", "gpu_link")
    counts = {f"{role}.count": split.gpus for role in roles if role in hw.roles}
    if in_flash:
        counts["hbf.count"] = hw.hbf.count * split.gpus / hw.gpu.count
    return hw.with_values(counts)


def impossible(
    hw: Machine, llm: LLM, split: GpuSplit, dp: Real, mtp: Real, offload: Real
) -> dict[str, Booleans]:
    """Mask of splits that cannot be, by the sentence that says so."""
    experts = llm.most_of_a_layer(lambda layer: layer.experts * layer.is_moe)
    few = np.greater(split.ep, np.maximum(experts, 1.0))
    group = split.expert_group
    rests = [
        np.mod(experts, split.ep),
        np.mod(split.tp * split.dp, group),
        np.mod(group, split.ep),
        np.mod(group, split.tp),
    ]
    cut = llm.most_of_a_layer(lambda layer: np.mod(layer.ffn, split.slices(layer)))
    return {
        "tp x dp x pp is more than gpu.count": np.greater(
            split.tp * dp * split.pp, hw.gpu.count
        ),
        **undivided(llm, split.attention_tp),
        "there are more stages than layers": np.greater(split.pp, llm.layers),
        "the feed-forward layer does not divide over this many GPUs": np.greater(cut, 0),
        "experts do not divide over this many GPUs": few
        | (np.greater(split.ep, 1) & np.greater(total(rests), 0)),
        **unjoined(hw, split),
        NO_DRAFTS: np.greater(mtp, 0) & np.equal(llm.mtp_layers, 0),
        NO_LINK: np.logical_and(np.greater(offload, 0), "gpu_link" not in hw.roles),
    }


@dataclass(frozen=True)
class GpuServers:
    """The GPUs at work.

    Attributes:
        hw: the machine with them.
        llm: the model.
        split: how they share it.
        mtp: tokens drafted for each sequence in a step [1].
        offloaded: share of the weights in host memory [1].
        chunk: tokens of a prompt in one pass, 0 for all [1].
        prefix: what all requests share, if anything.
        in_flash: whether weights and prefix lie in flash behind the memory of the GPUs.
    """

    hw: Machine
    llm: LLM
    split: GpuSplit
    mtp: Real
    offloaded: Real
    chunk: Real
    prefix: SharedPrefix | None = None
    in_flash: bool = False

    @property
    def behind(self) -> Port | None:
        """Flash behind the memory of the GPUs, where what is only read lies there [B]."""
        return flash(self.hw) if self.in_flash else None

    @property
    def usable(self) -> Real:
        """Memory of the GPUs that the engine fills, where the fullest stage sets the limit [B]."""
        return usable_memory(self.hw) / self.split.fullest(self.llm.layers)

    def read_only(self, weights: Real) -> dict[str, Real]:
        """Bytes that no request changes: some weights [B], and the prefix that all share."""
        held = {"weights": weights}
        if self.prefix:
            held["shared KV cache"] = self.split.replicas * self.prefix.stored_bytes(
                self.llm, lambda layer_type: copies(layer_type, self.split.attention_tp)
            )
        return held

    def memories(
        self, read_only: ByName, written: ByName
    ) -> dict[str, tuple[ByName, Real]]:
        """Contents of the GPUs' memory, and of the flash behind it, and the bytes of both [B]."""
        if not self.in_flash:
            return {"gpu": ({**read_only, **written}, self.usable)}
        part = self.hw.hbf
        room = part.count * part.memory / self.split.fullest(self.llm.layers)
        return {"gpu": (written, self.usable), "hbf": (read_only, room)}

    def iteration(self, load: Load) -> Span:
        """One pass over 1 + mtp tokens of every sequence, the prompts beside them, and drafts.

        A draft costs a layer more, an average one, and the output head.
        """
        llm, each = self.llm, 1 + self.mtp
        tokens = each * load.sequences + load.prompt
        verify = serial(
            layers=over_layer_types(llm, load, partial(self.layer, each=each)),
            hand_over=hand_over(self.hw, llm, self.split, tokens),
        )
        if not np.any(self.mtp):
            return verify
        layers = over_layer_types(llm, load, partial(self.layer, each=1.0))
        head = output_head(llm, load.sequences, gpu(self.hw))
        draft = serial(layer=(1 / llm.layers) * layers, head=head)
        return serial(verify=verify, draft=self.mtp * draft)

    def layer(self, layer_type: LLM, load: Load, each: Real) -> Span:
        """One layer of an iteration: one micro-batch a stage keeps every stage busy.

        Args:
            layer_type: a model of such layers.
            load: what the iteration carries.
            each: tokens of every sequence [1].
        """
        split, n = self.split, load.sequences
        passes = split.micro_batches(n)
        waiting = split.waiting(passes, self.llm.layers)
        busy = load.share(waiting)
        decoded = each * busy.sequences
        longest = np.maximum(split.alone(n), split.fullest(self.llm.layers))
        visits = np.minimum(n / split.replicas, 1.0) * waiting * passes
        return serial(
            linear=self.products(
                layer_type, decoded + busy.prompt, waiting * passes, decoded
            ),
            attention=decode_attention(
                self.hw, self.llm, load.share(longest), layer_type, split, each
            ),
            prefill=prefill_attention(self.hw, layer_type, busy.squares),
            **self.attend_to_prefix(layer_type, visits, each * longest * n, busy.prompt),
        )

    def attend_to_prefix(
        self, layer_type: LLM, visits: Real, decoded: Real, prompt: Real
    ) -> dict[str, Span]:
        """Attention of one layer to the shared prefix, whose K and V all sequences read together.

        Their queries are the rows of one product, as those of a prompt are.

        Args:
            layer_type: a model of such layers.
            visits: times that each replica reads the prefix [1].
            decoded: tokens that decode, over all replicas [1].
            prompt: tokens of prompts, over all replicas [1].
        """
        prefix = self.prefix
        if prefix is None:
            return {}
        kept = self.split.replicas * copies(layer_type, self.split.attention_tp)
        memory = gpu_attention(self.hw, layer_type.kv_width)
        rows = kept * visits * prefix.read_bytes(layer_type)
        flops = decoded * prefix.step_flops(layer_type)
        flops = flops + prompt * prefix.prompt_flops(layer_type)
        attention = overlap(
            read=through(memory, self.behind, rows, "kappa p / L, once for all sequences"),
            compute=prompt_kernel(self.hw, layer_type)(flops, "4 D p for every token"),
        )
        return {"shared": attention}

    def prefill(self, prompts: Real, load: Load) -> Span:
        """Prompts alone, one after the other on every replica, chunk by chunk.

        A sequence lies on one replica, and with `attention=dp` on one GPU of it: where fewer come
        than there are, the others take part in what they share alone.
        """
        waiting = self.split.waiting(prompts / self.split.dp, self.llm.layers)
        chunks = chunks_each(prompts, load, self.chunk)
        present = np.minimum(prompts, 1.0)
        idle = np.maximum(quotient(self.split.dp * present, prompts), 1.0)
        passes = waiting * chunks * idle * prompts / self.split.dp
        alone = np.maximum(self.split.alone(prompts), waiting)

        def layer(layer_type: LLM, seen: Load) -> Span:
            busy, own = seen.share(waiting), (alone - waiting * idle) * seen.prompt
            projected = layer_type.qkv_flops(own) + layer_type.output_flops(own)
            attended = alone * seen.squares
            visits = chunks * alone * prompts / self.split.replicas
            return serial(
                linear=self.products(
                    layer_type, busy.prompt, passes, waiting * prompts, idle
                ),
                projections=gpu(self.hw).run(projected, "of sequences that no GPUs share"),
                attention=prefill_attention(self.hw, layer_type, attended),
                **self.attend_to_prefix(layer_type, visits, 0.0, alone * seen.prompt),
            )

        return serial(
            layers=over_layer_types(self.llm, load, layer),
            hand_over=hand_over(self.hw, self.llm, self.split, load.prompt),
        )

    def products(
        self, layer_type: LLM, tokens: Real, passes: Real, logits: Real, idle: Real = 1.0
    ) -> Span:
        """Products of one layer; weights in host memory come first, as nothing prefetches them."""
        on_gpu = linear(
            self.hw,
            self.llm,
            tokens,
            passes,
            layer_type,
            logits,
            self.split,
            idle,
            self.behind,
        )
        if self.in_flash:
            return serial(
                chosen=self.until_chosen(layer_type, tokens, passes), on_gpu=on_gpu
            )
        if "gpu_link" not in self.hw.roles:
            return on_gpu
        each = quotient(tokens / self.split.dp, passes)
        replicas = self.split.dp * self.offloaded
        moved = replicas * passes * layer_type.layer_weight_bytes(each)
        rate = "pcie" if "pcie" in self.hw.derate else "link"
        pcie = link(self.hw, "gpu_link", rate).inward
        return serial(offloaded=pcie(moved, "weights in host memory"), on_gpu=on_gpu)

    def until_chosen(self, layer_type: LLM, tokens: Real, passes: Real) -> Span:
        """Wait for the first read of a layer's experts, which no one knows before the router."""
        visits = passes * np.minimum(tokens / self.split.dp, 1.0) / self.split.pp
        wait = Port("hbf.latency", "wait", 1.0, "s")
        return wait(layer_type.is_moe * visits * self.hw.hbf.latency, "experts of a layer")
