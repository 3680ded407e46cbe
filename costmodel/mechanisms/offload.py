"""What systems that offload to host memory and storage share: weights streamed layer by layer.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.layers import over_layers
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.resources import Gpu, Host, Link, drives, gpu, host
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

Path = Mapping[str, Port]
"""The ports bytes pass one after the other, by name."""
Load = Callable[[Real], Span]
"""How so many bytes of weights come to the GPU."""


# --- where weights live -----------------------------------------------------------------------


@dataclass(frozen=True)
class Residency:
    """Shares of the weights by the memory they live in; they add up to one.

    Attributes:
        gpu, host, storage: share in GPU memory, in host DRAM, on the drives [1].
    """

    gpu: Real
    host: Real
    storage: Real


def beside_gpu(on_gpu: Real, on_storage: Real) -> Residency:
    """Return shares of weights: some on the GPU, of the others a share on storage.

    Args:
        on_gpu: share of all weights on the GPU [1].
        on_storage: share of the others on storage, the rest in host DRAM [1].
    """
    streamed = 1 - on_gpu
    return Residency(on_gpu, streamed * (1 - on_storage), streamed * on_storage)


def weights_on_storage(hw: Machine, llm: LLM) -> Real:
    """1 where weights live on storage, 0 in DRAM (HILOS sec. 6.1: above 100B parameters) [1]."""
    limit = hw.policy.weights_in_dram_up_to
    exceeds = np.asarray(llm.parameters) > limit
    return np.where(exceeds, 1.0, 0.0)[()]


def weights_on_gpu(llm: LLM, prompt: Real, gpu: Gpu) -> Real:
    """1 where all weights stay on the GPU beside its activations, else 0 (INF² sec. 7.1) [1]."""
    resident = llm.weight_bytes + llm.activation_bytes(prompt)
    return np.where(resident <= gpu.memory, 1.0, 0.0)[()]


# --- weights on their way ---------------------------------------------------------------------


@dataclass(frozen=True)
class WeightStream:
    """The layers of a model on one GPU, each layer's weights coming from where they live.

    Attributes:
        llm: what runs.
        gpu, host, link: the GPU, its host and the link between them.
        home: where the weights live.
        storage: the ports from storage to the host.
    """

    llm: LLM
    gpu: Gpu
    host: Host
    link: Link
    home: Residency
    storage: Path

    def load(self, amount: Real) -> Span:
        """Bring weights to the GPU from host DRAM, or from storage by its own path.

        Args:
            amount: weights, wherever they live [B].
        """
        stored = self.home.storage * amount
        in_dram = self.home.host * amount
        streamed = (1 - self.home.gpu) * amount
        return overlap(
            storage=stream(stored, "weights on storage", **self.storage),
            dram=self.host.read(in_dram, "weights in DRAM"),
            link=self.link.inward(streamed, "weights"),
        )

    def attention_weights(self, tokens: Real) -> Real:
        """W_a: Q, K, V and output matrices of a layer; none for no token [B]."""
        whole = self.llm.attention_parameters * self.llm.attention_width
        return np.minimum(tokens, 1.0) * whole

    def feed_forward_weights(self, tokens: Real) -> Real:
        """W_m: the others that a step over so many tokens uses, of an MoE its experts' [B]."""
        return self.llm.layer_weight_bytes(tokens) - self.attention_weights(tokens)

    def projections(self, tokens: Real) -> Span:
        """Q, K, V and output projections of one layer on the GPU, for tokens of one GPU batch."""
        weights = self.attention_weights(tokens)
        flops = self.llm.qkv_flops(tokens) + self.llm.output_flops(tokens)
        return overlap(
            hbm=self.gpu.read(weights, "weights once a GPU batch"),
            compute=self.gpu.run(flops, "2 FLOPs a weight and token"),
        )

    def feed_forward(self, tokens: Real) -> Span:
        """The feed-forward products of one layer on the GPU, for tokens of one GPU batch."""
        weights = self.feed_forward_weights(tokens)
        flops = self.llm.ffn_flops(tokens)
        return overlap(
            hbm=self.gpu.read(weights, "weights once a GPU batch"),
            compute=self.gpu.run(flops, "2 FLOPs a weight and token"),
        )

    def layer(self, b: Real, **attention: Span) -> Span:
        """One layer of a step over one GPU batch, each half's weights loaded beside the other half.

        Source: FlexGen's loop (`mechanisms.flexgen_loop`), which HILOS and INF² extend; HILOS
        sec. 5: a prefetcher stages weights.

        Args:
            b: sequences [1].
            attention: what the attention half does after its projections, one after the other.
        """
        feed_forward_weights = self.load(self.feed_forward_weights(b))
        attention_weights = self.load(self.attention_weights(b))
        attend = serial(projections=self.projections(b), **attention)
        products = self.feed_forward(b)
        return serial(
            attention=overlap(weights=feed_forward_weights, attend=attend),
            feed_forward=overlap(weights=attention_weights, products=products),
        )

    def all_layers(self, layer: Span, b: Real) -> Span:
        """All layers, then the output head for one token of each of b sequences."""
        return with_head(self.llm, layer, b, self.gpu, self.load)

    def over_kinds(self, layer: Callable[[WeightStream], Span], b: Real) -> Span:
        """All layers kind by kind, then the output head for one token of each of b sequences.

        Args:
            layer: one layer of a kind, given the stream of a model whose layers are all like it.
        """

        def layer_of(kind: LLM) -> Span:
            weights = replace(self, llm=kind)
            return layer(weights)

        layers = over_layers(self.llm, layer_of)
        head = arriving_head(self.llm, b, self.gpu, self.load)
        return serial(layers=layers, head=head)

    def prefill(self, work: Workload, b: Real, **caches: Span) -> Span:
        """All layers over the prompts of b sequences, weights and compute beside the caches."""
        return self.all_layers(self.prefill_layer(work, b, **caches), b)

    def prefill_layer(self, work: Workload, b: Real, **caches: Span) -> Span:
        """One layer over the prompts of b sequences, weights and compute beside the caches."""
        weights = self.llm.layer_weight_bytes(b * work.prompt)
        return overlap(
            weights=self.load(weights),
            compute=prefill_compute(self.llm, work, b, self.gpu),
            **caches,
        )


