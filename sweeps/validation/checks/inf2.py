"""Checks of INF² (INF² sec. 2.2, 3, 4.3, 7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.tiled_attention import near_storage
from nearkv.costmodel.model.metrics import Answer, throughput
from nearkv.costmodel.model.resources import csd, gpu
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import estimate_of, model_on, workload

Values = NDArray[np.float64]
SSD_WEIGHTS = (0.0, 0.5, 1.0)
"""Shares of the weights on SSD in fig. 12."""

# --- traffic ----------------------------------------------------------------------------------


@check
def prompt_bytes_written(platform: str, system: str, role: str) -> Real:
    """KV cache written in prefill, per layer, sequence, token and hidden unit (sec. 2.2) [B]."""
    _, llm = model_on(platform, "opt-66b")
    traffic = estimate_of(platform, system, "opt-66b", workload("32k")).prefill.traffic()
    written = traffic[f"{role}.flash", "write"]
    return written / (llm.layers * 16 * 32768 * llm.hidden)


@check
def rebuilding_is_free(platform: str, *models: str) -> Values:
    """1 where rebuilding K and V on the GPU costs nothing, 0 where as much as devices need to
    attend [1].

    Source: Sec. 4.3.
    """
    free = []
    for model in models:
        hw, llm = model_on(platform, model)
        flops = llm.kv_from_x_flops(1, 1)
        rebuild = gpu(hw).run(flops, "K and V from X")
        devices = csd(hw, llm.group)
        attend = near_storage(hw, llm, 1.0, 1.0, 0.0, devices)
        taken = rebuild.seconds / attend.seconds
        free.append(1 - float(taken))
    return np.array(free)


# --- trends of the baseline and of INF² -------------------------------------------------------


@check
def drives_idle_at(model: str, batch: str, context: str) -> float:
    """1 where FlexGen's decode reads no KV from the drives (sec. 7.5, fig. 12)."""
    work = workload(context, batch)
    step = estimate_of("inf2-a100", "flexgen-raid", model, work).step
    read = step.traffic()["ssd.flash", "read"]
    return float(read == 0)


def _throughput(system: str, model: str, batch: float, ssd_weights: float) -> float:
    work = Workload(batch, 16384.0, 64.0)
    estimate = estimate_of("inf2-a100", system, model, work, f"ssd_weights={ssd_weights}")
    hw = load_platform("inf2-a100").machine()
    return float(throughput(Answer(estimate, hw, ())))


@check
def only_stored_weights_gain_from_batches(model: str) -> float:
    """1 where batch 32 beats batch 1 in FlexGen with weights on SSD at 100 %, not at 0 and 50 %.

    Source: Sec. 7.5, fig. 12.
    """
    pays = []
    for share in SSD_WEIGHTS:
        large = _throughput("flexgen-raid", model, 32.0, share)
        pays.append(large > _throughput("flexgen-raid", model, 1.0, share))
    return float(pays == [False, False, True])


# --- arithmetic on stated numbers -------------------------------------------------------------
