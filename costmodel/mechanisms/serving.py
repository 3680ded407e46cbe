"""Serving a queue of requests: tensor and data parallel GPUs, and the fluid model.

A queue keeps the memory full: whenever a request ends, the next one starts. The fluid model takes
the average iteration of that steady state. `sweeps/simulate.py` plays the same iterations event by
event.

Symbols: B requests, N resident, R = B / N rounds, s prompt, n output, L layers, tp and dp degrees.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nearkv.costmodel.capacity import Fits
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.queue import Load, Serving
from nearkv.costmodel.registry import Knob
from nearkv.costmodel.resources import Gpu, gpu, link
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

NONE: Mapping[str, Real] = {}
POLICY = Knob(
    "let a request's memory grow page by page, or admit it with its final length reserved",
    high=1, default=0, kind="choice", choices=("paged", "reserve"),
)  # fmt: skip
"""The paper leaves admission open; every system here can do either."""


def tensor_parallel(hw: Machine, llm: LLM) -> Real:
    """Fewest GPUs, a power of two, with no more weights each than the policy: L3 Table 3 [1]."""
    needed = np.ceil(np.log2(np.maximum(llm.weight_bytes / hw.policy.weights_per_gpu, 1.0)))
    return np.minimum(np.exp2(needed), hw.gpu.count)


def data_parallel(hw: Machine, llm: LLM) -> Real:
    """Replicas on the remaining GPUs [1]."""
    return np.floor(hw.gpu.count / tensor_parallel(hw, llm))


def in_use(hw: Machine, llm: LLM) -> Machine:
    """The machine with the tp x dp GPUs that serve, with one link for each; the rest idles."""
    used = tensor_parallel(hw, llm) * data_parallel(hw, llm)
    links = {
        f"{role}.count": np.minimum(hw[role].count, used)
        for role in ("gpu_link", "nvlink")
        if role in hw.roles
    }
    return hw.with_values({"gpu.count": used, **links})


def kv_token_bytes(llm: LLM) -> Real:
    """KV cache of one token in all layers, kappa = 4 L D for plain attention and 16 bit [B]."""
    return llm.layers * llm.kv_bytes(1, 1)


def gpu_room(hw: Machine, llm: LLM) -> Real:
    """Tokens of KV cache that fit beside the weights, over all replicas [1]."""
    weights = data_parallel(hw, llm) * llm.weight_bytes
    return np.maximum(hw.gpu.count * hw.gpu.memory - weights, 0.0) / kv_token_bytes(llm)


def linear(hw: Machine, llm: LLM, tokens: Real, passes: Real = 1.0) -> Span:
    """All matrix products of one layer on tp x dp GPUs, and two ring all-reduces.

    Each replica reads all weights `passes` times. A ring sends 2 (tp - 1) / tp of the activations
    over each GPU's link.

    Args:
        tokens: computed, over all replicas [1].
        passes: times a replica reads the weights [1].
    """
    tp, dp = tensor_parallel(hw, llm), data_parallel(hw, llm)
    visits = passes * np.minimum(tokens / dp, 1.0)
    gpus, nvlink = gpu(hw), link(hw, "nvlink", "link")
    launch = Port("gpu.launch", "wait", 1.0, "s")
    settle = Port("nvlink.latency", "wait", 1.0, "s")
    ring = 2 * (tp - 1) * llm.hidden * tokens * llm.activation_width
    return serial(
        products=overlap(
            weights=gpus.read(
                visits * dp * llm.layer_weight_bytes(np.maximum(tokens / dp, 1.0)),
                "W / tp on every GPU",
            ),
            compute=gpus.run(llm.linear_flops(tokens), "2 P n"),
        ),
        launch=launch(visits * hw.gpu.launch, "kernels of a layer"),
        settle=settle(
            2 * visits * np.minimum(tp - 1, 1.0) * hw.nvlink.latency, "two all-reduces a layer"
        ),
        all_reduce=nvlink.outward(2 * ring, "2 (tp-1)/tp of the activations, twice"),
    )


def prefill_attention(hw: Machine, llm: LLM, squares: Real) -> Span:
    """Causal attention of prompts in one layer, 4 D (l c0 + l^2 / 2) FLOPs a chunk."""
    rate = hw.gpu.count * hw.gpu.flops * hw.derate.prefill_attention
    port = Port("gpu.tensor", "run", rate, "FLOP")
    return port(llm.prefill_attention_flops(squares, 1.0), "4 D (l c0 + l^2/2)")


def prompts_alone(hw: Machine, llm: LLM, prompts: Real, load: Load) -> Span:
    """One layer of prefill, prompt by prompt on every replica, prefill first (L3 sec. 6.1)."""
    return serial(
        linear=linear(hw, llm, load.prompt, prompts / data_parallel(hw, llm)),
        attention=prefill_attention(hw, llm, load.squares),
    )


def attention_launch(hw: Machine) -> Real:
    """Launch time of the attention kernels of a layer, where apart from `launch` [s]."""
    return hw.gpu.maybe("attention_launch", 0.0)


def decode_attention(hw: Machine, llm: LLM, sequences: Real, tokens: Real) -> Span:
    """Attention of one layer to all tokens on the GPUs; each replica launches its kernels."""
    launch = Port("gpu.launch", "wait", 1.0, "s")
    visits = np.minimum(sequences / data_parallel(hw, llm), 1.0)
    return serial(
        read=gpu_attention(hw)(llm.kv_bytes(1, tokens), "kappa tokens / L"),
        launch=launch(visits * attention_launch(hw), "kernels of the attention of a layer"),
    )


def gpu_attention(hw: Machine) -> Port:
    """Decode attention from HBM, in KV bytes [B]."""
    gpus: Gpu = gpu(hw)
    return Port(
        gpus.read.resource, "read", hw.gpu.count * hw.gpu.bandwidth * hw.derate.decode_attention
    )


def kv_bytes_reserved(work: Workload, reserve: Real) -> Real:
    """Tokens a resident request takes: its context, or its final length if reserved [1]."""
    return work.context + reserve * (work.final_seen - work.context)


def room_for(work: Workload, serving: Serving) -> Real:
    """Requests of mean size that would fill the memory [1]."""
    return serving.room / kv_bytes_reserved(work, serving.reserve)


def resident(work: Workload, serving: Serving) -> Real:
    """Requests that decode together, N: all, or as many of mean size as the memory holds [1].

    A queue fills memory with whole requests, which leaves room for half of one idle in each replica
    on average; at least one runs.
    """
    most = room_for(work, serving)
    filled = np.maximum(most - serving.replicas / 2, np.minimum(serving.replicas, work.batch))
    return np.where(np.less_equal(work.batch, most), work.batch, np.minimum(filled, work.batch))[()]


def memory_needed(work: Workload, serving: Serving) -> Real:
    """Tokens of KV cache needed: all residents', on each replica at least the longest [1]."""
    return np.maximum(resident(work, serving) * work.context, serving.replicas * work.longest)


