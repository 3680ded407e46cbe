"""FlexGen's cost model of a placement, as linear forms: seconds and bytes for every share of every tensor.

FlexGen (ICML 2023, sec. 4.3 and its published cost model) puts a share of the weights (w), the KV
cache (c) and the activations (h) on the GPU (g), the CPU (c) and the disk (d). It sends a block of
sequences through the layers, a GPU batch at a time. All seconds are of one layer.

Every quantity here is a row over `COLUMNS`: what one unit of each share adds, what each sequence of
the block adds and what each sequence of the GPU batch adds. No entry is negative.

FlexGen writes the rows for OPT; its terms are these of any decoder: 8 h1^2 + 4 h1 h2 are the bytes
of a layer's matrices (of all experts, three matrices in a gated MLP, half a byte a weight at 4 bits)
and also 2 FLOPs a weight and token; 4 t h1 bytes are K and V of t tokens (fewer with GQA); 2 t h1
bytes are activations, or Q where attention holds them; 2 h2 the inner activation (twice when gated,
once an active expert). Its attention rates are FLOP/s, and query heads count there: GQA saves
bytes moved and held, not attention time.

Symbols: s prompt, n output, l layers, bls block, gbs GPU batch, p prefill, g decode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

SHARES = ("wg", "wc", "wd", "cg", "cc", "cd", "hg", "hc", "hd")
COLUMNS = (*SHARES, "bls", "gbs")
PREFILL = ("ctog_p + dtoc_p", "gtoc_p + ctod_p", "comp_p")
DECODE = ("ctog_g + gtoc_g", "ctog_g + dtoc_g", "ctog_g + ctod_g", "ctog_g + comp_g")
MEMORY = ("gpu_prefill", "gpu_decode", "cpu_prefill", "cpu_decode", "disk")
TIER = ("gpu", "gpu", "host", "host", "disk")
"""The memory each row of `MEMORY` fills."""

Row = NDArray[np.float64]
_WG, _WC, _WD, _CG, _CC, _CD, _HG, _HC, _HD, _BLS, _GBS = np.eye(len(COLUMNS))


def capacity(hw: Machine) -> dict[str, Real]:
    """Bytes a placement may fill, by tier: alpha x what is there [B]."""
    there = {
        "gpu": hw.gpu.count * hw.gpu.memory,
        "host": hw.host.memory,
        "disk": hw.disk.count * hw.disk.capacity,
    }
    return {tier: hw.offload.memory_share * size for tier, size in there.items()}


def cpu_attention_rate(hw: Machine, llm: LLM, gpu_batch: Real) -> Real:
    """Attention on the CPU, slower for small batches and narrow models: cpu' [FLOP/s].

    It is monotone in the batch.
    """
    o = hw.offload
    u = np.maximum(0.0, np.log2(64 / np.asarray(gpu_batch)))
    v = np.maximum(0.0, np.log2(4096 / np.asarray(llm.hidden)))
    left = 1 + o.cpu_joint * u * v - o.cpu_small_batch * u - o.cpu_small_model * v
    return o.cpu_attention * np.maximum(o.cpu_floor, left)


@dataclass(frozen=True)
class BlockSchedule:
    """A block of sequences on its way through the layers; sizes and rates broadcast over design points.

    Attributes:
        hw: roles gpu, host, disk, offload.
        llm: what runs.
        work: prompt and output; its batch is not used, it is what a placement chooses.
        sequences: bls, with which the shares of the cache and of the activations are weighed [1].
        gpu_batch: gbs, in the same way [1].
        cpu_rate: attention on the CPU [FLOP/s].
    """

    hw: Machine
    llm: LLM
    work: Workload
    sequences: Real
    gpu_batch: Real
    cpu_rate: Real

    @property
    def bls(self) -> NDArray[np.float64]:
        """Sequences of the block, broadcasting against rows [1]."""
        return np.asarray(self.sequences, float)[..., None]

    @property
    def gbs(self) -> NDArray[np.float64]:
        """Sequences of a GPU batch, broadcasting against rows [1]."""
        return np.asarray(self.gpu_batch, float)[..., None]

    @property
    def weights(self) -> Real:
        """wi, all weights of a layer [B]."""
        return self.llm.layer_parameters(self.llm.experts) * self.llm.weight_width

    def kv(self, tokens: Real) -> Real:
        """K and V of one sequence in one layer [B]."""
        return self.llm.kv_bytes(1, tokens)

    def hidden(self, tokens: Real) -> Real:
        """Activations between layers of one sequence [B]."""
        return self.llm.x_bytes(1, tokens)

    def prefill(self) -> Row:
        """What a layer's prefill must outlast, rows of `PREFILL` [s]."""
        o, llm, s, bls = self.hw.offload, self.llm, self.work.prompt, self.bls
        cache, hidden, weights = self.kv(s + 1), self.hidden(s), self.weights
        ctog = (weights * (_WC + _WD) + hidden * bls * (_HC + _HD)) / o.host_to_gpu
        gtoc = (
            cache * bls * (_CC + _CD) / o.gpu_to_host_cache
            + hidden * bls * (_HC + _HD) / o.gpu_to_host_hidden
        )
        dtoc = (weights * _WD + hidden * bls * _HD) / o.disk_to_host
        ctod = (
            cache * bls * _CD / o.host_to_disk_cache_prefill
            + hidden * bls * _HD / o.host_to_disk_hidden_prefill
        )
        comp = _BLS * (
            llm.linear_flops(s) / o.matmul_prefill + llm.attention_flops(s, s) / o.attention_prefill
        )
        return _rows(ctog + dtoc, gtoc + ctod, comp)

    def decode(self) -> Row:
        """What a layer's decode step must outlast at the mean context, rows of `DECODE` [s]."""
        o, llm, bls = self.hw.offload, self.llm, self.bls
        cache, hidden, weights = self.kv(self.work.context), self.hidden(1), self.weights
        attention = llm.attention_flops(1, self.work.context)
        cpu = np.asarray(self.cpu_rate)[..., None]
        ctog = (weights * (_WC + _WD) + hidden * bls * (_HC + _HD)) / o.host_to_gpu
        gtoc = hidden * bls * (_HC + _HD) / o.gpu_to_host_hidden
        dtoc = (cache * bls * _CD + hidden * bls * _HD) / o.disk_to_host
        dtoc = dtoc + weights * _WD / (o.disk_weight_share * o.disk_to_host)
        ctod = (self.kv(1) * bls * _CD + hidden * bls * _HD) / o.host_to_disk_decode
        comp = (
            _BLS * llm.linear_flops(1) / o.matmul_decode
            + attention * bls * _CG / o.attention_decode
        )
        comp = comp + attention * bls * (_CC + _CD) / cpu
        return _rows(ctog + gtoc, ctog + dtoc, ctog + ctod, ctog + comp)

    def memory(self) -> Row:
        """Peak of every memory, rows of `MEMORY` [B]."""
        return _rows(*self._gpu_memory(), *self._host_memory(), self._disk())

    def _gpu_memory(self) -> tuple[Row, Row]:
        llm, s, final, layers = self.llm, self.work.prompt, self.work.final, self.llm.layers
        wide, inner, q = (
            llm.activation_width,
            (1 + llm.gated) * llm.ffn * llm.active_experts,
            llm.query_size,
        )
        token = wide * (
            2 * llm.hidden + 2 * q + 2 * llm.kv_size + inner + llm.hidden
        )  # X Q K V, out, MLP
        home = layers * self.weights * _WG + layers * self.kv(final) * self.bls * _CG
        buffer = 2 * self.weights * (_WC + _WD)
        prefill = (self.hidden(s) * (self.bls * _HG + self.gbs * (_HC + _HD))) + home + buffer
        prefill = prefill + _GBS * (s * token + wide * (2 * q * s + llm.heads * s**2))
        scores = wide * (2 * q + llm.heads * final) + self.kv(final)
        decode = (self.hidden(1) * (self.bls * _HG + self.gbs * (_HC + _HD))) + home + buffer
        decode = decode + self.gbs * (self.kv(final) + scores) * _CG + _GBS * token
        return prefill, decode

    def _host_memory(self) -> tuple[Row, Row]:
        llm, s, final, layers = self.llm, self.work.prompt, self.work.final, self.llm.layers
        wide, bls, gbs, away = llm.activation_width, self.bls, self.gbs, _HC + _HD
        prefill = (
            layers * self.weights * _WC
            + layers * self.kv(s) * bls * _CC
            + self.hidden(s) * bls * _HC
        )
        prefill = prefill + self.weights * (_WC + _WD) + self.hidden(s) * gbs * away
        decode = (
            layers * self.weights * _WC
            + layers * self.kv(final) * bls * _CC
            + self.hidden(1) * bls * _HC
        )
        decode = (
            decode + self.weights * _WD + 2 * gbs * (self.hidden(1) * _HD + self.kv(final) * _CD)
        )
        decode = decode + _GBS * wide * (llm.heads * final + llm.query_size)
        return prefill, decode

    def _disk(self) -> Row:
        stored = self.llm.layers * (self.weights * _WD + self.kv(self.work.final) * self.bls * _CD)
        return stored + self.hidden(self.work.prompt) * self.bls * _HD


def _rows(*rows: Row) -> Row:
    return np.stack(np.broadcast_arrays(*rows), axis=-2)
