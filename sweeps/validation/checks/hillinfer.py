"""What HillInfer states of footprints, shares, formulas and trends, computed from its models."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.eviction import place
from nearkv.costmodel.mechanisms.scoring import (
    SCORE_BYTES,
    Pools,
    balanced_paths,
    beta_eq4,
    beta_sec54,
    csd_path,
    narrow_key_share,
    rates,
)
from nearkv.costmodel.registry import find_system
from nearkv.costmodel.resources import gpu
from nearkv.costmodel.span import Real
from nearkv.costmodel.systems.kv_eviction import fetch
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.beta import best_beta
from nearkv.sweeps.evaluation.evaluate import compare, table
from nearkv.sweeps.space.sizes import size
from nearkv.sweeps.space.study import Study
from nearkv.sweeps.validation.checks import check, model_on

Values = NDArray[np.float64]
BED = "aipc-4090"
ALPHA = 0.2
"""Retention of every experiment (sec. 5.2)."""


def _point(
    model: str = "qwen-7b", batch: float = 8.0, context: float = 12288.0
) -> tuple[Machine, LLM, Workload]:
    """The test bed, a model and a decode step; Qwen-7B, batch 8, 12K as in fig. 3 unless said."""
    return *model_on(BED, model), Workload(batch, context, 128.0)


# --- sec. 1 to 3: footprints and shares ----------------------------------------------------------


@check
def footprint(model: str, batch: str, context: str, bits: str) -> Real:
    """Weights at 16 bit and KV cache at so many bits (sec. 1, 3.1) [GB]."""
    _, llm, _ = _point(model)
    kv = llm.layers * llm.kv_bytes(float(batch), float(context)) * (float(bits) / 16)
    return (llm.weight_bytes + kv) / 1e9


@check
def kv_saving(bits: str) -> Real:
    """Share of the 16-bit KV cache that fewer bits save (sec. 3.1) [%]."""
    return 100 * (1 - float(bits) / 16)


@check
def combined_memory() -> float:
    """GPU memory and host memory as printed (sec. 3.1, 5.2) [GB]."""
    roles = load_platform(BED).roles
    return roles["gpu"].numbers["memory"].value + roles["host"].numbers["memory"].value


@check
def kv_exponent(model: str) -> Real:
    """Exponent of the KV cache in the context (sec. 2.1) [1]."""
    _, llm, _ = _point(model)
    exponent: Real = np.log(llm.kv_bytes(1.0, 65536.0) / llm.kv_bytes(1.0, 4096.0)) / np.log(16.0)
    return exponent


@check
def kv_share(tier: str) -> Real:
    """Share of the KV cache in a tier where every tier has room: OPT-6.7B, 128 + 64 tokens (sec. 3.2) [%]."""
    hw, llm = model_on(BED, "opt-6.7b")
    tiers = place(hw, llm, Workload(1.0, 128.0, 64.0), 0.0)
    return 100 * {"gpu": tiers.gpu, "host": tiers.host, "drive": tiers.drive}[tier]


@check
def transfer_over_attention(model: str, batch: str, context: str) -> Real:
    """Bringing all K and V to the GPU, over reading them from its memory for attention (fig. 3b) [1]."""
    hw, llm, work = _point(model, float(batch), float(context))
    transfer = fetch(hw, llm, work, place(hw, llm, work, 0.0), 1.0, 1.0).seconds
    return transfer / gpu(hw).read(llm.kv_bytes(work.batch, work.context)).seconds


# --- sec. 4: scoring and the two pools -----------------------------------------------------------


@check
def knob_default(system: str, knob: str) -> Real:
    """What a system's knob is unless said otherwise [1]."""
    return float(find_system(system).knobs[knob].default)


@check
def score_block() -> Real:
    """Bytes of one token in a score block (sec. 5.4) [B]."""
    return SCORE_BYTES


@check
def score_share(model: str) -> Real:
    """Score block over K and V of one token in one layer (sec. 5.4) [%]."""
    return 100 * SCORE_BYTES / _point(model)[1].kv_bytes(1.0, 1.0)


@check
def exposed_scores(model: str) -> Real:
    """Time that score blocks add to the SmartSSD's scoring in 16 chunks, over that scoring (HIE, fig. 7) [1]."""
    hw, llm, work = _point(model)
    cold = 0.2 * llm.kv_bytes(work.batch, work.context)
    pools = Pools(0.0, cold, 0.0, 0.0, 1.0)
    alone = balanced_paths(hw, llm, pools, 0.0, 0.0).parts["csd"].seconds
    return csd_path(hw, llm, pools, 0.0, 0.0, 16.0, 0.0).seconds / alone - 1


@check
def streamed_key_bytes() -> Real:
    """Bytes of a key's element that scoring reads by default (sec. 4.4) [B]."""
    _, llm, _ = _point()
    requested = find_system("hillinfer").knobs
    return llm.kv_width * narrow_key_share(
        llm,
        _number(requested["score_precision"].default),
        _number(requested["score_source"].default),
    )


def _number(default: float | str) -> float:
    return float(default)


