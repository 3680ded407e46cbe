"""Checks of H2M2: costs of its mapping, lengths, what HBM holds, Table 4, paging, chips.

Source: H2M2 sec. 2 to 5; Tables 2 to 4.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import attend, gemm, side
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    SUBLAYERS,
    BySublayer,
    attention_bytes,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import head_tables
from nearkv.costmodel.mechanisms.hbm_lpddr.paging import fragmentation, page_table_bytes
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.units import unit_of
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.solvers.mapping.policies import greedy
from nearkv.sweeps.explore.crossover import find_crossovers
from nearkv.sweeps.validation.checks import check
from nearkv.sweeps.validation.questions import WordedStudy, model_on

PLATFORM = "gh-decoders"
MODEL_BATCHES = {"gpt3-175b": 32.0, "chinchilla-70b": 64.0, "llama2-70b": 128.0}
"""Batches of sec. 5.2."""
MODEL_CONTEXTS = {
    "gpt3-175b": np.arange(256.0, 2049.0, 256.0),
    "chinchilla-70b": np.arange(256.0, 4097.0, 256.0),
    "llama2-70b": np.arange(512.0, 8193.0, 512.0),
}
"""Fig. 3 prints GPT3's; Chinchilla's are longer, Llama2's longer still: twice each."""
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
DYNAMIC_STEPS = 128
"""Iterations of fig. 16."""
FINISH = 0.02
"""Chance that a request finishes in a step; the paper states neither it nor the new lengths [1]."""


def at_lengths(system: str, name: str, lengths: Numbers, **changes: float) -> Resolved:
    """A system at some lengths, with numbers of the platform replaced by `role.key` [SI]."""
    spec, (hw, llm) = find_system(system), model_on(PLATFORM, name)
    work = Workload(MODEL_BATCHES[name], lengths, 1.0).at_context(lengths)
    return resolve_knobs(spec, hw.with_values(changes), llm, work, spec.defaults)


@cache
def solved(system: str, name: str, **changes: float) -> Resolved:
    """A system at every length of a model's grid."""
    return at_lengths(system, name, MODEL_CONTEXTS[name], **changes)


def seconds(system: str, name: str, **changes: float) -> Numbers:
    """A step at every length of a model's grid; `unpaged` is greedy's with free translation [s]."""
    if system == "unpaged":
        mapped = solved("h2m2", name)
        machine = model_on(PLATFORM, name)
        estimate = find_system("asymmetric")(*machine, mapped.estimate.work, mapped.knobs)
    else:
        estimate = solved(system, name, **changes).estimate
    return np.broadcast_to(estimate.step.seconds, MODEL_CONTEXTS[name].shape)


def _speedup(system: str, name: str) -> Any:
    """Speed-up over LPDDR-only, averaged over lengths [1]."""
    return np.mean(seconds("lpddr-only", name) / seconds(system, name))


# --- costs of Table 3 -------------------------------------------------------------------------


@check
def loss(better: str, worse: str, *models: str) -> list[Any]:
    """Share of its step that a system loses to a better one, averaged over lengths, a model each
    [1].

    `unpaged` is H2M2 with address translation for free.

    Source: Table 3.
    """
    return [np.mean(1 - seconds(better, name) / seconds(worse, name)) for name in models]


# --- order and trend over lengths, sec. 2, 3, 5.2 ---------------------------------------------


@check
def gains_more(larger: str, smaller: str, *systems: str) -> bool:
    """True if systems gain more over LPDDR-only, averaged over lengths, with one model than
    another.

    Source: Sec. 5.2.
    """
    return all(_speedup(system, larger) > _speedup(system, smaller) for system in systems)


@check
def crossover_context(name: str, first: str, second: str) -> Any:
    """Context at which the first system stops being the faster one (sec. 5.2.1) [tokens]."""
    question = WordedStudy(
        f"{first},{second}",
        name,
        platform=PLATFORM,
        batch=f"{MODEL_BATCHES[name]:g}",
        output_tokens="2",  # of two tokens the one decoded sees the prompt and the first
    )
    change, *_ = find_crossovers(question.study, "context=64:2048", "step_ms")
    return change["above"] + 1