def steady(
    work: Workload,
    serving: Serving,
    fits: Fits,
    also: Mapping[str, Real] = NONE,
    accelerator_power: Mapping[str, Real] = NONE,
) -> Estimate:
    """Fluid model: prefill and one decode step of all B requests, N at a time.

    The prompts that fill an empty memory have no decode step to share. Where prompts ride in decode
    iterations, all later ones do, spread over R (n - 1) iterations; elsewhere all come first.

    Args:
        work: mean lengths and moments of the requests.
        serving: how the system serves them.
        fits: what fits.
        also: columns beside the time between tokens, which counts the pauses for prompts that
            come later. That time is too long, up to 9 x, where riding prompts take longer than
            decoding: fewer than N would decode then (docs/l3.md).
        accelerator_power: as in `Estimate`.

    Returns:
        Prefill, and one decode step over all R rounds.
    """
    n = resident(work, serving)
    rounds = work.batch / np.maximum(n, 1e-9)
    later = np.maximum(1 - room_for(work, serving) / np.maximum(work.batch, 1e-9), 0.0)
    riding = np.where(work.output > 1, serving.chunked * later, 0.0)
    squares = work.prompt**2 * work.spread.prompt_square
    iterations = np.maximum(rounds * (work.output - 1), 1.0)
    each, alone = riding * work.batch / iterations, (1 - riding) * work.batch
    tokens = n * work.context
    load = Load(n, tokens, tokens * serving.skew(n), each * work.prompt, each * squares)
    prompts = Load(0.0, 0.0, 0.0, alone * work.prompt, alone * squares)
    iteration, prefill = serving.iteration(load), serving.prefill(alone, prompts)
    paused = (1 - serving.chunked) * later * prefill.seconds / iterations
    return Estimate(
        prefill=prefill,
        step=rounds * iteration,
        fits=fits,
        work=work,
        batch_run=n,
        accelerator_power=accelerator_power,
        step_carries=each * work.prompt,
        also={"tbt_ms": 1e3 * (iteration.seconds + paused), **also},
        serving=serving,
    )