@check
def path_over_eq2(path: str) -> Real:
    """T_CPU or T_SmartSSD of the model over M / f + alpha M / B of eq. 2, without skew and hop [1]."""
    hw, llm, work = _point()
    kv = llm.kv_bytes(work.batch, work.context)
    r = rates(hw, llm, 1.0, 0.0, 0.0)
    f, bandwidth = (r.f_c, r.b_c) if path == "cpu" else (r.f_s, r.b_s)
    pools = Pools(kv, 0.0, ALPHA, 0.0, 0.0) if path == "cpu" else Pools(0.0, kv, ALPHA, 0.0, 0.0)
    return balanced_paths(hw, llm, pools, 1.0, 0.0).parts[path].seconds / (
        kv / f + ALPHA * kv / bandwidth
    )


def _best(hop: float, hw: Machine, llm: LLM, work: Workload) -> tuple[Real, Real, Real]:
    """Exact beta without skew, and those of eq. 4 and sec. 5.4 [1]."""
    knobs: dict[str, Real] = {
        "retention": ALPHA, "sigma": 0.0, "hop": hop, "score_precision": 1.0, "score_source": 0.0, "placement": 0.0,
    }  # fmt: skip
    r = rates(hw, llm, 1.0, 0.0, hop)
    return best_beta(hw, llm, work, knobs).best.beta, beta_eq4(r, ALPHA), beta_sec54(r, ALPHA)


@check
def best_beta_over(formula: str) -> Real:
    """The exact optimum of the split over a formula of the paper, on the model that formula solves [1]."""
    hw, llm, work = _point()
    best, eq4, sec54 = _best(0.0 if formula == "eq4" else 1.0, hw, llm, work)
    return best / (eq4 if formula == "eq4" else sec54)


@check
def best_beta_over_bound() -> Real:
    """The exact optimum over M_0 / M_s where host memory binds, at 36K tokens (eq. 4) [1]."""
    hw, llm, work = _point(context=36864.0)
    on_gpu = place(hw, llm, work, 0.0).gpu
    off_gpu = (1 - on_gpu) * llm.layers * llm.kv_bytes(work.batch, work.final)
    return _best(1.0, hw, llm, work)[0] / (hw.host.kv_memory / (off_gpu - hw.host.kv_memory))


@check
def ranking_overlap(heads: str) -> Real:
    """Top 20 % of 4,096 keys by normal scores Q K^T that are top 20 % by attention weight, summed over heads [1]."""
    random = np.random.default_rng(0)
    raw = random.standard_normal((int(heads), 4096))
    weights = np.exp(raw - raw.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    kept = int(ALPHA * 4096)
    tops = [set(np.argsort(scores.sum(axis=0))[-kept:].tolist()) for scores in (raw, weights)]
    return len(tops[0] & tops[1]) / kept


@check
def attention_keeps_up(drive: str) -> Real:
    """1 where the attention kernel HILOS built on one device takes K and V as fast as its flash gives them, else 0."""
    numbers = load_platform(BED).roles[drive].numbers
    # without grouped queries one FLOP a byte: two a 16-bit element
    return float(numbers["kernel_g1"].si >= numbers["p2p_read"].si)


# --- sec. 5: trends --------------------------------------------------------------------------------


@check
def reduction(*speedups: str) -> Values:
    """1 - 1 / S (sec. 5.3) [%]."""
    return 100 * (1 - 1 / np.array([float(speedup) for speedup in speedups]))


@check
def latency_cut(baseline: str, contexts: str) -> Values:
    """End-to-end latency that HillInfer saves, all models that fit, batch 8 (sec. 5.3) [%]."""
    return 100 * (1 - 1 / _speedups(baseline, "qwen-7b,longchat-7b,llama-13b", contexts))


@check
def context_trend(baseline: str, contexts: str) -> float:
    """Exponent of the end-to-end speed-up in the context, Qwen-7B, batch 8 (sec. 5.3) [1]."""
    found = _speedups(baseline, "qwen-7b", contexts)
    tokens = np.array([size(context, "context") for context in contexts.split("+")])
    return float(np.polyfit(np.log(tokens), np.log(found), 1)[0])


def _speedups(baseline: str, models: str, contexts: str) -> Values:
    found = compare(
        Study(
            (baseline, "hillinfer"),
            tuple(models.split(",")),
            "8",
            contexts.replace("+", ","),
            "128",
        )
    )
    speedups: Values = found["total_speedup"][found["system"] == "hillinfer"].astype(float)
    return speedups


@check
def batches_that_run(model: str, least: str, most: str) -> Values:
    """Of some batches those that HillInfer serves together, 1,920 + 128 tokens (fig. 15) [1]."""
    found = table(Study(("hillinfer",), (model,), f"{least}:{most}:+1", "1920", "128"))
    batch = found["batch"].astype(float)
    at_once: Values = batch[(found["status"] == "ok") & (found["batch_run"].astype(float) >= batch)]
    return at_once


@check
def linearity(*systems: str) -> Values:
    """R^2 of end-to-end latency over batch 1 to 10, OPT-6.7B, 1,920 + 128 tokens (fig. 14) [1]."""
    found = table(Study(systems, ("opt-6.7b",), "1:10:+1", "1920", "128"))
    latency = found["total_s"].astype(float).reshape(len(systems), 10)
    batch = np.broadcast_to(np.arange(1.0, 11.0), latency.shape)
    return np.array([np.corrcoef(x, y)[0, 1] ** 2 for x, y in zip(batch, latency, strict=True)])
