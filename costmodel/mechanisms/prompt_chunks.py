"""Prompts in chunks: what is in flight on the GPU, what waits, what is read again.

Offloading passes all chunks through a layer before the next layer begins, as it does prompts:
weights come once, hidden states wait in host memory between layers, and later chunks attend to K
and V of earlier ones. These stay on the GPU while the layer runs, as far as it has room, and come
back from where they were sent beyond that. A prompt in one chunk has none of this.

Symbols: b prompts, s tokens of each, c tokens of a chunk, n = ceil(s / c) chunks of a prompt.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearkv.costmodel.algebra.span import ByName, Real, Span, choose
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import MONOTONE_COLUMNS, Knob, KnobRule, Reversal
from nearkv.costmodel.model.resources import Gpu, Link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine

MOST_TOKENS = 1 << 24
"""Longest chunk that can be stated [1]."""
Arriving = Callable[[Real, Real], Span]
"""Prompts and tokens of each -> how their K and V of one layer come back to the GPU."""
Room = KnobRule
"""Machine, model, work, other knobs -> memory for activations of prompts [B]."""


PREFIX = Knob(
    "tokens that the cache holds before each prompt, as a prefix that was found "
    "(llama-bench: --n-depth)",
    high=MOST_TOKENS,
    default=0,
    kind="count",
    is_given=True,
    of_work="before",
)
LARGEST_CHUNK = Reversal(
    MONOTONE_COLUMNS,
    ("context", "gpu.memory"),
    "the largest chunk of a prompt that fits takes the room of weights or of a cache",
)


def chunk_knob(room: Room, default: float | str = "fitting") -> Knob:
    """A knob of the tokens of a prompt that pass a layer together.

    Args:
        room: what a memory leaves to the activations of a prompt [B].
        default: `fitting`, or 0 where a system is known to take whole prompts.
    """

    def fitting(hw: Machine, llm: LLM, work: Workload, knobs: ByName) -> Real:
        """The whole prompt where it fits, else the largest power of two that does [1]."""
        return largest_chunk(llm, work, room(hw, llm, work, knobs))

    return Knob(
        "tokens of a prompt that pass a layer together; 0: the whole prompt; fitting: that where "
        "its activations fit, else the largest power of two that does",
        high=MOST_TOKENS,
        default=default,
        kind="count",
        rules={"fitting": fitting},
        of_work="chunk",
    )


def largest_chunk(llm: LLM, work: Workload, room: Real) -> Real:
    """The whole prompt where its activations fit, else the largest power of two [1].

    Args:
        room: memory for them; where it holds not one token, one is taken, which does not fit [B].
    """
    most = np.maximum(room / np.maximum(llm.activation_bytes(1.0), 1e-9), 1.0)
    power_of_two = np.exp2(np.floor(np.log2(most)))
    return choose(most >= work.prompt, work.prompt, power_of_two)


def any_chunks(work: Workload) -> bool:
    """True if a prompt of any design point passes in more than one chunk."""
    return bool(np.any(work.chunks > 1))


# --- K and V of earlier chunks ----------------------------------------------------------------


def tokens_before(work: Workload) -> Real:
    """Tokens before a chunk that is not the first, on average, n c / 2 [1].

    Over the n - 1 later chunks they add up to c n (n - 1) / 2 tokens of K and V to attend to.
    """
    return work.chunks * work.together / 2


def held_bytes(llm: LLM, work: Workload) -> Real:
    """K and V of one prompt's earlier chunks in the layer that runs, K (s - c) [B]."""
    return llm.most_of_a_layer(
        lambda kind: kind.kv_bytes(1, work.prompt) - kind.kv_bytes(1, work.together)
    )


def kept_share(llm: LLM, work: Workload, room: Real) -> Real:
    """Share of these that stays on the GPU while the layer runs [1].

    Args:
        room: GPU memory for them [B].
    """
    held = held_bytes(llm, work)
    share = np.clip(room / np.where(held > 0, held, 1.0), 0.0, 1.0)
    return choose(held > 0, share, 1.0)


# --- hidden states ----------------------------------------------------------------------------


def hidden_bytes(llm: LLM, b: Real, work: Workload) -> Real:
    """Hidden states of b prompts that wait between layers, 2 b s h; none of whole prompts [B]."""
    return np.greater(work.chunks, 1) * llm.x_bytes(b, work.prompt)


def between_chunks(
    llm: LLM,
    work: Workload,
    b: Real,
    gpu: Gpu,
    link: Link,
    kept: Real,
    arriving: Arriving,
    by_host: Real = 1.0,
) -> dict[str, Span]:
    """Traffic that prompts in chunks add to a layer, beside its computation; none of whole prompts.

    Hidden states come from host memory and go there; K and V of earlier chunks come back but for
    what the GPU keeps; each further chunk reads the weights from GPU memory anew.

    Args:
        llm: a model whose layers are all like it.
        work: prompts and chunks; its batch is not used.
        b: prompts [1].
        gpu, link: what computes, and the way to it from host memory.
        kept: share of the K and V of a prompt's earlier chunks that stays on the GPU [1].
        arriving: how the rest comes back.
        by_host: share of the hidden states that waits in host memory [1].
    """
    if not any_chunks(work):
        return {}
    later = work.chunks - 1
    hidden = by_host * hidden_bytes(llm, b, work)
    weights = later * b * llm.layer_weight_bytes(work.together)
    return {
        "hidden_in": link.inward(hidden, "2bsh"),
        "hidden_out": link.outward(hidden, "2bsh"),
        "earlier": arriving((1 - kept) * later * b, tokens_before(work)),
        "weights_again": gpu.read(weights, "weights once a chunk"),
    }
