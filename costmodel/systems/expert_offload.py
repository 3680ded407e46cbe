"""Experts in DRAM or on drives beside a GPU that has all else, and no GPU at all.

Source: KTransformers (SOSP 2025), sec. 3; llama.cpp, `--n-cpu-moe`, `-ngl`; Fiddler (ICLR 2025),
sec. 3.2: each batch of tokens is computed where it takes least.

Symbols: b batch, s context, t tokens, E experts, k active experts, g share of them on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.blend import scaled
from nearkv.costmodel.algebra.compose import faster, overlap, serial, stream
from nearkv.costmodel.algebra.span import Port, Real, Span, total
from nearkv.costmodel.mechanisms.cpu_attention import exchange_with_cpu
from nearkv.costmodel.mechanisms.cpu_layer import (
    NATIVE,
    Cores,
    expert_bytes,
    is_unified,
    processor,
)
from nearkv.costmodel.mechanisms.gpu_layer import layer_compute, output_head
from nearkv.costmodel.mechanisms.serving.experts import (
    grouped_products,
    kernels,
    without_experts,
)
from nearkv.costmodel.model.capacity import Contents, Fits, fits
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import LAYER_CLASS, over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, system
from nearkv.costmodel.model.resources import drives, gpu, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

Attend = tuple[Span, Span]
"""Attention of one layer: where the GPU has the layer, and where the cores have it."""
Where = Callable[[Span, Span], Span]
"""What is done of two ways: the cores compute experts in DRAM, or they come to the GPU."""
FASTER = 2.0
"""Place of `faster` in the choices."""

CHUNK = Knob(
    "prompt tokens that pass the layers together (llama.cpp's --ubatch-size, 512 by default)",
    low=1,
    high=1 << 20,
    default=512,
    kind="count",
)
NUMA = Knob(
    "experts of several sockets: interleaved, where each reads the others' memory, or a copy each",
    high=1,
    default=0,
    kind="choice",
    choices=("remote", "copies"),
)
READS = Knob(
    "how experts are read from drives: past the page cache or through it",
    high=1,
    default=0,
    kind="choice",
    choices=("direct", "page-cache"),
)
CACHE = Knob(
    "memory that holds the KV cache; attention is where it lies",
    high=1,
    default=0,
    kind="choice",
    choices=("gpu", "host"),
)
EXPERTS = Knob(
    "whether a step has experts in DRAM computed by the cores or streamed to the GPU",
    high=1,
    kind="choice",
    choices=("cpu", "stream"),
)
PROMPTS = Knob(
    "the same of prompts; faster: whichever takes less for a chunk",
    high=2,
    default=FASTER,
    kind="choice",
    choices=("cpu", "stream", "faster"),
)


# --- what lies where ----------------------------------------------------------------------------


def has_experts(llm: LLM) -> Real:
    """1 where any layer has experts, 0 where all are dense [1]."""
    return llm.most_of_a_layer(lambda layer_type: layer_type.is_moe)


def movable_bytes(llm: LLM) -> Real:
    """What need not be on the GPU: the routed experts, of a dense model all its layers [B]."""
    experts = llm.sum_over_layers(
        lambda kind: kind.is_moe * kind.experts * kind.expert_parameters * kind.weight_width
    )
    layers = llm.sum_over_layers(lambda kind: kind.layer_bytes(kind.experts))
    return np.where(has_experts(llm), experts, layers)[()]


def room_in_dram(hw: Machine, llm: LLM, copies: Real, beside: Real) -> Real:
    """Share of what is movable that DRAM holds beside other contents [1].

    Args:
        copies: of each expert, one a socket or one in all [1].
        beside: other contents [B].
    """
    free = np.maximum(hw.host.count * hw.host.memory - beside, 0.0)
    return free / (copies * np.maximum(movable_bytes(llm), 1.0))


def held_share(hw: Machine, llm: LLM, share: Real, room: Real) -> Real:
    """Share of what is movable that GPU memory and DRAM hold; drives, if any, have the rest [1].

    Args:
        share: on the GPU, of DRAM where both are one memory [1].
        room: in DRAM [1].
    """
    if "ssd" not in hw.roles:
        return 1.0
    apart = 0.0 if is_unified(hw) else share
    held = np.minimum(apart + room, 1.0)
    return np.where(has_experts(llm), held, 1.0)[()]


def expert_breaks(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]
) -> list[Real]:
    """Shares on the GPU between which amounts are affine.

    DRAM may hold all other experts from one share on; with a skewed router each expert more on
    the GPU, or in DRAM, takes fewer choices than the one before.
    """
    cores = Cores(hw, remote=1 - knobs.get("numa", 0.0))
    beside = knobs.get("cache", 0.0) * llm.kv_cache_bytes(work.batch, work.final)
    room = room_in_dram(hw, llm, cores.copies, beside)
    if not np.any(llm.router_skew):
        return [1 - room]
    experts = llm.most_of_a_layer(lambda kind: kind.experts)
    ranks = range(1, int(np.max(experts)))
    on_gpu = [rank / experts for rank in ranks]
    return [1 - room, *on_gpu, *(share - room for share in on_gpu)]


GPU_EXPERTS = Knob(
    "share of the routed experts in GPU memory, the most chosen; of a dense model, of its layers",
    breaks=expert_breaks,
)


def stated(choice: Real) -> Where:
    """The way that is stated: 0 the cores compute, 1 experts come to the GPU."""

    def where(computed: Span, streamed: Span) -> Span:
        return serial(
            computed=np.equal(choice, 0) * 1.0 * computed,
            streamed=np.equal(choice, 1) * 1.0 * streamed,
        )

    return where


def stated_or_faster(choice: Real) -> Where:
    """The way that is stated, or 2 the one that takes less."""

    def where(computed: Span, streamed: Span) -> Span:
        either = faster(computed=computed, streamed=streamed)
        is_open = np.equal(choice, FASTER) * 1.0
        return serial(stated=stated(choice)(computed, streamed), faster=is_open * either)

    return where


@dataclass(frozen=True)
class Offload:
    """A model divided between a GPU, DRAM and drives.

    Attributes:
        hw, llm, work: what runs where.
        cores: of the host.
        share: g, of the experts that the GPU holds [1].
        cache: 1 where the KV cache is in DRAM, 0 where the GPU has it [1].
    """

    hw: Machine
    llm: LLM
    work: Workload
    cores: Cores
    share: Real
    cache: Real

    @property
    def on_cores(self) -> Real:
        """Share of the layers that are on the cores as a whole: none of an MoE [1]."""
        return (1 - has_experts(self.llm)) * (1 - self.share)

    @property
    def held(self) -> Real:
        """Share of what is movable in GPU memory and DRAM [1]."""
        beside = self.cache * self.llm.kv_cache_bytes(self.work.batch, self.work.final)
        room = room_in_dram(self.hw, self.llm, self.cores.copies, beside)
        return held_share(self.hw, self.llm, self.share, room)

    # --- one layer --------------------------------------------------------------------------

    def layer(
        self, llm: LLM, tokens: Real, passes: Real, where: Where, attend: Attend
    ) -> Span:
        """One layer over some tokens.

        Args:
            llm: a model whose layers are all like it.
            tokens: computed [1].
            passes: equal parts of them, each of which reads the weights [1].
            where: experts in DRAM are computed.
            attend: attention of these tokens.
        """
        beside_gpu, beside_cores = attend
        on_gpu = serial(attention=beside_gpu, products=self.dense(llm, tokens, passes))
        on_cores = self.cores.dense(llm, tokens, passes, beside_cores)
        return serial(
            gpu=scaled(on_gpu, 1 - self.on_cores),
            experts=self.experts(llm, tokens, passes, where),
            cores=scaled(on_cores, self.on_cores),
        )

    def dense(self, llm: LLM, tokens: Real, passes: Real) -> Span:
        """Products of one layer on the GPU that every token needs."""
        gpus = kernels(self.hw, llm, llm.operands[1])
        layer = without_experts(llm)
        weights = passes * layer.layer_weight_bytes(tokens / passes)
        launch = Port("gpu.launch", "wait", 1.0, "s")
        layers = passes * np.minimum(tokens, 1.0) * (1 + llm.is_moe)
        return serial(
            products=overlap(
                weights=gpus.read(weights, "weights once a pass"),
                compute=layer_compute(
                    layer, tokens, 0.0, gpus, "2 FLOPs a weight and token"
                ),
            ),
            launch=launch(layers * self.hw.gpu.launch, "kernels of a layer"),
        )

    def experts(self, llm: LLM, tokens: Real, passes: Real, where: Where) -> Span:
        """The routed experts of one layer.

        Engines divide them by layers, so GPU and cores take turns.
        """
        beyond = self.share * llm.experts
        missed = self.cores.from_drives(llm, tokens, passes, self.held * llm.experts)
        elsewhere = llm.distinct_experts(1.0, beyond) / llm.active_experts
        products = grouped_products(self.hw, llm, tokens, passes)
        layers = passes * np.minimum(tokens, 1.0)
        computed = serial(
            cores=self.cores.experts(llm, tokens, passes, beyond),
            gpu=scaled(products, 1 - elsewhere),
            hand_over=self.hand_over(llm, tokens, elsewhere),
            launch=scaled(self.cores.launch(layers), 1 - self.share),
        )
        loaded = serial(load=self.load(llm, tokens, passes, beyond), products=products)
        return llm.is_moe * serial(drives=missed, products=where(computed, loaded))

    def load(self, llm: LLM, tokens: Real, passes: Real, beyond: Real) -> Span:
        """Experts in use that the GPU does not hold come to it."""
        amount = llm.is_moe * expert_bytes(llm, tokens, passes, beyond)
        dram = processor(self.hw, NATIVE).read
        lanes = link(self.hw, "gpu_link", "pcie")
        return stream(amount, "experts in use", dram=dram, link=lanes.inward)

    def hand_over(self, llm: LLM, tokens: Real, elsewhere: Real) -> Span:
        """Hidden states to the cores and their results back."""
        lanes = link(self.hw, "gpu_link", "pcie")
        states = elsewhere * tokens * llm.hidden * llm.activation_width
        return serial(
            out=lanes.outward(states, "hidden states"), back=lanes.inward(states, "results")
        )

    # --- attention --------------------------------------------------------------------------

    @property
    def attention_kernel(self) -> Port:
        """Products of attention on the GPU, with the softmax between them [FLOP]."""
        rate = self.hw.gpu.flops * self.hw.derate.prefill_attention
        return Port("gpu.tensor", "run", rate, "FLOP")

    def step_attention(self, llm: LLM) -> Attend:
        """Attention of a step, on the GPU and on the cores."""
        b, s = self.work.batch, self.work.context
        rate = self.hw.gpu.bandwidth * self.hw.derate.decode_attention
        read = Port("gpu.hbm", "read", rate)
        on_gpu = overlap(
            read=read(llm.cache_traffic(b, s), "KV cache"),
            compute=self.attention_kernel(llm.attention_flops(b, s), "4 b s H d"),
        )
        on_cores = self.cores.attention(llm, b, s)
        lanes = link(self.hw, "gpu_link", "pcie")
        in_dram = serial(exchange=exchange_with_cpu(llm, b, lanes), attend=on_cores)
        where = serial(gpu=(1 - self.cache) * on_gpu, host=self.cache * in_dram)
        return where, on_cores

    def prompt_attention(self, llm: LLM) -> Attend:
        """Causal attention of all prompts; K and V leave the GPU where DRAM holds the cache."""
        b, prompt = self.work.batch, self.work.prompt
        lanes = link(self.hw, "gpu_link", "pcie")
        leaving = self.cache * llm.kv_bytes(b, prompt)
        on_gpu = overlap(
            compute=self.attention_kernel(
                llm.prefill_attention_flops(b, prompt), "2 b s^2 H d"
            ),
            cache=lanes.outward(leaving, "K and V to DRAM"),
        )
        return on_gpu, self.cores.prompt_attention(llm, b, prompt)

    # --- all layers -------------------------------------------------------------------------

    def head(self) -> Span:
        """Logits of one token of each sequence, on the GPU."""
        return output_head(self.llm, self.work.batch, kernels(self.hw, self.llm, 2.0))

    def contents(self, tokens: Real) -> tuple[dict[str, Real], dict[str, Real], Real]:
        """What GPU memory, DRAM and drives hold [B].

        Args:
            tokens: of prompts that pass the layers together [1].
        """
        llm, work = self.llm, self.work
        movable, cache = movable_bytes(llm), llm.kv_cache_bytes(work.batch, work.final)
        in_dram = np.maximum(self.on_cores, self.cache)
        on_gpu = {
            "weights": llm.weight_bytes - movable,
            "experts": self.share * movable,
            "KV cache": (1 - in_dram) * cache,
            "activations": llm.activation_bytes(tokens),
            "recurrent states": llm.all_state_bytes(work.batch),
        }
        resident = (self.held - self.share) * movable
        in_host = {"experts": self.cores.copies * resident, "KV cache": in_dram * cache}
        return on_gpu, in_host, (1 - self.held) * movable

    @property
    def crossover(self) -> Real:
        """Tokens from which on streaming experts is faster than the cores [1].

        t where 2 k P t (1 / R_cores - 1 / R_gpu) equals the bytes of the experts in use over the
        link; infinite where the cores are no slower.
        """
        llm = self.llm
        flops = 2 * llm.active_experts * llm.expert_parameters
        cores = processor(self.hw, llm.weight_width).run
        _, operand = llm.operands
        gpus = kernels(self.hw, llm, operand).products(operand)
        gain = np.maximum(1 / cores.rate - 1 / gpus.rate, 0.0)
        dram, lanes = processor(self.hw, NATIVE).read, link(self.hw, "gpu_link", "pcie")
        arriving = np.minimum(dram.rate, lanes.inward.rate)
        tokens: Real = np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(3):  # from all experts on, fewer are in use
                loaded = expert_bytes(llm, tokens, 1.0) / arriving
                tokens = np.divide(loaded, flops * gain)
        return tokens


def memories(
    hw: Machine, on_gpu: Mapping[str, Real], in_host: Mapping[str, Real], stored: Real
) -> Fits:
    """Bytes needed and available; where the GPU shares the host's memory, that holds both.

    Args:
        on_gpu, in_host: bytes by content [B].
        stored: on drives, where the machine has any [B].
    """
    shared = {f"GPU's {name}": amount for name, amount in on_gpu.items() if is_unified(hw)}
    return fits(
        gpu=(on_gpu, gpu(hw).memory),
        host=({**in_host, **shared}, hw.host.count * hw.host.memory),
        **drive(hw, stored),
    )


def drive(hw: Machine, stored: Real) -> dict[str, tuple[Contents, Real]]:
    """Bytes that drives hold and can hold, where the machine has any."""
    if "ssd" not in hw.roles:
        return {}
    return {"ssd": ({"experts": stored}, drives(hw, "ssd").capacity)}


# --- the systems --------------------------------------------------------------------------------


@system(
    "expert-offload",
    platform="workstation-5090",
    cite="ktransformers",
    owns=("gpu", "host", "ssd"),
    attends=tuple(LAYER_CLASS),
    knobs={
        "gpu_experts": GPU_EXPERTS,
        "experts": EXPERTS,
        "prompts": PROMPTS,
        "cache": CACHE,
        "chunk": CHUNK,
        "numa": NUMA,
        "reads": READS,
    },
)
def expert_offload(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    gpu_experts: Real,
    experts: Real,
    prompts: Real,
    cache: Real,
    chunk: Real,
    numa: Real,
    reads: Real,
) -> Estimate:
    """Attention and what every token needs on the GPU, routed experts there, in DRAM or on drives.

    Experts in DRAM are computed by the cores beside those of the GPU, or come over the link. A
    dense model has whole layers on the GPU and the others on the cores. Several GPUs each have
    their own layers, so their memories add up and one works at a time.

    Args:
        hw: roles gpu, gpu_link, host; ssd and ssd_link where experts may lie on drives.
        llm, work: what runs.
        gpu_experts: g, share of the experts in GPU memory, or of a dense model's layers [1].
        experts: 0 the cores compute those in DRAM in a step, 1 they come to the GPU.
        prompts: the same of prompts, 2 whichever is faster.
        cache: 0 KV cache and attention on the GPU, 1 both beside DRAM.
        chunk: prompt tokens that pass the layers together [1].
        numa: 0 sockets read each other's memory, 1 each has a copy of the experts.
        reads: 0 drives are read past the page cache, 1 through it.

    Returns:
        Prefill, one decode step and what fits; the crossover in tokens as a column.
        Source: KTransformers, sec. 3; llama.cpp, `--n-cpu-moe`, `-ngl` (no equations).
    """
    single = hw.with_values({"gpu.count": 1.0, "gpu_link.count": 1.0})
    cores = Cores(single, remote=1 - numa, cached=reads)
    placed = Offload(single, llm, work, cores, gpu_experts, cache)
    b, tokens = work.batch, work.batch * work.prompt
    passes = np.maximum(np.ceil(tokens / chunk), 1.0)
    head = placed.head()
    return Estimate(
        prefill=serial(
            layers=over_layers(
                llm,
                lambda kind: placed.layer(
                    kind,
                    tokens,
                    passes,
                    stated_or_faster(prompts),
                    placed.prompt_attention(kind),
                ),
            ),
            head=head,
        ),
        step=serial(
            layers=over_layers(
                llm,
                lambda kind: placed.layer(
                    kind, b, 1.0, stated(experts), placed.step_attention(kind)
                ),
            ),
            head=head,
        ),
        fits=memories(hw, *placed.contents(np.minimum(tokens, chunk))),
        work=work,
        batch_run=b,
        also={"crossover_tok": placed.crossover},
    )


@system(
    "cpu-only",
    platform="workstation-5090",
    cite="ktransformers",
    owns=("host", "ssd"),
    attends=tuple(LAYER_CLASS),
    knobs={"chunk": CHUNK, "numa": NUMA, "reads": READS},
)
def cpu_only(
    hw: Machine, llm: LLM, work: Workload, *, chunk: Real, numa: Real, reads: Real
) -> Estimate:
    """All layers on the cores of the host, experts in DRAM or on drives; no GPU.

    Args:
        hw: role host; ssd and ssd_link where experts may lie on drives.
        llm, work: what runs.
        chunk, numa, reads: as of `expert_offload`.

    Returns:
        Prefill, one decode step and what fits.
        Source: KTransformers, sec. 3; llama.cpp, `-ngl 0` (no equations).
    """
    cores = Cores(hw, remote=1 - numa, cached=reads)
    b, s, tokens = work.batch, work.context, work.batch * work.prompt
    passes = np.maximum(np.ceil(tokens / chunk), 1.0)
    in_host = {
        "weights": cores.copies * (llm.weight_bytes - movable_bytes(llm)),
        "KV cache": llm.kv_cache_bytes(b, work.final),
        "recurrent states": llm.all_state_bytes(b),
        "activations": llm.activation_bytes(np.minimum(tokens, chunk)),
    }
    room = room_in_dram(hw, llm, cores.copies, total(in_host.values()))
    held = held_share(hw, llm, 0.0, room)
    in_host["experts"] = cores.copies * held * movable_bytes(llm)

    def layer(kind: LLM, tokens: Real, passes: Real, attention: Span) -> Span:
        return serial(
            dense=cores.dense(kind, tokens, passes, attention),
            drives=cores.from_drives(kind, tokens, passes, held * kind.experts),
            experts=cores.experts(kind, tokens, passes),
        )

    def prefill(kind: LLM) -> Span:
        return layer(kind, tokens, passes, cores.prompt_attention(kind, b, work.prompt))

    def decode(kind: LLM) -> Span:
        return layer(kind, b, 1.0, cores.attention(kind, b, s))

    head = cores.head(llm, b)
    return Estimate(
        prefill=serial(layers=over_layers(llm, prefill), head=head),
        step=serial(layers=over_layers(llm, decode), head=head),
        fits=fits(
            host=(in_host, hw.host.count * hw.host.memory),
            **drive(hw, (1 - held) * movable_bytes(llm)),
        ),
        work=work,
        batch_run=b,
    )
