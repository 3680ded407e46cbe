"""Weights streamed layer by layer: how they come to the GPU, what they do there.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Port, Real, Span, overlap, serial, stream
from nearkv.costmodel.mechanisms.gpu_layer import (
    arriving_head,
    dequantise_traffic,
    dequantise_weights,
    gpu_contents,
    gpu_working_set,
    prefill_compute,
    update_state,
)
from nearkv.costmodel.mechanisms.prompt_chunks import (
    Arriving,
    any_chunks,
    between_chunks,
    held_bytes,
    kept_share,
)
from nearkv.costmodel.mechanisms.weights.residency import Residency
from nearkv.costmodel.model.estimate import Fits, fits
from nearkv.costmodel.model.layers import over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import (
    Csd,
    Gpu,
    Host,
    Link,
    drives,
    gpu,
    host,
    link,
    page_cache,
)
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

ATTENDS = ("full", "window", "chunk", "latent", "state")
"""Attention of layers whose weights are streamed, each type by itself."""
DataPath = Mapping[str, Port]
"""The ports bytes pass one after the other, by name."""


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
    read: DataPath
    write: DataPath
    capacity: Real


def file_storage(hw: Machine, role: str, lanes: Link) -> FileStorage:
    """Return the drives of a role behind their link; reads pass the file path, writes do not.

    Where the role states the rate of one file system over all its drives, reads pass that too.
    """
    flash = drives(hw, role)
    read = {"flash": flash.read, "link": lanes.inward, "file": page_cache(hw, role)}
    part = hw[role]
    if "array_read" in part:
        read["array"] = Port(f"{role}.array", "move", part.array_read)
    return FileStorage(
        role=role,
        read=read,
        write={"link": lanes.outward, "flash": flash.write},
        capacity=flash.capacity,
    )


@dataclass(frozen=True)
class WeightStream:
    """The layers of a model on one GPU, each layer's weights coming from where they live.

    Attributes:
        llm: what runs.
        gpu, host, link: the GPU, its host and the link between them.
        tiers: where the weights live.
        storage: the ports from storage to the host.
        kept: share of the K and V of a prompt's earlier chunks that stays on the GPU while the
            layer runs [1].
    """

    llm: LLM
    gpu: Gpu
    host: Host
    link: Link
    tiers: Residency
    storage: DataPath
    kept: Real = field(default=1.0, kw_only=True)

    @property
    def in_host(self) -> dict[str, Real]:
        """Weights in host memory, byte by byte as they are [B]."""
        return {"weights": self.tiers.host * self.llm.weight_bytes}

    def load(self, amount: Real) -> Span:
        """Bring weights to the GPU from host DRAM, or from storage by its own path.

        Args:
            amount: weights, wherever they live [B].
        """
        stored = self.tiers.storage * amount
        in_dram = self.tiers.host * amount
        return overlap(
            storage=stream(stored, "weights on storage", **self.storage),
            dram=self.host.read(in_dram, "weights in DRAM"),
            link=self.over_link(amount),
        )

    def over_link(self, amount: Real) -> Span:
        """Weights that are not on the GPU, over the link to it.

        Args:
            amount: weights, wherever they live [B].
        """
        streamed = (1 - self.tiers.gpu) * amount
        return self.link.inward(streamed, "weights")

    def attention_weights(self, tokens: Real) -> Real:
        """W_a: Q, K, V and output matrices of a layer; none for no token [B]."""
        matrices = self.llm.attention_parameters * self.llm.attention_width
        return np.minimum(tokens, 1.0) * matrices

    def feed_forward_weights(self, tokens: Real) -> Real:
        """W_m: the other weights that a step over these tokens uses, of an MoE its experts' [B]."""
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
        """Products with weights [B] of a width [B], dequantised where an operand must be wider."""
        read = weights + dequantise_traffic(weights, width, operand, self.gpu)
        run = self.gpu.products(operand)
        return overlap(
            hbm=self.gpu.read(read, "weights once a GPU batch"),
            compute=run(flops, "2 FLOPs a weight and token"),
        )

    def layer(self, b: Real, **attention: Span) -> Span:
        """One layer of a step over one GPU batch, each half's weights loaded beside the other half.

        Source: FlexGen's loop, which HILOS and INF² extend; HILOS sec. 5: a prefetcher stages
        weights.

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

    def over_layers(self, layer: Callable[[WeightStream], Span], b: Real) -> Span:
        """All layers type by type, then the output head for one token of each of b sequences.

        Args:
            layer: one layer of a type, given the stream of a model whose layers are all like it.
        """

        def layer_of(layer_type: LLM) -> Span:
            weights = self if layer_type is self.llm else replace(self, llm=layer_type)
            return layer(weights)

        layers = over_layers(self.llm, layer_of)
        head = arriving_head(self.llm, b, self.gpu, self.load)
        return serial(layers=layers, head=head)

    def keeping(self, work: Workload, beside: Real = 0.0) -> Self:
        """This stream with as much of a layer's K and V on the GPU as there is room for.

        Args:
            work: its batch is what runs together.
            beside: bytes on the GPU besides weights and activations [B].
        """
        working = gpu_working_set(self.llm, work.together, self.tiers.gpu, work.batch)
        room = self.gpu.memory - beside - working
        return replace(self, kept=kept_share(self.llm, work, room))

    def contents(self, work: Workload) -> dict[str, Real]:
        """Bytes on the GPU while prompts pass a layer, K and V of earlier chunks among them [B]."""
        contents = gpu_contents(self.llm, work.together, self.tiers.gpu, work.batch)
        if any_chunks(work):
            held = self.kept * held_bytes(self.llm, work)
            contents["K and V of the layer"] = held
        return contents

    def prefill_layer(
        self, work: Workload, b: Real, arriving: Arriving, **caches: Span
    ) -> Span:
        """One layer over the prompts of b sequences, weights and compute beside the caches.

        Args:
            work: prompts and chunks; its batch is not used.
            b: sequences [1].
            arriving: as of `prompt_chunks.between_chunks`.
            caches: what else goes on meanwhile.
        """
        weights = self.llm.layer_weight_bytes(b * work.prompt)
        return overlap(
            weights=self.load(weights),
            compute=prefill_compute(self.llm, work, b, self.gpu),
            **caches,
            **self.between_chunks(work, b, arriving),
        )

    def between_chunks(
        self, work: Workload, b: Real, arriving: Arriving, by_host: Real = 1.0
    ) -> dict[str, Span]:
        """Traffic that prompts in chunks add to a layer, as of `prompt_chunks.between_chunks`."""
        return between_chunks(
            self.llm, work, b, self.gpu, self.link, self.kept, arriving, by_host
        )


def weights_from(
    hw: Machine, llm: LLM, tiers: Residency, storage: DataPath
) -> WeightStream:
    """Weights that are not on the GPU arrive layer by layer, those on storage by its path."""
    lanes = link(hw, "gpu_link", "pcie")
    return WeightStream(llm, gpu(hw), host(hw), lanes, tiers, storage)


def path_from_devices(hw: Machine, devices: Csd) -> DataPath:
    """The ports from computational storage to the host: files over its uplink."""
    lanes = link(hw, "uplink", "uplink").inward
    return {"flash": devices.read, "uplink": lanes, "file": page_cache(hw, "csd")}


@dataclass(frozen=True)
class PageableStream(WeightStream):
    """Weights of which a share in host memory is not pinned; those on drives pass pinned buffers.

    Attributes:
        pageable: how bytes that are not pinned come to the GPU [B].
        unpinned: share of the weights in host memory [1].
    """

    pageable: Port
    unpinned: Real

    def over_link(self, amount: Real) -> Span:
        """Weights that are not on the GPU, what is not pinned at its own rate.

        Args:
            amount: weights, wherever they live [B].
        """
        slow = self.unpinned * (self.tiers.host * amount)
        pinned = (1 - self.tiers.gpu) * amount - slow
        return serial(
            pinned=self.link.inward(pinned, "weights"),
            pageable=self.pageable(slow, "weights that are not pinned"),
        )


def drives_of(hw: Machine) -> FileStorage:
    """The drives behind their own link."""
    return file_storage(hw, "ssd", link(hw, "ssd_link", "pcie"))


def products(weights: WeightStream, b: Real, beyond: Real) -> Span:
    """Projections and feed-forward of one layer, weights dequantised first.

    Args:
        b: sequences [1].
        beyond: bytes an element that dequantising moves beyond one fused kernel's [B].
    """
    packed = weights.llm.layer_weight_bytes(b)
    return serial(
        unpack=dequantise_weights(weights.llm, packed, weights.gpu, beyond),
        projections=weights.projections(b),
        feed_forward=weights.feed_forward(b),
    )


def memories(
    weights: WeightStream,
    work: Workload,
    storage: FileStorage,
    cache: Residency,
    passing: Real,
    in_host: ByName,
) -> Fits:
    """Bytes on the GPU, in host memory and on the drives.

    Args:
        work: its batch is what runs together.
        cache: shares of the KV cache by memory.
        passing: latents on the GPU while it attends to them [B].
        in_host: what lies in host memory beside the cache [B].
    """
    llm, tiers = weights.llm, weights.tiers
    kv = llm.kv_cache_bytes(work.batch, work.final)
    gpu_need = weights.contents(work) | {
        "KV cache": cache.gpu * kv,
        "latents in transfer": passing,
    }
    host_need = {**in_host, "KV cache": cache.host * kv}
    need = {"weights": tiers.storage * llm.weight_bytes, "KV cache": cache.storage * kv}
    return fits(
        gpu=(gpu_need, weights.gpu.memory),
        host=(host_need, weights.host.memory),
        **{storage.role: (need, storage.capacity)},
    )
