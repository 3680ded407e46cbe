"""`--robust`: the knob that is best for the bad draws, or for the worst of all machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import resolve_knobs
from nearkv.solvers.uncertainty.quantiles import quantiles
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.explore.knob_bands import STEP, stated
from nearkv.sweeps.explore.worst_case import worst_case
from nearkv.sweeps.study.bands import MODEL_ERROR
from nearkv.sweeps.study.grid import Axis, Box, Grid, shape_of
from nearkv.sweeps.study.study import Block, Numbers
from nearkv.sweeps.uncertainty.bands import error_scores
from nearkv.sweeps.uncertainty.model_error import VALUE, spreads
from nearkv.sweeps.uncertainty.sampled import Sampled, sampled, tiles

SHARES = 201
"""Values of a continuous knob that are tried."""


def robust_knob(
    blocks: Sequence[Block], knob: str, value: Numbers, share: float
) -> Columns:
    """The knob that is best when things are worse than stated.

    Args:
        blocks: of a study with a band, the knob solved.
        knob: its name.
        value: its best value at the stated numbers, a row per design point.
        share: of the draws whose longest step is made short, as 0.9; 1 for the worst machine
            within all ranges at once.

    Returns:
        `robust`, the value; `robust_step_ms`, that quantile of the step with it, and
        `value_step_ms` with the value that is best at the stated numbers. Of the worst machine see
        `worst_case`.

    Raises:
        InputError: a share that is none.
    """
    if not 0.5 <= share <= 1:
        raise InputError(f"--robust {share:g}: give a share of the draws from 0.5 to 1")
    pieces = []
    first = 0
    for block in blocks:
        own = value[first : first + block.grid.size].reshape(block.grid.shape)
        piece = (
            worst_case(block, knob) if share == 1 else _quantile(block, knob, own, share)
        )
        pieces.append(piece)
        first += block.grid.size
    names = pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in names}


def _quantile(block: Block, knob: str, value: Numbers, share: float) -> Columns:
    """The value with the shortest quantile of a step, and that quantile with the usual value."""
    candidates = _candidates(block, knob)
    tried = _with_axis(block, knob, candidates)
    steps = np.empty(tried.grid.shape)
    for outer, inner in tiles(tried, tried.grid.whole):
        answers = sampled(tried, outer)
        steps[inner] = _high(tried, outer, answers, share)
    usual = np.empty(block.grid.shape)
    chosen = stated(block, knob, value)
    for outer, inner in tiles(block, block.grid.whole):
        answers = sampled(block, outer, {knob: chosen[inner]})
        usual[inner] = _high(block, outer, answers, share)
    least = steps.min(axis=-1)
    places = np.argmin(steps, axis=-1)
    best = np.where(least < usual, candidates[places], chosen)
    shortest = np.minimum(least, usual)
    columns = {"robust": best, "robust_step_ms": shortest, "value_step_ms": usual}
    fits = np.isfinite(shortest)
    answer: Columns = {}
    for name, column in columns.items():
        fitting = np.where(fits, column, np.nan)
        answer[name] = fitting.ravel()
    return answer


def _candidates(block: Block, knob: str) -> Numbers:
    limits = block.system.knobs[knob]
    low, high = limits.low, limits.high
    if limits.kind == "share":
        return np.linspace(low, high, SHARES)
    return np.arange(low, high + 1)


def _with_axis(block: Block, knob: str, values: Numbers) -> Block:
    """The block with the knob as its last axis."""
    last = Axis(knob, values)
    grid = Grid((*block.grid.axes, last))
    others = dict(block.requested)
    del others[knob]
    return replace(block, grid=grid, requested=others)


def _high(block: Block, box: Box, answers: Sampled, share: float) -> Numbers:
    """A high quantile of a step, model error included; infinite where a draw does not fit."""
    assert block.band is not None
    hw, llm, work, requested = block.inputs(box)
    resolved = resolve_knobs(block.system, hw, llm, work, requested)
    shape = shape_of(box)
    size = spreads(block, resolved.estimate, shape, VALUE)
    each = np.broadcast_to(size, shape)
    score = error_scores(block.band, MODEL_ERROR)
    error = each[..., np.newaxis] * score
    longer = np.exp(error)
    steps = answers.column(STEP) * longer
    fits = ~np.isnan(steps)
    steps = np.where(fits, steps, np.inf)
    high: Numbers = quantiles(steps, [share])[0]
    return high
