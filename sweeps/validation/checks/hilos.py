"""Checks of HILOS: traffic, X-cache, writeback interval, kernels, memory (sec. 4, 6.4 to 7.3)."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.mechanisms.near_storage.x_cache import alpha_closed_form
from nearkv.costmodel.model.resources import KERNEL_GROUPS, attention_kernel, csd, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.units import unit_of
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.near_storage import (
    CONTEXTS,
    PUBLISHED,
    step_bytes_a_token,
)
from nearkv.sweeps.validation.questions import (
    WordedStudy,
    columns_of,
    estimate_of,
    model_on,
)

PLATFORM = "hilos-a100"
WORK = Workload(16.0, 32768.0, 64.0)
PAPER_KNOBS = f"alpha=0.5;{PUBLISHED}"
"""The X-cache share of HILOS's runs: the best of every model it tested (sec. 6.4)."""
ALPHAS = (0.0, 0.25, 0.5, 0.75)
"""X-cache shares of our own sweep: the text does not print those of fig. 13."""


# --- traffic and the X-cache ------------------------------------------------------------------


@check
def x_transfer_bytes() -> Real:
    """Bytes that one more of alpha adds to the uplink, a token and hidden unit: T_PCI's coefficient
    [B].

    Source: Sec. 4.2.
    """
    none = step_bytes_a_token(PLATFORM, "hilos", "uplink.in", _naive(0))
    all_x = step_bytes_a_token(PLATFORM, "hilos", "uplink.in", _naive(1))
    return all_x - none


@check
def flash_time_ratio() -> Real:
    """Flash time of a step at alpha = 0.5 over (a 2sh + (1 - a) 4sh) / B_SSD (sec. 4.2) [1]."""
    hw, _ = model_on(PLATFORM, "opt-66b")
    flash_bytes = step_bytes_a_token(PLATFORM, "hilos", "csd.flash", _naive(0.5))
    read = flash_bytes / csd(hw, 1.0).read.rate
    printed_bytes = 0.5 * 2 + 0.5 * 4
    printed = printed_bytes / (hw.csd.count * hw.csd.p2p_read)
    return read / printed


def _naive(alpha: float) -> str:
    return f"alpha={alpha};interval=16;writeback=naive"


@check
def alpha_at_ratio(ratio: str, unit: str) -> Real:
    """The closed form of sec. 4.2 at a ratio B_SSD / B_PCI [1, or %]."""
    hw, llm = model_on(PLATFORM, "opt-66b")
    uplink = link(hw, "uplink", "uplink").inward.rate
    rate = float(ratio) * uplink / hw.csd.count
    altered = hw.with_values({"csd.p2p_read": rate})
    return alpha_closed_form(altered, llm, WORK) / unit_of(unit)[1]


@check
def ssd_over_pci(platform: str, devices: str) -> Real:
    """Aggregate P2P rate of some devices over the uplink's (sec. 6.4) [1]."""
    hw = load_platform(platform).machine().with_values({"csd.count": float(devices)})
    return csd(hw, 1.0).read.rate / link(hw, "uplink", "uplink").inward.rate


@check
def best_alpha(*models: str) -> Numbers:
    """The fastest of alpha = 0, 25, 50, 75 % at 32K, model by model (sec. 6.4, fig. 13) [%].

    With the eight devices of sec. 6.1, as the figure names none.
    """
    knobs = f"alpha={','.join(map(str, ALPHAS))};interval=16;{PUBLISHED}"
    fastest = []
    for model in models:
        rows = columns_of(WordedStudy("hilos", model, platform=PLATFORM, knob=knobs))
        fastest.append(int(np.argmin(rows["step_ms"])))
    return 100 * np.array(ALPHAS)[fastest]


@check
def write_saving(alpha: str) -> Real:
    """Flash writes of the prompt that the X-cache saves, over alpha (sec. 6.6) [1]."""
    written = []
    for share in ("0", alpha):
        knobs = f"alpha={share};{PUBLISHED}"
        question = WordedStudy("hilos", "opt-66b", platform=PLATFORM, knob=knobs)
        traffic = estimate_of(question).prefill.traffic()
        written.append(traffic["csd.flash", "write"])
    all_kv, with_x = written
    return (1 - with_x / all_kv) / float(alpha)


# --- kernels, memory and busy hosts -----------------------------------------------------------


@check
def kernel_rates() -> list[Real]:
    """KV that each kernel of Table 3 streams (sec. 6.4) [GB/s]."""
    hw = load_platform(PLATFORM).machine()
    return [attention_kernel(hw.csd, float(group))[0] / 1e9 for group in KERNEL_GROUPS]


@check
def gigabytes_a_drive(model: str, batch: str, context: str, devices: str) -> Real:
    """Bytes on each drive (sec. 7.2) [GB]."""
    knobs = f"devices={devices};{PAPER_KNOBS}"
    question = WordedStudy(
        "hilos", model, platform=PLATFORM, knob=knobs, batch=batch, context=context
    )
    on_drives, _ = estimate_of(question).fits.tiers["csd"]
    return on_drives / float(devices) / 1e9


@check
def host_utilisation(*models: str) -> Numbers:
    """Busy share of GPU (tensor cores, memory) and host DRAM in a step of ANS, 16K to 128K [%].

    Source: Sec. 4.1, fig. 4c.
    """
    knobs = f"alpha=0;writeback=naive;{PUBLISHED}"
    shares = []
    for model in models:
        question = WordedStudy(
            "hilos", model, platform=PLATFORM, knob=knobs, context=CONTEXTS
        )
        step = estimate_of(question).step
        shares += [
            np.ravel(100 * step.busy_of(name) / step.seconds)
            for name in ("gpu.tensor", "gpu.hbm", "host.dram")
        ]
    return np.stack(shares)


# --- trends -----------------------------------------------------------------------------------


@check
def gains_grow_but_least_for_moe(moe: str, *dense: str) -> bool:
    """1 where speed-ups over FLEX(SSD) rise with context and with batch, and an MoE's is least.

    Source: Sec. 6.5, fig. 15.
    """
    gain_of_moe = _gain(moe, context=CONTEXTS)
    rising = [np.diff(_gain(model, batch="1,2,4,8,16")) for model in (moe, *dense)]
    rising.append(np.diff(gain_of_moe))
    above_moe = []
    for model in dense:
        gain = _gain(model, context=CONTEXTS)
        rising.append(np.diff(gain))
        above_moe.append(gain - gain_of_moe)
    always_rising = all(np.all(differences > 0) for differences in rising)
    return always_rising and bool(np.all(np.array(above_moe) > 0))


def _gain(model: str, batch: str = "", context: str = "") -> Numbers:
    """Decode throughput of HILOS over FLEX(SSD) [1]."""
    rates = []
    for system, knobs in (("hilos", PAPER_KNOBS), ("flexgen-ssd", PUBLISHED)):
        question = WordedStudy(
            system, model, platform=PLATFORM, knob=knobs, batch=batch, context=context
        )
        rates.append(columns_of(question)["decode_tok_s"].astype(float))
    gain: Numbers = rates[0] / rates[1]
    return gain
