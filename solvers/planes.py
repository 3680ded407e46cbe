"""A span whose amounts are affine in some variables, as the largest of a few planes.

Sums and maxima of affine functions are the maximum of affine functions. Once a system's tree is
written that way, evaluating it costs a dot product, and a linear programme can hold it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from costmodel.span import Leaf, Overlap, Real, Repeat, Span
from hardware.errors import InputError

Planes = NDArray[np.float64]
"""One row a plane: its constant, then its slope along each variable [s]; seconds = max(planes @ [1, x])."""

_BASE = 4096.0  # far enough from nothing, where no weights are read
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
    points = np.vstack([base, base + _BASE * np.eye(variables), probe])
    return _planes(make(*points.T), probe)


def _planes(span: Span, probe: NDArray[np.float64]) -> Planes:
    if isinstance(span, Leaf):
        return _plane(span.seconds, probe)[np.newaxis]
    if isinstance(span, Repeat):
        rows = float(np.asarray(span.times).ravel()[0]) * _planes(span.span, probe)
        return _leading(rows)
    parts = [_planes(part, probe) for part in span.parts.values()]
    if isinstance(span, Overlap):
        return _leading(np.vstack(parts + [_plane(span.busy_of(name), probe)[np.newaxis] for name in span.shared]))
    total = np.zeros((1, len(probe) + 1))
    for rows in parts:
        total = _leading((total[:, np.newaxis] + rows[np.newaxis]).reshape(-1, total.shape[1]))
    return total


def _plane(seconds: Real, probe: NDArray[np.float64]) -> NDArray[np.float64]:
    at = np.broadcast_to(np.asarray(seconds, float).ravel(), len(probe) + 2)
    slopes = (at[1:-1] - at[0]) / _BASE
    row = np.concatenate([[at[0] - _BASE * slopes.sum()], slopes])
    row[np.abs(row) * np.append(1.0, probe) < _ROUNDING * at[-1]] = 0.0
    if not np.isclose(row[0] + row[1:] @ probe, at[-1], rtol=1e-9, atol=0.0):
        raise InputError(
            "this model's iterations are not affine in its load (a mixture of experts?); use --method fluid"
        )
    return row


def _leading(rows: Planes) -> Planes:
    """Leave out every plane that another one exceeds everywhere."""
    rows = np.unique(rows, axis=0)
    above = np.all(rows[np.newaxis] >= rows[:, np.newaxis], axis=2)
    kept: Planes = rows[above.sum(axis=1) == 1]
    return kept
