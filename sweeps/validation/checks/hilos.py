"""Checks of HILOS (papers: hilos)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.metrics import COLUMNS, Answer
from nearkv.costmodel.resources import KERNEL_GROUPS, attention_kernel, csd, link
from nearkv.costmodel.span import Real
from nearkv.costmodel.systems.hilos import alpha_closed_form, interval_of_page
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.quantity import unit_of
from nearkv.sweeps.space.sizes import size
from nearkv.sweeps.validation.checks import check, decode_rate, estimate_of, model_on
from nearkv.sweeps.validation.checks.offload import (
    CONTEXTS,
    asked,
    step_bytes_a_token,
    sum_of,
    times,
)

RULE = "alpha=paper-power-of-two"
"""The X-cache share HILOS selects by itself (sec. 4.2, 6.1)."""


# --- traffic and the X-cache ------------------------------------------------------------------


@check
def x_transfer_bytes() -> Real:
    """What one more of alpha adds to the uplink, a token and hidden unit: T_PCI's coefficient (sec. 4.2) [B]."""
    none, all_ = (step_bytes_a_token("hilos-a100", "hilos", "uplink.in", _naive(a)) for a in (0, 1))
    return all_ - none


@check
def x_rebuild_flops() -> Real:
    """FLOPs that rebuild K and V of one token from X, over h squared: T_GPU's coefficient (sec. 4.2) [FLOP]."""
    llm = model_on("hilos-a100", "opt-66b")[1]
    return llm.kv_from_x_flops(1, 1) / llm.hidden**2


@check
def flash_time_ratio() -> Real:
    """Flash time of a step at alpha = 0.5 over (a 2sh + (1 - a) 4sh) / B_SSD (sec. 4.2) [1]."""
    hw, _ = model_on("hilos-a100", "opt-66b")
    read = (
        step_bytes_a_token("hilos-a100", "hilos", "csd.flash", _naive(0.5)) / csd(hw, 1.0).read.rate
    )
    return read / ((0.5 * 2 + 0.5 * 4) / (hw.csd.count * hw.csd.p2p_read))


def _naive(alpha: float) -> str:
    return f"alpha={alpha};interval=16;writeback=0"


@check
def alpha_at_ratio(ratio: str, unit: str) -> Real:
    """The closed form of sec. 4.2 where B_SSD / B_PCI is what is said [1, or %]."""
    hw, llm = model_on("hilos-a100", "opt-66b")
    rate = float(ratio) * link(hw, "uplink", "uplink").inward.rate / hw.csd.count
    alpha = alpha_closed_form(hw.with_values({"csd.p2p_read": rate}), llm, asked("32k"))
    return alpha / unit_of(unit)[1]


@check
def ssd_over_pci(platform: str) -> Real:
    """Aggregate P2P rate over the uplink's (sec. 6.4) [1]."""
    hw = load_platform(platform).machine()
    return csd(hw, 1.0).read.rate / link(hw, "uplink", "uplink").inward.rate


@check
def best_alpha(*models: str) -> NDArray[np.float64]:
    """The fastest of alpha = 0, 25, 50, 75 % at 32K, model by model (sec. 6.4, fig. 13) [%]."""
    alphas = (0.0, 25.0, 50.0, 75.0)
    return np.array(
        [alphas[int(np.argmin([_step(m, a / 100, 16.0) for a in alphas]))] for m in models]
    )


@check
def best_interval(*models: str) -> NDArray[np.float64]:
    """The fastest of c = 1, 2, 4 ... 64 at 32K, for every model and alpha of `best_alpha` (sec. 6.4, fig. 13)."""
    intervals = 2.0 ** np.arange(7)
    best = []
    for model in models:
        for alpha in (0.0, 0.25, 0.5, 0.75):
            steps = np.array([_step(model, alpha, c) for c in intervals])
            best.append(intervals[np.argmin(steps)])
    return np.array(best)


@check
def long_interval_loss(*models: str) -> NDArray[np.float64]:
    """Decode throughput lost from c = 16 to c = 64 at 32K, for every model and alpha of `best_alpha` (sec. 7.3) [%]."""
    return np.array(
        [
            100 * (1 - _step(m, a, 16.0) / _step(m, a, 64.0))
            for m in models
            for a in (0.0, 0.25, 0.5, 0.75)
        ]
    )


def _step(model: str, alpha: float, interval: float) -> float:
    found = estimate_of(
        "hilos-a100", "hilos", model, asked("32k"), f"alpha={alpha};interval={interval}"
    )
    return float(found.step.seconds)


@check
def interval_rule(model: str) -> Real:
    """Page over entry (sec. 4.3) [tokens]."""
    return interval_of_page(*model_on("hilos-a100", model), asked("32k"))


@check
def kernel_rates() -> NDArray[np.float64]:
    """KV that each kernel of Table 3 streams (sec. 6.4) [GB/s]."""
    hw = load_platform("hilos-a100").machine()
    return np.array([attention_kernel(hw, float(g))[0] / 1e9 for g in KERNEL_GROUPS], dtype=float)


@check
def kernel_order() -> float:
    """1 where larger groups stream KV more slowly (sec. 6.4)."""
    return float(np.all(np.diff(kernel_rates()) <= 0))


