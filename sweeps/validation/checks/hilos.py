"""Checks of HILOS's traffic, X-cache, writeback interval and kernels (HILOS sec. 4, 6.4, 7.3)."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.near_storage.x_cache import (
    alpha_closed_form,
    interval_of_page,
)
from nearkv.costmodel.model.resources import KERNEL_GROUPS, attention_kernel, csd, link
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.units import unit_of
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import estimate_of, model_on, workload
from nearkv.sweeps.validation.checks.shared import step_bytes_a_token

Values = NDArray[np.float64]
PLATFORM = "hilos-a100"
RULE = "alpha=0.5"
"""The X-cache share of HILOS's runs: the best of every model it tested (sec. 6.4)."""
ALPHAS = (0.0, 0.25, 0.5, 0.75)
"""X-cache shares of fig. 13."""
NOISE = 0.01
"""Steps that differ by less count as tied: repeated runs spread by as much."""


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
    return f"alpha={alpha};interval=16;writeback=0"


@check
def alpha_at_ratio(ratio: str, unit: str) -> Real:
    """The closed form of sec. 4.2 at a ratio B_SSD / B_PCI [1, or %]."""
    hw, llm = model_on(PLATFORM, "opt-66b")
    uplink = link(hw, "uplink", "uplink").inward.rate
    rate = float(ratio) * uplink / hw.csd.count
    altered = hw.with_values({"csd.p2p_read": rate})
    return alpha_closed_form(altered, llm, workload("32k")) / unit_of(unit)[1]


@check
def ssd_over_pci(platform: str, devices: str) -> Real:
    """Aggregate P2P rate of so many devices over the uplink's (sec. 6.4) [1]."""
    hw = load_platform(platform).machine().with_values({"csd.count": float(devices)})
    return csd(hw, 1.0).read.rate / link(hw, "uplink", "uplink").inward.rate


@check
def best_alpha(*models: str) -> Values:
    """The fastest of alpha = 0, 25, 50, 75 % at 32K, model by model (sec. 6.4, fig. 13) [%]."""
    best = []
    for model in models:
        steps = [_step(model, alpha, 16.0) for alpha in ALPHAS]
        best.append(100 * ALPHAS[int(np.argmin(steps))])
    return np.array(best)


@check
def best_interval(*models: str) -> Values:
    """The best of c = 1, 2, 4 ... 64 at 32K, for every model and alpha of `best_alpha` [tokens].

    Of those that no measurement could tell from the fastest, the one nearest to a page of entries,
    which the paper takes.

    Source: Sec. 6.4, fig. 13.
    """
    intervals = 2.0 ** np.arange(7)
    best = []
    for model, alpha in product(models, ALPHAS):
        steps = np.array([_step(model, alpha, c) for c in intervals])
        tied = steps <= steps.min() * (1 + NOISE)
        octaves = np.abs(np.log2(intervals / interval_rule(model)))
        best.append(intervals[np.argmin(np.where(tied, octaves, np.inf))])
    return np.array(best)


def _step(model: str, alpha: float, interval: float, context: str = "32k") -> float:
    """A decode step with the devices at which B_SSD / B_PCI is 3 [s]."""
    knobs = f"alpha={alpha};interval={interval};devices=16"
    estimate = estimate_of(PLATFORM, "hilos", model, workload(context), knobs)
    return float(estimate.step.seconds)


@check
def interval_rule(model: str) -> Real:
    """Page over entry (sec. 4.3) [tokens]."""
    return interval_of_page(*model_on(PLATFORM, model), workload("32k"))


# --- kernels and busy hosts -------------------------------------------------------------------


@check
def kernel_rates() -> Values:
    """KV that each kernel of Table 3 streams (sec. 6.4) [GB/s]."""
    hw = load_platform(PLATFORM).machine()
    rates = [attention_kernel(hw.csd, float(group))[0] / 1e9 for group in KERNEL_GROUPS]
    return np.array(rates, dtype=float)
