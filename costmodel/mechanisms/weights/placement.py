"""FlexGen's cost model of a placement: linear forms of seconds and bytes in the shares of tensors.

FlexGen (ICML 2023, sec. 4.3 and its published cost model) puts a share of the weights (w), the KV
cache (c) and the activations (h) on the GPU (g), the CPU (c) and the disk (d). It sends a block of
sequences through the layers, a GPU batch at a time. All seconds are of one layer.

Every quantity here is a row over `PLACEMENT_VARIABLES`: what one unit of each share adds, what
each sequence of the block adds and what each sequence of the GPU batch adds. No entry is negative.

FlexGen writes the rows for OPT. Its terms, and what they become for any decoder:

- 8 h1^2 + 4 h1 h2: bytes of a layer's matrices, and FLOPs of a token. All experts are stored, a
  gated MLP has three matrices, and 4 bits are half a byte.
- 4 t h1: bytes of K and V of t tokens; fewer with GQA.
- 2 t h1: bytes of activations, or of Q where attention holds them.
- 2 h2: bytes of the inner activation; twice as many when gated, and once an active expert.

Rates of attention are FLOP/s of all query heads: GQA saves bytes moved and held, not attention
time.

Symbols: s prompt, n output, l layers, bls block, gbs GPU batch, p prefill, g decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

PLACEMENT_SHARES = tuple(tensor + tier for tensor in "wch" for tier in "gcd")
PLACEMENT_VARIABLES = (*PLACEMENT_SHARES, "bls", "gbs")
PREFILL = ("ctog_p + dtoc_p", "gtoc_p + ctod_p", "comp_p")
DECODE = ("ctog_g + gtoc_g", "ctog_g + dtoc_g", "ctog_g + ctod_g", "ctog_g + comp_g")
MEMORY_CONSTRAINTS = ("gpu_prefill", "gpu_decode", "cpu_prefill", "cpu_decode", "disk")
TIER = ("gpu", "gpu", "host", "host", "disk")
"""The memory each row of `MEMORY_CONSTRAINTS` fills."""


_WG, _WC, _WD, _CG, _CC, _CD, _HG, _HC, _HD, _BLS, _GBS = np.eye(len(PLACEMENT_VARIABLES))
_W_AWAY, _C_AWAY, _H_AWAY = _WC + _WD, _CC + _CD, _HC + _HD
"""Shares that are not on the GPU."""
LARGE_BATCH = 64
"""GPU batch from which on the CPU attends no faster, in FlexGen's cost model [1]."""


def capacity(hw: Machine) -> dict[str, Real]:
    """Bytes a placement may fill, by tier: alpha times the tier's size [B]."""
    sizes = {
        "gpu": hw.gpu.count * hw.gpu.memory,
        "host": hw.host.count * hw.host.memory,
        "disk": hw.disk.count * hw.disk.capacity,
    }
    return {tier: hw.offload.memory_share * size for tier, size in sizes.items()}


def cpu_attention_rate(hw: Machine, llm: LLM, gpu_batch: Real) -> Real:
    """Attention on the CPU, slower for small batches and narrow models: cpu' [FLOP/s].

    It is monotone in the batch.
    """
    o = hw.offload
    u = np.maximum(0.0, np.log2(LARGE_BATCH / np.asarray(gpu_batch)))
    v = np.maximum(0.0, np.log2(4096 / np.asarray(llm.hidden)))
    loss = o.cpu_small_batch * u + o.cpu_small_model * v
    share = 1 + o.cpu_joint * u * v - loss
    return o.cpu_attention * np.maximum(o.cpu_floor, share)