def with_head(llm: LLM, layer: Span, b: Real, gpu: Gpu, load: Load) -> Span:
    """All layers, then the output head for one token of each of b sequences."""
    head = arriving_head(llm, b, gpu, load)
    return serial(layers=llm.layers * layer, head=head)


def arriving_head(llm: LLM, b: Real, gpu: Gpu, load: Load) -> Span:
    """Logits of one token of each of b sequences beside the loading of the output head."""
    arriving = load(head_weights(llm, b))
    return output_head(llm, b, gpu, weights=arriving)


def output_head(llm: LLM, b: Real, gpu: Gpu, **arriving: Span) -> Span:
    """Logits of one token a sequence.

    Args:
        arriving: how its weights come to the GPU, nothing where they live on it.
    """
    flops = 2 * b * llm.head_parameters
    return overlap(
        **arriving,
        hbm=gpu.read(head_weights(llm, b), "output head"),
        compute=gpu.run(flops, "output head"),
    )


def head_weights(llm: LLM, b: Real) -> Real:
    """Weights of the output head that a step reads; none for no sequence [B]."""
    return np.minimum(b, 1.0) * llm.head_bytes


def prefill_compute(llm: LLM, work: Workload, batch: Real, gpu: Gpu) -> Span:
    """One layer over all prompts: 2 P b s + 2 b s^2 H d FLOPs."""
    linear = llm.linear_flops(batch * work.prompt)
    attention = llm.prefill_attention_flops(batch, work.prompt)
    return gpu.run(linear + attention, "2 P b s + 2 b h s^2")


def gpu_working_set(llm: LLM, prompt: Real, on_gpu: Real = 0.0) -> Real:
    """GPU memory of layer-wise inference, one prompt at a time: weights and activations [B].

    Args:
        prompt: tokens of one prompt [1].
        on_gpu: 1 where all weights stay, 0 where only those on their way do.
    """
    resident = on_gpu * llm.weight_bytes
    passing = (1 - on_gpu) * llm.weight_buffer_bytes()
    return resident + passing + llm.activation_bytes(prompt)


# --- plain drives -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FileStorage:
    """Striped drives behind the host's buffered file path.

    Attributes:
        role: of the drives, for the tables of what fits.
        read: the ports from the flash to host memory.
        write: the ports from the host to the flash.
        capacity: all drives [B].
    """

    role: str
    read: Path
    write: Path
    capacity: Real


