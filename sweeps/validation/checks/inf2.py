"""Checks of INF² (papers: inf2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.metrics import Answer, throughput
from nearkv.costmodel.resources import csd, gpu
from nearkv.costmodel.span import Real
from nearkv.costmodel.systems.inf2 import near_storage
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.validation.checks import check, estimate_of, model_on
from nearkv.sweeps.validation.checks.offload import asked, sum_of


@check
def prompt_bytes_written(platform: str, system: str, role: str) -> Real:
    """KV cache written in prefill, a layer, sequence, token and hidden unit (sec. 2.2) [B]."""
    llm = model_on(platform, "opt-66b")[1]
    traffic = estimate_of(platform, system, "opt-66b", asked("32k")).prefill.traffic()
    return traffic[f"{role}.flash", "write"] / (llm.layers * 16 * 32768 * llm.hidden)


@check
def drives_that_pay(model: str, context: str) -> float:
    """Drives after which one more shortens FlexGen's step by less than 1 % (sec. 3, 7.7) [1]."""
    steps = np.array([_flexgen_step(model, context, n) for n in range(1, 17)])
    return float(np.argmax(steps[:-1] / steps[1:] < 1.01) + 1)


def _flexgen_step(model: str, context: str, drives: int) -> float:
    return float(
        estimate_of(
            "inf2-h100", "flexgen-raid", model, asked(context, "32"), f"drives={drives}"
        ).step.seconds
    )


@check
def kv_removed_by_a_byte(model: str) -> Real:
    """KV traffic that a byte of host memory removes as X, over what it removes as K and V (sec. 4.3) [1]."""
    llm = model_on("inf2-a100", model)[1]
    return llm.kv_bytes(1, 1) / llm.x_bytes(1, 1)


@check
def rebuilding_is_free(platform: str, *models: str) -> NDArray[np.float64]:
    """1 where rebuilding K and V on the GPU costs nothing, 0 where as much as devices need to attend (sec. 4.3) [1]."""
    hw = load_platform(platform).machine()
    shapes = [model_on(platform, model)[1] for model in models]
    rebuild = [gpu(hw).run(llm.kv_from_x_flops(1, 1), "K and V from X").seconds for llm in shapes]
    attend = [near_storage(hw, llm, 1.0, 1.0, 0.0, csd(hw, llm.group)).seconds for llm in shapes]
    free: NDArray[np.float64] = 1 - np.array(rebuild, float) / np.array(attend, float)
    return free


@check
def weights_at_16_bit(model: str) -> Real:
    """Weights at 16 bit (sec. 7.3) [GB]."""
    return model_on("inf2-a100", model)[1].weight_bytes / 1e9


@check
def drives_idle_at(model: str, batch: str, context: str) -> float:
    """1 where FlexGen's decode reads no KV from the drives (sec. 7.5, fig. 12)."""
    step = estimate_of("inf2-a100", "flexgen-raid", model, asked(context, batch)).step
    return float(step.traffic()["ssd.flash", "read"] == 0)


def _throughput(system: str, model: str, batch: float, ssd_weights: float) -> float:
    found = estimate_of(
        "inf2-a100", system, model, Workload(batch, 16384.0, 64.0), f"ssd_weights={ssd_weights}"
    )
    return float(throughput(Answer(found, load_platform("inf2-a100").machine(), ())))


@check
def only_stored_weights_gain_from_batches(model: str) -> float:
    """1 where batch 32 beats batch 1 in FlexGen with weights on SSD at 100 %, not at 0 and 50 % (sec. 7.5, fig. 12)."""
    gains = [
        _throughput("flexgen-raid", model, 32.0, w) > _throughput("flexgen-raid", model, 1.0, w)
        for w in (0, 0.5, 1)
    ]
    return float(gains == [False, False, True])


@check
def stored_weights_speed_up(model: str) -> float:
    """1 where INF² gains with the share of the weights on SSD, 0, 50, 100 %, at batch 32 (sec. 7.5, fig. 12)."""
    rates = [_throughput("inf2", model, 32.0, w) for w in (0.0, 0.5, 1.0)]
    return float(np.all(np.diff(rates) > 0))


@check
def upgrade_gain(*models: str) -> NDArray[np.float64]:
    """Throughput FlexGen gains from A100 to H100 at 16K (sec. 7.7, fig. 17) [%]."""
    times = [
        [
            estimate_of(platform, "flexgen-raid", model, asked("16k", "32")).total.seconds
            for model in models
        ]
        for platform in ("inf2-a100", "inf2-h100")
    ]
    slow, fast = (np.array(row, dtype=np.float64) for row in times)
    return np.asarray(100 * (slow / fast - 1))


@check
def longest_context(system: str, model: str, batch: str) -> float:
    """Longest context in steps of 256 that fits the test bed with an H100 (sec. 7.6, fig. 15b) [tokens]."""
    contexts = 256.0 * np.arange(1.0, 2049.0)
    capacity_check = estimate_of("inf2-h100", system, model, asked(contexts, batch)).fits.ok
    return float(np.max(contexts[np.broadcast_to(capacity_check, contexts.shape)]))


@check
def stated_rate(latency: str, batch: str) -> float:
    """Tokens a second of a stated step time [1/s]."""
    return float(batch) / (_stated(latency) / 1e3)


@check
def stated_rate_for_money(rate: str, *prices: str) -> float:
    """A stated rate over prices [1/s/USD]."""
    return _stated(rate) / sum_of(*prices)


def _stated(name: str) -> float:
    from nearkv.sweeps.validation.claims import load

    return next(float(claim.low) for claim in load("inf2") if claim.id == name)
