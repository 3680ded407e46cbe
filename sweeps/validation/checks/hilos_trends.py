"""Checks of HILOS's memory use, trends, cost and endurance (HILOS sec. 4.1, 6.4 to 6.6, 7.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.metrics import COLUMNS, Answer
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.sweeps.evaluate.evaluate import table
from nearkv.sweeps.study.sizes import size
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import (
    PUBLISHED,
    decode_rate,
    estimate_of,
    workload,
)
from nearkv.sweeps.validation.checks.catalogued import sum_of, times
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
def batch_that_still_pays(model: str, context: str) -> float:
    """The batch of 1, 2, 4, 8, 16 up to which each raises decode throughput [1].

    Source: Sec. 6.4, fig. 11.
    """
    batches = 2.0 ** np.arange(5, dtype=np.float64)
    tokens = size(context, "context")
    work = Workload(batches, tokens, 64.0)
    rates = _decode_rate("hilos", model, work, RULE)
    rising = np.append(np.diff(rates) > 0, False)
    first_without_gain = int(np.argmin(rising))
    return float(batches[first_without_gain])


@check
def gap_grows_with_context(*models: str) -> float:
    """1 where HILOS leads FLEX(DRAM) by more at the longest context a GPU holds than at 16K.

    Source: Sec. 6.4, fig. 12b.
    """
    contexts = 2.0 ** np.arange(14, 20, dtype=np.float64)
    work = workload(contexts)
    for model in models:
        ours = _decode_rate("hilos", model, work)
        theirs = _decode_rate("flexgen-dram", model, work)
        lead = np.ravel(ours / theirs)
        lead = lead[np.isfinite(lead)]
        if lead[-1] <= lead[0]:
            return 0.0
    return 1.0


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
def energy_saving(baseline: str, devices: str, *models: str) -> Values:
    """Energy per token that HILOS saves, 16K to 128K at batch 16 (abstract, fig. 17a) [%]."""
    contexts = "16k,32k,64k,128k"
    knobs = {"devices": devices, "weights": PUBLISHED}
    ours = Study(("hilos",), models, "16", contexts, knobs=knobs)
    theirs = Study((baseline,), models, "16", contexts, knobs={"weights": PUBLISHED})
    share = _energy(ours) / _energy(theirs)
    return 100 * (1 - share)


def _energy(study: Study) -> Values:
    """Energy per token at every point; NaN where it does not fit [J]."""
    rows = table(study)
    energy = rows["energy_j_tok"].astype(float)
    return np.where(rows["status"] == "ok", energy, np.nan)


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


@check
def million_requests(
    model: str, prompt: str, output: str, devices: str, alpha: str
) -> Real:
    """Requests until the flash wears out, at c = 16 (sec. 6.6) [million]."""
    machine = load_platform(PLATFORM).machine()
    hw = machine.with_values({"csd.count": float(devices)})
    work = Workload(1.0, size(prompt, "prompt"), float(output))
    knobs = f"devices={devices};{alpha};interval=16"
    estimate = estimate_of(PLATFORM, "hilos", model, work, knobs)
    answer = Answer(estimate, hw, ("csd",))
    return COLUMNS["endurance_requests"].compute(answer) / 1e6


@check
def value_of_whole_machines(devices: str) -> float:
    """HILOS over the H100 upgrade in stated speed-up for the price of the whole machine [1].

    Sec. 6.6. Both replace the baseline's GPU or drives in the same server.
    """
    from nearkv.sweeps.validation.claims import load

    stated = {claim.id: float(claim.low) for claim in load("hilos")}
    speed = stated["hilos-hilos-vs-h100-speed"] / stated["hilos-h100-speedup"]
    host, gpu, chassis = (f"{PLATFORM}:{role}.price" for role in ("host", "gpu", "chassis"))
    devices_price = times(devices, f"{PLATFORM}:csd.price", "USD")
    drives_price = times(f"{PLATFORM}:ssd.count", f"{PLATFORM}:ssd.price", "USD")
    hilos = sum_of(host, gpu, chassis) + devices_price
    upgrade = sum_of(host, "h100-80gb:price") + drives_price
    return speed * upgrade / hilos


@check
def value_of_added_parts(devices: str) -> float:
    """HILOS over the H100 upgrade in stated speed-up for the price of what is added [1].

    Sec. 6.6: an H100 against so many SmartSSDs, without server, chassis and what stays.
    """
    from nearkv.sweeps.validation.claims import load

    stated = {claim.id: float(claim.low) for claim in load("hilos")}
    speed = stated["hilos-hilos-vs-h100-speed"] / stated["hilos-h100-speedup"]
    added = times(devices, f"{PLATFORM}:csd.price", "USD")
    return speed * sum_of("h100-80gb:price") / added
