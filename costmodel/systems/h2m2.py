"""Asymmetric memory, HBM and LPDDR side by side, under every mapping the paper compares (H2M2 sec. 3 to 5).

All are one machine and one step, `mapped`; they differ in who picks the heads on HBM.

Symbols: n heads (or layers) on HBM, N heads, L layers.
"""

from __future__ import annotations

import numpy as np

from costmodel.capacity import fits
from costmodel.estimate import Estimate
from costmodel.headmap import (
    Asymmetric,
    asymmetric_memory,
    attention,
    check_heads,
    decoder_bytes,
    fc,
    footprint,
    prompt_attention,
    qkv,
)
from costmodel.llm import LLM
from costmodel.registry import Knob, system
from costmodel.span import Real, Span, serial
from costmodel.workload import Workload
from hardware.machine import Machine

OWNS = ("hbm", "lpddr", "hbm_chip", "lpddr_chip", "c2c")
MOST_UNITS = 1024


def mapping_knobs(policy: str) -> dict[str, Knob]:
    """Heads on HBM for each sub-layer, picked together by a policy of `solvers.mapping` unless stated."""
    return {
        f"n_{name}": Knob(f"heads of {what} on HBM", high=MOST_UNITS, kind="count", solver=policy)
        for name, what in {"attention": "attention", "qkv": "qkv-linear", "fc": "fc"}.items()
    }


def mapped(
    hw: Machine, llm: LLM, work: Workload, n_attention: Real, n_qkv: Real, n_fc: Real, paged: Real = 0.0
) -> Estimate:
    """Prefill and one decode step with so many heads of each sub-layer on HBM.

    Args:
        hw: roles hbm, lpddr, hbm_chip, lpddr_chip, c2c.
        llm, work: what runs; the mapping is that of the decode step at `work.context`.
        n_attention, n_qkv, n_fc: heads on HBM [1].
        paged: 1 where address translation is paid for, else 0 [1].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 3.1, 4.2, Tables 1 and 2.

    Raises:
        InputError: heads outside 0..N.
    """
    check_heads(llm, n_attention=n_attention, n_qkv=n_qkv, n_fc=n_fc)
    two, b, all_ = asymmetric_memory(hw), work.batch, llm.heads
    step = serial(
        qkv=qkv(two, llm, b, n_qkv, paged),
        attention=attention(two, llm, b, work.context, n_attention, paged),
        fc=fc(two, llm, b, n_fc, paged),
    )
    prefill = serial(
        qkv=qkv(two, llm, b * work.prompt, n_qkv, paged),
        attention=prompt_attention(two, llm, b, work.prompt, n_attention, paged),
        fc=fc(two, llm, b * work.prompt, n_fc, paged),
    )
    there = footprint(llm, work, n_attention, n_qkv, n_fc)
    rest = footprint(llm, work, all_ - n_attention, all_ - n_qkv, all_ - n_fc)
    return answer(hw, llm, work, two, prefill, step, sum(there.values()), sum(rest.values()))


def answer(
    hw: Machine, llm: LLM, work: Workload, two: Asymmetric, prefill: Span, step: Span, on_hbm: Real, on_lpddr: Real
) -> Estimate:
    """Repeat a layer, and hold the mapping of this step and the cache of the last one against the memories."""
    room = two.hbm.capacity + two.lpddr.capacity
    return Estimate(
        prefill=llm.layers * prefill,
        step=llm.layers * step,
        fits=fits(
            hbm=(on_hbm, two.hbm.capacity),
            lpddr=(on_lpddr, two.lpddr.capacity),
            both=(decoder_bytes(llm, work.batch, np.maximum(work.final, work.context)), room),
        ),
        work=work,
        batch_run=work.batch,
        kernel_power={"hbm.on": hw.hbm.count * hw.hbm.power, "lpddr.on": hw.lpddr.count * hw.lpddr.power},
    )


@system("asymmetric", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs={
    **mapping_knobs("mapping-exact"),
    "paged": Knob("pay for address translation", default=1, kind="choice", choices=("no", "yes")),
})  # fmt: skip
def asymmetric(
    hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real, paged: Real
) -> Estimate:
    """Asymmetric memory with any mapping; the best one unless stated (H2M2 sec. 3.1)."""
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc, paged)


