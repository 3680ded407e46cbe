"""Baselines of H2M2: one memory for both chips, and HBM as a cache of LPDDR.

Source: H2M2 sec. 2.3, 5.2, 5.5.

Symbols: b batch, s context, L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span, overlap, serial, wait
from nearkv.costmodel.mechanisms.hbm_lpddr.accelerator import (
    Side,
    gemm,
    memory_energy,
    powered,
    side,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    LayerPass,
    asymmetric_memory,
    check_heads,
    chunk_in,
    decoder_bytes,
    fc_shapes,
    most_contents,
    prompts_of,
    qkv_columns,
    step_of,
)
from nearkv.costmodel.model.estimate import Estimate, fits
from nearkv.costmodel.model.layers import over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

CHIPS = ("hbm_chip", "lpddr_chip")


def layer_kernels(on: Side, llm: LLM, tokens: Real, attention: Span) -> Span:
    """One layer, all of it on one side, none split."""
    qkv = gemm(on, llm, tokens, llm.hidden, qkv_columns(llm, llm.heads))
    products = {"qkv": qkv}
    for name, shape in fc_shapes(llm, tokens).items():
        products[name] = gemm(on, llm, shape.m, shape.k, shape.w, matrices=shape.matrices)
    return powered(serial(attention=attention, **products), on.name)


def output_head(on: Side, llm: LLM, work: Workload) -> Span:
    """Logits of one token of every sequence, on one side."""
    stored = replace(llm, weight_width=llm.embedding_width)
    return powered(gemm(on, stored, work.batch, llm.hidden, llm.vocab), on.name)


def all_layers(
    on: Side, llm: LLM, phase: LayerPass, layer: Callable[[Span], Span] = lambda span: span
) -> Span:
    """All prompts or one step, all of it on one side.

    Args:
        on: the side.
        llm, phase: what runs.
        layer: the kernels of a layer -> that layer.
    """

    def of_layer(block: LLM) -> Span:
        attention = phase.attend(on, block, phase.work, block.heads)
        kernels = layer_kernels(on, block, phase.tokens, (1 / phase.times) * attention)
        return phase.times * layer(kernels)

    head = output_head(on, llm, phase.work)
    return serial(layers=over_layers(llm, of_layer), head=head)


def one_memory(
    hw: Machine,
    llm: LLM,
    work: Workload,
    memory: str,
    layer: Callable[[Span], Span] = lambda span: span,
) -> Estimate:
    """Both chips on one memory, which holds everything.

    Args:
        memory: its role.
        layer: the kernels of a layer -> that layer.
    """
    check_heads(llm)
    on = side(hw, memory, *CHIPS)
    step = all_layers(on, llm, step_of(work), layer)
    return Estimate(
        prefill=all_layers(on, llm, prompts_of(work), layer),
        step=step,
        fits=fits(**{memory: (most_contents(llm, work), on.capacity)}),
        work=work,
        batch_run=work.batch,
        columns={"memory_energy_j_tok": memory_energy(hw, step, work.batch, memory)},
        accelerator_power={memory: on.power},
        attention={memory: 1.0},
    )


@system(
    "lpddr-only",
    variant_of="h2m2",
    owns=("lpddr", *CHIPS),
    knobs={"chunk": chunk_in("lpddr")},
    reversals=(),
    optima=(),
)
def lpddr_only(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Both chips on LPDDR, which they share: the baseline (H2M2 sec. 5.1).

    Args:
        hw: roles lpddr, hbm_chip, lpddr_chip.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 fig. 4b, sec. 5.1.
    """
    return one_memory(hw, llm, work, "lpddr")


@system(
    "hbm-8",
    variant_of="lpddr-only",
    technology="HBM alone",
    owns=("hbm8", *CHIPS),
    knobs={"chunk": chunk_in("hbm8")},
)
def hbm_8(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Eight HBM modules, two chips' worth of compute, and all-reduces between them (H2M2 sec. 5.5).

    Args:
        hw: roles hbm8, hbm_chip, lpddr_chip, collective.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 5.5.
    """
    any_batch = np.greater(work.batch, 0)

    def reduced(kernels: Span) -> Span:
        reduce = wait(
            "collective.link",
            hw.collective.all_reduce * any_batch,
            "all-reduces of a layer",
        )
        return serial(work=kernels, all_reduce=powered(reduce, "hbm8"))

    return one_memory(hw, llm, work, "hbm8", reduced)


@system(
    "hierarchical",
    variant_of="lpddr-only",
    owns=("hbm", "lpddr", *CHIPS, "c2c"),
    knobs={"chunk": chunk_in("hbm", "lpddr")},
)
def hierarchical(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Both chips on HBM; what HBM cannot hold comes from LPDDR in every step (H2M2 fig. 4c).

    Replacement and overlap are not printed: the excess moves once a step, a share of it beside the
    kernels.

    Args:
        hw: roles hbm, lpddr, hbm_chip, lpddr_chip, c2c, derate.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 fig. 4c, sec. 2.3, 5.2.1.
    """
    alone, on = one_memory(hw, llm, work, "hbm"), side(hw, "hbm", *CHIPS)
    slow = side(hw, "lpddr", "lpddr_chip")
    link = asymmetric_memory(hw).link
    hidden = hw.derate.migration_overlap

    def migrate(amount: Real) -> Span:
        read = slow.memory(amount, "footprint - HBM capacity")
        sent = link(amount, "footprint - HBM capacity")
        return overlap(read=powered(read, slow.name), link=sent)

    def with_migration(kernels: Span, tokens: Real) -> Span:
        beyond = decoder_bytes(llm, work.batch, tokens) - on.capacity
        excess = np.maximum(beyond, 0.0) * (work.batch > 0)
        beside = overlap(kernels=kernels, migrate=migrate(hidden * excess))
        return serial(beside=beside, before=migrate((1 - hidden) * excess))

    step = with_migration(alone.step, work.context)
    energy = memory_energy(hw, step, work.batch, "hbm", "lpddr")
    return replace(
        alone,
        prefill=with_migration(alone.prefill, work.prompt),
        step=step,
        fits=fits(both=(most_contents(llm, work), on.capacity + slow.capacity)),
        columns={"memory_energy_j_tok": energy},
    )
