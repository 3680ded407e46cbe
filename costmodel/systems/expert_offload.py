"""Experts in DRAM or on drives beside a GPU that has all else, and no GPU at all.

Source: KTransformers (SOSP 2025), sec. 3; llama.cpp, `--n-cpu-moe`, `-ngl`; Fiddler (ICLR 2025),
sec. 3.2: each batch of tokens is computed where it takes least.

Symbols: b batch, s context, t tokens, E experts, k active experts, g share of them on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from nearkv.costmodel.algebra.blend import scaled
from nearkv.costmodel.algebra.span import (
    FASTER,
    ByName,
    Port,
    Real,
    Span,
    choose,
    either,
    overlap,
    serial,
    stream,
    total,
    wait,
)
from nearkv.costmodel.mechanisms.cpu_layer import (
    NATIVE_BYTES,
    Cores,
    TokenChunks,
    expert_bytes,
    processor,
    where_pages_lie,
)
from nearkv.costmodel.mechanisms.gpu_layer import (
    launches,
    layer_compute,
    output_head,
    prompt_attention_flops,
    prompt_kernel,
    unmeasured_kernels,
)
from nearkv.costmodel.mechanisms.prompt_chunks import PREFIX
from nearkv.costmodel.mechanisms.serving.experts import (
    MOVES,
    grouped_products,
    kernels,
    without_experts,
)
from nearkv.costmodel.mechanisms.serving.split import GpuSplit
from nearkv.costmodel.mechanisms.weights.cpu_attention import exchange_with_cpu
from nearkv.costmodel.mechanisms.weights.streaming import DataPath
from nearkv.costmodel.model.estimate import Contents, Estimate, Fits, fits
from nearkv.costmodel.model.layers import LAYER_CLASS, over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, choice, system
from nearkv.costmodel.model.resources import drives, gpu, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

LayerTime = Callable[[LLM], Span]
"""One layer of a type."""
SEVERAL = "a batch of several requests; one is usual here: --batch 1"
UNPACKED = "weights of 16 bits; packed ones are usual here: --set precision.weight=q4_k_m"
TAKE_TURNS = "each GPU has layers of its own and they take turns, as in llama.cpp"
INTEGERS = (
    "cores multiply 8 bits as integers; FP8 is unpacked for vector units: --set "
    "host.ops_cycle=128, as AVX-512 makes in BF16"
)
SMALL_CHUNKS = (
    "chunks of a prompt are below crossover_tok (faster: --knob chunk=8192, or 0 for all)"
)
OUTPACED = "drives read faster than ssd_link carries; a faster link would be faster"
Attend = tuple[Span, Span, Span]
"""Attention of one layer that the GPU has, that the cores have, and whose weights are streamed."""


def tokens_of_engine(hw: Machine, llm: LLM, work: Workload, stated: ByName) -> Real:
    """Tokens of a prompt that the engine takes together by default [1]."""
    return hw.engine.chunk


CHUNK = Knob(
    "prompt tokens that pass the layers together (llama.cpp: --ubatch-size); 0: all",
    high=1 << 20,
    default="engine",
    kind="count",
    rules={"engine": tokens_of_engine},
)
NUMA = choice(
    "pages of weights: over all sockets, which read each other's; a copy on each; all on one",
    ("remote", "copies", "one"),
)
READS = choice(
    "drives are read past the page cache, or through it", ("direct", "page-cache")
)
CACHE = choice("memory of the KV cache; attention is where it lies", ("gpu", "host"))
EXPERTS = choice(
    "what lies in DRAM: computed by the cores in a step, or streamed to the GPU",
    ("cpu", "stream"),
    default="auto",
)
PROMPT_EXPERTS = choice(
    "the same under prompts; engine: by engine.stream_from; faster: whichever takes less",
    ("cpu", "stream", "engine", "faster"),
    default=2,
)
_ENGINE, _FASTER = 2.0, 3.0
"""Places of the engine's own path, and of the faster one, among those of `PROMPT_EXPERTS`."""


# --- what lies where ----------------------------------------------------------------------------


def has_experts(llm: LLM) -> Real:
    """1 where any layer has experts, 0 where all are dense [1]."""
    return llm.most_of_a_layer(lambda kind: kind.is_moe)


