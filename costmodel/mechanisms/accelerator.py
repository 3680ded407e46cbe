"""An accelerator chip beside its memory: systolic arrays, matrix-vector units, paging (H2M2 sec. 4.1, Table 2).

Symbols: m tokens of a GEMM [m, k] x [k, w], n heads, g queries a KV head, d head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.resources import per
from nearkv.costmodel.span import Leaf, Port, Real, Span
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


def side(hw: Machine, memory: str, *chips: str) -> Side:
    """Build a memory role with the chips of one or more roles.

    Arrays of chips that share a memory work on one product, so they must be alike; the slowest clock
    ends it. Scratchpads and TLBs, which only paging reads, are the first role's.

    Args:
        hw: the machine.
        memory: role of the memory.
        chips: roles of the chips that work from it.

    Raises:
        InputError: chips whose arrays differ in shape.
    """
    part, chip = hw[memory], hw[chips[0]]
    for other in chips[1:]:
        if np.any(
            np.not_equal(chip.rows, hw[other].rows) | np.not_equal(chip.columns, hw[other].columns)
        ):
            raise InputError(
                f"{chips[0]} and {other} work on {memory} together, so their arrays must be alike; "
                f"set rows and columns of both"
            )
    clocked = {role: hw[role].count * hw[role].cores * hw[role].frequency for role in chips}
    arrays = Port(f"{memory}.arrays", "run", sum(clocked.values(), 0.0), "op")
    macs = sum(
        (rate * hw[role].vector_arrays * hw[role].vector_lanes for role, rate in clocked.items()),
        0.0,
    )
    return Side(
        name=memory,
        arrays=arrays,
        skew=Port(
            arrays.resource,
            "wait",
            reduce(np.minimum, [hw[role].frequency for role in chips]),
            "op",
        ),
        vectors=Port(f"{memory}.vectors", "run", macs, "op"),
        memory=Port(f"{memory}.memory", "read", part.count * part.bandwidth),
        walk=Port(f"{memory}.mmu", "wait", per(chip.tlb_miss), "op"),
        rows=chip.rows,
        columns=chip.columns,
        fill=chip.scratchpad,
        capacity=part.count * part.memory,
    )


def gemm(
    on: Side, llm: LLM, m: Real, k: Real, w: Real, paged: Real = 0.0, matrices: Real = 1.0
) -> Span:
    """Weight-stationary product of [m, k] with [k, w] on one side.

    Weights are double-buffered: while a tile computes for m cycles, the next one loads for as many
    cycles as it has rows, so a tile takes max(rows, m). At 1 GHz, four arrays load 512 GB/s: the term
    that keeps HBM from speeding GEMMs up.

    Args:
        on: who computes.
        llm: for the widths of elements.
        m, k, w: shape [1].
        paged: 1 where page-table walks are paid, else 0 [1].
        matrices: how many such products, as of several experts [1].
    """
    used = matrices * np.greater(w * m, 0)
    tiles = used * np.ceil(k / on.rows) * np.ceil(w / on.columns)
    moved = used * (k * w * llm.weight_width + m * (k + w) * llm.activation_width)
    return serial(
        skew=on.skew(used * (2 * on.rows + on.columns), "first weights in, last results out"),
        work=overlap(
            compute=on.arrays(
                tiles * np.maximum(on.rows, m), "ceil(k/128) ceil(w/128) max(128, m) cycles"
            ),
            memory=on.memory(moved, "k w + m k + m w"),
        ),
        walk=walk(on, moved, paged),
    )


def attend(on: Side, llm: LLM, batch: Real, context: Real, n: Real, paged: Real = 0.0) -> Span:
    """Q K^T and scores V of n heads for one new token of every sequence, on the matrix-vector units.

    A KV head is read once for the whole group of queries that share it.

    Args:
        on: who computes.
        llm: shapes.
        batch, context: sequences and mean tokens of each [1].
        n: query heads on this side [1].
        paged: as in `gemm`.
    """
    cached = kv_head_bytes(llm, batch, context) * np.ceil(n / llm.group)
    return serial(
        work=overlap(
            compute=on.vectors(
                2 * llm.head_size * batch * context * n, "2 d sum(S) n multiply-adds"
            ),
            memory=on.memory(cached, "2 d sum(S) n / g"),
        ),
        walk=walk(on, cached, paged),
    )


def attend_prompt(
    on: Side, llm: LLM, batch: Real, prompt: Real, n: Real, paged: Real = 0.0
) -> Span:
    """Causal attention of n heads over whole prompts on the systolic arrays; K and V are written.

    Args:
        on, llm, n, paged: as in `attend`.
        batch, prompt: sequences and tokens of each [1].
    """
    macs = llm.prefill_attention_flops(batch, prompt) / 2 * n / llm.heads
    cached = kv_head_bytes(llm, batch, prompt) * np.ceil(n / llm.group)
    return serial(
        work=overlap(
            compute=on.arrays(
                macs / (on.rows * on.columns), "b s^2 H d multiply-adds on full arrays"
            ),
            memory=on.memory(cached, "K and V of the prompt"),
        ),
        walk=walk(on, cached, paged),
    )


def walk(on: Side, moved: Real, paged: Real) -> Span:
    """Page-table accesses that nothing hides: one a scratchpad fill.

    All pages of a fill are known when it starts. The walk of the first one delays it, the others run
    beside the transfer: one of eight 2 MB pages in a 16 MB fill, an exposed share of 0.125 (sec. 5.2.4).

    Args:
        on: who waits.
        moved: bytes that pass the scratchpads [B].
        paged: 1 where it is paid, else 0 [1].
    """
    return on.walk(paged * moved / on.fill, "one exposed TLB miss a scratchpad fill")


def kv_head_bytes(llm: LLM, batch: Real, tokens: Real) -> Real:
    """K and V of one KV head of one layer [B]."""
    return 2 * llm.head_size * batch * tokens * llm.kv_width


def powered(span: Span, name: str) -> Span:
    """Book the memory of a side as powered for as long as the side works (H2M2 sec. 5.5, energy model)."""
    return overlap(
        work=span, on=Leaf(f"{name}.on", "wait", span.seconds, 1.0, "s", "memory is powered")
    )


def memory_energy(hw: Machine, step: Span, batch: Real, *roles: str) -> Real:
    """Energy of memories alone, each drawing power while its side works (H2M2 sec. 5.5) [J/token].

    Bytes x energy a byte cannot give the paper's two figures at once; power x time does.

    Args:
        hw: roles with `power`.
        step: one decode step, whose sides are `powered`.
        batch: tokens the step makes [1].
        roles: memories to count.
    """
    joules: Real = sum(
        (hw[r].count * hw[r].maybe("power", np.nan) * step.busy_of(f"{r}.on") for r in roles), 0.0
    )
    return joules / np.maximum(batch, 1.0)