# --- what HBM holds, fig. 3 and 14, sec. 4.3 ----------------------------------------------------


def _on_hbm(name: str) -> dict[str, Numbers]:
    """Bytes of each sub-layer on HBM at every length [GB]."""
    columns = solved("h2m2", name).estimate.columns
    return {part: np.asarray(columns[f"hbm_{part}_gb"]) for part in SUBLAYERS}


@check
def attention_takes_over(name: str) -> Any:
    """True if attention's bytes on HBM rise with length, to within one KV head, and those of fc
    fall.

    Source: Fig. 14.
    """
    on_hbm = _on_hbm(name)
    _, llm = model_on(PLATFORM, name)
    work = solved("h2m2", name).estimate.work
    one_head = attention_bytes(llm, work.batch, work.context, 1.0)
    head = np.asarray(one_head) / 1e9
    rises = np.diff(on_hbm["attention"]) >= -head[1:]
    falls = np.diff(on_hbm["fc"]) <= 0
    return np.all(rises & falls)


@check
def evicted_layers_stay_out(name: str) -> Any:
    """True if bytes of fc and of qkv-linear on HBM never rise with length.

    Source: Sec. 4.3.2.
    """
    on_hbm = _on_hbm(name)
    return np.all(np.diff([on_hbm["fc"], on_hbm["qkv"]]) <= 0)


@check
def qkv_is_moderate(name: str) -> Any:
    """True if qkv-linear holds, at every length, bytes between those of fc and of attention.

    Source: Fig. 14.
    """
    on_hbm = _on_hbm(name)
    middle = np.median(list(on_hbm.values()), axis=0)
    return np.all(on_hbm["qkv"] == middle)


@check
def mapped_in_order(*models: str) -> bool:
    """True if Algorithm 1 maps each sub-layer as if the later ones took no memory (sec. 4.3.2)."""
    for name in models:
        machine = model_on(PLATFORM, name)
        tables = head_tables(*machine, solved("h2m2", name).estimate.work)
        chosen = greedy(tables).units
        for last in (1, 2):
            hbm = _first_only(tables.hbm, last)
            lpddr = _first_only(tables.lpddr, last)
            alone = greedy(replace(tables, hbm=hbm, lpddr=lpddr)).units
            if not all(map(np.array_equal, chosen[:last], alone[:last])):
                return False
    return True


def _first_only(tables: Any, last: int) -> Any:
    """The tables of the first sub-layers; those of the others are free."""
    return tuple(table * (place < last) for place, table in enumerate(tables))


@check
def fragmentation_as_printed(name: str) -> Any:
    """Most bytes that Eq. 2 counts, the used part of last pages, over all lengths [MB].

    Source: Sec. 4.2.1.
    """
    resolved, machine = solved("h2m2", name), model_on(PLATFORM, name)
    units = BySublayer(*(resolved.knobs[f"n_{part}"] for part in SUBLAYERS))
    counted = fragmentation(*machine, resolved.estimate.work, units).as_printed
    return np.max(counted) / 1e6


# --- Table 4 and sec. 5.4 ---------------------------------------------------------------------


@check
def sensitivity(name: str, *variants: str) -> list[Any]:
    """Change of H2M2's own speed under variants of Table 4, averaged over lengths, without
    sign [1].
    """
    base = seconds("h2m2", name)
    changes = []
    for variant in variants:
        address, value = VARIANTS[variant]
        speed = np.mean(base / seconds("h2m2", name, **{address: value}))
        changes.append(abs(speed - 1))
    return changes


@check
def most_sensitive(name: str, first: str) -> bool:
    """True if the variants of one part change H2M2's speed more than all others in the same
    direction.

    Source: Fig. 17.
    """
    for direction in ("Less", "More"):
        mine = f"{first}-{direction}"
        same = [variant for variant in VARIANTS if variant.endswith(direction)]
        others = [variant for variant in same if not variant.startswith(first)]
        if sensitivity(name, mine)[0] <= max(sensitivity(name, *others)):
            return False
    return True


