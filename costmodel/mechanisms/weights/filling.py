"""Shares of the weights that fill GPU, then host memory, then drives, in whole tensors or not.

They depend on what the memories hold alone: more memory moves no weight to a slower one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.latents import arriving_latents
from nearkv.costmodel.mechanisms.near_storage.offload import gpu_working_set
from nearkv.costmodel.mechanisms.weights.percent import middles, whole_tensors
from nearkv.costmodel.mechanisms.weights.residency import Residency, beside_gpu
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu, host
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

_ABOVE = 1e-9
"""A share this much beyond the middle of a tensor holds the tensor [1]."""
_ON_GPU, _IN_HOST = 0.0, 1.0
"""Homes of the cache, as FlexGen's options count them."""


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
