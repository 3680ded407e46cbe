"""FlexGen's shares of weights, as its code divides them: whole tensors, as many as a memory holds.

Source: `init_weight_list` of `flex_opt.py`.

A layer is two halves, attention and MLP. FlexGen goes through the tensors of a half in order: those
whose centre lies in the first share go to the drives, the next to host memory, the last to the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Real, choose, total
from nearkv.costmodel.mechanisms.gpu_layer import arriving_latents, gpu_working_set
from nearkv.costmodel.mechanisms.prompt_chunks import hidden_bytes
from nearkv.costmodel.mechanisms.weights.residency import (
    Residency,
    beside_gpu,
    fitting_on_gpu,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu, host
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

JUST_PAST = 1e-9
"""A share this much beyond the centre of a tensor holds the tensor [1]."""


# --- whole tensors ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Half:
    """The tensors of one half of a layer.

    Attributes:
        parameters: of the half [1].
        tensors: share of the half in each of them, in the order of the code [1].
    """

    parameters: Real
    tensors: list[Real]

    @property
    def centres(self) -> list[Real]:
        """Centre of each tensor, as a share of the half [1]."""
        centres: list[Real] = []
        before: Real = 0.0
        for size in self.tensors:
            centres.append(before + size / 2)
            before = before + size
        return centres

    def below(self, share: Real) -> Real:
        """Parameters of the tensors whose centre lies below a share of the half [1]."""
        sizes = zip(self.tensors, self.centres, strict=True)
        taken = total(size * np.less(centre, share) for size, centre in sizes)
        return self.parameters * taken


def halves(llm: LLM) -> tuple[Half, Half]:
    """Attention's Q, K, V and output matrices; the MLP's up, gate (if it has one) and down."""
    outer, inner = llm.query_size, llm.kv_size
    widths = 2 * (outer + inner)
    attention = [width / widths for width in (outer, inner, inner, outer)]
    matrices = 2 + llm.gated
    mlp = [1 / matrices, llm.gated / matrices, 1 / matrices]
    experts = llm.hidden * llm.ffn * llm.experts
    return Half(llm.hidden * widths, attention), Half(experts * matrices, mlp)


def tensor_centres(llm: LLM) -> list[Real]:
    """Centres of all tensors, each as a share of its half [1]."""
    return [centre for half in halves(llm) for centre in half.centres]


def whole_tensors(llm: LLM, shares: Residency, divided: Real) -> Residency:
    """The shares by memory when no tensor is divided, or as they are asked for.

    20 % of OPT on the GPU are the output matrix alone, 1/12.

    Args:
        shares: the shares of `--percent`.
        divided: 1 where tensors are divided after all [1].
    """
    attention, mlp = halves(llm)
    parameters = attention.parameters + mlp.parameters

    def placed_before(share: Real) -> Real:
        """Share of the weights that lies below a share of `--percent` [1]."""
        whole = (attention.below(share) + mlp.below(share)) / parameters
        return divided * share + (1 - divided) * whole

    on_storage = placed_before(shares.storage)
    off_gpu = placed_before(1 - shares.gpu)
    return Residency(1 - off_gpu, off_gpu - on_storage, on_storage)


def gpu_breaks(_: Machine, llm: LLM, work: Workload, stated: ByName) -> tuple[Real, ...]:
    """Shares of the weights on the GPU at which a tensor changes its memory [1]."""
    stored = np.maximum(stated["ssd_weights"], JUST_PAST)
    centres = tensor_centres(llm)
    to_gpu = [1 - centre for centre in centres]
    from_drives = [1 - centre / stored for centre in centres]
    return (*to_gpu, *from_drives)


def drive_breaks(_: Machine, llm: LLM, work: Workload, stated: ByName) -> tuple[Real, ...]:
    """Shares of the other weights on the drives at which a tensor moves there [1]."""
    streamed = np.maximum(1 - stated["gpu_weights"], JUST_PAST)
    return tuple(centre / streamed for centre in tensor_centres(llm))


# --- as many weights as a memory holds --------------------------------------------------------


def gpu_share(hw: Machine, llm: LLM, work: Workload, stated: ByName) -> Real:
    """The largest share of the weights that the GPU holds beside its working set [1].

    It depends on what the memories hold alone: more memory moves no weight to a slower one.

    Args:
        stated: shares of the cache, and `tensors`, 1 where shares divide them.
    """
    headroom = fitting_on_gpu(hw, llm, work, cache_on_gpu(llm, work, stated))
    return _by_tensors(stated, largest_gpu_share(llm, headroom), headroom)


def drive_share(hw: Machine, llm: LLM, work: Workload, stated: ByName) -> Real:
    """The least share on the drives of the weights that are not on the GPU [1].

    Args:
        stated: `gpu_weights`, by default the largest; shares of the cache; `activations`, 1 where
            they wait in host memory; and `tensors`, 1 where shares divide them.
    """
    on_gpu = stated.get("gpu_weights")
    if on_gpu is None:
        on_gpu = gpu_share(hw, llm, work, stated)
    cache = cache_of(stated).host * llm.kv_cache_bytes(work.batch, work.final)
    waiting = waiting_bytes(llm, work, stated.get("activations", 0.0))
    headroom = (host(hw).memory - cache - waiting) / llm.weight_bytes
    divided = np.clip(1 - headroom / np.maximum(1 - on_gpu, JUST_PAST), 0.0, 1.0)
    return _by_tensors(stated, least_drive_share(llm, on_gpu, headroom), divided)


def largest_gpu_share(llm: LLM, headroom: Real) -> Real:
    """Largest share of the weights whose whole tensors fit on the GPU, by FlexGen's rule [1].

    What the GPU holds changes where a share passes a tensor's centre, counted from the end of its
    half. So only shares just past a centre are tried; where all tensors fit the share is 1.

    Args:
        headroom: share of the weights that fits [1].
    """
    largest: Real = 0.0
    for centre in tensor_centres(llm):
        share = 1 - centre + JUST_PAST
        held = whole_tensors(llm, beside_gpu(share, 0.0), divided=0.0).gpu
        share = np.where(held == 1, 1.0, share)
        largest = np.where(held <= headroom, np.maximum(largest, share), largest)
    return largest


def least_drive_share(llm: LLM, on_gpu: Real, headroom: Real) -> Real:
    """Least share on the drives with which host memory holds the rest, in whole tensors [1].

    Args:
        on_gpu: share of all weights on the GPU [1].
        headroom: share of all weights that fits host memory [1].
    """
    streamed = np.maximum(1 - on_gpu, JUST_PAST)
    least: Real = 1.0
    past_centres = [centre / streamed + JUST_PAST for centre in tensor_centres(llm)]
    for share in [0.0, *past_centres]:
        held = whole_tensors(
            llm, beside_gpu(on_gpu, np.minimum(share, 1.0)), divided=0.0
        ).host
        least = np.where(held <= headroom, np.minimum(least, share), least)
    return least


def cache_of(stated: ByName) -> Residency:
    """The shares of the KV cache by memory; all in host memory where nothing is stated."""
    return beside_gpu(stated.get("gpu_cache", 0.0), stated.get("ssd_cache", 0.0))


def cache_on_gpu(llm: LLM, work: Workload, stated: ByName) -> Real:
    """GPU memory of the cache that stays there, and of latents that pass [B]."""
    cache = cache_of(stated)
    kept = cache.gpu * llm.kv_cache_bytes(work.batch, work.final)
    return kept + (1 - cache.gpu) * arriving_latents(llm, work.batch, work.final)


def room_beside_stated_shares(
    hw: Machine, llm: LLM, work: Workload, stated: ByName
) -> Real:
    """GPU memory for the activations of a prompt beside its cache and stated weights [B]."""
    on_gpu = stated.get("gpu_weights", 0.0)
    working = gpu_working_set(llm, 0.0, on_gpu, work.batch)
    return gpu(hw).memory - working - cache_on_gpu(llm, work, stated)


def waiting_bytes(llm: LLM, work: Workload, place: Real) -> Real:
    """Activations of all prompts in host memory: between two halves of layers, or chunks [B].

    Args:
        place: 0 they wait on the GPU but for prompts in chunks, 1 in host memory, 2 on drives.
    """
    between_chunks = (place == 0) * hidden_bytes(llm, work.batch, work)
    return (place == 1) * llm.x_bytes(work.batch, work.prompt) + between_chunks


def _by_tensors(stated: ByName, whole: Real, divided: Real) -> Real:
    """The share of whole tensors, or the one that divides them, as is stated [1]."""
    divides = stated.get("tensors", 0.0) == 1
    return choose(divides, divided, whole)
