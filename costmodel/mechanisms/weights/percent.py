"""FlexGen's shares of weights and what its code does beside its loop: tensors, copies, prompts.

Source: `init_weight_list` of `flex_opt.py`; `general_copy` and `mha` of `pytorch_backend.py`.

Symbols: b batch, s prompt, H heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.algebra.sums import total
from nearkv.costmodel.mechanisms.gpu_layer import (
    arriving_latents,
    gpu_working_set,
    layer_compute,
)
from nearkv.costmodel.mechanisms.weights.residency import Residency, beside_gpu
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, gpu, host
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

COPY = 3.0
"""Times that a byte crosses host memory when it is copied: read, its new line filled, written."""


SCORE = 13.0
"""Bytes that a score of a prompt moves through GPU memory in 16 bits.

Written by a product, masked (read, its mask read, written), softmax (read, written), read by a
product.
"""


_LEAST = 1e-9
"""A share so small that no tensor's middle lies in it [1]."""


def whole_tensors(llm: LLM, asked: Residency, divided: Real) -> Residency:
    """The shares by memory when no tensor is divided, or as they are asked for.

    Of each half of a layer the first tensors go to the drives, the next to host memory and the
    last to the GPU, each to the memory in whose share its middle lies. 20 % of OPT on the GPU are
    the output matrix alone, 1/12.

    Args:
        asked: the shares of `--percent`.
        divided: 1 where tensors are divided after all [1].
    """
    outer, inner = llm.query_size, llm.kv_size
    attention = [llm.hidden * width for width in (outer, inner, inner, outer)]
    matrix = llm.hidden * llm.ffn * llm.experts
    stored: Real = 0.0
    streamed: Real = 0.0
    whole: Real = 0.0
    for half in (attention, _matrices(llm, matrix)):
        stored = stored + _below(half, asked.storage)
        streamed = streamed + _below(half, 1 - asked.gpu)
        whole = whole + total(half)
    apart = 1 - divided
    on_storage = divided * asked.storage + apart * stored / whole
    elsewhere = divided * (1 - asked.gpu) + apart * streamed / whole
    return Residency(1 - elsewhere, elsewhere - on_storage, on_storage)


def gpu_breaks(
    _: Machine, llm: LLM, work: Workload, stated: Mapping[str, Real]
) -> tuple[Real, ...]:
    """Shares of the weights on the GPU at which a tensor changes its memory [1]."""
    stored = np.maximum(stated["ssd_weights"], _LEAST)
    to_gpu = [1 - middle for middle in middles(llm)]
    from_drives = [1 - middle / stored for middle in middles(llm)]
    return (*to_gpu, *from_drives)


def drive_breaks(
    _: Machine, llm: LLM, work: Workload, stated: Mapping[str, Real]
) -> tuple[Real, ...]:
    """Shares of the other weights on the drives at which a tensor moves there [1]."""
    streamed = np.maximum(1 - stated["gpu_weights"], _LEAST)
    return tuple(middle / streamed for middle in middles(llm))


def middles(llm: LLM) -> list[Real]:
    """Where the middles of the tensors of both halves of a layer lie, as shares of the half [1]."""
    outer, inner = llm.query_size, llm.kv_size
    places: list[Real] = []
    for half in ([outer, inner, inner, outer], _matrices(llm, 1.0)):
        places += _middles_of(half)
    return places


def _middles_of(half: list[Real]) -> list[Real]:
    """Where the middles of the tensors of one half lie, as shares of it [1]."""
    whole = total(half)
    places: list[Real] = []
    before: Real = 0.0
    for size in half:
        places.append((before + size / 2) / whole)
        before = before + size
    return places


def _matrices(llm: LLM, matrix: Real) -> list[Real]:
    """Sizes of the matrices of an MLP: up and down, and the gate between them [1]."""
    return [matrix, matrix * llm.gated, matrix]


def _below(half: list[Real], share: Real) -> Real:
    """Sizes of the tensors of a half whose middle lies below a share of it [1]."""
    taken: Real = 0.0
    for size, middle in zip(half, _middles_of(half), strict=True):
        taken = taken + size * np.less(middle, share)
    return taken


def relay(hw: Machine, amount: Real) -> Span:
    """Copy bytes of memory that is not pinned into pinned buffers, before anything else runs.

    The program's one thread copies them; from the buffers they move like pinned ones.

    Args:
        amount: copied [B].
    """
    rate = hw.host.count * hw.host.bandwidth * hw.derate.maybe("dram_copy", 1.0)
    copy = Port("host.dram", "read", rate)
    return copy(COPY * amount, "to a pinned buffer: read, filled, written")


def eager_prompts(llm: LLM, b: Real, s: Real, gpu: Gpu) -> Span:
    """Products of one layer over b prompts, and the whole square of their scores, in memory.

    Args:
        b, s: prompts and tokens of each [1].
    """
    square = llm.eager_attention_flops(b, s)
    return serial(
        products=layer_compute(llm, b * s, square, gpu, "2 P b s + 4 b s^2 H d"),
        scores=gpu.read(SCORE * b * llm.eager_scores(s), "H s^2 scores, eager"),
    )


