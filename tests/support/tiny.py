"""A model small enough to count its bytes by hand, and what its pieces come to.

Three layers of hidden size 8 with 6 query heads and 2 KV heads of size 3, a gated feed-forward of
size 19, 11 words, 7 positions; 2 bytes an element. Five sequences of 100 tokens generate 21: a step
sees 110.5 tokens of each on average, 121 in the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.chosen import Windowed
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import Mixed
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_part, load_platform

SHAPE: dict[str, float] = {
    "layers": 3,
    "hidden": 8,
    "ffn": 19,
    "heads": 6,
    "kv_heads": 2,
    "head_size": 3,
    "vocab": 11,
    "positions": 7,
    "gated": 1,
    "tied": 0,
    "experts": 1,
    "active_experts": 1,
}
TINY = LLM(**SHAPE)
WORK = Workload(batch=5.0, prompt=100.0, output=21.0)

# bytes of weights: 2 x 8 x (18 + 6) = 384 in attention, 3 x 8 x 19 = 456 in the feed-forward
ATTENTION_WEIGHTS = 3 * 384 * 2
MLP_WEIGHTS = 3 * 456 * 2
LAYERS = ATTENTION_WEIGHTS + MLP_WEIGHTS
HEAD = 11 * 8 * 2
STREAMED = LAYERS + HEAD
ALL_WEIGHTS = LAYERS + (11 + 11 + 7) * 8 * 2
# a prompt's activations: X, Q, K, V and the output, 8 + 2 x 18 + 2 x 6, exceed 2 x 8 + 2 x 19
ACTIVATIONS = 100 * 56 * 2
# two of the feed-forward's and all of the attention's matrices of a layer wait on the GPU
BUFFER = (384 + 2 * 456) * 2
# bytes of caches in all layers: K and V of 2 heads of 3 elements, or X of 8
TOKEN_KV = 3 * 2 * 6 * 2
TOKEN_X = 3 * 8 * 2
NEW_KV = 5 * TOKEN_KV
NEW_X = 5 * TOKEN_X
QUERIES = 3 * 5 * 18 * 2
KV = 5 * 110.5 * TOKEN_KV
X = 5 * 110.5 * TOKEN_X
PROMPT_KV = 5 * 100 * TOKEN_KV
PROMPT_X = 5 * 100 * TOKEN_X
FINAL_KV = 5 * 121 * TOKEN_KV
FINAL_X = 5 * 121 * TOKEN_X
# FLOPs: two a weight and token, four a query element and token attended to, half that in a prompt
LINEAR = 2 * 5 * 3 * 840
ATTEND = 4 * 5 * 110.5 * 3 * 18
HEAD_FLOPS = 2 * 5 * 11 * 8
PROMPT_FLOPS = 2 * 500 * 3 * 840 + 2 * 5 * 100**2 * 3 * 18
REBUILD = 4 * 5 * 110.5 * 3 * 8 * 6

Amounts = Mapping[str, Real]


def estimate(
    name: str, changes: Amounts | None = None, llm: LLM = TINY, /, **knobs: Real
) -> Estimate:
    """The estimate of a system for the small model on its platform, changed a little."""
    system = find_system(name)
    bed = load_platform(system.platform)
    if system.name == "gpu":  # an engine that keeps no memory for itself
        bed = bed.with_part("engine", load_part("l3-simulator"), "l3-simulator")
    hw = bed.machine().with_values(changes or {})
    return system(hw, llm, WORK, knobs)


def split(tp: Real, dp: Real = 1.0, **others: Real) -> dict[str, Real]:
    """Knobs of GPUs that share a model."""
    return {"tp": tp, "dp": dp, "pp": 1.0, "ep": 1.0, "attention": 0.0, **others}


def gpus_of_l3(
    knobs: Amounts, changes: Amounts | None = None, llm: LLM = TINY, work: Workload = WORK
) -> Estimate:
    """The estimate of GPUs alone on the test bed of L3."""
    hw = load_platform("dgx-a100-pim").machine().with_values(changes or {})
    return find_system("gpu")(hw, llm, work, knobs)


def amounts(span: Span) -> dict[str, float]:
    """Amount that every resource carries, where it carries something."""
    traffic = {" ".join(key): float(amount) for key, amount in span.traffic().items()}
    return {key: amount for key, amount in traffic.items() if amount}


def waited_for(resource: str, span: Span) -> Real:
    """Seconds of all waits for a resource."""
    return sum(
        times * leaf.seconds for _, leaf, times in span.leaves() if leaf.resource == resource
    )


def two_kinds(window: float) -> Mixed:
    """The small model with one full layer, and two that attend to a window of tokens."""
    full = LLM(**{**SHAPE, "layers": 1.0})
    windowed = Windowed(**{**SHAPE, "layers": 2.0}, window=window)
    return Mixed(**SHAPE, types_by_name={"full": full, "window": windowed})


def check(span: Span, expected: Amounts) -> None:
    """Hold that a span moves what is expected, and nothing else."""
    assert amounts(span) == pytest.approx({key: value for key, value in expected.items() if value})


def plus(first: Amounts, second: Amounts) -> dict[str, Real]:
    """The sums of both."""
    return {key: first.get(key, 0) + second.get(key, 0) for key in first.keys() | second.keys()}


def needed(answer: Estimate) -> dict[str, float]:
    """Bytes that every memory must hold."""
    return {tier: float(amount) for tier, (amount, _) in answer.fits.tiers.items()}
