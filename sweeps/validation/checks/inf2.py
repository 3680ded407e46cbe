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
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import estimate_of, model_on, workload
from nearkv.sweeps.validation.checks.catalogued import sum_of

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
def kv_removed_by_a_byte(model: str) -> Real:
    """KV traffic that a byte of host memory removes as X, over what it removes as K and V [1].

    Source: Sec. 4.3.
    """
    _, llm = model_on("inf2-a100", model)
    return llm.kv_bytes(1, 1) / llm.x_bytes(1, 1)


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


@check
def weights_at_16_bit(model: str) -> Real:
    """Weights at 16 bit (sec. 7.3) [GB]."""
    _, llm = model_on("inf2-a100", model)
    return llm.weight_bytes / 1e9


# --- trends of the baseline and of INF² -------------------------------------------------------


@check
def drives_that_pay(model: str, context: str) -> float:
    """Drives after which one more shortens FlexGen's step by less than 1 % (sec. 3, 7.7) [1]."""
    counts = range(1, 17)
    steps = np.array([_flexgen_step(model, context, drives) for drives in counts])
    gains = steps[:-1] / steps[1:]
    return float(np.argmax(gains < 1.01) + 1)


def _flexgen_step(model: str, context: str, drives: int) -> float:
    work = workload(context, "32")
    estimate = estimate_of("inf2-h100", "flexgen-raid", model, work, f"drives={drives}")
    return float(estimate.step.seconds)


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


@check
def stored_weights_speed_up(model: str) -> float:
    """1 where INF² gains with the share of the weights on SSD, 0, 50, 100 %, at batch 32.

    Source: Sec. 7.5, fig. 12.
    """
    rates = [_throughput("inf2", model, 32.0, share) for share in SSD_WEIGHTS]
    return float(np.all(np.diff(rates) > 0))


@check
def upgrade_gain(*models: str) -> Values:
    """Throughput FlexGen gains from A100 to H100 at 16K (sec. 7.7, fig. 17) [%]."""
    work = workload("16k", "32")
    gains = []
    for model in models:
        slow = estimate_of("inf2-a100", "flexgen-raid", model, work).total.seconds
        fast = estimate_of("inf2-h100", "flexgen-raid", model, work).total.seconds
        gains.append(100 * (float(slow) / float(fast) - 1))
    return np.array(gains)


@check
def longest_context(system: str, model: str, batch: str) -> float:
    """Longest context in steps of 256 that fits the test bed with an H100 [tokens].

    Source: Sec. 7.6, fig. 15b.
    """
    contexts = 256.0 * np.arange(1.0, 2049.0)
    fits = estimate_of("inf2-h100", system, model, workload(contexts, batch)).fits.ok
    fitting = contexts[np.broadcast_to(fits, contexts.shape)]
    return float(np.max(fitting))


# --- arithmetic on stated numbers -------------------------------------------------------------


@check
def stated_rate(latency: str, batch: str) -> float:
    """Tokens per second of a stated step time [1/s]."""
    seconds = _stated(latency) / 1e3
    return float(batch) / seconds


@check
def stated_rate_for_money(rate: str, *prices: str) -> float:
    """A stated rate over prices [1/s/USD]."""
    return _stated(rate) / sum_of(*prices)


@check
def stated_rate_for_machine(rate: str, platform: str, system: str) -> float:
    """A stated rate over the price of all that a system owns on a platform [1/s/USD]."""
    rows = table(Study((system,), ("opt-175b",), platforms=(platform,)))
    return _stated(rate) / float(rows["cost_usd"][0])


def _stated(name: str) -> float:
    from nearkv.sweeps.validation.claims import load

    return next(float(claim.low) for claim in load("inf2") if claim.id == name)
