"""A span whose amounts are affine in some variables, as the largest of a few planes.

Sums and maxima of affine functions are the maximum of affine functions. Once a system's tree is
written that way, evaluating it costs a dot product, and a linear programme can hold it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.span import Leaf, Overlap, Real, Repeat, Span
from nearkv.hardware.errors import InputError

Planes = NDArray[np.float64]
"""One row a plane: its constant, then its slope along each variable [s]; seconds = max(planes @ [1, x])."""

_BASE = 4096.0  # far enough from nothing, where no weights are read
_NEAR = 2.0  # and near it, where a mixture of experts does not use all of them
_ROUNDING = 1e-11


def planes(make: Callable[..., Span], variables: int) -> Planes:
    """Write a span as the largest of planes over non-negative variables.

    Args:
        make: variables, each an array -> the span; every amount must be affine in them.
        variables: how many [1].

    Returns:
        Planes, those that never lead left out.

    Raises:
        InputError: an amount is not affine, as in a mixture of experts.
    """
    base = np.full(variables, _BASE)
    probe = base * np.linspace(1.5, 3.0, variables)
    probes = np.vstack([probe, np.full(variables, _NEAR)])
    points = np.vstack([base, base + _BASE * np.eye(variables), probes])
    return _planes(make(*points.T), probes)


def _planes(span: Span, probes: NDArray[np.float64]) -> Planes:
    if isinstance(span, Leaf):
        return _plane(span.seconds, probes)[np.newaxis]
    if isinstance(span, Repeat):
        rows = float(np.asarray(span.times).ravel()[0]) * _planes(span.span, probes)
        return _leading(rows)
    parts = [_planes(part, probes) for part in span.parts.values()]
    if isinstance(span, Overlap):
        return _leading(
            np.vstack(
                parts + [_plane(span.busy_of(name), probes)[np.newaxis] for name in span.shared]
            )
        )
    total = np.zeros((1, probes.shape[1] + 1))
    for rows in parts:
        total = _leading((total[:, np.newaxis] + rows[np.newaxis]).reshape(-1, total.shape[1]))
    return total


def _plane(seconds: Real, probes: NDArray[np.float64]) -> NDArray[np.float64]:
    variables = probes.shape[1]
    at = np.broadcast_to(np.asarray(seconds, float).ravel(), variables + 1 + len(probes))
    slopes = (at[1 : variables + 1] - at[0]) / _BASE
    row = np.concatenate([[at[0] - _BASE * slopes.sum()], slopes])
    row[np.abs(row) * np.append(1.0, probes[0]) < _ROUNDING * at[0]] = 0.0
    if not np.allclose(row[0] + probes @ row[1:], at[variables + 1 :], rtol=1e-8, atol=0.0):
        raise InputError(
            "this model's iterations are not affine in its load (a mixture of experts?); only the fluid model takes it"
        )
    return row


def _leading(rows: Planes) -> Planes:
    """Leave out every plane that another one exceeds everywhere."""
    rows = np.unique(rows, axis=0)
    above = np.all(rows[np.newaxis] >= rows[:, np.newaxis], axis=2)
    kept: Planes = rows[above.sum(axis=1) == 1]
    return kept
