"""An accelerator chip beside its memory: arrays, vector units, paging (H2M2 sec. 4.1, Table 2).

Symbols: m tokens of a GEMM [m, k] x [k, w], n heads, g queries a KV head, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, serial, wait
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import per
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine


@dataclass(frozen=True)
class Side:
    """Chips and the memory they work from.

    Attributes:
        name: role of the memory.
        arrays: all systolic arrays, in cycles of one array [op].
        skew: cycles in which the arrays fill and drain [op].
        vectors: matrix-vector units, in multiply-accumulates [op].
        memory: what the chips read and write [B].
        walk: page-table accesses that nothing hides [op].
        rows, columns: of one systolic array [1].
        fill: bytes one scratchpad buffer takes at a time [B].
        capacity: of the memory [B].
        power: draw of the chips while they work, beyond that at rest [W].
        paged: 1 where page-table walks are paid, else 0 [1].
    """

    name: str
    arrays: Port
    skew: Port
    vectors: Port
    memory: Port
    walk: Port
    rows: Real
    columns: Real
    fill: Real
    capacity: Real
    power: Real
    paged: Real = 0.0


def side(hw: Machine, memory: str, *chips: str, paged: Real = 0.0) -> Side:
    """Build a memory role with the chips of one or more roles.

    Arrays of chips that share a memory work on one product, so they must be alike; the slowest
    clock ends it. Scratchpads and TLBs, which only paging reads, are the first role's.

    Args:
        hw: the machine.
        memory: role of the memory.
        chips: roles of the chips that work from it.
        paged: as of `Side`.

    Raises:
        InputError: chips whose arrays differ in shape.
    """
    check_arrays(hw, memory, *chips)
    part, chip = hw[memory], hw[chips[0]]
    cycles: Real = 0.0
    multiply_adds: Real = 0.0
    slowest: Real = np.inf
    power: Real = 0.0
    for role in chips:
        core_cycles = hw[role].count * hw[role].cores * hw[role].frequency
        cycles = cycles + core_cycles
        lanes = hw[role].vector_arrays * hw[role].vector_lanes
        multiply_adds = multiply_adds + core_cycles * lanes
        slowest = np.minimum(slowest, hw[role].frequency)
        idle = hw[role].maybe("idle_power", np.nan)
        power = power + hw[role].count * (hw[role].maybe("power", idle) - idle)
    arrays = f"{memory}.arrays"
    return Side(
        name=memory,
        arrays=Port(arrays, "run", cycles, "op"),
        skew=Port(arrays, "wait", slowest, "op"),
        vectors=Port(f"{memory}.vectors", "run", multiply_adds, "op"),
        memory=Port(f"{memory}.memory", "read", part.count * part.bandwidth),
        walk=Port(f"{memory}.mmu", "wait", per(chip.tlb_miss), "op"),
        rows=chip.rows,
        columns=chip.columns,
        fill=chip.scratchpad,
        capacity=part.count * part.memory,
        power=power,
        paged=paged,
    )


def check_arrays(hw: Machine, memory: str, *chips: str) -> None:
    """Refuse chips that share a memory and whose arrays differ in shape.

    Raises:
        InputError: they differ.
    """
    first = hw[chips[0]]
    for role in chips[1:]:
        rows_differ = first.rows != hw[role].rows
        columns_differ = first.columns != hw[role].columns
        if np.any(rows_differ | columns_differ):
            raise InputError(
                f"{chips[0]} and {role} work on {memory} together, so their arrays must be alike; "
                f"set rows and columns of both"
            )


def gemm(on: Side, llm: LLM, m: Real, k: Real, w: Real, matrices: Real = 1.0) -> Span:
    """Weight-stationary product of [m, k] with [k, w] on one side.

    docs/h2m2.md, eq. H2M2-1.

    Weights are double-buffered: while a tile computes for m cycles, the next one loads for as many
    cycles as it has rows, so a tile takes max(rows, m). At 1 GHz, four arrays load 512 GB/s: the
    term that keeps HBM from speeding GEMMs up.

    Args:
        on: who computes.
        llm: for the widths of elements.
        m, k, w: shape [1].
        matrices: how many such products, as of several experts [1].
    """
    used = matrices * np.greater(w * m, 0)
    tiles = used * np.ceil(k / on.rows) * np.ceil(w / on.columns)
    cycles = tiles * np.maximum(on.rows, m)
    weights = k * w * llm.weight_width
    activations = m * (k + w) * llm.activation_width
    moved = used * (weights + activations)
    work = overlap(
        compute=on.arrays(cycles, "ceil(k/128) ceil(w/128) max(128, m) cycles"),
        memory=on.memory(moved, "k w + m k + m w"),
    )
    # rows to load the first weights, rows and columns until the last result leaves
    skew = used * (2 * on.rows + on.columns)
    return serial(
        skew=on.skew(skew, "first weights in, last results out"),
        work=work,
        walk=walk(on, moved),
    )


def attend(on: Side, llm: LLM, work: Workload, n: Real) -> Span:
    """Q K^T and scores V of n heads for one new token of every sequence, on matrix-vector units.

    docs/h2m2.md, eq. H2M2-2.

    A KV head is read once for the group of queries that share it.

    Args:
        on: who computes.
        llm: shapes.
        work: sequences and their context.
        n: query heads on this side [1].
    """
    batch, context = work.batch, work.context
    cached = kv_head_bytes(llm, batch, context) * np.ceil(n / llm.group)
    attended = llm.attended_tokens(context)
    multiply_adds = 2 * llm.head_size * batch * attended * n
    attention = overlap(
        compute=on.vectors(multiply_adds, "2 d sum(S) n multiply-adds"),
        memory=on.memory(cached, "2 d sum(S) n / g"),
    )
    return serial(work=attention, walk=walk(on, cached))


def attend_prompt(on: Side, llm: LLM, work: Workload, n: Real) -> Span:
    """Causal attention of n heads over prompts on the systolic arrays; K and V are written.

    Every chunk of a prompt reads K and V of those before it: of n chunks (n - 1) / 2 prompts.

    Args:
        on, llm, n: as in `attend`.
        work: prompts and chunks.
    """
    batch, prompt = work.batch, work.prompt
    # two FLOPs are one multiply-add
    multiply_adds = llm.prefill_attention_flops(batch, prompt) / 2 * n / llm.heads
    cycles = multiply_adds / (on.rows * on.columns)
    written = kv_head_bytes(llm, batch, prompt) * np.ceil(n / llm.group)
    moved = written * (1 + work.chunks) / 2
    attend = overlap(
        compute=on.arrays(cycles, "b s^2 H d multiply-adds on full arrays"),
        memory=on.memory(moved, "K and V of the prompt"),
    )
    return serial(work=attend, walk=walk(on, moved))


def walk(on: Side, moved: Real) -> Span:
    """Exposed page-table accesses, one for each fill of the scratchpad.

    All pages of a fill are known when it starts. The walk of the first one delays it, the others
    run beside the transfer: one of eight 2 MB pages in a 16 MB fill, an exposed share of 0.125
    (sec. 5.2.4).

    Args:
        on: who waits.
        moved: bytes that pass the scratchpads [B].
    """
    return on.walk(on.paged * moved / on.fill, "one exposed TLB miss a scratchpad fill")


def kv_head_bytes(llm: LLM, batch: Real, tokens: Real) -> Real:
    """K and V of one KV head of one layer, of the tokens that it attends to [B]."""
    return 2 * llm.head_size * batch * llm.attended_tokens(tokens) * llm.kv_width


def powered(span: Span, name: str) -> Span:
    """Book the memory of a side as powered while the side works (H2M2 sec. 5.5, energy model)."""
    on = wait(f"{name}.on", span.seconds, "memory is powered")
    return overlap(work=span, on=on)


def memory_energy(hw: Machine, step: Span, batch: Real, *roles: str) -> Real:
    """Energy of memories alone, each drawing power while its side works (H2M2 sec. 5.5) [J/token].

    Bytes x energy a byte cannot give the paper's two figures at once; power x time does.

    Args:
        hw: roles with `power`.
        step: one decode step, whose sides are `powered`.
        batch: tokens the step makes [1].
        roles: memories to count.
    """
    joules: Real = 0.0
    for role in roles:
        watts = hw[role].count * hw[role].maybe("power", np.nan)
        joules = joules + watts * step.busy_of(f"{role}.on")
    return joules / np.maximum(batch, 1.0)