@check
def busier_side(name: str, first: str, second: str) -> Any:
    """True if one side of H2M2 works longer than the other at every length (sec. 5.4)."""
    busy = solved("h2m2", name).estimate.step.busy()
    return np.all(np.asarray(busy[f"{first}.on"]) > busy[f"{second}.on"])


@check
def dynamic_speedup(name: str, system: str, base: str) -> float:
    """Speed-up of a system while requests grow and end at random, mean over 128 iterations [1].

    Sec. 5.3, fig. 16. Requests end with a chance of 2 % a step and start anew anywhere in the span
    of lengths, seed 0; the paper prints neither.
    """
    # attention reads the sum of all lengths wherever it lies, so their mean stands for the batch
    lengths = random_lengths(int(MODEL_BATCHES[name]), MODEL_CONTEXTS[name]).mean(axis=1)
    slow, fast = (
        at_lengths(each, name, lengths).estimate.step.seconds for each in (base, system)
    )
    return float(np.mean(np.divide(slow, fast)))


def random_lengths(requests: int, span: Numbers) -> Numbers:
    """Lengths of requests that grow by a token a step, end at random, and start anew.

    Args:
        requests: in the batch [1].
        span: the first is the shortest, the last the longest length [tokens].

    Returns:
        (steps, requests) [tokens].
    """
    random = np.random.default_rng(0)
    shape = (DYNAMIC_STEPS, requests)
    fresh = random.integers(int(span[0]), int(span[-1]), size=shape, endpoint=True)
    ends = random.random(shape) < FINISH
    lengths = fresh.astype(float)
    for step in range(1, DYNAMIC_STEPS):  # each step needs the one before
        ended = ends[step] | (lengths[step - 1] >= span[-1])
        lengths[step] = np.where(ended, fresh[step], lengths[step - 1] + 1)
    return lengths


@check
def static_lags_more_when_lengths_change(name: str) -> Any:
    """True if FlexGen's mapping lags H2M2 more over 128 random iterations than over equal lengths.

    Sec. 5.3. Requests grow and end at random (a chance of 2 % a step) over the same span of
    lengths, seed 0.
    """
    static = dynamic_speedup(name, "flexgen-mapping", "lpddr-only")
    greedy = dynamic_speedup(name, "h2m2", "lpddr-only")
    return static / greedy < _speedup("flexgen-mapping", name) / _speedup("h2m2", name)


# --- memory, paging, chips --------------------------------------------------------------------


@check
def page_table(space: str, unit: str) -> Real:
    """Flat page table of a logical space (sec. 4.2.1), in a unit."""
    hw = load_platform(PLATFORM).machine()
    return page_table_bytes(hw, unit_of(space)[1]) / unit_of(unit)[1]


@check
def chip(what: str) -> Real:
    """Numbers of Table 2 for a chip: peak [TOPS], or weights loaded [GB/s]."""
    hw, llm = model_on(PLATFORM, "gpt3-175b")
    on = side(hw, "hbm", "hbm_chip")
    numbers: dict[str, Real] = {
        "peak": 2 * on.arrays.rate * on.rows * on.columns / 1e12,
        "weights": on.arrays.rate * on.columns * llm.weight_width / 1e9,
    }
    return numbers[what]


@check
def only_gemms_gain_from_batching(*models: str) -> bool:
    """True if operations a byte of a GEMM grow with the batch while those of attention stay.

    Source: Sec. 2.2.3, 3.3.
    """
    batch = np.array([1.0, 8.0, 64.0, 512.0])
    for name in models:
        hw, llm = model_on(PLATFORM, name)
        on = side(hw, "hbm", "hbm_chip")
        linear = gemm(on, llm, batch, llm.hidden, llm.ffn).traffic()
        attention = attend(
            on, llm, Workload(batch, 0.0, 1.0).at_context(1024.0), llm.heads
        ).traffic()
        per_gemm_byte = batch / linear["hbm.memory", "read"]
        operations = np.asarray(attention["hbm.vectors", "run"])
        per_attention_byte = operations / attention["hbm.memory", "read"]
        grows = np.all(np.diff(per_gemm_byte) > 0)
        stays = np.all(np.diff(per_attention_byte) == 0)
        if not (grows and stays):
            return False
    return True
