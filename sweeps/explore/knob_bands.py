"""What a solved knob loses over what is unknown, and the value that is best for bad draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.study.grid import Axis, Box, Grid, shape_of
from nearkv.sweeps.study.study import NONE, Block, Numbers
from nearkv.sweeps.uncertainty.model_error import VALUE, drawn_error
from nearkv.sweeps.uncertainty.sampled import Sampled, ends, reduced, sampled

STEP = "step_ms"
SHARES = 201
"""Values of a continuous knob that are tried all over its range."""
FINER, ZOOMS = 17, 3
"""Values between the neighbours of the best that are tried then, and how often."""


def knob_bands(
    block: Block, box: Box, knob: str, value: Numbers, robust: float
) -> dict[str, Numbers]:
    """What the best value at the stated numbers loses where the numbers are others.

    Args:
        block: with a band, the knob solved.
        box: the design points.
        knob: its name.
        value: its best value at the stated numbers, as large as the box; NaN where the design does
            not fit.
        robust: share of the draws whose longest step is also made short, as 0.9; 0 for none.

    Returns:
        `regret_p05` and so on: how much longer a step takes than with the knob solved anew for
        each draw, and `regret_mean`. With `robust` the value that makes this quantile of the step
        shortest, `robust_step_ms`, that quantile, and `value_step_ms`, that with `value`.
    """
    band = block.band
    assert band is not None
    # a design that does not fit at the stated numbers may fit in some draws
    lowest = block.system.knobs[knob].low
    chosen = np.where(np.isnan(value), lowest, value)

    def of_tile(outer: Box, inner: Box) -> dict[str, Numbers]:
        solved_anew = sampled(block, outer)
        best = solved_anew.column(STEP)
        usual = sampled(block, outer, {knob: chosen[inner]})
        steps = usual.column(STEP)
        loss = np.maximum(steps / best - 1, 0.0)
        columns = ends(band, "regret", loss)
        total = np.nansum(loss, axis=-1)
        known = np.sum(~np.isnan(loss), axis=-1)
        with np.errstate(invalid="ignore"):
            columns["regret_mean"] = total / known
        if robust:
            columns["value_step_ms"] = _high_step(block, outer, usual, robust)
        return columns

    columns = reduced(block, box, of_tile)
    if robust:
        usual = columns.pop("value_step_ms")
        columns |= _robust(block, box, knob, robust, chosen, usual)
    return {name: column.ravel() for name, column in columns.items()}


def _robust(
    block: Block, box: Box, knob: str, share: float, chosen: Numbers, usual: Numbers
) -> dict[str, Numbers]:
    """The value with the shortest quantile of a step; the chosen one where no other is better."""
    limits = block.system.knobs[knob]
    values = np.linspace(limits.low, limits.high, SHARES)
    if not limits.is_continuous:
        values = np.arange(limits.low, limits.high + 1)
    tried = np.broadcast_to(values, (*chosen.shape, len(values)))
    reach = (limits.high - limits.low) / (SHARES - 1)
    best, shortest = chosen, usual
    for _ in range(1 + ZOOMS if limits.is_continuous else 1):
        steps = _steps_at(block, box, knob, share, tried)
        place = steps.argmin(axis=-1)[..., np.newaxis]
        fastest = np.take_along_axis(tried, place, axis=-1)[..., 0]
        least = steps.min(axis=-1)
        best = np.where(least < shortest, fastest, best)
        shortest = np.minimum(least, shortest)
        around = best[..., np.newaxis] + np.linspace(-reach, reach, FINER)
        tried = np.clip(around, limits.low, limits.high)
        reach /= (FINER - 1) / 2
    columns = {"robust": best, "robust_step_ms": shortest, "value_step_ms": usual}
    fits = np.isfinite(shortest)
    return {name: np.where(fits, column, np.nan) for name, column in columns.items()}


def _steps_at(block: Block, box: Box, knob: str, share: float, values: Numbers) -> Numbers:
    """A high quantile of a step at some values of a knob at each design point [ms].

    Args:
        values: (*points, values); the values are one more axis of the grid, the last.
    """
    count = values.shape[-1]
    others = {name: value for name, value in block.requested.items() if name != knob}
    grid = Grid((*block.grid.axes, Axis(knob, np.arange(float(count)))))
    tried = replace(block, grid=grid, requested=others)

    def of_tile(outer: Box, inner: Box) -> dict[str, Numbers]:
        given = {knob: values[inner]}
        answers = sampled(tried, outer, given)
        return {STEP: _high_step(tried, outer, answers, share, given)}

    return reduced(tried, (*box, slice(0, count)), of_tile)[STEP]


def _high_step(
    block: Block,
    box: Box,
    answers: Sampled,
    share: float,
    knobs: Mapping[str, Numbers] = NONE,
) -> Numbers:
    """A high quantile of a step [ms], model error included; infinite where it does not fit.

    The error is that of the knobs' own values, as what takes most of the time depends on them.
    """
    assert block.band is not None
    hw, llm, work, requested = block.inputs(box)
    resolved = resolve_knobs(block.system, hw, llm, work, {**requested, **knobs})
    estimate = resolved.estimate
    error = drawn_error(block, block.band, estimate, shape_of(box), VALUE)
    steps = answers.column(STEP) * np.exp(error)
    fits = ~np.isnan(steps)
    steps = np.where(fits, steps, np.inf)
    high: Numbers = quantiles(steps, [share])[0]
    return high