def file_storage(hw: Machine, role: str, lanes: Link, host: Host) -> FileStorage:
    """Return the drives of a role behind their link; reads pass the file path, writes do not.

    Where the role states the rate of one file system over all its drives, reads pass that too.
    """
    flash = drives(hw, role)
    read = {"flash": flash.read, "link": lanes.inward, "file": host.file}
    stated = hw[role].values
    if "array_read" in stated:
        read["array"] = Port(f"{role}.array", "move", hw[role].array_read)
    return FileStorage(
        role=role,
        read=read,
        write={"link": lanes.outward, "flash": flash.write},
        capacity=flash.capacity,
    )


# --- the new token, the caches ----------------------------------------------------------------


def exchange(llm: LLM, b: Real, alpha: Real, uplink: Link, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the devices (6h bytes), the attention output back (2h).

    Source: HILOS eq. 3, INF² eq. 3. Of the batch's share `alpha` only X is stored.
    """
    query = llm.query_bytes(b)
    qkv = query + llm.kv_bytes(b, 1)
    new = (1 - alpha) * qkv + alpha * llm.x_bytes(b, 1)
    out = (1 - alpha) * query
    return serial(
        qkv=stream(new, "6h, eq. 3", link=gpu_link.outward, uplink=uplink.outward),
        result=stream(out, "2h, eq. 3", uplink=uplink.inward, link=gpu_link.inward),
    )


def exchange_with_cpu(llm: LLM, b: Real, gpu_link: Link) -> Span:
    """Q, K, V of the new token to the CPU, the attention output back (HILOS fig. 1b)."""
    query = llm.query_bytes(b)
    qkv = query + llm.kv_bytes(b, 1)
    return overlap(
        qkv=gpu_link.outward(qkv, "Q, K, V to the CPU"),
        result=gpu_link.inward(query, "attention output"),
    )


def attend_on_cpu(hw: Machine, llm: LLM, b: Real, s: Real, host: Host) -> Span:
    """Attention of the CPU over K and V of b sequences of s tokens in host memory.

    Widening K and V to 32 bits grows with their bytes; the products and the softmax grow with the
    query heads, so with g queries a KV head each byte takes cpu_copy + (1 - cpu_copy) g times as
    long (FlexGen's `mha_gen`).
    """
    copy = hw.derate.cpu_copy
    times = copy + (1 - copy) * llm.group
    attend = Port("host.dram", "read", host.attend.rate / times)
    kv = llm.kv_bytes(b, s)
    return attend(kv, "CPU attention, HILOS fig. 1b")


def kv_share_in(room: Real, llm: LLM, work: Workload) -> Real:
    """Share of the KV cache that so much memory holds [1].

    Args:
        room: memory left for it [B].
    """
    kv = llm.kv_cache_bytes(work.batch, work.final)
    share = np.divide(room, np.maximum(kv, 1.0))
    return np.clip(share, 0.0, 1.0)


def cache_breaks(hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real]) -> tuple[Real, Real]:
    """Shares of the weights on storage at which host DRAM begins to hold KV cache, and all of it.

    Between them, and on either side, what lives where is affine in the share [1].
    """
    on_gpu = weights_on_gpu(llm, work.prompt, gpu(hw))
    streamed = (1 - on_gpu) * llm.weight_bytes
    cache = llm.kv_cache_bytes(work.batch, work.final)
    left = host(hw).memory - layer_copies(llm, work)
    weights = np.maximum(streamed, 1.0)
    return 1 - left / weights, 1 - (left - cache) / weights


def layer_copies(llm: LLM, work: Workload) -> Real:
    """Host memory for the layer that is read and the one attended to [B]."""
    return 2 * llm.most_of_a_layer(lambda kind: kind.kv_bytes(work.batch, work.final))


def rebuild_from_x(llm: LLM, b: Real, s: Real, gpu: Gpu, path: Path) -> Span:
    """Load X to the GPU, project it to K and V, attend; pipelined (HILOS sec. 4.2, INF² sec. 4.3).

    Args:
        b, s: sequences kept as X and their context [1].
        path: the ports from where X lives to the GPU.
    """
    rebuild = llm.kv_from_x_flops(b, s)
    attend = llm.attention_flops(b, s)
    return overlap(
        load=stream(llm.x_bytes(b, s), "T_PCI = a 2sh / B_PCI", **path),
        compute=gpu.run(rebuild + attend, "T_GPU, K and V"),
    )
