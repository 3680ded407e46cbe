"""What H2M2 is compared with: one memory for both chips, and HBM as a cache of LPDDR (H2M2 sec. 2.3, 5.2, 5.5).

Symbols: b batch, s context, L layers.
"""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.capacity import fits
from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.accelerator import (
    Side,
    attend,
    attend_prompt,
    gemm,
    memory_energy,
    powered,
    side,
)
from nearkv.costmodel.mechanisms.head_mapping import (
    asymmetric_memory,
    check_heads,
    decoder_bytes,
    fc_shapes,
    qkv_columns,
)
from nearkv.costmodel.registry import system
from nearkv.costmodel.span import Port, Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine

CHIPS = ("hbm_chip", "lpddr_chip")


def linear_kernels(on: Side, llm: LLM, m: Real) -> dict[str, Span]:
    """All GEMMs of one layer for m tokens, none split."""
    return {
        "qkv": gemm(on, llm, m, llm.hidden, qkv_columns(llm, llm.heads)),
        **{
            name: gemm(on, llm, t, k, w, matrices=e)
            for name, (t, k, w, e) in fc_shapes(llm, m).items()
        },
    }


def decode_layer(on: Side, llm: LLM, work: Workload) -> Span:
    """One layer of one step, all of it on one side."""
    return powered(
        serial(
            attention=attend(on, llm, work.batch, work.context, llm.heads),
            **linear_kernels(on, llm, work.batch),
        ),
        on.name,
    )


def prefill_layer(on: Side, llm: LLM, work: Workload) -> Span:
    """One layer of all prompts, all of it on one side."""
    tokens = work.batch * work.prompt
    return powered(
        serial(
            attention=attend_prompt(on, llm, work.batch, work.prompt, llm.heads),
            **linear_kernels(on, llm, tokens),
        ),
        on.name,
    )


def last_footprint(llm: LLM, work: Workload) -> Real:
    """Decoder layers and the cache at the end of the requests [B]."""
    return decoder_bytes(llm, work.batch, np.maximum(work.final, work.context))


@system("lpddr-only", platform="gh-asymmetric", cite="h2m2", owns=("lpddr", *CHIPS))
def lpddr_only(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Both chips on LPDDR, which they share: the baseline (H2M2 sec. 5.1).

    Args:
        hw: roles lpddr, hbm_chip, lpddr_chip.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 fig. 4b, sec. 5.1.
    """
    check_heads(llm)
    on = side(hw, "lpddr", *CHIPS)
    step = llm.layers * decode_layer(on, llm, work)
    return Estimate(
        prefill=llm.layers * prefill_layer(on, llm, work),
        step=step,
        fits=fits(lpddr=(last_footprint(llm, work), on.capacity)),
        work=work,
        batch_run=work.batch,
        also={"memory_energy_j_tok": memory_energy(hw, step, work.batch, "lpddr")},
    )


@system("hbm-8", platform="gh-asymmetric", cite="h2m2", owns=("hbm8", *CHIPS))
def hbm_8(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Eight HBM modules with the same two chips' worth of compute, and all-reduces between them (H2M2 sec. 5.5).

    Args:
        hw: roles hbm8, hbm_chip, lpddr_chip, collective.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 sec. 5.5.
    """
    check_heads(llm)
    on = side(hw, "hbm8", *CHIPS)
    reduce = Port("collective.link", "wait", 1.0, "s")

    def layer(work_of_layer: Span) -> Span:
        reduced = reduce(
            hw.collective.all_reduce * np.greater(work.batch, 0), "all-reduces of a layer"
        )
        return serial(work=work_of_layer, all_reduce=powered(reduced, on.name))

    step = llm.layers * layer(decode_layer(on, llm, work))
    return Estimate(
        prefill=llm.layers * layer(prefill_layer(on, llm, work)),
        step=step,
        fits=fits(hbm8=(last_footprint(llm, work), on.capacity)),
        work=work,
        batch_run=work.batch,
        also={"memory_energy_j_tok": memory_energy(hw, step, work.batch, "hbm8")},
    )


@system("hierarchical", platform="gh-asymmetric", cite="h2m2", owns=("hbm", "lpddr", *CHIPS, "c2c"))
def hierarchical(hw: Machine, llm: LLM, work: Workload) -> Estimate:
    """Both chips on HBM; what HBM cannot hold comes from LPDDR in every step (H2M2 sec. 2.3, fig. 4c).

    Args:
        hw: roles hbm, lpddr, hbm_chip, lpddr_chip, c2c, derate.
        llm, work: what runs.

    Returns:
        Prefill, one decode step and what fits. Source: H2M2 fig. 4c, sec. 5.2.1; replacement and
        overlap are not printed: the excess moves once a step, a share of it beside kernels.
    """
    check_heads(llm)
    on, slow, lane = (
        side(hw, "hbm", *CHIPS),
        side(hw, "lpddr", "lpddr_chip"),
        asymmetric_memory(hw).link,
    )
    hidden = hw.derate.migration_overlap

    def migrate(amount: Real) -> Span:
        read = powered(slow.memory(amount, "footprint - HBM capacity"), slow.name)
        return overlap(read=read, link=lane(amount, "footprint - HBM capacity"))

    def with_migration(kernels: Span, tokens: Real) -> Span:
        excess = np.maximum(decoder_bytes(llm, work.batch, tokens) - on.capacity, 0.0) * np.greater(
            work.batch, 0
        )
        beside = overlap(kernels=kernels, migrate=migrate(hidden * excess))
        return serial(beside=beside, before=migrate((1 - hidden) * excess))

    step = with_migration(llm.layers * decode_layer(on, llm, work), work.context)
    return Estimate(
        prefill=with_migration(llm.layers * prefill_layer(on, llm, work), work.prompt),
        step=step,
        fits=fits(both=(last_footprint(llm, work), on.capacity + slow.capacity)),
        work=work,
        batch_run=work.batch,
        also={"memory_energy_j_tok": memory_energy(hw, step, work.batch, "hbm", "lpddr")},
    )
