"""The worst machine within the ranges of its numbers, and what proves that none is worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.sweeps.evaluate.evaluate import Columns
from nearkv.sweeps.study.study import Block, Numbers
from nearkv.sweeps.uncertainty.numbers import across

LOOKS = 17
"""Values of a number at which the time of each leaf is looked at."""
KNOB_LOOKS = 5
"""Values of a solved knob at which that is done."""
ROUNDING = 1e-9
"""A relative difference below this is rounding."""


def worst_case(block: Block, knob: str) -> Columns:
    """The knob that makes the longest step within the box of all ranges shortest.

    A step is a sum, a maximum or a queue of leaves, all of which grow with each leaf. Where every
    leaf grows with a number, or none does, the longest step is at an end of its range, whatever the
    others are. The worst machine is then one corner of the box, and the exact solver's bound there
    bounds every machine.

    Args:
        block: the knob solved.
        knob: its name.

    Returns:
        `robust`, its value on the worst machine; `robust_step_ms`, its step there;
        `robust_gap`, the distance to the proven bound; all NaN where the design does not fit on
        that machine; and `not_monotone`, numbers of which some
        leaves grow and others shrink: with any, the corner is the worse end of each, not proven.
    """
    corner: dict[str, Numbers] = {}
    unproven = []
    for address in block.draws:
        end, is_proven = _worse_end(block, address)
        corner[address] = end
        if not is_proven:
            unproven.append(address)
    mesh = block.grid.mesh(block.grid.whole)
    hw, llm, work, requested = block.at(mesh, corner)
    resolved = resolve_knobs(block.system, hw, llm, work, requested)
    seconds = resolved.estimate.step.seconds
    choice = resolved.choice
    bound = choice.bound if choice is not None else seconds
    gap = seconds / bound - 1
    columns: dict[str, Real] = {
        "robust": resolved.knobs[knob],
        "robust_step_ms": 1e3 * seconds,
        "robust_gap": np.where(np.abs(gap) < ROUNDING, 0.0, gap),
    }
    shape = block.grid.shape
    ok = resolved.estimate.fits.ok
    answer: Columns = {}
    for name, column in columns.items():
        fitting = np.where(ok, column, np.nan)
        answer[name] = np.broadcast_to(fitting, shape).ravel()
    names = " ".join(unproven)
    answer["not_monotone"] = np.full(block.grid.size, names)
    return answer


def _worse_end(block: Block, address: str) -> tuple[Numbers, bool]:
    """The end of a number's range with the longer step, and whether it is proven to be worst.

    It is that at which the leaves are longer: where one is hidden beside another, the step says
    nothing, and another machine may show it. An end at which the design does not fit is worse than
    one at which it does.

    The end is one value, or where it is not proven one a design point.
    """
    values = across(block.platform, address, LOOKS)
    stated = _stated_knobs(block)
    resolved = _along(block, address, values, stated)
    shape = (*block.grid.shape, LOOKS)
    steps = np.broadcast_to(resolved.estimate.step.seconds, shape)
    fits = np.broadcast_to(resolved.estimate.fits.ok, shape)
    grows, shrinks = _directions(resolved.estimate.step)
    for knobs in _other_knobs(block, stated):
        grows_there, shrinks_there = _directions(
            _along(block, address, values, knobs).estimate.step
        )
        grows, shrinks = grows or grows_there, shrinks or shrinks_there
    is_proven = not (grows and shrinks)
    is_worse_high = grows if is_proven else steps[..., -1] >= steps[..., 0]
    only_one_fits = fits[..., -1] != fits[..., 0]
    is_high = np.where(only_one_fits, fits[..., 0], is_worse_high)
    end = np.where(is_high, values[-1], values[0])
    return end, is_proven


def _along(
    block: Block, address: str, values: Numbers, knobs: Mapping[str, Numbers]
) -> Resolved:
    """What a system answers along one number, on the last axis, at some values of its knobs."""
    mesh = {}
    for name, along in block.grid.mesh(block.grid.whole).items():
        mesh[name] = along[..., np.newaxis]
    hw, llm, work, requested = block.at(mesh, {address: values})
    return resolve_knobs(block.system, hw, llm, work, {**requested, **knobs})


def _other_knobs(
    block: Block, stated: Mapping[str, Numbers]
) -> Iterator[dict[str, Numbers]]:
    """Values of each solved knob all over its range: a leaf may have no work at the best one."""
    for name, request in block.requested.items():
        if request != "auto":
            continue
        knob = block.system.knobs[name]
        for value in np.linspace(knob.low, knob.high, KNOB_LOOKS):
            whole = value if knob.kind == "share" else np.floor(value)
            yield {**stated, name: np.full_like(stated[name], whole, dtype=float)}


def _directions(step: Span) -> tuple[bool, bool]:
    """Whether leaves that change along the last axis grow, and whether some shrink."""
    grows = shrinks = False
    for _, leaf, times in step.leaves():
        seconds = np.asarray(times * leaf.seconds, dtype=float)
        is_constant = seconds.ndim == 0 or seconds.shape[-1] != LOOKS
        if is_constant:
            continue
        change = np.diff(seconds, axis=-1)
        largest = np.max(np.abs(seconds))
        least = ROUNDING * largest
        grows = grows or bool(np.any(change > least))
        shrinks = shrinks or bool(np.any(change < -least))
    return grows, shrinks


def _stated_knobs(block: Block) -> dict[str, Numbers]:
    """The knobs at their best on the stated machine, with one more axis."""
    hw, llm, work, requested = block.inputs(block.grid.whole)
    resolved = resolve_knobs(block.system, hw, llm, work, requested)
    knobs = {}
    for name, value in resolved.knobs.items():
        values = np.asarray(value)
        knobs[name] = values[..., np.newaxis]
    return knobs
