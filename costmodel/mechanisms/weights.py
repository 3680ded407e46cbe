"""Weights streamed layer by layer: where they live, how they come to the GPU, what they do there.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.compose import overlap, serial, stream
from nearkv.costmodel.layers import over_layers
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.offload import (
    Path,
    arriving_head,
    gpu_working_set,
    prefill_compute,
    unpacked_bytes,
    update_state,
)
from nearkv.costmodel.registry import Knob
from nearkv.costmodel.resources import Gpu, Host, Link, gpu, host
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.sums import total
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

WEIGHTS = Knob(
    "where weights live: filling GPU, host and storage, in one of them, or by the paper's rule",
    high=4,
    default=0,
    kind="choice",
    choices=("auto", "gpu", "paper", "host", "storage"),
)


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


def choose_residency(
    choice: Real, paper: Residency, hw: Machine, llm: LLM, work: Workload, host_room: Real
) -> Residency:
    """Return where weights live by a choice of `WEIGHTS`.

    `auto` fills the GPU beside its working set, then host DRAM, then storage; more memory never
    moves a weight to a slower one.

    Args:
        choice: index into the knob's choices.
        paper: the shares by the paper's rule.
        host_room: host DRAM that the step leaves to weights [B].
    """
    on_gpu: Real = 0.0
    in_host: Real = 0.0
    if np.any(np.equal(choice, WEIGHTS.choices.index("auto"))):
        on_gpu, in_host = _filled(hw, llm, work, host_room)
    gpu_shares: dict[str, Real] = {"auto": on_gpu, "gpu": 1.0, "paper": paper.gpu}
    host_shares: dict[str, Real] = {"auto": in_host, "host": 1.0, "paper": paper.host}
    gpu_share = _chosen(choice, gpu_shares)
    host_share = _chosen(choice, host_shares)
    return Residency(gpu_share, host_share, 1 - gpu_share - host_share)


def _filled(hw: Machine, llm: LLM, work: Workload, host_room: Real) -> tuple[Real, Real]:
    """Shares of the weights that GPU and host DRAM take, the faster first [1]."""
    gpu_room = gpu(hw).memory - gpu_working_set(llm, work.prompt)
    on_gpu = np.clip(gpu_room / llm.weight_bytes, 0.0, 1.0)
    whole = host_weights(hw, llm, Residency(0.0, 1.0, 0.0))
    in_host = np.clip(host_room / whole, 0.0, 1 - on_gpu)
    return on_gpu, in_host


def _chosen(choice: Real, shares: Mapping[str, Real]) -> Real:
    """The share of the choice made, none where it has none [1]."""
    share: Real = 0.0
    for name, value in shares.items():
        made = np.equal(choice, WEIGHTS.choices.index(name))
        share = np.where(made, value, share)[()]
    return share


def host_weights(hw: Machine, llm: LLM, home: Residency) -> Real:
    """Host DRAM that the weights in it take [B].

    Where the platform pins them, each matrix fills a buffer of a power of two bytes (PyTorch's
    allocator): 1.31 times OPT-30B's, 1.58 times OPT-66B's.
    """
    excess = hw.policy.pinned_rounding * (_pinned_over_exact(llm) - 1)
    return home.host * llm.weight_bytes * (1 + excess)


def _pinned_over_exact(llm: LLM) -> Real:
    """Bytes of a layer's matrices in buffers of powers of two, over their own [1]."""
    if not llm.kinds:
        return _pinned_bytes(llm) / _matrix_bytes(llm)
    return llm.sum_over_layers(_pinned_bytes) / llm.sum_over_layers(_matrix_bytes)


def _matrix_bytes(llm: LLM) -> Real:
    sizes = [number * size for number, size in _matrices(llm)]
    return total(sizes)


def _pinned_bytes(llm: LLM) -> Real:
    sizes = [number * _power_of_two(size) for number, size in _matrices(llm)]
    return total(sizes)


def _power_of_two(size: Real) -> Real:
    """The next power of two bytes; nothing for a matrix that there is not [B]."""
    rounded = np.exp2(np.ceil(np.log2(np.maximum(size, 1.0))))
    return rounded * np.greater(size, 0)


def _matrices(llm: LLM) -> list[tuple[Real, Real]]:
    """Matrices of one layer: how many of which size [1, B]."""
    shapes = (
        (2, llm.query_size),
        (2, llm.kv_size),
        (llm.experts * (2 + llm.gated), llm.ffn),
    )
    return [(number, llm.hidden * width * llm.weight_width) for number, width in shapes]


# --- what they leave to the KV cache ------------------------------------------------------------


def kv_share_in(room: Real, llm: LLM, work: Workload) -> Real:
    """Share of the KV cache that so much memory holds [1].

    Args:
        room: memory left for it [B].
    """
    kv = llm.kv_cache_bytes(work.batch, work.final)
    share = np.divide(room, np.maximum(kv, 1.0))
    return np.clip(share, 0.0, 1.0)


def cache_breaks(
    hw: Machine, llm: LLM, work: Workload, _: Mapping[str, Real]
) -> tuple[Real, Real]:
    """Shares of the weights on storage at which host DRAM begins to hold KV cache, and all of it.

    Between them, and on either side, what lives where is affine in the share [1].
    """
    in_host = beside_gpu(weights_on_gpu(llm, work.prompt, gpu(hw)), 0.0)
    streamed = host_weights(hw, llm, in_host)
    cache = llm.kv_cache_bytes(work.batch, work.final)
    left = host(hw).memory - layer_copies(llm, work)
    weights = np.maximum(streamed, 1.0)
    return 1 - left / weights, 1 - (left - cache) / weights


def layer_copies(llm: LLM, work: Workload) -> Real:
    """Host memory for the layer that is read and the one attended to [B]."""
    return 2 * llm.most_of_a_layer(lambda kind: kind.kv_bytes(work.batch, work.final))


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
        llm = self.llm
        weights = self.attention_weights(tokens)
        flops = llm.qkv_flops(tokens) + llm.output_flops(tokens)
        operand, _ = llm.operands
        return self._products(weights, llm.attention_width, operand, flops)

    def feed_forward(self, tokens: Real) -> Span:
        """The feed-forward products of one layer on the GPU, for tokens of one GPU batch."""
        llm = self.llm
        weights = self.feed_forward_weights(tokens)
        flops = llm.ffn_flops(tokens)
        _, operand = llm.operands
        return self._products(weights, llm.weight_width, operand, flops)

    def _products(self, weights: Real, width: Real, operand: Real, flops: Real) -> Span:
        """Products of weights [B] so wide [B], unpacked first where they are too narrow."""
        unpacked = unpacked_bytes(weights, width, operand, self.gpu)
        read = weights + unpacked
        run = self.gpu.products(operand)
        return overlap(
            hbm=self.gpu.read(read, "weights once a GPU batch"),
            compute=run(flops, "2 FLOPs a weight and token"),
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

    def recurrent_layer(self, b: Real) -> Span:
        """One layer of a step with a recurrent state, which stays on the GPU."""
        return self.layer(b, state=update_state(self.llm, b, self.gpu))

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

    def prefill_layer(self, work: Workload, b: Real, **caches: Span) -> Span:
        """One layer over the prompts of b sequences, weights and compute beside the caches."""
        weights = self.llm.layer_weight_bytes(b * work.prompt)
        return overlap(
            weights=self.load(weights),
            compute=prefill_compute(self.llm, work, b, self.gpu),
            **caches,
        )
