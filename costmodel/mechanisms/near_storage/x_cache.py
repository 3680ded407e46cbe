"""The X-cache: part of a batch keeps X instead of K and V (HILOS sec. 4.2, INF² sec. 4.3).

Symbols: b batch, s context, h hidden, alpha share of the batch kept as X.
"""

from __future__ import annotations

from nearkv.costmodel.algebra.compose import overlap, serial, stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.weights.streaming import Path
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu, Link


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
