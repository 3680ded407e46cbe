"""Latents that systems which offload bring to the GPU, as no rate is known of a CPU over them.

Symbols: b sequences, s tokens, r latent rank, dr rotary size, H query heads.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.compose import overlap, stream
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.near_storage.offload import Path
from nearkv.costmodel.model.latent import Latent
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Gpu
from nearkv.costmodel.model.workload import Workload


def latents_from_host(llm: LLM, b: Real, s: Real, gpu: Gpu, path: Path) -> Span:
    """Latents of b sequences come to the GPU, which attends to them as they arrive.

    A token's row of r + dr elements serves all heads, so the bytes are few and the products many:
    where a CPU would attend to K and V of heads, it is the GPU that attends to latents.

    Args:
        b, s: sequences and context [1].
        path: the ports from where latents live to the GPU.
    """
    rows = llm.kv_bytes(b, s)
    products = llm.attention_flops(b, s)
    return overlap(
        load=stream(rows, "(r + dr) elements of a token", **path),
        hbm=gpu.read(rows, "latents"),
        compute=gpu.run(products, "2 b s H (2 r + dr)"),
    )


def arriving_latents(llm: LLM, b: Real, s: Real) -> Real:
    """GPU memory for the latents of one layer, which the GPU attends to; none for heads [B]."""
    most: Real = 0.0
    for kind in llm.kinds.values():
        if not isinstance(kind, Latent):
            continue
        rows = kind.kv_bytes(b, s)
        present = np.minimum(kind.layers, 1.0)
        most = np.maximum(most, present * rows)
    return most


def passing_latents(llm: LLM, work: Workload, batches: Real) -> Real:
    """GPU memory for latents on their way, of the GPU batch attended to and of the next [B].

    Args:
        batches: GPU batches of a step [1].
    """
    sequences = work.batch / batches
    of_one = arriving_latents(llm, sequences, work.final)
    return 2 * of_one
