"""Statements of HillInfer on footprints, shares and formulas, computed from its models.

Source: HillInfer sec. 1 to 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.eviction import place_cache
from nearkv.costmodel.mechanisms.near_storage.scoring import (
    Pools,
    balanced_paths,
    csd_path,
    narrow_key_share,
    rates,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.resources import gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.costmodel.systems.kv_eviction import fetch
from nearkv.hardware.machine import Machine
from nearkv.sweeps.explore.batch import find_batches
from nearkv.sweeps.explore.beta import find_beta
from nearkv.sweeps.tables.table import Columns
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.questions import WordedStudy, model_on

BED = "aipc-4090"
EVICTION_ALPHA = 0.2
"""Retention of every experiment (sec. 5.2)."""


def _point(
    model: str = "qwen-7b", batch: float = 8.0, context: float = 12288.0
) -> tuple[Machine, LLM, Workload]:
    """The test bed, a model and a decode step; by default that of fig. 3, Qwen-7B with batch 8 at
    12K.
    """
    return *model_on(BED, model), Workload(batch, context, 128.0)


# --- sec. 1 to 3: footprints and shares -------------------------------------------------------


@check
def kv_exponent(model: str) -> Any:
    """Exponent of the KV cache in the context (sec. 2.1) [1]."""
    _, llm, _ = _point(model)
    growth = llm.kv_bytes(1.0, 65536.0) / llm.kv_bytes(1.0, 4096.0)
    return np.log(growth) / np.log(16.0)


@check
def transfer_over_attention(model: str, batch: str, context: str) -> Real:
    """Transfer of all K and V to the GPU, over reading them from its memory for attention [1].

    Source: Fig. 3b.
    """
    hw, llm, work = _point(model, float(batch), float(context))
    transfer = fetch(hw, llm, work, place_cache(hw, llm, work, 0.0), 1.0, 1.0)
    attention = gpu(hw).read(llm.kv_bytes(work.batch, work.context))
    return transfer.seconds / attention.seconds


# --- sec. 4: scoring and the two pools --------------------------------------------------------


@check
def exposed_scores(model: str) -> Real:
    """Time that score blocks add to the SmartSSD's scoring in 16 chunks, over that scoring [1].

    Source: HIE, fig. 7.
    """
    hw, llm, work = _point(model)
    cold = 0.2 * llm.kv_bytes(work.batch, work.context)
    pools = Pools(0.0, cold, 0.0, 0.0, 1.0)
    alone = balanced_paths(hw, llm, pools, 0.0, 0.0).parts["csd"]
    in_chunks = csd_path(hw, llm, pools, 0.0, 0.0, 16.0, 0.0)
    return in_chunks.seconds / alone.seconds - 1


@check
def streamed_key_bytes() -> Real:
    """Bytes of a key's element that scoring reads by default (sec. 4.4) [B]."""
    _, llm, _ = _point()
    knobs = find_system("hillinfer").knobs
    precision = float(knobs["score_precision"].default)
    source = float(knobs["score_source"].default)
    return llm.kv_width * narrow_key_share(llm, precision, source)


@check
def path_over_eq2(path: str) -> Real:
    """T_CPU or T_SmartSSD of the model over M / f + alpha M / B (eq. 2), no skew, no hop [1]."""
    hw, llm, work = _point()
    kv = llm.kv_bytes(work.batch, work.context)
    r = rates(hw, llm, 1.0, 0.0, 0.0)
    in_dram, on_drive, read, moved = {
        "cpu": (kv, 0.0, r.f_c, r.b_c),
        "csd": (0.0, kv, r.f_s, r.b_s),
    }[path]
    pools = Pools(in_dram, on_drive, EVICTION_ALPHA, 0.0, 0.0)
    printed = kv / read + EVICTION_ALPHA * kv / moved
    return balanced_paths(hw, llm, pools, 1.0, 0.0).parts[path].seconds / printed


def _solved(hop: str, context: str = "12k") -> Columns:
    """Columns of `solve beta` without skew, batch 8."""
    return find_beta(
        WordedStudy(
            "hillinfer",
            "qwen-7b",
            platform=BED,
            batch="8",
            context=context,
            output_tokens="128",
            knob=f"sigma=0;hop={hop};score_precision=int8",
        ).study
    )


@check
def best_beta_over(rule: str, hop: str) -> Any:
    """The exact optimum of the split over a formula of the paper, on the model that formula solves
    [1].
    """
    columns = _solved(hop)
    return columns["value"].astype(float) / columns[rule].astype(float)


@check
def best_beta_over_bound() -> Any:
    """The exact optimum over M_0 / M_s where host memory binds, at 36K tokens (eq. 4) [1]."""
    hw, llm, work = _point(context=36864.0)
    on_gpu = place_cache(hw, llm, work, 0.0).gpu
    off_gpu = (1 - on_gpu) * llm.layers * llm.kv_bytes(work.batch, work.final)
    on_drive = off_gpu - hw.host.kv_memory
    best = _solved("through-host", "36k")["value"].astype(float)
    return best / (hw.host.kv_memory / on_drive)


@check
def ranking_overlap(heads: str) -> Real:
    """Top 20 % of 4,096 keys by normal scores Q K^T that are top 20 % by attention weight, summed
    over heads [1].
    """
    random = np.random.default_rng(0)
    raw = random.standard_normal((int(heads), 4096))
    weights = np.exp(raw - raw.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    kept = int(EVICTION_ALPHA * 4096)
    top_by_score = np.argsort(raw.sum(axis=0))[-kept:]
    top_by_weight = np.argsort(weights.sum(axis=0))[-kept:]
    return len(np.intersect1d(top_by_score, top_by_weight)) / kept


# --- sec. 5: batches ------------------------------------------------------------------------------


@check
def largest_batch(model: str, most: str) -> Any:
    """The largest batch up to one that HillInfer serves without rounds, 1,920 + 128 tokens [1].

    Source: Sec. 5.4, fig. 15.
    """
    question = WordedStudy("hillinfer", model, context="1920", output_tokens="128")
    (row,) = find_batches(question.study)
    return min(row["largest_batch"], float(most))