def movable_bytes(llm: LLM) -> Real:
    """Bytes that may leave the GPU: the routed experts, of a dense model all its layers [B]."""
    experts = llm.sum_over_layers(
        lambda kind: kind.is_moe * kind.experts * kind.expert_parameters * kind.weight_width
    )
    layers = llm.sum_over_layers(lambda kind: kind.layer_bytes(kind.experts))
    return choose(has_experts(llm), experts, layers)


def dram(hw: Machine) -> Real:
    """DRAM that the system leaves to programs [B]."""
    return hw.host.count * hw.host.memory * hw.host.usable


def room_in_dram(hw: Machine, llm: LLM, copies: Real, beside: Real) -> Real:
    """Share of what is movable that DRAM has room for beside other contents [1].

    All of it where it cannot lie on drives: of a dense model, or where there are none.

    Args:
        copies: of each expert, one a socket or one in all [1].
        beside: other contents [B].
    """
    free = np.maximum(dram(hw) - beside, 0.0)
    room = free / (copies * np.maximum(movable_bytes(llm), 1.0))
    on_drives = has_experts(llm) * ("ssd" in hw.roles)
    return choose(on_drives, room, 1.0)


def expert_breaks(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> list[Real]:
    """Shares on the GPU between which amounts are affine.

    DRAM holds all other experts from one share on; with a skewed router each group of experts on
    the GPU, or in DRAM, takes fewer choices than the one before.
    """
    hw = where_pages_lie(hw, knobs["numa"])
    copies = Cores(hw, knobs["numa"]).copies
    cache = knobs["cache"] * llm.kv_cache_bytes(work.batch, work.final)
    room = room_in_dram(hw, llm, copies, cache)
    if not np.any(llm.router_skew):
        return [1 - room]
    experts = llm.most_of_a_layer(lambda kind: kind.experts)
    groups = range(1, int(np.frexp(np.max(experts))[1]))
    on_gpu = [(2.0**group - 1) / experts for group in groups]
    return [1 - room, *on_gpu, *(share - room for share in on_gpu)]


GPU_EXPERTS = Knob(
    "share of the routed experts in GPU memory, the most chosen; of a dense model, of its layers",
    breaks=expert_breaks,
    faster_of="prompts",
)


STREAMED_FROM = Reversal(
    ("prefill_s", "total_s"),
    ("batch", "context"),
    "from some tokens on an engine brings the experts of a prompt to the GPU, which may take less",
)


HOST_OUTPACES = Reversal(
    ("prefill_s", "total_s"),
    ("host.bandwidth", "host.count", "host.cores", "host.clock"),
    "a host that outpaces the GPU in steps takes layers from it, which prompts then miss",
)


def memories(
    hw: Machine, stored: Real, in_host: Contents, **others: tuple[Contents, Real]
) -> Fits:
    """Bytes in DRAM, on drives where there are any, and in other memories [B].

    Where GPU and host share one memory, what lies in both must fit it.
    """
    held = {**others, "host": (in_host, dram(hw))}
    if "gpu" in others and "pool" in hw.gpu:
        on_gpu, _ = others["gpu"]
        together = {**on_gpu, "of the host": total(in_host.values())}
        held["both"] = (together, hw.gpu.pool * hw.host.usable)
    if "ssd" in hw.roles:
        held["ssd"] = ({"experts": stored}, drives(hw, "ssd").capacity)
    return fits(**held)


# --- beside a GPU -------------------------------------------------------------------------------


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
        cache = self.cache * self.llm.kv_cache_bytes(self.work.batch, self.work.final)
        room = room_in_dram(self.hw, self.llm, self.cores.copies, cache)
        return np.minimum(self.share + room, 1.0)

    def layer(self, llm: LLM, work: TokenChunks, choice: Real, attend: Attend) -> Span:
        """One layer over some tokens.

        Args:
            llm: a model whose layers are all like it.
            work: what passes the layer.
            choice: 0 the cores compute what lies in DRAM, 1 it is streamed, 2 as the engine
                does, 3 the faster.
            attend: attention of these tokens.
        """
        from_tokens = self.hw.engine.maybe("stream_from", np.inf)
        is_streamed = work.each >= from_tokens
        apart = np.where(choice == _ENGINE, is_streamed, choice)
        choice = choose(choice == _FASTER, FASTER, apart)
        beside_gpu, beside_cores, beside_link = attend
        products = self.dense(llm, work)
        on_gpu = serial(attention=beside_gpu, products=products)
        on_cores = self.cores.dense(llm, work, beside_cores)
        weights = work.count * llm.layer_weight_bytes(work.each)
        load = stream(weights, "weights of a layer", **self.path)
        streamed = serial(load=load, attention=beside_link, products=products)
        return serial(
            gpu=scaled(on_gpu, 1 - self.on_cores),
            experts=self.experts(llm, work, choice),
            cores=scaled(either(choice, on_cores, streamed), self.on_cores),
        )

    def dense(self, llm: LLM, work: TokenChunks) -> Span:
        """Products of one layer on the GPU that every token needs."""
        gpus = kernels(self.hw, llm, llm.operands[1])
        layer, eq = without_experts(llm), "2 FLOPs a weight and token"
        weights = work.count * layer.layer_weight_bytes(work.each)
        chains = work.begun * (1 + llm.is_moe) * launches(self.hw, llm)
        return serial(
            products=overlap(
                weights=gpus.read(weights, "weights once a pass"),
                compute=layer_compute(layer, work.tokens, 0.0, gpus, eq),
            ),
            launch=wait(
                "gpu.launch",
                chains * self.hw.gpu.launch_alone,
                "kernels of a layer, one by one",
            ),
        )

    def experts(self, llm: LLM, work: TokenChunks, choice: Real) -> Span:
        """The routed experts of one layer.

        Engines divide them by layers, so GPU and cores take turns. Kernels of llama.cpp multiply
        the rows there are, without tiles (ggml-cuda, `mmvq.cu`, `mmq.cu`).
        """
        beyond = self.share * llm.experts
        elsewhere = llm.distinct_experts(1.0, beyond) / llm.active_experts
        whole = GpuSplit(self.hw.gpu.count, 1.0)
        products = grouped_products(self.hw, llm, whole, work.tokens, work.count, tiles=())
        computed = serial(
            cores=self.cores.experts(llm, work, beyond),
            gpu=scaled(products, 1 - elsewhere),
            launch=self.cores.launch(work.begun * (1 - self.share)),
        )
        loaded = expert_bytes(llm, work, beyond)
        streamed = serial(
            load=stream(loaded, "experts in use", **self.path), products=products
        )
        return llm.is_moe * serial(
            drives=self.cores.from_drives(llm, work, self.held),
            products=either(choice, computed, streamed),
        )

    @property
    def path(self) -> DataPath:
        """The ports from DRAM to the GPU."""
        lanes = link(self.hw, "gpu_link", "pcie")
        return {"dram": processor(self.hw, NATIVE_BYTES).read, "link": lanes.inward}

    def step_attention(self, llm: LLM) -> Attend:
        """Attention of a step, where the cache of the GPU's layers lies and on the cores."""
        b, s = self.work.batch, self.work.context
        rate = self.hw.gpu.bandwidth * self.hw.gpu.decode_attention
        read = Port("gpu.hbm", "read", rate)
        on_gpu = overlap(
            read=read(llm.cache_traffic(b, s), "KV cache"),
            compute=prompt_kernel(self.hw, llm)(llm.attention_flops(b, s), "4 b s H d"),
        )
        on_cores = self.cores.attention(llm, b, s)
        exchange = exchange_with_cpu(llm, b, link(self.hw, "gpu_link", "pcie"))
        beside_dram = serial(exchange=exchange, attend=on_cores)
        return either(self.cache, on_gpu, beside_dram), on_cores, beside_dram

    def prompt_attention(self, llm: LLM) -> Attend:
        """Causal attention of all prompts, on the GPU and on the cores."""
        work = self.work
        flops = prompt_attention_flops(llm, work.batch, work.prompt, work.before)
        on_gpu = prompt_kernel(self.hw, llm)(flops, "2 b s^2 H d")
        return on_gpu, self.cores.prompt_attention(llm, work), on_gpu

    def capacity_check(self, gpu_memory: Real, tokens: Real) -> Fits:
        """Bytes in GPU memory, in DRAM and on drives.

        Args:
            gpu_memory: of all GPUs [B].
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
        resident = self.cores.copies * (self.held - self.share) * movable
        in_host = {"experts": resident, "KV cache": in_dram * cache}
        stored = (1 - self.held) * movable
        return memories(self.hw, stored, in_host, gpu=(on_gpu, gpu_memory))

    @property
    def crossover(self) -> Real:
        """Tokens from which on streaming experts is faster than the cores [1].

        t where 2 k P t (1 / R_cores - 1 / R_gpu), less what gathering t tokens takes, equals the
        bytes of the experts in use over the link; infinite where the cores are no slower.
        """
        llm = self.llm
        flops = 2 * llm.active_experts * llm.expert_parameters
        _, operand = llm.operands
        gpus = kernels(self.hw, llm, operand).products(operand)
        cores = processor(self.hw, llm.weight_width).run
        moved = MOVES * llm.active_experts * llm.hidden * llm.activation_width
        gather = moved / gpu(self.hw).read.rate
        gain = np.maximum(flops / cores.rate - flops / gpus.rate - gather, 0.0)
        arriving = reduce(np.minimum, [port.rate for port in self.path.values()])
        tokens: Real = np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(3):  # from all experts on, fewer are in use
                loaded = expert_bytes(llm, TokenChunks(tokens)) / arriving
                tokens = np.divide(loaded, gain)
        return tokens


# --- the systems --------------------------------------------------------------------------------


@system(
    "expert-offload",
    platform="workstation-5090",
    cite="ktransformers",
    installable=True,
    technology="GPU memory",
    owns=("gpu", "host", "ssd"),
    several_gpus=True,
    attends=tuple(LAYER_CLASS),
    knobs={
        "gpu_experts": GPU_EXPERTS,
        "experts": EXPERTS,
        "prompts": PROMPT_EXPERTS,
        "cache": CACHE,
        "chunk": CHUNK,
        "numa": NUMA,
        "reads": READS,
        "prefix": PREFIX,
    },
    reversals=(HOST_OUTPACES, STREAMED_FROM),
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

    Experts in DRAM are computed by the cores, or come over the link. A dense model has whole layers
    on the GPU and in DRAM. Several GPUs each have their own layers, so their
    memories add up and one works at a time.

    Args:
        hw: roles gpu, gpu_link, host; ssd and ssd_link where experts may lie on drives.
        llm, work: what runs.
        gpu_experts: g, share of the experts in GPU memory, or of a dense model's layers [1].
        experts: 0 the cores compute those in DRAM in a step, 1 they come to the GPU.
        prompts: the same of prompts, 2 as the engine does, 3 whichever is faster.
        cache: 0 KV cache and attention on the GPU, 1 both beside DRAM.
        chunk: prompt tokens that pass the layers together, 0 all [1].
        numa: 0 sockets read each other's memory, 1 each has a copy of the experts, 2 one has all.
        reads: 0 drives are read past the page cache, 1 through it.

    Returns:
        Prefill, one decode step and what fits; the crossover in tokens as a column.
        Source: KTransformers, sec. 3; llama.cpp, `--n-cpu-moe`, `-ngl` (no equations).
    """
    hw = where_pages_lie(hw, numa)
    one_gpu = hw.with_values({"gpu.count": 1.0, "gpu_link.count": 1.0})
    cores = Cores(one_gpu, numa, cached=reads)
    placed = Offload(one_gpu, llm, work, cores, gpu_experts, cache)
    b, tokens = work.batch, work.batch * work.prompt
    chunk = choose(chunk > 0, chunk, np.maximum(tokens, 1.0))

    def prefill(kind: LLM) -> Span:
        attention = placed.prompt_attention(kind)

        def layer(part: TokenChunks, share: Real) -> Span:
            on_gpu, on_cores, streamed = (scaled(span, share) for span in attention)
            return placed.layer(kind, part, prompts, (on_gpu, on_cores, streamed))

        return in_chunks(tokens, chunk, layer)

    def decode(kind: LLM) -> Span:
        return placed.layer(kind, TokenChunks(b), experts, placed.step_attention(kind))

    head = output_head(llm, b, kernels(one_gpu, llm, NATIVE_BYTES))
    engine = hw.engine
    of_gpus = engine.paged_memory * gpu(hw).memory - hw.gpu.count * engine.reserved
    held = placed.capacity_check(of_gpus, np.minimum(tokens, chunk))
    answer = estimate(hw, llm, work, prefill, decode, head, held)
    crossover = placed.crossover
    may_stream = np.greater(prompts, 0) & np.less(gpu_experts, 1)
    is_small = np.less(chunk, crossover) & np.less(crossover, tokens)
    return replace(
        answer,
        notes={**answer.notes, SMALL_CHUNKS: may_stream & is_small},
        columns={
            "crossover_tok": crossover,
            "expert_hit_share": cores.hit_share(llm, TokenChunks(b), placed.held),
        },
        attention={"gpu": 1 - cache, "host": cache},
    )


@system(
    "cpu-only",
    variant_of="expert-offload",
    technology="host memory",
    owns=("host", "ssd"),
    reversals=(),
    knobs={"chunk": CHUNK, "numa": NUMA, "reads": READS, "prefix": PREFIX},
)
def cpu_only(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    chunk: Real,
    numa: Real,
    reads: Real,
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
    hw = where_pages_lie(hw, numa)
    cores = Cores(hw, numa, cached=reads)
    b, s, tokens = work.batch, work.context, work.batch * work.prompt
    chunk = choose(chunk > 0, chunk, np.maximum(tokens, 1.0))
    movable = movable_bytes(llm)
    in_host = {
        "weights": cores.copies * (llm.weight_bytes - movable),
        "KV cache": llm.kv_cache_bytes(b, work.final),
        "recurrent states": llm.all_state_bytes(b),
        "activations": llm.activation_bytes(np.minimum(tokens, chunk)),
    }
    room = room_in_dram(hw, llm, cores.copies, total(in_host.values()))
    held = np.minimum(room, 1.0)
    in_host["experts"] = cores.copies * held * movable

    def prefill(kind: LLM) -> Span:
        attention = cores.prompt_attention(kind, work)

        def layer(part: TokenChunks, share: Real) -> Span:
            return cores.layer(kind, part, scaled(attention, share), held)

        return in_chunks(tokens, chunk, layer)

    def decode(kind: LLM) -> Span:
        return cores.layer(kind, TokenChunks(b), cores.attention(kind, b, s), held)

    in_memory = memories(hw, (1 - held) * movable, in_host)
    answer = estimate(hw, llm, work, prefill, decode, cores.head(llm, b), in_memory)
    hits = cores.hit_share(llm, TokenChunks(b), held)
    return replace(answer, columns={"expert_hit_share": hits}, attention={"host": 1.0})


def estimate(
    hw: Machine,
    llm: LLM,
    work: Workload,
    prefill: LayerTime,
    decode: LayerTime,
    head: Span,
    held: Fits,
) -> Estimate:
    """Prefill and a step of all layers, type by type, and the output head behind them."""
    notes = {
        SEVERAL: np.greater(work.batch, 1),
        UNPACKED: np.greater_equal(llm.weight_width, NATIVE_BYTES),
        INTEGERS: np.equal(llm.weight_width, 1) & (llm.operands[1] == 1),
        **unmeasured_kernels(hw, llm),
    }
    if "gpu" in held.tiers:
        notes[TAKE_TURNS] = np.greater(hw.gpu.count, 1)
    if "ssd" in hw.roles:
        lanes = link(hw, "ssd_link", "pcie").inward.rate
        is_outpaced = np.greater(
            hw.derate.expert_reads * drives(hw, "ssd").read.rate, lanes
        )
        notes[OUTPACED] = is_outpaced & (held.tiers["ssd"][0] > 0)
    return Estimate(
        prefill=serial(layers=over_layers(llm, prefill), head=head),
        step=serial(layers=over_layers(llm, decode), head=head),
        fits=held,
        work=work,
        batch_run=work.batch,
        notes=notes,
    )


def in_chunks(
    tokens: Real, chunk: Real, layer: Callable[[TokenChunks, Real], Span]
) -> Span:
    """One layer of prompts that pass it in chunks, all full but the last.

    Args:
        tokens: of all prompts [1].
        chunk: tokens of a full one [1].
        layer: chunks alike and their share of the tokens -> their time.
    """
    full = np.floor(tokens / chunk)
    rest = tokens - full * chunk
    count, share = np.maximum(full, 1.0), rest / np.maximum(tokens, 1.0)
    return serial(
        full=layer(TokenChunks(full * chunk, count), 1 - share),
        last=layer(TokenChunks(rest), share),
    )
