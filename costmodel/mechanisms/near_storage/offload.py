"""What systems that offload to host memory and storage share: the GPU's part, drives, caches.

Symbols: b batch, s prompt, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, serial, stream
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, Host, Link, drives
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

Path = Mapping[str, Port]
"""The ports bytes pass one after the other, by name."""
Load = Callable[[Real], Span]
"""How so many bytes of weights come to the GPU."""


# --- the GPU ----------------------------------------------------------------------------------


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
    attention = llm.prefill_attention_flops(batch, work.prompt)
    return layer_compute(llm, batch * work.prompt, attention, gpu, "2 P b s + 2 b h s^2")


def layer_compute(llm: LLM, tokens: Real, attention: Real, gpu: Gpu, eq: str) -> Span:
    """All products of one layer at the rate of their widths, attention at that of 16 bits.

    Args:
        tokens: computed [1].
        attention: of Q K^T and scores V [FLOP].
        eq: where the sum comes from.
    """
    if not gpu.is_faster_for(llm.operands):
        return gpu.run(llm.linear_flops(tokens) + attention, eq)
    dense, mlp = llm.operands
    projected = llm.qkv_flops(tokens) + llm.output_flops(tokens)
    return serial(
        projections=gpu.products(dense)(projected, eq),
        attention=gpu.run(attention, eq),
        feed_forward=gpu.products(mlp)(llm.ffn_flops(tokens), eq),
    )


def unpacked_bytes(weights: Real, width: Real, operand: Real, gpu: Gpu) -> Real:
    """Device memory traffic of unpacking weights before a product: copies written and read [B].

    Where weights are narrower than the product takes them, systems built on PyTorch unpack each
    matrix first (FlexGen's `decompress`, bitsandbytes); serving engines fuse it into the product.

    Args:
        weights: as they are stored [B].
        width: of one of them [B].
        operand: width of the wider operand [B].
    """
    taken = gpu.product_width(operand)
    narrower = np.less(width, taken)
    if not np.any(narrower):
        return 0.0
    copies = np.where(narrower, weights / width * taken, 0.0)
    return 2 * copies


def gpu_working_set(
    llm: LLM, prompt: Real, on_gpu: Real = 0.0, sequences: Real = 0.0
) -> Real:
    """GPU memory of layer-wise inference: weights, activations, recurrent states [B].

    Args:
        prompt: tokens of one prompt, of which one is processed at a time [1].
        on_gpu: 1 where all weights stay, 0 where only those on their way do.
        sequences: whose states stay there [1].
    """
    resident = on_gpu * llm.weight_bytes
    passing = (1 - on_gpu) * llm.weight_buffer_bytes()
    working = resident + passing + llm.activation_bytes(prompt)
    return working + llm.all_state_bytes(sequences) if llm.kinds else working


def update_state(llm: LLM, b: Real, gpu: Gpu) -> Span:
    """Read, update and write the recurrent states of b sequences in one layer.

    They are small and do not grow, so wherever K and V live they stay on the GPU.
    """
    moved = llm.cache_traffic(b, 1.0)
    return overlap(
        hbm=gpu.read(moved, "state, read and written"),
        compute=gpu.run(llm.attention_flops(b, 1.0), "update and read the state"),
    )


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
    part = hw[role]
    if "array_read" in part:
        read["array"] = Port(f"{role}.array", "move", part.array_read)
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
    outward = {"link": gpu_link.outward, "uplink": uplink.outward}
    inward = {"uplink": uplink.inward, "link": gpu_link.inward}
    return serial(
        qkv=stream(new, "6h, eq. 3", **outward),
        result=stream(out, "2h, eq. 3", **inward),
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
    products = (1 - copy) * llm.group
    times = copy + products
    attend = Port("host.dram", "read", host.attend.rate / times)
    kv = llm.kv_bytes(b, s)
    return attend(kv, "CPU attention, HILOS fig. 1b")


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