@dataclass(frozen=True)
class BlockSchedule:
    """A block of sequences that passes the layers together.

    Attributes:
        hw: roles gpu, host, disk, offload.
        llm: what runs.
        work: prompt and output; its batch is not used, it is what a placement chooses.
        bls: sequences of the block, with which shares of cache and activations are weighed [1].
        gbs: sequences of a GPU batch [1].
        cpu_rate: attention on the CPU [FLOP/s].
    """

    hw: Machine
    llm: LLM
    work: Workload
    bls: float
    gbs: float
    cpu_rate: float

    @cached_property
    def weights(self) -> Real:
        """wi, all weights of a layer [B]."""
        parameters = self.llm.layer_parameters(self.llm.experts)
        return parameters * self.llm.weight_width

    def kv(self, tokens: Real) -> Real:
        """K and V of one sequence in one layer [B]."""
        return self.llm.kv_bytes(1, tokens)

    def hidden(self, tokens: Real) -> Real:
        """Activations between layers of one sequence [B]."""
        return self.llm.x_bytes(1, tokens)

    def prefill(self) -> Numbers:
        """Seconds that a layer's prefill must outlast, rows of `PREFILL` [s]."""
        o, s = self.hw.offload, self.work.prompt
        cache = self.kv(s + 1) * self.bls
        hidden = self.hidden(s) * self.bls
        to_gpu = self.weights * _W_AWAY + hidden * _H_AWAY
        from_disk = self.weights * _WD + hidden * _HD
        gtoc_cache = cache * _C_AWAY / o.gpu_to_host_cache
        gtoc_hidden = hidden * _H_AWAY / o.gpu_to_host_hidden
        ctod_cache = cache * _CD / o.host_to_disk_cache_prefill
        ctod_hidden = hidden * _HD / o.host_to_disk_hidden_prefill
        linear = self.llm.linear_flops(s) / o.matmul_prefill
        attention = self.llm.attention_flops(s, s) / o.attention_prefill
        return np.array(
            [
                to_gpu / o.host_to_gpu + from_disk / o.disk_to_host,
                gtoc_cache + gtoc_hidden + ctod_cache + ctod_hidden,
                _BLS * (linear + attention),
            ]
        )

    def decode(self) -> Numbers:
        """Seconds that a layer's decode step outlasts at the mean context, rows of `DECODE` [s]."""
        o = self.hw.offload
        hidden = self.hidden(1) * self.bls
        cache = self.kv(self.work.context) * self.bls
        new = self.kv(1) * self.bls
        to_gpu = self.weights * _W_AWAY + hidden * _H_AWAY
        from_disk = cache * _CD + hidden * _HD
        to_disk = new * _CD + hidden * _HD
        disk_weights = o.disk_weight_share * o.disk_to_host
        ctog = to_gpu / o.host_to_gpu
        gtoc = hidden * _H_AWAY / o.gpu_to_host_hidden
        dtoc = from_disk / o.disk_to_host + self.weights * _WD / disk_weights
        ctod = to_disk / o.host_to_disk_decode
        linear = self.llm.linear_flops(1) / o.matmul_decode
        attention = self.llm.attention_flops(1, self.work.context) * self.bls
        # products on the GPU, attention where the cache is
        on_gpu = attention * _CG / o.attention_decode
        on_cpu = attention * _C_AWAY / self.cpu_rate
        comp = _BLS * linear + on_gpu + on_cpu
        beside_loads = np.array([gtoc, dtoc, ctod, comp])
        rows: Numbers = ctog + beside_loads
        return rows

    def memory(self) -> Numbers:
        """Peak of every memory, rows of `MEMORY_CONSTRAINTS` [B]."""
        return np.array([*self._gpu_memory(), *self._host_memory(), self._disk()])

    def _gpu_memory(self) -> tuple[Numbers, Numbers]:
        """Peak in prefill and in decode: what stays, weights passing, a GPU batch at work."""
        llm = self.llm
        s, final = self.work.prompt, self.work.final
        kept_weights = llm.layers * self.weights * _WG
        kept_cache = llm.layers * self.kv(final) * self.bls * _CG
        # the layer being computed and the next one in transfer
        passing = 2 * self.weights * _W_AWAY
        resident = kept_weights + kept_cache + passing
        hidden = self.bls * _HG + self.gbs * _H_AWAY
        token = self._token_bytes()
        square = 2 * llm.query_size * s + llm.heads * s**2
        at_work = s * token + llm.activation_width * square
        prefill = self.hidden(s) * hidden + resident
        row = 2 * llm.query_size + llm.heads * final
        scores = llm.activation_width * row
        attended = 2 * self.kv(final) + scores
        decode = self.hidden(1) * hidden + resident
        decode = decode + self.gbs * attended * _CG + _GBS * token
        return prefill + _GBS * at_work, decode

    def _token_bytes(self) -> Real:
        """Activations of one token in a layer: X, Q, K, V and output, then the MLP's [B]."""
        llm = self.llm
        inner = (1 + llm.gated) * llm.ffn * llm.active_experts
        attention = 2 * llm.hidden + 2 * llm.query_size + 2 * llm.kv_size
        return llm.activation_width * (attention + inner + llm.hidden)

    def _host_memory(self) -> tuple[Numbers, Numbers]:
        """Peak in prefill and in decode: tensors that stay, and those in transfer."""
        llm = self.llm
        s, final = self.work.prompt, self.work.final
        weights = llm.layers * self.weights * _WC
        cache = llm.layers * self.bls * _CC
        hidden = self.bls * _HC
        to_gpu = self.weights * _W_AWAY + self.hidden(s) * self.gbs * _H_AWAY
        prompts = self.kv(s) * cache + self.hidden(s) * hidden
        read = self.hidden(1) * _HD + self.kv(final) * _CD
        from_disk = self.weights * _WD + 2 * self.gbs * read
        scores = llm.heads * final + llm.query_size
        at_work = _GBS * llm.activation_width * scores
        step = self.kv(final) * cache + self.hidden(1) * hidden
        return weights + prompts + to_gpu, weights + step + from_disk + at_work

    def _disk(self) -> Numbers:
        cache = self.kv(self.work.final) * self.bls * _CD
        stored = self.llm.layers * (self.weights * _WD + cache)
        return stored + self.hidden(self.work.prompt) * self.bls * _HD
