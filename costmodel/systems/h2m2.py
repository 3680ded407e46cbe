"""Asymmetric memory, HBM and LPDDR side by side, under every mapping the paper compares (H2M2 sec. 3 to 5).

All are one machine and one step, `mapped`; they differ in who picks the heads on HBM in decode. Prefill, which
the paper does not map, is alike but for the two static systems, which keep their mapping.

Symbols: n heads (or layers) on HBM, N heads, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.accelerator import memory_energy
from nearkv.costmodel.mechanisms.head_mapping import (
    asymmetric_memory,
    attention,
    check_heads,
    check_units,
    decoder_bytes,
    fc,
    footprint,
    prompt_attention,
    qkv,
)
from nearkv.costmodel.mechanisms.paging import fragmentation, page_table_bytes
from nearkv.costmodel.mechanisms.prompt_mapping import Heads, change_mapping, prompt_heads
from nearkv.costmodel.registry import Knob, system
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

Kernel = Callable[[Real], Span]
OWNS = ("hbm", "lpddr", "hbm_chip", "lpddr_chip", "c2c")
MOST_UNITS = 1024
"""More heads or layers than any model has; `check_units` knows how many the model at hand has."""


def mapping_knobs(policy: str) -> dict[str, Knob]:
    """Heads on HBM for each sub-layer, picked together by a policy of `nearkv.solvers.mapping.policies` unless stated."""
    return {
        f"n_{name}": Knob(f"heads of {what} on HBM", high=MOST_UNITS, kind="count", solver=policy)
        for name, what in {"attention": "attention", "qkv": "qkv-linear", "fc": "fc"}.items()
    }


def mapped(
    hw: Machine, llm: LLM, work: Workload, n_attention: Real, n_qkv: Real, n_fc: Real, paged: Real = 0.0,
    prompt: Heads | None = None,
) -> Estimate:  # fmt: skip
    """Prefill and one decode step with so many heads of each sub-layer on HBM.

    Args:
        hw: roles hbm, lpddr, hbm_chip, lpddr_chip, c2c.
        llm, work: what runs; the mapping is that of the decode step at `work.context`.
        n_attention, n_qkv, n_fc: heads on HBM [1].
        paged: 1 where address translation is paid for, else 0 [1].
        prompt: heads on HBM in prefill; those of `prompt_heads` where none are given [1].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 3.1, 4.2, Tables 1 and 2.

    Raises:
        InputError: heads outside 0..N.
    """
    check_heads(llm)
    check_units(llm.heads, n_attention=n_attention, n_qkv=n_qkv, n_fc=n_fc)
    two, b, all_ = asymmetric_memory(hw), work.batch, llm.heads
    before = prompt_heads(two, llm, work) if prompt is None else prompt
    step = serial(
        qkv=qkv(two, llm, b, n_qkv, paged),
        attention=attention(two, llm, b, work.context, n_attention, paged),
        fc=fc(two, llm, b, n_fc, paged),
    )
    prefill = serial(
        qkv=qkv(two, llm, b * work.prompt, before[1], paged),
        attention=prompt_attention(two, llm, b, work.prompt, before[0], paged),
        fc=fc(two, llm, b * work.prompt, before[2], paged),
    )
    change = change_mapping(two, llm, work, before, (n_attention, n_qkv, n_fc))
    there = footprint(llm, work, n_attention, n_qkv, n_fc)
    rest = footprint(llm, work, all_ - n_attention, all_ - n_qkv, all_ - n_fc)
    every_layer = serial(layers=llm.layers * prefill, change=change)
    return answer(hw, llm, work, every_layer, step, there, sum(rest.values()))


def answer(
    hw: Machine,
    llm: LLM,
    work: Workload,
    prefill: Span,
    step: Span,
    on_hbm: Mapping[str, Real],
    on_lpddr: Real,
) -> Estimate:
    """Repeat a layer; hold this step's mapping, and the cache of the last one, against the memories.

    Args:
        hw, llm, work: as in `mapped`.
        prefill: of all layers.
        step: of one layer.
        on_hbm: bytes of each sub-layer on HBM [B].
        on_lpddr: bytes on LPDDR [B].
    """
    hbm, lpddr = hw.hbm.count * hw.hbm.memory, hw.lpddr.count * hw.lpddr.memory
    every_layer = llm.layers * step
    capacity_check: Real = sum(on_hbm.values())
    return Estimate(
        prefill=prefill,
        step=every_layer,
        fits=fits(
            hbm=(capacity_check, hbm),
            lpddr=(on_lpddr, lpddr),
            both=(
                decoder_bytes(llm, work.batch, np.maximum(work.final, work.context)),
                hbm + lpddr,
            ),
        ),
        work=work,
        batch_run=work.batch,
        also={
            "memory_energy_j_tok": memory_energy(hw, every_layer, work.batch, "hbm", "lpddr"),
            "hbm_used_gb": capacity_check / 1e9,
            "lpddr_used_gb": on_lpddr / 1e9,
            **{f"hbm_{name}_gb": amount / 1e9 for name, amount in on_hbm.items()},
        },
    )


@system(
    "asymmetric",
    platform="gh-asymmetric",
    cite="h2m2",
    owns=OWNS,
    knobs=mapping_knobs("mapping-exact"),
)
def asymmetric(
    hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real
) -> Estimate:
    """Any mapping; heads not stated are mapped at their best beside those that are.

    Source: H2M2 sec. 3.1.
    """
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system(
    "h2m2", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs=mapping_knobs("mapping-greedy")
)
def h2m2(
    hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real
) -> Estimate:
    """Greedy mapping on paged memory.

    Returns:
        As `mapped`, with what paging costs in memory: unused parts of last pages on both sides, and the
        flat page table of one chip over both memories. Source: H2M2 sec. 4.2, 4.3, Algorithm 1.
    """
    estimate = mapped(hw, llm, work, n_attention, n_qkv, n_fc, paged=1.0)
    wasted = fragmentation(hw, llm, work, n_attention, n_qkv, n_fc).wasted
    table = page_table_bytes(hw, hw.hbm.count * hw.hbm.memory + hw.lpddr.count * hw.lpddr.memory)
    return replace(
        estimate,
        also={**estimate.also, "fragmentation_mb": wasted / 1e6, "page_table_mb": table / 1e6},
    )


@system(
    "oracle", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs=mapping_knobs("mapping-exact")
)
def oracle(
    hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real
) -> Estimate:
    """The best mapping, and address translation that costs nothing.

    Source: H2M2 sec. 5.2.1.
    """
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system(
    "q-major",
    platform="gh-asymmetric",
    cite="h2m2",
    owns=OWNS,
    knobs=mapping_knobs("mapping-q-major"),
)
def q_major(
    hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real
) -> Estimate:
    """As much qkv-linear on HBM as fits, the rest at its best.

    Source: H2M2 sec. 3.3.
    """
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system(
    "a-major",
    platform="gh-asymmetric",
    cite="h2m2",
    owns=OWNS,
    knobs=mapping_knobs("mapping-a-major"),
)
def a_major(
    hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real
) -> Estimate:
    """As much attention on HBM as fits, the rest at its best.

    Source: H2M2 sec. 3.3.
    """
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system(
    "f-major",
    platform="gh-asymmetric",
    cite="h2m2",
    owns=OWNS,
    knobs=mapping_knobs("mapping-f-major"),
)
def f_major(
    hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real
) -> Estimate:
    """As much fc on HBM as fits, the rest at its best.

    Source: H2M2 sec. 3.3.
    """
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system("flexgen-mapping", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs={
    "longest": Knob(
        "context the static mapping is made for [tokens]", low=1, high=1 << 20, default=2048, kind="count",
    ),
})  # fmt: skip
def flexgen_mapping(hw: Machine, llm: LLM, work: Workload, *, longest: Real) -> Estimate:
    """One static split of weights and cache, made for the longest context.

    The paper does not print how it changed FlexGen's linear program. By bytes alone every split that fills
    HBM is as good. This one treats weights and cache alike, and gives two equal chips at most half each.

    Args:
        hw, llm, work: as in `mapped`.
        longest: context it is made for; a longer one in `work` counts instead [tokens].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 Eq. 1, sec. 3.2.
    """
    capacity_check = decoder_bytes(llm, work.batch, np.maximum(longest, work.context))
    share = np.minimum(asymmetric_memory(hw).hbm.capacity / capacity_check, 0.5)
    n = (
        np.floor(share * llm.heads / llm.group) * llm.group
    )  # whole KV groups, so that none is held twice
    return mapped(hw, llm, work, n, n, n, prompt=(n, n, n))


@system("naive-granularity", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs={
    f"layers_{name}": Knob(f"layers whose {what} is on HBM", high=MOST_UNITS, kind="count", solver="mapping-layers")
    for name, what in {"attention": "attention", "qkv": "qkv-linear", "fc": "fc"}.items()
})  # fmt: skip
def naive_granularity(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    layers_attention: Real,
    layers_qkv: Real,
    layers_fc: Real,
) -> Estimate:
    """Whole sub-layers on one side or the other, one after another (H2M2 sec. 3.1, fig. 5a).

    Layers may be mapped differently, as the best such mapping needs.

    Args:
        hw, llm, work: as in `mapped`.
        layers_attention, layers_qkv, layers_fc: layers whose sub-layer is on HBM [1].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 3.1.
    """
    check_heads(llm)
    check_units(
        llm.layers, layers_attention=layers_attention, layers_qkv=layers_qkv, layers_fc=layers_fc
    )
    two, b, s = asymmetric_memory(hw), work.batch, work.context
    on = {
        "qkv": layers_qkv / llm.layers,
        "attention": layers_attention / llm.layers,
        "fc": layers_fc / llm.layers,
    }

    def one_side_at_a_time(attend: Kernel, tokens: Real) -> Span:
        kernels: dict[str, Kernel] = {
            "qkv": lambda n: qkv(two, llm, tokens, n),
            "attention": attend,
            "fc": lambda n: fc(two, llm, tokens, n),
        }
        return serial(**{
            name: serial(hbm=on[name] * kernel(llm.heads), lpddr=(1 - on[name]) * kernel(0 * llm.heads))
            for name, kernel in kernels.items()
        })  # fmt: skip

    whole = footprint(llm, work, llm.heads, llm.heads, llm.heads)
    there = {name: on[name] * capacity_check for name, capacity_check in whole.items()}
    return answer(
        hw, llm, work,
        prefill=llm.layers
        * one_side_at_a_time(lambda n: prompt_attention(two, llm, b, work.prompt, n), b * work.prompt),
        step=one_side_at_a_time(lambda n: attention(two, llm, b, s, n), b),
        on_hbm=there,
        on_lpddr=sum(whole.values()) - sum(there.values()),
    )  # fmt: skip
