"""Checks of INF² (sec. 2.2, 4.3, 7.5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.host_x_cache import near_storage
from nearkv.costmodel.model.resources import csd, gpu
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.near_storage import PUBLISHED
from nearkv.sweeps.validation.questions import (
    WordedStudy,
    columns_of,
    estimate_of,
    model_on,
)


@check
def prompt_bytes_written(platform: str, system: str, role: str) -> Real:
    """KV cache written in prefill, per layer, sequence, token and hidden unit (sec. 2.2) [B]."""
    question = WordedStudy(system, "opt-66b", platform=platform, knob=PUBLISHED)
    traffic = estimate_of(question).prefill.traffic()
    written = traffic[f"{role}.flash", "write"]
    _, llm = model_on(platform, "opt-66b")
    return written / (llm.layers * 16 * 32768 * llm.hidden)


@check
def rebuilding_is_free(platform: str, *models: str) -> list[Real]:
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
        free.append(1 - rebuild.seconds / attend.seconds)
    return free


@check
def drives_idle_at(model: str, batch: str, context: str) -> Any:
    """1 where FlexGen's decode reads no KV from the drives (sec. 7.5, fig. 12)."""
    question = WordedStudy(
        "flexgen-raid",
        model,
        platform="inf2-a100",
        knob=PUBLISHED,
        batch=batch,
        context=context,
    )
    read = estimate_of(question).step.traffic()["ssd.flash", "read"]
    return np.all(read == 0)


@check
def only_stored_weights_gain_from_batches(model: str) -> bool:
    """1 where batch 32 beats batch 1 in FlexGen with weights on SSD at 100 %, not at 0 and 50 %.

    Source: Sec. 7.5, fig. 12.
    """
    knobs = f"ssd_weights=0,0.5,1;{PUBLISHED}"
    single, batched = (
        columns_of(
            WordedStudy(
                "flexgen-raid",
                model,
                platform="inf2-a100",
                knob=knobs,
                batch=batch,
                context="16k",
            )
        )["throughput_tok_s"].astype(float)
        for batch in ("1", "32")
    )
    return np.array_equal(batched > single, [False, False, True])
