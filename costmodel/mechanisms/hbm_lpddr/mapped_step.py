"""One decode step and the prefill of the asymmetric memory under any mapping (H2M2 sec. 3.1, 4.2).

H2M2 maps the iterations of the generation phase alone (sec. 3.2, 5.1). Prefill needs another
mapping: prompts keep the arrays of both sides busy, so each kernel should be divided as the
arrays' rates are. Where HBM cannot hold that, which kernel goes first decides: on a short prompt
a byte of weights stands for more work than a byte of KV cache, on a long one, or where few of many
experts are used, for less. Both orders are tried, and the mapping of decode, which needs no move.
For the chips of Table 2 and the models of the paper no mapping is faster; on random machines with
models of today the fastest is up to a fifth faster, where a KV group more or less does not fit.

Symbols: n heads (or layers) on HBM, N heads, g queries a KV head, L layers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearkv.costmodel.algebra.span import (
    Booleans,
    Real,
    Span,
    choose,
    serial,
    stream,
    total,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import memory_energy
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    Asymmetric,
    BySublayer,
    asymmetric_memory,
    check_heads,
    check_units,
    footprint,
    most_contents,
    of_each,
    prompts_of,
    step_of,
    sublayers,
)
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

Kernel = Callable[[Real], Span]
"""Heads on HBM -> one layer of a sub-layer."""
Order = tuple[int, int, int]
ORDERS: tuple[Order, ...] = ((2, 1, 0), (0, 1, 2))
"""fc first, or attention first; places in `BySublayer`."""
_ROUNDING = 1e-9


def mapped(
    hw: Machine,
    llm: LLM,
    work: Workload,
    heads: BySublayer,
    paged: Real = 0.0,
    prompt: BySublayer | None = None,
) -> Estimate:
    """Prefill and one decode step with given heads of each sub-layer on HBM.

    Args:
        hw: roles hbm, lpddr, hbm_chip, lpddr_chip, c2c.
        llm, work: what runs; the mapping is that of the decode step at `work.context`.
        heads: on HBM [1].
        paged: 1 where address translation is paid for, else 0 [1].
        prompt: heads on HBM in prefill; those of `fastest_heads` where none are given [1].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 3.1, 4.2, Tables 1 and 2.

    Raises:
        InputError: heads outside 0..N.
    """
    check_heads(llm)
    check_units(llm.heads, "n", heads)
    two = asymmetric_memory(hw, paged)
    if prompt is None:
        prompt = fastest_heads(two, llm, work, heads)
    b, s, rest = work.batch, work.context, heads.rest(llm.heads)
    return every_layer(
        hw,
        llm,
        work,
        prefill=prompts(two, llm, work, prompt, heads),
        step=serial(**sublayers(two, llm, step_of(work), heads)),
        on_hbm=footprint(llm, b, s, heads),
        on_lpddr=footprint(llm, b, s, rest),
        attention=heads.attention / llm.heads,
    )


def prompts(
    two: Asymmetric,
    llm: LLM,
    work: Workload,
    heads: BySublayer,
    decode: BySublayer,
) -> Span:
    """All prompts with one mapping, and the move to the mapping of decode."""
    change = change_mapping(two, llm, work, heads, decode)
    mapped_prompts = sublayers(two, llm, prompts_of(work), heads)
    return serial(**mapped_prompts, change=change)


def fastest_heads(
    two: Asymmetric, llm: LLM, work: Workload, decode: BySublayer
) -> BySublayer:
    """A mapping made for prompts, or that of decode where moving costs more than it gains."""
    fastest = decode
    least = prompts(two, llm, work, decode, decode).seconds
    for order in ORDERS:
        heads = prompt_heads(two, llm, work, order)
        seconds = prompts(two, llm, work, heads, decode).seconds
        faster = holds(two, llm, work, heads) & (seconds < least)
        pairs = zip(heads, fastest, strict=True)
        fastest = BySublayer(*(choose(faster, *pair) for pair in pairs))
        least = np.minimum(least, np.where(faster, seconds, np.inf))
    return fastest


def every_layer(
    hw: Machine,
    llm: LLM,
    work: Workload,
    prefill: Span,
    step: Span,
    on_hbm: BySublayer,
    on_lpddr: BySublayer,
    attention: Real,
) -> Estimate:
    """Check this step's mapping, and the cache of the last step, against the memories.

    Args:
        hw, llm, work: as in `mapped`.
        prefill, step: of all layers.
        on_hbm, on_lpddr: bytes of each sub-layer on a side [B].
        attention: share on HBM [1].
    """
    two = asymmetric_memory(hw)
    hbm, lpddr = two.hbm.capacity, two.lpddr.capacity
    check = fits(
        hbm=(on_hbm.by_content(), hbm),
        lpddr=(on_lpddr.by_content(), lpddr),
        both=(most_contents(llm, work), hbm + lpddr),
    )
    columns = {
        "memory_energy_j_tok": memory_energy(hw, step, work.batch, "hbm", "lpddr"),
        "hbm_used_gb": check.tiers["hbm"][0] / 1e9,
        "lpddr_used_gb": check.tiers["lpddr"][0] / 1e9,
    }
    for name, amount in on_hbm._asdict().items():
        columns[f"hbm_{name}_gb"] = amount / 1e9
    return Estimate(
        prefill=prefill,
        step=step,
        fits=check,
        work=work,
        batch_run=work.batch,
        columns=columns,
        accelerator_power={"hbm": two.hbm.power, "lpddr": two.lpddr.power},
        attention={"hbm": attention, "lpddr": 1 - attention},
    )


def one_side(layer: LLM, kernel: Kernel, share: Real) -> Span:
    """The mean layer where a share of the layers compute a kernel on HBM, the others on LPDDR."""
    all_heads, none = layer.heads, 0 * layer.heads
    return serial(hbm=share * kernel(all_heads), lpddr=(1 - share) * kernel(none))


# --- the mapping of prompts -------------------------------------------------------------------


def prompt_heads(two: Asymmetric, llm: LLM, work: Workload, order: Order) -> BySublayer:
    """Divide every kernel as the speeds of the sides' arrays, as far as HBM holds it.

    What LPDDR cannot hold goes to HBM in any case. KV groups stay undivided, those of the layers
    with the fewest too: none is stored twice.

    Args:
        two: both sides.
        llm, work: what runs.
        order: which kernel takes its part of HBM first, places in `Heads`.

    Returns:
        Heads of attention, qkv and fc on HBM [1].
    """
    even = even_share(two)
    free_hbm, free_lpddr = two.hbm.capacity, two.lpddr.capacity
    sizes = footprint(llm, work.batch, work.prompt, of_each(llm.heads))
    group = llm.most_of_a_layer(lambda layer_type: llm.heads / layer_type.kv_heads)
    groups = llm.heads / group
    all_units = (groups, groups, llm.heads)
    heads: dict[int, Real] = {}
    for kernel in order:
        units = all_units[kernel]
        unit = np.maximum(sizes[kernel], 1.0) / units
        held = np.floor(free_hbm / unit + _ROUNDING)
        beyond_lpddr = np.ceil(units - free_lpddr / unit - _ROUNDING)
        fastest = np.minimum(fastest_units(units, even), held)
        n = np.maximum(fastest, np.minimum(beyond_lpddr, units))
        heads[kernel] = n * llm.heads / units
        free_hbm = np.maximum(free_hbm - n * unit, 0.0)
        free_lpddr = np.maximum(free_lpddr - (units - n) * unit, 0.0)
    return BySublayer(heads[0], heads[1], heads[2])


def holds(two: Asymmetric, llm: LLM, work: Workload, heads: BySublayer) -> Booleans:
    """True if both sides hold their parts when the prompts are done."""
    b, s, rest = work.batch, work.prompt, heads.rest(llm.heads)
    on_hbm, on_lpddr = footprint(llm, b, s, heads), footprint(llm, b, s, rest)
    hbm_holds = np.less_equal(total(on_hbm), two.hbm.capacity)
    return hbm_holds & (total(on_lpddr) <= two.lpddr.capacity)


def even_share(two: Asymmetric) -> Real:
    """Share of a product on HBM at which the arrays of both sides end together [1]."""
    hbm = two.hbm.arrays.rate * two.hbm.rows * two.hbm.columns
    lpddr = two.lpddr.arrays.rate * two.lpddr.rows * two.lpddr.columns
    return hbm / (hbm + lpddr)


def fastest_units(units: Real, share: Real) -> Real:
    """Units on HBM, a whole number, with which the slower side ends first [1].

    Either side of the even share: one unit more delays HBM, one less delays LPDDR.

    Args:
        units: of the kernel [1].
        share: of the arrays' rates that is HBM's [1].
    """
    fewer = np.floor(units * share + _ROUNDING)
    more = np.minimum(fewer + 1, units)
    hbm_with_more = more * (1 - share)
    lpddr_with_fewer = (units - fewer) * share
    return np.where(hbm_with_more < lpddr_with_fewer * (1 - _ROUNDING), more, fewer)


def change_mapping(
    two: Asymmetric, llm: LLM, work: Workload, before: BySublayer, after: BySublayer
) -> Span:
    """Move the bytes that change sides between two mappings, all layers (sec. 4.2.2, Migration)."""
    sizes = (footprint(llm, work.batch, work.prompt, heads) for heads in (before, after))
    moved = total(np.abs(old - new) for old, new in zip(*sizes, strict=True))
    ports = {"hbm": two.hbm.memory, "link": two.link, "lpddr": two.lpddr.memory}
    any_batch = np.greater(work.batch, 0)
    return stream(moved * any_batch, "to the mapping of decode", **ports)
