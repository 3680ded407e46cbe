"""Checks of HILOS's memory use, trends, cost and endurance (HILOS sec. 4.1, 6.4 to 6.6, 7.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.workload import Workload
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import (
    decode_rate,
    estimate_of,
    workload,
)
from nearkv.sweeps.validation.checks.hilos import PLATFORM, RULE
from nearkv.sweeps.validation.checks.offload import CONTEXTS

Values = NDArray[np.float64]


def _decode_rate(system: str, model: str, work: Workload, knobs: str = "") -> Real:
    """Tokens per second while decoding; NaN where it does not fit [1/s]."""
    return decode_rate(estimate_of(PLATFORM, system, model, work, knobs))


# --- memory and utilisation -------------------------------------------------------------------


@check
def gigabytes_a_drive(model: str, batch: str, context: str, devices: str) -> Real:
    """Bytes on each drive (sec. 7.2) [GB]."""
    knobs = f"devices={devices};{RULE}"
    work = workload(context, batch)
    estimate = estimate_of(PLATFORM, "hilos", model, work, knobs)
    on_drives = estimate.fits.tiers["csd"][0]
    return on_drives / float(devices) / 1e9


@check
def host_utilisation(*models: str) -> Values:
    """Busy share of GPU (tensor cores, memory) and host DRAM in a step of ANS, 16K to 128K [%].

    Source: Sec. 4.1, fig. 4c.
    """
    work = workload(CONTEXTS)
    shares = []
    for model in models:
        step = estimate_of(PLATFORM, "hilos", model, work, "alpha=0;writeback=naive").step
        for name in ("gpu.tensor", "gpu.hbm", "host.dram"):
            share = 100 * step.busy_of(name) / step.seconds
            shares.append(np.asarray(share, dtype=float))
    return np.stack(shares)


# --- trends -----------------------------------------------------------------------------------


@check
def gains_grow_but_least_for_moe(moe: str, *dense: str) -> float:
    """1 where speed-ups over FLEX(SSD) rise with context and with batch, and an MoE's is least.

    Source: Sec. 6.5, fig. 15.
    """
    batches = Workload(2.0 ** np.arange(5, dtype=np.float64), 32768.0, 64.0)
    contexts = workload(CONTEXTS)
    gain_of_moe = _gain(moe, contexts)
    rising = [np.diff(_gain(moe, batches)), np.diff(gain_of_moe)]
    above_moe = []
    for model in dense:
        gain = _gain(model, contexts)
        rising += [np.diff(_gain(model, batches)), np.diff(gain)]
        above_moe.append(gain - gain_of_moe)
    always_rising = all(np.all(differences > 0) for differences in rising)
    return float(always_rising and np.all(np.array(above_moe) > 0))


def _gain(model: str, work: Workload) -> Values:
    """Decode throughput of HILOS over FLEX(SSD) [1]."""
    ours = _decode_rate("hilos", model, work, RULE)
    theirs = _decode_rate("flexgen-ssd", model, work)
    return np.asarray(ours / theirs)


# --- energy, cost and endurance -----------------------------------------------------------------


@check
def write_saving(alpha: str) -> Real:
    """Flash writes of the prompt that the X-cache saves, over alpha (sec. 6.6) [1]."""
    written = []
    for share in ("0", alpha):
        work, knobs = workload("32k"), f"alpha={share}"
        estimate = estimate_of(PLATFORM, "hilos", "opt-66b", work, knobs)
        traffic = estimate.prefill.traffic()
        written.append(traffic["csd.flash", "write"])
    all_kv, with_x = written
    saved = 1 - with_x / all_kv
    return saved / float(alpha)