@system("h2m2", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs=mapping_knobs("mapping-greedy"))
def h2m2(hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real) -> Estimate:
    """Greedy mapping (Algorithm 1) on paged memory (H2M2 sec. 4)."""
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc, paged=1.0)


@system("oracle", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs=mapping_knobs("mapping-exact"))
def oracle(hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real) -> Estimate:
    """The best mapping and translation that costs nothing (H2M2 sec. 5.2.1)."""
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system("q-major", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs=mapping_knobs("mapping-q-major"))
def q_major(hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real) -> Estimate:
    """As much qkv-linear on HBM as fits, the rest at its best (H2M2 sec. 3.3)."""
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system("a-major", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs=mapping_knobs("mapping-a-major"))
def a_major(hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real) -> Estimate:
    """As much attention on HBM as fits, the rest at its best (H2M2 sec. 3.3)."""
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system("f-major", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs=mapping_knobs("mapping-f-major"))
def f_major(hw: Machine, llm: LLM, work: Workload, *, n_attention: Real, n_qkv: Real, n_fc: Real) -> Estimate:
    """As much fc on HBM as fits, the rest at its best (H2M2 sec. 3.3)."""
    return mapped(hw, llm, work, n_attention, n_qkv, n_fc)


@system("flexgen-mapping", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs={
    "longest": Knob(
        "context the static mapping is made for [tokens]", low=1, high=1 << 20, default=2048, kind="count",
    ),
})  # fmt: skip
def flexgen_mapping(hw: Machine, llm: LLM, work: Workload, *, longest: Real) -> Estimate:
    """One static split of weights and cache, made for the longest context (H2M2 sec. 3.2).

    The paper does not print how it changed FlexGen's linear program. With one compute rate on both
    sides and bytes for time, every split that fills HBM is optimal; this one treats weights and cache alike.

    Args:
        hw, llm, work: as in `mapped`.
        longest: context it is made for; a longer one in `work` counts instead [tokens].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 eq. 1, sec. 3.2.
    """
    held = decoder_bytes(llm, work.batch, np.maximum(longest, work.context))
    share = np.minimum(asymmetric_memory(hw).hbm.capacity / held, 1.0)
    n = np.floor(share * llm.heads / llm.group) * llm.group  # whole KV groups, so that none is held twice
    return mapped(hw, llm, work, n, n, n)


@system("naive-granularity", platform="gh-asymmetric", cite="h2m2", owns=OWNS, knobs={
    f"layers_{name}": Knob(f"layers whose {what} is on HBM", high=MOST_UNITS, kind="count", solver="mapping-layers")
    for name, what in {"attention": "attention", "qkv": "qkv-linear", "fc": "fc"}.items()
})  # fmt: skip
def naive_granularity(
    hw: Machine, llm: LLM, work: Workload, *, layers_attention: Real, layers_qkv: Real, layers_fc: Real
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
    two, b, s = asymmetric_memory(hw), work.batch, work.context
    on = {"attention": layers_attention / llm.layers, "qkv": layers_qkv / llm.layers, "fc": layers_fc / llm.layers}
    all_, none = llm.heads, 0.0 * llm.heads

    def either(share: Real, hbm: Span, lpddr: Span) -> Span:
        return serial(hbm=share * hbm, lpddr=(1 - share) * lpddr)

    step = serial(
        qkv=either(on["qkv"], qkv(two, llm, b, all_), qkv(two, llm, b, none)),
        attention=either(on["attention"], attention(two, llm, b, s, all_), attention(two, llm, b, s, none)),
        fc=either(on["fc"], fc(two, llm, b, all_), fc(two, llm, b, none)),
    )
    m = b * work.prompt
    prefill = serial(
        qkv=either(on["qkv"], qkv(two, llm, m, all_), qkv(two, llm, m, none)),
        attention=either(
            on["attention"],
            prompt_attention(two, llm, b, work.prompt, all_),
            prompt_attention(two, llm, b, work.prompt, none),
        ),
        fc=either(on["fc"], fc(two, llm, m, all_), fc(two, llm, m, none)),
    )
    whole = footprint(llm, work, llm.heads, llm.heads, llm.heads)
    on_hbm = sum(on[name] * held for name, held in whole.items())
    return answer(hw, llm, work, two, prefill, step, on_hbm, sum(whole.values()) - on_hbm)
