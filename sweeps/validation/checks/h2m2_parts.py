"""Checks of H2M2's statements about paging, chips, energy, Table 4 and changing lengths (H2M2 sec. 2, 4, 5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.mechanisms.accelerator import attend, gemm, side
from nearkv.costmodel.mechanisms.paging import page_table_bytes
from nearkv.costmodel.span import Real
from nearkv.hardware.quantity import unit_of
from nearkv.sweeps.explore.dynamic import random_trace, replay
from nearkv.sweeps.validation.checks import check, model_on
from nearkv.sweeps.validation.checks.h2m2 import (
    GRIDS,
    PLATFORM,
    Values,
    estimate,
    every,
    seconds,
    solved,
)

VARIANTS = {
    "HBMcap-Less": ("hbm.memory", 48e9),
    "HBMcap-More": ("hbm.memory", 192e9),
    "HBMBw-Less": ("hbm.bandwidth", 2.25e12),
    "HBMBw-More": ("hbm.bandwidth", 4e12),
    "LPDDRbw-Less": ("lpddr.bandwidth", 408e9),
    "LPDDRbw-More": ("lpddr.bandwidth", 680e9),
    "HBMchip-More": ("hbm_chip.count", 2.0),
    "LPDDRChip-More": ("lpddr_chip.count", 2.0),
}
"""Table 4: the number each variant replaces, in SI."""


# --- Table 4 and sec. 5.4 --------------------------------------------------------------------------


@check
def sensitivity(name: str, *variants: str) -> list[float]:
    """How much H2M2's own speed changes under variants of Table 4, averaged over lengths, without sign [1]."""
    base = seconds("h2m2", name)
    return [
        abs(float(np.mean(base / seconds("h2m2", name, dict([VARIANTS[v]])))) - 1) for v in variants
    ]


@check
def most_sensitive(name: str, first: str) -> float:
    """Whether the variants of one part change H2M2's speed more than all others that go the same way (fig. 17)."""
    capacity_check = []
    for way in ("Less", "More"):
        others = [v for v in VARIANTS if v.endswith(way) and not v.startswith(first)]
        capacity_check.append(
            sensitivity(name, f"{first}-{way}")[0] > max(sensitivity(name, *others))
        )
    return every(capacity_check)


@check
def busier_side(name: str, first: str, second: str) -> float:
    """Whether one side of H2M2 works longer than the other at every length (sec. 5.4)."""
    busy = estimate("h2m2", name).step.busy()
    return every(np.asarray(busy[f"{first}.on"]) > busy[f"{second}.on"])


@check
def rising_energy(name: str, *systems: str) -> float:
    """Whether memory energy a token, averaged over lengths, rises from each system to the next (fig. 19)."""
    used = [
        np.mean(np.asarray(estimate(system, name).also["memory_energy_j_tok"]))
        for system in systems
    ]
    return every(np.diff(used) > 0)


@check
def static_lags_more_when_lengths_change(name: str) -> float:
    """Whether FlexGen's mapping lags H2M2 more over 128 random iterations than over equal lengths (sec. 5.3).

    Requests grow and end at random (a chance of 2 % a step) over the same span of lengths, seed 0.
    """
    _, hw, llm = solved("h2m2", name)
    batch, lengths = GRIDS[name]
    trace = random_trace(int(batch), 128, 0.02, int(lengths[0]), int(lengths[-1]), 0)
    _, static, greedy = replay(hw, llm, trace, ("lpddr-only", "flexgen-mapping", "h2m2"))["speedup"]
    equal = [
        np.mean(seconds("lpddr-only", name) / seconds(s, name)) for s in ("flexgen-mapping", "h2m2")
    ]
    return float(static / greedy < equal[0] / equal[1])


# --- memory, paging, chips -------------------------------------------------------------------------


@check
def share_of_hbm(size: str) -> float:
    """So many bytes over the HBM capacity (sec. 4.2.1) [1]."""
    hw, _ = model_on(PLATFORM, "gpt3-175b")
    return float(size) / float(hw.hbm.count * hw.hbm.memory)


@check
def page_table(space: str, unit: str) -> float:
    """Flat page table of a logical space (sec. 4.2.1), in a unit."""
    hw, _ = model_on(PLATFORM, "gpt3-175b")
    return float(page_table_bytes(hw, unit_of(space)[1])) / unit_of(unit)[1]


@check
def chip(what: str) -> float:
    """What Table 2 makes of a chip: peak [TOPS], weights loaded [GB/s]; of a core: vectors [1], scratchpad [MB]."""
    hw, llm = model_on(PLATFORM, "gpt3-175b")
    on, part = side(hw, "hbm", "hbm_chip"), hw.hbm_chip
    found: dict[str, Real] = {
        "peak": 2 * on.arrays.rate * on.rows * on.columns / 1e12,
        "weights": on.arrays.rate * on.columns * llm.weight_width / 1e9,
        "vectors": part.vector_arrays * part.vector_lanes,
        "scratchpad": 2 * part.scratchpad / 1e6,
    }
    return float(np.asarray(found[what]))


@check
def all_weights_gigabytes(name: str, width: str) -> float:
    """All weights of a model at so many bits (sec. 2.2.1) [GB]."""
    return float(np.asarray(model_on(PLATFORM, name)[1].parameters)) * float(width) / 8 / 1e9


@check
def grouped_over_multi_head(name: str) -> float:
    """KV cache of a model over that of the same model with a KV head a query head (sec. 5.2.3) [1]."""
    _, llm = model_on(PLATFORM, name)
    return float(np.asarray(llm.kv_bytes(1, 1) / replace(llm, kv_heads=llm.heads).kv_bytes(1, 1)))


@check
def only_gemms_gain_from_batching(*models: str) -> float:
    """Whether operations a byte of a GEMM grow with the batch while those of attention stay (sec. 2.2.3, 3.3)."""
    batch = np.array([1.0, 8.0, 64.0, 512.0])
    capacity_check = []
    for name in models:
        hw, llm = model_on(PLATFORM, name)
        on = side(hw, "hbm", "hbm_chip")
        linear = gemm(on, llm, batch, llm.hidden, llm.ffn).traffic()["hbm.memory", "read"]
        attention = attend(on, llm, batch, 1024.0, llm.heads).traffic()
        capacity_check += [np.all(np.diff(batch / linear) > 0)]
        capacity_check += [np.all(np.diff(_per_byte(attention)) == 0)]
    return every(capacity_check)


def _per_byte(traffic: dict[tuple[str, str], Real]) -> Values:
    return np.asarray(traffic["hbm.vectors", "run"]) / traffic["hbm.memory", "read"]
