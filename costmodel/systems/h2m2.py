"""Asymmetric memory, HBM and LPDDR side by side, under every mapping H2M2 compares (sec. 3 to 5).

All are one machine and one step, `mapped`; they differ in who picks the heads on HBM in decode.
Prefill, which the paper does not map, is alike but for the two static systems, which keep their
mapping.

Symbols: n heads (or layers) on HBM, N heads, L layers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span, serial
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    ATTENDS,
    LACKS,
    MOST_UNITS,
    BySublayer,
    LayerPass,
    asymmetric_memory,
    attention,
    check_heads,
    check_units,
    chunk_in,
    decoder_bytes,
    fc,
    footprint,
    of_each,
    output_head,
    prompts_of,
    qkv,
    step_of,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.mapped_step import (
    every_layer,
    mapped,
    one_side,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.paging import fragmentation, page_table_bytes
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.layers import over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import ANY, MONOTONE_COLUMNS, Knob, Reversal, system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

SUBLAYER_NAMES = {"attention": "attention", "qkv": "qkv-linear", "fc": "fc"}
"""Name in code -> name in the paper."""
PROMPTS_BY_RULE = Reversal(
    MONOTONE_COLUMNS,
    (ANY,),
    "the mapping makes the whole request shortest, and prompts are mapped by a rule beside it",
)
BY_RULE = Reversal(
    MONOTONE_COLUMNS,
    (ANY,),
    "the mapping's rule takes what is fastest, or first, and leaves the rest what HBM then has",
)
BY_BYTES = Reversal(
    MONOTONE_COLUMNS,
    ("batch", "context", "output_tokens", "hbm.memory", "hbm.count"),
    "HBM is filled by bytes (sec. 3.2), which takes work from the faster of the chips",
)
LONGER = "mapped for the context, which is beyond `longest`"


CHUNK = chunk_in("hbm", "lpddr")


def mapping_knobs(policy: str) -> dict[str, Knob]:
    """Heads on HBM for each sub-layer, which a policy picks together unless stated.

    Args:
        policy: a key of `nearkv.solvers.mapping.policies.MAPPING_POLICIES`.
    """
    return {"chunk": CHUNK, **_knobs("n", "heads of {} on HBM", policy)}


def _knobs(prefix: str, what: str, policy: str) -> dict[str, Knob]:
    return {
        f"{prefix}_{name}": Knob(
            what.format(printed), high=MOST_UNITS, kind="count", solver=policy
        )
        for name, printed in SUBLAYER_NAMES.items()
    }


@system(
    "h2m2",
    platform="gh-asymmetric",
    cite="h2m2",
    technology="LPDDR beside HBM",
    owns=("hbm", "lpddr", "hbm_chip", "lpddr_chip", "c2c"),
    knobs=mapping_knobs("mapping-greedy"),
    attends=ATTENDS,
    lacks=LACKS,
    reversals=(BY_RULE,),
    optima=("oracle", "asymmetric"),
)
def h2m2(
    hw: Machine,
    llm: LLM,
    work: Workload,
    *,
    n_attention: Real,
    n_qkv: Real,
    n_fc: Real,
) -> Estimate:
    """Greedy mapping on paged memory.

    Returns:
        As `mapped`, with what paging costs in memory: unused parts of last pages on both sides, and
        the flat page table of one chip over both memories.
        Source: H2M2 sec. 4.2, 4.3, Algorithm 1.
    """
    heads = BySublayer(n_attention, n_qkv, n_fc)
    estimate = mapped(hw, llm, work, heads, paged=1.0)
    wasted = fragmentation(hw, llm, work, heads).wasted
    space = hw.hbm.count * hw.hbm.memory + hw.lpddr.count * hw.lpddr.memory
    table = page_table_bytes(hw, space)
    paging = {"fragmentation_mb": wasted / 1e6, "page_table_mb": table / 1e6}
    return replace(estimate, columns={**estimate.columns, **paging})


MAPPINGS = {
    "asymmetric": (
        "mapping-exact",
        "Any mapping; heads not stated are mapped at their best beside those that are.",
        "sec. 3.1",
    ),
    "oracle": (
        "mapping-exact",
        "The best mapping, and address translation that costs nothing.",
        "sec. 5.2.1",
    ),
    "q-major": (
        "mapping-q-major",
        "As much qkv-linear on HBM as fits, the rest at its best.",
        "sec. 3.3",
    ),
    "a-major": (
        "mapping-a-major",
        "As much attention on HBM as fits, the rest at its best.",
        "sec. 3.3",
    ),
    "f-major": (
        "mapping-f-major",
        "As much fc on HBM as fits, the rest at its best.",
        "sec. 3.3",
    ),
}
"""System -> the policy that picks the heads on HBM in decode, what it is, and its section."""


def mapping_system(name: str, policy: str, summary: str, section: str) -> None:
    """Register a system that differs from the others in its policy alone.

    Args:
        name: of the system.
        policy: a key of `nearkv.solvers.mapping.policies.MAPPING_POLICIES`.
        summary: what `nearkv systems` says of it.
        section: of the paper.
    """

    def model(
        hw: Machine,
        llm: LLM,
        work: Workload,
        *,
        n_attention: Real,
        n_qkv: Real,
        n_fc: Real,
    ) -> Estimate:
        heads = BySublayer(n_attention, n_qkv, n_fc)
        return mapped(hw, llm, work, heads)

    model.__doc__ = f"{summary}\n\nSource: H2M2 {section}."
    reversal = BY_RULE if policy.endswith("major") else PROMPTS_BY_RULE
    knobs = mapping_knobs(policy)
    system(name, variant_of="h2m2", knobs=knobs, reversals=(reversal,))(model)


for _name, _row in MAPPINGS.items():
    mapping_system(_name, *_row)


@system(
    "flexgen-mapping",
    variant_of="h2m2",
    knobs={
        "chunk": CHUNK,
        "longest": Knob(
            "context the static mapping is made for [tokens]",
            low=1,
            high=1 << 20,
            default=2048,
            kind="count",
        ),
    },
    reversals=(BY_BYTES,),
)
def flexgen_mapping(hw: Machine, llm: LLM, work: Workload, *, longest: Real) -> Estimate:
    """One static split of weights and cache, made for the longest context.

    The paper does not print how it changed FlexGen's linear program. By bytes alone every split
    that fills HBM is as good. This one treats weights and cache alike, and gives two equal chips at
    most half each. It looks at no speed, so where HBM or its chip is the slower side, more HBM
    takes work from the faster and makes a step longer.

    Args:
        hw, llm, work: as in `mapped`.
        longest: context it is made for; a longer one in `work` counts instead [tokens].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 Eq. 1, sec. 3.2.
    """
    decoder = decoder_bytes(llm, work.batch, np.maximum(longest, work.context))
    share = np.minimum(asymmetric_memory(hw).hbm.capacity / decoder, 0.5)
    # whole KV groups, so that none is stored twice
    n = np.floor(share * llm.heads / llm.group) * llm.group
    heads = of_each(n)
    estimate = mapped(hw, llm, work, heads, prompt=heads)
    return replace(estimate, notes={LONGER: np.greater(work.context, longest)})


@system(
    "naive-granularity",
    variant_of="h2m2",
    knobs={
        "chunk": CHUNK,
        **_knobs("layers", "layers whose {} is on HBM", "mapping-layers"),
    },
    reversals=(PROMPTS_BY_RULE,),
)
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

    Layers may be mapped differently, as the best such mapping needs; the output head is divided as
    the layers' fc.

    Args:
        hw, llm, work: as in `mapped`.
        layers_attention, layers_qkv, layers_fc: layers whose sub-layer is on HBM [1].

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 3.1.
    """
    check_heads(llm)
    layers = BySublayer(layers_attention, layers_qkv, layers_fc)
    check_units(llm.layers, "layers", layers)
    two = asymmetric_memory(hw)
    share = BySublayer(*(on_hbm / llm.layers for on_hbm in layers))
    head = one_side(llm, lambda n: output_head(two, llm, work.batch, n), share.fc)

    def of_phase(phase: LayerPass) -> Span:
        def mean_layer(layer: LLM) -> Span:
            """The layer as many times as prompts have chunks, its attention once."""
            attend = partial(attention, two, layer, phase)
            qkv_ = one_side(layer, lambda n: qkv(two, layer, phase.tokens, n), share.qkv)
            fc_ = one_side(layer, lambda n: fc(two, layer, phase.tokens, n), share.fc)
            return serial(
                qkv=phase.times * qkv_,
                attention=one_side(layer, attend, share.attention),
                fc=phase.times * fc_,
            )

        return serial(layers=over_layers(llm, mean_layer), head=head)

    sizes = footprint(llm, work.batch, work.context, of_each(llm.heads))
    on_hbm = [part * size for part, size in zip(share, sizes, strict=True)]
    on_lpddr = [size - held for size, held in zip(sizes, on_hbm, strict=True)]
    return every_layer(
        hw,
        llm,
        work,
        prefill=of_phase(prompts_of(work)),
        step=of_phase(step_of(work)),
        on_hbm=BySublayer(*on_hbm),
        on_lpddr=BySublayer(*on_lpddr),
        attention=share.attention,
    )
