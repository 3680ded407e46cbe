"""INF²'s attention kernel inside a drive: 32-wide tiles, three-pass softmax (paper: inf2 sec. 5).

Symbols: s context.
"""

from __future__ import annotations

from nearkv.costmodel.compose import overlap, serial
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.span import Port, Real, Span
from nearkv.hardware.machine import Machine

SCORE_PASSES = 8
"""Times a score crosses the accelerator's memory: written by Q K^T, read and written by masking,
by the exponentials and by the division, read for V (sec. 5)."""
SOFTMAX_PASSES = 3
"""Passes over the scores: mask and maximum, sum of exponentials, division (sec. 5)."""


def attend_in_tiles(hw: Machine, llm: LLM, sequences: Real, s: Real, memory: Port) -> Span:
    """The older attention kernel: 32-wide tiles, in-place transposition, softmax (sec. 5).

    A tile is loaded into block RAM, K tiles are transposed there (32 elements a cycle and block),
    and the multipliers take one element each a cycle; in-place work leaves nothing to overlap with.
    A cycle of a unit counts as two FLOPs, whatever it is spent on.
    """
    units = Port("csd.kernel", "run", hw.csd.count * hw.csd.kernel_tiled, "FLOP")
    elements = llm.kv_bytes(sequences, s) / llm.kv_width
    scores = llm.heads * sequences * s
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
