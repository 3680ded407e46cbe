"""Global sensitivity: the share of a variance that each of several unknowns is to blame for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.solvers.uncertainty.draws import ranks

Numbers = NDArray[np.float64]
Model = Callable[[Mapping[str, Numbers]], Numbers]
"""Ranks of every unknown by name, k each in (0, 1) -> k values."""
SCRAMBLINGS = 8
"""Independent scramblings of the sequence; what they differ by is the error of an index."""
_OTHER = "other:"
"""In front of the name of an unknown: its second, independent draw."""


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
    """First-order and total indices of every unknown.

    Args:
        model: evaluated for samples (unknowns + 2) draws in all.
        names: of the unknowns.
        samples: draws of each unknown over all scramblings [1].
        seed: of the scramblings.

    Returns:
        Indices by name; all zero where the model is constant.

    Source: Saltelli et al., Variance based sensitivity analysis of model output, Computer Physics
    Communications 181 (2010), Table 2: (b) first order, (f) total (Jansen).
    """
    each = max(samples // SCRAMBLINGS, 2)
    first = np.empty((SCRAMBLINGS, len(names)))
    total = np.empty((SCRAMBLINGS, len(names)))
    for place in range(SCRAMBLINGS):
        scrambling = SCRAMBLINGS * seed + place
        first[place], total[place] = _estimated(model, names, each, scrambling)
    indices = {}
    for place, name in enumerate(names):
        own_first, own_total = first[:, place], total[:, place]
        indices[name] = Index(
            first=float(own_first.mean()),
            total=float(own_total.mean()),
            first_error=_error_of_mean(own_first),
            total_error=_error_of_mean(own_total),
        )
    return indices


def _error_of_mean(values: Numbers) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _estimated(
    model: Model, names: Sequence[str], samples: int, seed: int
) -> tuple[Numbers, Numbers]:
    """First-order and total indices by one scrambling (unknowns,)."""
    both = (*names, *(_OTHER + name for name in names))
    drawn = ranks(both, samples, seed)
    one = np.stack([drawn[name] for name in names])
    other = np.stack([drawn[_OTHER + name] for name in names])
    mixed = np.repeat(one[:, np.newaxis], len(names), axis=1)
    diagonal = np.arange(len(names))
    mixed[diagonal, diagonal] = other
    everything = np.concatenate([one[:, np.newaxis], other[:, np.newaxis], mixed], axis=1)
    flat = everything.reshape(len(names), -1)
    values = model(dict(zip(names, flat, strict=True)))
    answers = values.reshape(len(names) + 2, samples)
    at_one, at_other, at_mixed = answers[0], answers[1], answers[2:]
    middle = answers[:2].mean()
    variance = answers[:2].var()
    if not variance > 0:
        none = np.zeros(len(names))
        return none, none
    # a constant taken off the values changes no index, but lessens the error of the first
    first = np.mean((at_other - middle) * (at_mixed - at_one), axis=1)
    total = np.mean((at_one - at_mixed) ** 2, axis=1) / 2
    return first / variance, total / variance
