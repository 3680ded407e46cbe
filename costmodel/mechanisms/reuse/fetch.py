"""How a cached prefix comes back: loaded, recomputed, or its end loaded while its head is computed.

Symbols: p prefix tokens, k tokens computed, c(k) seconds of computing the first k tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.residents import bisect

SecondsOfTokens = Callable[[Real], Real]
SPLIT_HALVINGS = 30
"""Until an interval of a million tokens is narrower than a thousandth of one."""


def split(compute: SecondsOfTokens, load: SecondsOfTokens, tokens: Real) -> Real:
    """Tokens to compute from the head while the rest is loaded, so that both end together [1].

    The KV of a token depends on those before it alone, so the head can be computed while the tail
    arrives (Cake, Jin et al. 2024, sec. 4). Computing rises in k and loading p - k falls, so the
    longer of both is least where they cross; bisection finds that for every prefix at once.

    Args:
        compute: seconds for the first tokens of a prefix, rising, 0 of none.
        load: seconds for bytes of as many tokens, rising.
        tokens: p, of each prefix [1].
    """

    def is_early(head: Real) -> NDArray[np.bool_]:
        return np.less(compute(head), load(tokens - head))

    return bisect(is_early, 0.0 * tokens, tokens, SPLIT_HALVINGS)


def both(compute: SecondsOfTokens, load: SecondsOfTokens, tokens: Real) -> Real:
    """Seconds to bring a prefix back where its head is computed while its tail is loaded [s]."""
    k = split(compute, load, tokens)
    return np.maximum(compute(k), load(tokens - k))


def crossover(compute: SecondsOfTokens, load: SecondsOfTokens, longest: float) -> float:
    """The prefix from which on loading is as fast as computing; nan where none is [tokens].

    Loading has a fixed part and grows with the bytes; computing grows with the tokens and, once
    attention counts, faster. Experts that more and more tokens wake may make it grow slower first.
    """
    lengths = np.arange(1.0, longest + 1)
    is_slower = np.greater(load(lengths), compute(lengths))
    if is_slower[-1]:
        return float("nan")
    return float(1 + np.max(lengths, where=is_slower, initial=0.0))


def layerwise(load: Real, compute: Real, layers: Real) -> Real:
    """Seconds where the KV of each layer is loaded while the layer before is computed [s].

    CachedAttention (Gao et al., ATC 2024), sec. 3.2: a pipeline of two stages, so one layer of both
    and the longer of the two for all others.

    Args:
        load: of the prefix in all layers [s].
        compute: of the rest of the prompt in all layers [s].
        layers: L [1].
    """
    first = (load + compute) / layers
    return first + (1 - 1 / layers) * np.maximum(load, compute)