@check
def write_saving(alpha: str) -> Real:
    """Flash writes of the prompt that the X-cache saves, over alpha (sec. 6.6) [1]."""
    both = [
        estimate_of("hilos-a100", "hilos", "opt-66b", asked("32k"), f"alpha={a}").prefill.traffic()[
            "csd.flash", "write"
        ]
        for a in ("0", alpha)
    ]
    return (1 - both[1] / both[0]) / float(alpha)


# --- what fits, where time goes ---------------------------------------------------------------


@check
def gigabytes_a_drive(model: str, batch: str, context: str, devices: str) -> Real:
    """Bytes each drive holds (sec. 7.2) [GB]."""
    found = estimate_of(
        "hilos-a100", "hilos", model, asked(context, batch), f"devices={devices};{RULE}"
    )
    return found.fits.tiers["csd"][0] / float(devices) / 1e9


@check
def host_utilisation(*models: str) -> NDArray[np.float64]:
    """Busy share of GPU (tensor cores, memory) and host DRAM in a step of ANS, 16K to 128K (sec. 4.1, fig. 4c) [%]."""
    busy = []
    for model in models:
        step = estimate_of(
            "hilos-a100", "hilos", model, asked(CONTEXTS), "alpha=0;writeback=naive"
        ).step
        busy += [
            100 * step.busy_of(name) / step.seconds
            for name in ("gpu.tensor", "gpu.hbm", "host.dram")
        ]
    return np.stack([np.asarray(item, dtype=float) for item in busy])


# --- trends -----------------------------------------------------------------------------------


@check
def batch_that_still_pays(model: str, context: str) -> float:
    """The batch of 1, 2, 4 ... 128 up to which each raises decode throughput (sec. 6.4, fig. 11) [1]."""
    batches = [2**power for power in range(8)]
    rates = [
        float(decode_rate(estimate_of("hilos-a100", "hilos", model, asked(context, str(b)), RULE)))
        for b in batches
    ]
    rising = np.append(np.diff(rates) > 0, False)
    return float(batches[int(np.argmin(rising))])


@check
def gap_grows_with_context(*models: str) -> float:
    """1 where HILOS leads FLEX(DRAM) by more at the longest context a GPU holds than at 16K (sec. 6.4, fig. 12b)."""
    contexts = np.array([2.0**power for power in range(14, 20)])
    for model in models:
        ours = decode_rate(estimate_of("hilos-a100", "hilos", model, asked(contexts)))
        theirs = decode_rate(estimate_of("hilos-a100", "flexgen-dram", model, asked(contexts)))
        gap = np.ravel(ours / theirs)
        gap = gap[np.isfinite(gap)]
        if gap[-1] <= gap[0]:
            return 0.0
    return 1.0


@check
def gains_grow_but_least_for_moe(moe: str, *dense: str) -> float:
    """1 where speedups over FLEX(SSD) rise with context and with batch, and an MoE's is least (sec. 6.5, fig. 15)."""
    by_context = {model: _gain(model, asked(CONTEXTS)) for model in (moe, *dense)}
    by_batch = [
        _gain(model, Workload(np.array([1.0, 2.0, 4.0, 8.0, 16.0]), 32768.0, 64.0))
        for model in (moe, *dense)
    ]
    rising = all(np.all(np.diff(gain) > 0) for gain in (*by_context.values(), *by_batch))
    return float(rising and all(np.all(by_context[moe] < by_context[model]) for model in dense))


def _gain(model: str, work: Workload) -> NDArray[np.float64]:
    ours, theirs = (
        decode_rate(estimate_of("hilos-a100", *asked_of, work, knobs))
        for asked_of, knobs in ((("hilos", model), RULE), (("flexgen-ssd", model), ""))
    )
    return np.asarray(ours / theirs)


# --- cost and endurance -----------------------------------------------------------------------


@check
def million_requests(model: str, prompt: str, output: str, devices: str, alpha: str) -> Real:
    """Requests until the flash wears out, at c = 16 (sec. 6.6) [million]."""
    platform = load_platform("hilos-a100").machine().with_values({"csd.count": float(devices)})
    work = Workload(1.0, size(prompt, "prompt"), float(output))
    found = estimate_of(
        "hilos-a100", "hilos", model, work, f"devices={devices};{alpha};interval=16"
    )
    return COLUMNS["endurance_requests"].compute(Answer(found, platform, ("csd",))) / 1e6


@check
def value_of_whole_machines(devices: str) -> float:
    """HILOS over the H100 upgrade in speed for money: stated speedups over the whole machines' prices (sec. 6.6) [1].

    Both replace the baseline's GPU or drives in the same server.
    """
    from nearkv.sweeps.validation.claims import load

    stated = {claim.id: float(claim.low) for claim in load("hilos")}
    speed = stated["hilos-hilos-vs-h100-speed"] / stated["hilos-h100-speedup"]
    hilos = sum_of(*(f"hilos-a100:{role}.price" for role in ("host", "gpu", "chassis")))
    hilos += times(devices, "hilos-a100:csd.price", "USD")
    upgrade = sum_of("hilos-a100:host.price", "h100-80gb:price")
    upgrade += times("hilos-a100:ssd.count", "hilos-a100:ssd.price", "USD")
    return speed * upgrade / hilos
