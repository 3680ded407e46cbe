"""A span whose amounts are affine in some variables, as the largest of a few planes.

Sums and maxima of affine functions are the maximum of affine functions. Once a system's tree is
written that way, evaluating it costs a dot product, and a linear programme can hold it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.overlap import Overlap
from nearkv.costmodel.algebra.span import Leaf, Numbers, Real, Repeat, Span
from nearkv.hardware.errors import InputError

Planes = NDArray[np.float64]
"""One row a plane: constant, slope along each variable [s]; seconds = max(planes @ [1, x])."""

_BASE = 4096.0
"""Where slopes are measured: far enough from zero, at which no weights are read."""
_NEAR = 2.0
"""Where they are checked: near zero, a mixture of experts does not use all of its experts."""
_ROUNDING = 1e-11
"""Terms below this share of the seconds are rounding of the difference that measures them."""


def planes(make: Callable[..., Span], variables: int) -> Planes:
    """Write a span as the largest of planes over non-negative variables.

    Args:
        make: variables, each an array -> the span; every amount must be affine in them.
        variables: how many [1].

    Returns:
        Planes without those that are below another one everywhere.

    Raises:
        InputError: an amount is not affine, as in a mixture of experts.
    """
    base = np.full(variables, _BASE)
    near = np.full(variables, _NEAR)
    between = base * np.linspace(1.5, 3.0, variables)
    probes = np.vstack([between, near])
    steps = base + _BASE * np.eye(variables)
    points = np.vstack([base, steps, probes])
    return _planes(make(*points.T), probes)


def _planes(span: Span, probes: Numbers) -> Planes:
    if isinstance(span, Leaf):
        return _plane(span.seconds, probes)
    if isinstance(span, Repeat):
        times = float(np.ravel(span.times)[0])
        if not times:  # as layers of a type that another model of the study has
            return np.zeros((1, probes.shape[1] + 1))
        return _leading(times * _planes(span.span, probes))
    parts = [_planes(part, probes) for part in span.parts.values()]
    if isinstance(span, Overlap):
        for name in span.shared:
            queue = span.busy_of(name)
            parts.append(_plane(queue, probes))
        return _leading(np.vstack(parts))
    width = probes.shape[1] + 1
    total = np.zeros((1, width))
    for rows in parts:
        sums = total[:, np.newaxis] + rows[np.newaxis]
        # part by part, as the sums of all planes would be too many
        total = _leading(sums.reshape(-1, width))
    return total


def _plane(seconds: Real, probes: Numbers) -> Planes:
    """The plane through the seconds at the base and its steps, checked at the probes."""
    variables = probes.shape[1]
    points = 1 + variables + len(probes)
    values = np.ravel(np.asarray(seconds, float))
    values = np.broadcast_to(values, points)
    at_base = values[0]
    at_steps = values[1 : variables + 1]
    at_probes = values[variables + 1 :]
    slopes = (at_steps - at_base) / _BASE
    constant = at_base - _BASE * slopes.sum()
    row = np.append(constant, slopes)
    size = np.abs(row) * np.append(1.0, probes[0])
    row[size < _ROUNDING * at_base] = 0.0
    predicted = row[0] + probes @ row[1:]
    if not np.allclose(predicted, at_probes, rtol=1e-8, atol=0.0):
        raise InputError(
            "this model's iterations are not affine in its load (a mixture of experts?); "
            "only the fluid model takes it"
        )
    return row[np.newaxis]


def _leading(rows: Planes) -> Planes:
    """Leave out every plane that another one exceeds everywhere."""
    rows = np.unique(rows, axis=0)
    exceeds = rows[np.newaxis] >= rows[:, np.newaxis]
    above = np.all(exceeds, axis=2)
    alone = above.sum(axis=1) == 1
    kept: Planes = rows[alone]
    return kept
