"""Global sensitivity: the share of a variance that each of several unknowns explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Numbers

Model = Callable[[Mapping[str, Numbers]], Numbers]
"""Ranks of every unknown by name, k each in (0, 1) -> k values, in an array of its own."""
SCRAMBLINGS = 8
"""Independent scramblings of the sequence; what they differ by is the error of an index."""


@dataclass(frozen=True)
class Index:
    """Sobol's indices of one unknown, shares of the variance [1].

    Attributes:
        first: what is explained by it alone.
        total: what remains if all others are known.
        first_error, total_error: standard errors of both.
    """

    first: float
    total: float
    first_error: float
    total_error: float


def sobol_indices(
    model: Model, names: Sequence[str], samples: int, seed: int
) -> dict[str, Index]:
    """First-order and total indices of every unknown; all zero where the model is constant.

    Args:
        model: evaluated for about samples (unknowns + 2) draws in all.
        names: of the unknowns.
        samples: draws of each unknown over all scramblings [1]; each scrambling has the power of
            two below its share of them, but at least two.
        seed: of the scramblings.

    Source: Saltelli et al., Variance based sensitivity analysis of model output, Computer Physics
    Communications 181 (2010), Table 2: (b) first order, (f) total (Jansen).
    """
    from scipy import stats

    # SciPy fails on one unknown alone; the model ignores the other
    unknowns = names if len(names) > 1 else [*names, ""]
    uniform: Any = stats.uniform()
    each = 2 ** int(np.log2(max(samples // SCRAMBLINGS, 2)))
    estimates = np.empty((SCRAMBLINGS, 2, len(unknowns)))
    for place in range(SCRAMBLINGS):
        # SciPy's own error, a bootstrap, takes the points of a sequence for independent
        scrambled = stats.sobol_indices(
            func=lambda ranks: model(dict(zip(unknowns, ranks, strict=True))),
            n=each,
            dists=[uniform] * len(unknowns),
            rng=np.random.default_rng([seed, place]),
        )
        estimates[place] = scrambled.first_order, scrambled.total_order
    means = estimates.mean(axis=0)
    errors = estimates.std(axis=0, ddof=1) / np.sqrt(SCRAMBLINGS)
    columns = np.concatenate([means, errors]).T.tolist()
    return {name: Index(*column) for name, column in zip(names, columns, strict=False)}
