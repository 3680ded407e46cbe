"""INF²'s attention inside a drive: flash reads, 32-wide tiles, three-pass softmax (inf2 sec. 5).

Symbols: s context.
"""

from __future__ import annotations

from nearkv.costmodel.algebra.span import Port, Real, Span, overlap, serial, stream
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import Csd
from nearkv.hardware.machine import Machine

SCORE_PASSES = 8
"""Times a score crosses the accelerator's memory: written by Q K^T, read and written by masking,
by the exponentials and by the division, read for V (sec. 5)."""
SOFTMAX_PASSES = 3
"""Passes over the scores: mask and maximum, sum of exponentials, division (sec. 5)."""


def attend_in_tiles(hw: Machine, llm: LLM, sequences: Real, s: Real, memory: Port) -> Span:
    """The older attention kernel: 32-wide tiles, in-place transposition, softmax (sec. 5).

    docs/inf2.md, eq. INF2-2.

    A tile is loaded into block RAM, K tiles are transposed there (32 elements a cycle and block),
    and the multipliers take one element each a cycle; in-place work leaves nothing to overlap with.
    A cycle of a unit counts as two FLOPs, no matter what it is spent on.
    """
    units = Port("csd.kernel", "run", hw.csd.count * hw.csd.kernel_tiled, "FLOP")
    elements = llm.kv_bytes(sequences, s) / llm.kv_width
    scores = llm.heads * sequences * llm.attended_tokens(s)
    moved = SCORE_PASSES * scores * llm.activation_width
    reduced = 2 * SOFTMAX_PASSES * scores
    return serial(
        load=memory(elements * llm.kv_width, "tiles of K and V, sec. 5"),
        transpose=units(elements, "32 x 32 tiles of K in place, sec. 5"),
        multiply=units(
            2 * elements * llm.group, "one element a multiplier and cycle, sec. 5"
        ),
        softmax=overlap(
            move=memory(moved, "scores in accelerator memory, sec. 5"),
            reduce=units(reduced, "three passes, 128 scores a cycle, sec. 5"),
        ),
    )


def near_storage(
    hw: Machine, llm: LLM, near: Real, s: Real, buffering: Real, devices: Csd
) -> Span:
    """Flash to accelerator memory, then the kernel, for `near` sequences of s tokens (sec. 4.1, 5).

    A synchronous pread fills the buffer before the kernel starts; a second buffer would hide one
    behind the other. The paper does not say which, so it is a choice.
    """
    bandwidth = hw.csd.count * hw.csd.memory_bandwidth
    # a DMA fills the buffer in long bursts; tiles are read row by row
    dma = Port("csd.dram", "write", bandwidth)
    tiles = Port("csd.dram", "read", bandwidth * hw.derate.tile_loads)

    def read(sequences: Real) -> Span:
        kv = llm.kv_bytes(sequences, s)
        return stream(kv, "P2P, sec. 4.1", flash=devices.read, dram=dma)

    single, double = (1 - buffering) * near, buffering * near
    return serial(
        read=read(single),
        kernel=attend_in_tiles(hw, llm, single, s, tiles),
        both=overlap(read=read(double), kernel=attend_in_tiles(hw, llm, double, s, tiles)),
    )
