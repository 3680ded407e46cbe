"""Checks that both papers of near-storage attention need, HILOS and INF² (papers: hilos, inf2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.registry import find_system
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.quantity import unit_of
from nearkv.sweeps.space.sizes import size
from nearkv.sweeps.space.study import Study
from nearkv.sweeps.space.study_files import load_study
from nearkv.sweeps.validation.checks import check, estimate_of, model_on, number_at
from nearkv.sweeps.validation.checks.shared import step_bytes

STUDIES = Path(__file__).parent.parent.parent / "studies"
CONTEXTS = np.array([16384.0, 32768.0, 65536.0, 131072.0])
"""Contexts up to the 128K that the text states (HILOS sec. 6.1); figures may hold others."""


def asked(context: str | Real, batch: str = "16", output: str = "64") -> Workload:
    """A workload from words; a context may be an array."""
    tokens = size(context, "context") if isinstance(context, str) else context
    return Workload(float(batch), tokens, float(output))


@check
def times(count: str, address: str, unit: str) -> float:
    """So many of a number, in a unit; the count is a number or an address itself."""
    many = number_at(count) if ":" in count else float(count)
    return many * number_at(address) / unit_of(unit)[1]


@check
def sum_of(*addresses: str) -> float:
    """Numbers added up [SI]."""
    return sum(number_at(address) for address in addresses)


@check
def quotient(address: str, of: str) -> float:
    """One number over another [1]."""
    return number_at(address) / number_at(of)


@check
def lanes(address: str, four_lanes: str) -> float:
    """Lanes of a link, from its bandwidth and that of four lanes of its generation [1]."""
    return 4 * number_at(address) / number_at(four_lanes)


@check
def default_of(key: str, study: str = "") -> float:
    """What is asked when nothing is said: by the tool, or by a study of a paper's figure [1]."""
    return size(
        getattr(load_study(str(STUDIES / f"{study}.toml")) if study else Study((), ()), key), key
    )


@check
def knob_as_set(system: str, knob: str) -> Any:
    """A knob's default."""
    return find_system(system).knobs[knob].default


@check
def kv_entry(model: str) -> Real:
    """K or V of one token and head [B] (HILOS sec. 4.3, INF² sec. 6)."""
    llm = model_on("hilos-a100", model)[1]
    return llm.head_size * llm.kv_width


@check
def kv_terabytes(model: str, batch: str, context: str) -> Real:
    """KV cache at 16 bit [TB] (HILOS sec. 3.1, INF² sec. 3)."""
    llm = model_on("hilos-a100", model)[1]
    return llm.layers * llm.kv_bytes(float(batch), size(context, "context")) / 1e12


@check
def x_over_kv(model: str) -> Real:
    """Bytes of X over bytes of K and V (HILOS sec. 4.2, INF² sec. 4.3) [1]."""
    llm = model_on("hilos-a100", model)[1]
    return llm.x_bytes(1, 1) / llm.kv_bytes(1, 1)


@check
def step_bytes_a_token(platform: str, system: str, resource: str, knobs: str = "") -> Real:
    """What `step_bytes` gives, for each of its 32,768 tokens of context (HILOS sec. 4.1, INF² sec. 2.2) [B]."""
    return step_bytes(platform, system, resource, knobs) / 32768


@check
def traffic_ratio(
    platform: str, base: str, base_link: str, ans: str, ans_link: str, knobs: str
) -> Real:
    """Bytes of the baseline over those of ANS on the interconnect, both ways, over s + 1 (eq. 3 of both papers) [1]."""
    base_bytes = [step_bytes(platform, base, f"{base_link}.{way}") for way in ("in", "out")]
    ans_bytes = [step_bytes(platform, ans, f"{ans_link}.{way}", knobs) for way in ("in", "out")]
    return (base_bytes[0] + base_bytes[1]) / (ans_bytes[0] + ans_bytes[1]) / (32768 + 1)


@check
def fits_in(
    platform: str, system: str, model: str, batch: str, context: str, knobs: str = ""
) -> NDArray[np.bool_]:
    """1 where a workload fits, 0 where some memory is short."""
    return estimate_of(platform, system, model, asked(context, batch), knobs).fits.ok


@check
def short_of_memory(
    platform: str, system: str, model: str, batch: str, context: str, tier: str
) -> float:
    """1 where this memory is too small for a workload (HILOS sec. 6.3, INF² sec. 7.6)."""
    return float(estimate_of(platform, system, model, asked(context, batch)).fits.short_of == tier)


@check
def kv_time_share(platform: str, system: str, batch: str, *models: str) -> NDArray[np.float64]:
    """Share of the whole run that moves the KV cache, 16K to 128K (HILOS fig. 2b, INF² fig. 3b) [%]."""
    shares = []
    for model in models:
        total = estimate_of(platform, system, model, asked(CONTEXTS, batch)).total
        parts = ("/read_and_attend/read/", "/attention/write/", "prefill/layers/cache/")
        moved = sum(
            (
                time
                for path, time in total.breakdown().items()
                if any(part in path for part in parts)
            ),
            0.0,
        )
        shares.append(100 * moved / total.seconds)
    return np.array(shares)


@check
def gain_grows_with_output(
    platform: str, system: str, baseline: str, batch: str, context: str, *models: str
) -> float:
    """1 where the whole run's speedup rises with 16, 64, 256, 1024 tokens out (fig. 14 of both papers)."""
    outputs = np.array([16.0, 64.0, 256.0, 1024.0])
    for model in models:
        work = Workload(float(batch), size(context, "context"), outputs)
        ours, theirs = (
            estimate_of(platform, name, model, work).total.seconds for name in (system, baseline)
        )
        if np.any(np.diff(theirs / ours) <= 0):
            return 0.0
    return 1.0