_ABOVE = 1e-9
"""A share this much beyond the middle of a tensor holds the tensor [1]."""


_ON_GPU, _IN_HOST = 0.0, 1.0
"""Tiers of the cache, as FlexGen's options count them."""


def gpu_share(hw: Machine, llm: LLM, work: Workload, stated: Mapping[str, Real]) -> Real:
    """The largest share of the weights that the GPU holds beside its working set [1].

    Args:
        stated: `cache`, 0 where it is on the GPU, and `tensors`, 1 where shares divide them.
    """
    return Filling(hw, llm, work, stated).on_gpu


def drive_share(hw: Machine, llm: LLM, work: Workload, stated: Mapping[str, Real]) -> Real:
    """The least share on the drives of the weights that are not on the GPU [1].

    Args:
        stated: `gpu_weights`, by default the largest; `cache`, 1 where it is in host memory; and
            `tensors`, 1 where shares divide them.
    """
    filling = Filling(hw, llm, work, stated)
    on_gpu = stated.get("gpu_weights", filling.on_gpu)
    return filling.on_drives(on_gpu)


@dataclass(frozen=True)
class Filling:
    """What the memories of a machine hold of a model's weights.

    Attributes:
        hw, llm, work: what runs where.
        stated: knobs that are numbers.
    """

    hw: Machine
    llm: LLM
    work: Workload
    stated: Mapping[str, Real]

    @property
    def on_gpu(self) -> Real:
        """The largest share of the weights that the GPU holds [1]."""
        room = self._room_on_gpu
        share: Real = 0.0
        most: Real = 0.0
        for middle in middles(self.llm):
            candidate = 1 - middle + _ABOVE
            held = self._placed(candidate, 0.0).gpu
            fits = held <= room
            better = fits & (held > most)
            share = np.where(better, candidate, share)
            most = np.where(better, held, most)
        everything = np.equal(most, 1)
        share = np.where(everything, 1.0, share)
        return self._as_tensors(share, room)

    def on_drives(self, on_gpu: Real) -> Real:
        """The least share on the drives of what is not on the GPU [1].

        Args:
            on_gpu: share of all weights there [1].
        """
        room = self._room_in_host
        streamed = np.maximum(1 - on_gpu, _ABOVE)
        share: Real = 1.0
        for middle in middles(self.llm):
            beyond = middle / streamed + _ABOVE
            candidate = np.minimum(beyond, 1.0)
            held = self._placed(on_gpu, candidate).host
            least = np.minimum(share, candidate)
            share = np.where(held <= room, least, share)
        held = self._placed(on_gpu, 0.0).host
        share = np.where(held <= room, 0.0, share)
        left = 1 - room / streamed
        exact = np.clip(left, 0.0, 1.0)
        return self._as_tensors(share, exact)

    @property
    def _room_on_gpu(self) -> Real:
        """Share of the weights for which the GPU has room [1]."""
        llm, work = self.llm, self.work
        room = gpu(self.hw).memory - self._beside_weights
        streaming = gpu_working_set(llm, work.prompt, 0.0, work.batch)
        resident = gpu_working_set(llm, work.prompt, 1.0, work.batch)
        added = np.maximum(resident - streaming, 1.0)
        fitting = (room - streaming) / added
        share = np.clip(fitting, 0.0, 1.0)
        return np.where(resident <= room, 1.0, share)

    @property
    def _beside_weights(self) -> Real:
        """GPU memory for the cache, or for latents that pass [B]."""
        work = self.work
        passing = arriving_latents(self.llm, work.batch, work.final)
        cached = np.equal(self._cache_home, _ON_GPU)
        return np.where(cached, self._cache, passing)

    @property
    def _room_in_host(self) -> Real:
        """Share of the weights for which host memory has room beside the cache [1]."""
        cached = np.equal(self._cache_home, _IN_HOST)
        room = host(self.hw).memory - cached * self._cache
        return room / self.llm.weight_bytes

    @property
    def _cache(self) -> Real:
        return self.llm.kv_cache_bytes(self.work.batch, self.work.final)

    @property
    def _cache_home(self) -> Real:
        return self.stated.get("cache", _IN_HOST)

    def _placed(self, on_gpu: Real, on_drives: Real) -> Residency:
        """Where whole tensors are when so much is asked for."""
        asked = beside_gpu(on_gpu, on_drives)
        return whole_tensors(self.llm, asked, divided=0.0)

    def _as_tensors(self, whole: Real, divided: Real) -> Real:
        """The share of whole tensors, or the one that divides them, as is stated."""
        choice = self.stated.get("tensors", 0.0)
        return np.where(np.equal(choice, 1), divided, whole)[()]
