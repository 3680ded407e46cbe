"""Checks of H2M2's statements about paging, chips, energy, Table 4 and changing lengths.

Source: H2M2 sec. 2, 4, 5.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import attend, gemm, side
from nearkv.costmodel.mechanisms.hbm_lpddr.paging import page_table_bytes
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.units import unit_of
from nearkv.sweeps.explore.mapping_trace import random_trace, replay
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.checks.asking import model_on
from nearkv.sweeps.validation.checks.h2m2 import (
    BATCHES,
    LENGTHS,
    PLATFORM,
    all_of,
    estimate,
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


# --- Table 4 and sec. 5.4 ---------------------------------------------------------------------


@check
def sensitivity(name: str, *variants: str) -> list[float]:
    """How much H2M2's own speed changes under variants of Table 4, averaged over lengths, without
    sign [1].
    """
    base = seconds("h2m2", name)
    changes = []
    for variant in variants:
        address, value = VARIANTS[variant]
        speed = np.mean(base / seconds("h2m2", name, {address: value}))
        changes.append(abs(float(speed) - 1))
    return changes


@check
def most_sensitive(name: str, first: str) -> float:
    """Whether the variants of one part change H2M2's speed more than all others in the same
    direction.

    Source: Fig. 17.
    """
    for direction in ("Less", "More"):
        mine = f"{first}-{direction}"
        same = [variant for variant in VARIANTS if variant.endswith(direction)]
        others = [variant for variant in same if not variant.startswith(first)]
        if sensitivity(name, mine)[0] <= max(sensitivity(name, *others)):
            return 0.0
    return 1.0


@check
def busier_side(name: str, first: str, second: str) -> float:
    """Whether one side of H2M2 works longer than the other at every length (sec. 5.4)."""
    busy = estimate("h2m2", name).step.busy()
    return all_of(np.asarray(busy[f"{first}.on"]) > busy[f"{second}.on"])


@check
def dynamic_speedup(name: str, system: str, base: str) -> float:
    """Speed-up of a system while requests grow and end at random, mean over 128 iterations [1].

    Sec. 5.3, fig. 16. Requests end with a chance of 2 % a step and start anew anywhere in the span
    of lengths, seed 0; the paper prints neither.
    """
    _, hw, llm = solved("h2m2", name)
    lengths = LENGTHS[name]
    shortest, longest = int(lengths[0]), int(lengths[-1])
    trace = random_trace(int(BATCHES[name]), 128, 0.02, shortest, longest, 0)
    _, speedup = replay(hw, llm, trace, (base, system))["speedup"]
    return float(speedup)


@check
def static_lags_more_when_lengths_change(name: str) -> float:
    """Whether FlexGen's mapping lags H2M2 more over 128 random iterations than over equal lengths.

    Sec. 5.3. Requests grow and end at random (a chance of 2 % a step) over the same span of
    lengths, seed 0.
    """
    static = dynamic_speedup(name, "flexgen-mapping", "lpddr-only")
    greedy = dynamic_speedup(name, "h2m2", "lpddr-only")
    base = seconds("lpddr-only", name)
    equal_static = np.mean(base / seconds("flexgen-mapping", name))
    equal_greedy = np.mean(base / seconds("h2m2", name))
    return float(static / greedy < equal_static / equal_greedy)


# --- memory, paging, chips --------------------------------------------------------------------


@check
def page_table(space: str, unit: str) -> float:
    """Flat page table of a logical space (sec. 4.2.1), in a unit."""
    hw = load_platform(PLATFORM).machine()
    table = page_table_bytes(hw, unit_of(space)[1])
    return float(table) / unit_of(unit)[1]


@check
def chip(what: str) -> float:
    """What Table 2 makes of a chip: peak [TOPS], weights loaded [GB/s]; of a core: vectors [1],
    scratchpad [MB].
    """
    hw, llm = model_on(PLATFORM, "gpt3-175b")
    on, part = side(hw, "hbm", "hbm_chip"), hw.hbm_chip
    numbers: dict[str, Real] = {
        "peak": 2 * on.arrays.rate * on.rows * on.columns / 1e12,
        "weights": on.arrays.rate * on.columns * llm.weight_width / 1e9,
        "vectors": part.vector_arrays * part.vector_lanes,
        "scratchpad": 2 * part.scratchpad / 1e6,
    }
    return float(np.asarray(numbers[what]))


@check
def only_gemms_gain_from_batching(*models: str) -> float:
    """Whether operations a byte of a GEMM grow with the batch while those of attention stay.

    Source: Sec. 2.2.3, 3.3.
    """
    batch = np.array([1.0, 8.0, 64.0, 512.0])
    for name in models:
        hw, llm = model_on(PLATFORM, name)
        on = side(hw, "hbm", "hbm_chip")
        linear = gemm(on, llm, batch, llm.hidden, llm.ffn).traffic()
        attention = attend(on, llm, batch, 1024.0, llm.heads).traffic()
        per_gemm_byte = batch / linear["hbm.memory", "read"]
        operations = np.asarray(attention["hbm.vectors", "run"])
        per_attention_byte = operations / attention["hbm.memory", "read"]
        grows = np.all(np.diff(per_gemm_byte) > 0)
        stays = np.all(np.diff(per_attention_byte) == 0)
        if not (grows and stays):
            return 0.0
    return 1.0
