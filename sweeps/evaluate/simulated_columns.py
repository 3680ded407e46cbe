"""Columns of design points whose queue is simulated instead of averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.serving.fluid import tokens_reserved
from nearkv.costmodel.model.layers import not_modelled
from nearkv.costmodel.model.llm import LLM
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import Resolved
from nearkv.sweeps.evaluate.replica import SimulatedQueue
from nearkv.sweeps.evaluate.simulate import simulate
from nearkv.sweeps.study.grid import Box
from nearkv.sweeps.study.study import Block

MOST_POINTS = 2_000
"""Simulations a table may ask for; each takes about a tenth of a second."""
NOT_SIMULATED = ("prefill_s", "step_ms", "decode_tok_s", "energy_j_tok")
"""Columns of the fluid model that a simulation does not answer; blank."""
NOT_AFFINE = dict.fromkeys(
    ("window", "chunk", "latent", "sparse", "state"),
    "a simulation counts all tokens of a request in every layer; use --method fluid",
)
"""Why a simulation takes no other attention than full, by its name."""
EXPERTS = (
    "experts not modelled: a simulation needs iterations affine in their load, and the experts "
    "that are read are not; use --method fluid"
)


def simulable(llm: LLM, resolved: Resolved) -> Resolved:
    """Answers that a simulation can give: none for layers of fewer tokens, or experts.

    Between two events an iteration is affine in the tokens of its requests, which min(s, w) is not.
    """
    lacks = not_modelled(llm, ("full",), NOT_AFFINE)
    experts = np.greater(llm.sum_over_layers(lambda kind: kind.is_moe), 0)
    if np.any(experts):
        lacks[EXPERTS] = experts
    if not lacks:
        return resolved
    estimate = resolved.estimate
    fits = estimate.fits.without(lacks)
    return replace(resolved, estimate=replace(estimate, fits=fits))


def simulated(block: Block, box: Box, resolved: Resolved) -> dict[str, NDArray[np.float64]]:
    """Play the queue of every design point in a box that fits.

    Args:
        block, box: the design points.
        resolved: their knobs, and what fits.

    Returns:
        `total_s`, `throughput_tok_s`, `tpot_ms` and `preempted`, NaN where a point does not fit.

    Raises:
        InputError: too many points, or a system that serves no queue.
    """
    shape = tuple(piece.stop - piece.start for piece in box)
    if block.grid.size > MOST_POINTS:
        raise InputError(
            f"{block.grid.size:,} points are too many to simulate (at most {MOST_POINTS:,}); "
            "use --method fluid"
        )
    if resolved.estimate.serving is None:
        raise InputError(
            f"{block.system.name} serves one batch at a time and has no queue to play; "
            "use --method fluid"
        )
    columns = {
        name: np.full(shape, np.nan)
        for name in ("total_s", "throughput_tok_s", "tpot_ms", "preempted")
    }
    fits = np.broadcast_to(resolved.estimate.fits.ok, shape)
    knobs = {name: np.broadcast_to(value, shape) for name, value in resolved.knobs.items()}
    for place in np.argwhere(fits):
        index = tuple(place)
        point = tuple(
            slice(piece.start + i, piece.start + i + 1)
            for piece, i in zip(box, index, strict=True)
        )
        chosen = {name: float(values[index]) for name, values in knobs.items()}
        simulation = _simulate_point(block, point, chosen)
        answers = (
            simulation.seconds,
            simulation.throughput,
            1e3 * simulation.tbt,
            simulation.preempted,
        )
        for name, value in zip(columns, answers, strict=True):
            columns[name][index] = value
    return {**columns, **{name: np.full(shape, np.nan) for name in NOT_SIMULATED}}


def _simulate_point(block: Block, point: Box, knobs: Mapping[str, Real]) -> SimulatedQueue:
    hw, llm, work, _ = block.inputs(point)
    serving = block.system(hw, llm, work, knobs).serving
    assert serving is not None, "a system whose box has no queue is refused before"
    trace = block.traces[int(block.grid.mesh(point)["trace"].ravel()[0])]
    held = tokens_reserved(work, serving.reserve)
    return simulate(trace, serving, float(np.ravel(held)[0]))
