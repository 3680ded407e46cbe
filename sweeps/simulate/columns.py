"""Columns of design points whose queues are simulated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import Resolved
from nearkv.sweeps.simulate.play import SimulatedQueue, simulate
from nearkv.sweeps.study.grid import Block, Slices, scalar, shape_of
from nearkv.sweeps.study.traces import alike

MOST_SIMULATED = 2_000
"""Simulations a table may ask for; each takes about a tenth of a second."""
PERCENTILES = (50, 90, 99)


def simulated(
    block: Block, box: Slices, resolved: Resolved
) -> dict[str, NDArray[np.float64]]:
    """Serve the queue of every design point in a box that fits.

    Args:
        block, box: the design points.
        resolved: their knobs, and what fits.

    Returns:
        Every column that a run decides: times, rates and quantiles of requests; NaN where a
        simulation does not say it, or a point does not fit.

    Raises:
        InputError: too many points, or a system that serves no queue.
    """
    shape = shape_of(box)
    if block.grid.size > MOST_SIMULATED:
        raise InputError(
            f"{block.grid.size:,} points are too many to simulate (at most {MOST_SIMULATED:,}); "
            "use --method fluid"
        )
    if resolved.estimate.serving is None and np.any(resolved.estimate.fits.ok):
        raise InputError(
            f"{block.system.name} serves one batch at a time and has no queue to play; "
            "use --method fluid"
        )
    if resolved.estimate.serving and np.any(resolved.estimate.serving.before):
        raise InputError(
            "--knob prefix: a simulation begins with an empty cache; use --method fluid"
        )
    of_a_run = [name for name, column in COLUMNS.items() if not column.of_machine]
    columns = {name: np.full(shape, np.nan) for name in of_a_run}
    fits = np.broadcast_to(resolved.estimate.fits.ok, shape)
    knobs = {name: np.broadcast_to(value, shape) for name, value in resolved.knobs.items()}
    for place in np.argwhere(fits):
        index = tuple(place)
        starts = [side.start + i for side, i in zip(box, index, strict=True)]
        point = tuple(slice(start, start + 1) for start in starts)
        chosen = {name: float(values[index]) for name, values in knobs.items()}
        for name, value in _of_point(block, point, chosen).items():
            columns.setdefault(name, np.full(shape, np.nan))[index] = value
    return columns


def _of_point(block: Block, point: Slices, knobs: dict[str, float]) -> dict[str, float]:
    """Simulate one design point: its columns."""
    hw, llm, work, _ = block.inputs(point)
    serving = block.system(hw, llm, work, knobs).serving
    assert serving is not None, "a system whose box has no queue is refused before"
    if block.traces:
        trace = block.traces[int(scalar(block.grid.mesh(point)["trace"]))]
    else:
        trace = alike(scalar(work.prompt), scalar(work.output))
    arrivals = work.arrivals
    queue = simulate(trace, serving, arrivals, block.seed)
    if arrivals is None:
        return _of_batch(queue)
    columns = _times(queue)
    met = queue.meets(arrivals)
    columns["goodput_req_s"] = float(np.sum(met)) / queue.seconds
    columns["users_served"] = float(np.sum(queue.sojourn[met])) / queue.seconds
    return columns


def _of_batch(queue: SimulatedQueue) -> dict[str, float]:
    """Columns of one batch, as the closed form means them: a request that is put back waits.

    So `batch_run` are those in memory at a time, and `ttft_s` is all that is not decoding.
    """
    requests, tokens = len(queue.output), float(np.sum(queue.output - 1))
    decoding = queue.decoding * tokens
    return {
        "batch_run": decoding / queue.seconds,
        "total_s": queue.seconds,
        "throughput_tok_s": queue.throughput,
        "ttft_s": (float(np.sum(queue.sojourn)) - decoding) / requests,
        "tpot_ms": 1e3 * queue.decoding if tokens else np.nan,
        "preempted": float(queue.preempted),
    }


def _times(queue: SimulatedQueue) -> dict[str, float]:
    """Rates of a queue, and times of its requests: means and quantiles."""
    columns = {
        "batch_run": queue.at_once,
        "total_s": float(np.mean(queue.sojourn)),
        "throughput_tok_s": queue.throughput,
        "ttft_s": float(np.mean(queue.ttft)),
        "tpot_ms": 1e3 * float(np.mean(queue.tpot)),
        "preempted": float(queue.preempted),
    }
    for share in PERCENTILES:
        columns[f"ttft_p{share}_s"] = float(np.percentile(queue.ttft, share))
        columns[f"tpot_p{share}_ms"] = 1e3 * float(np.percentile(queue.tpot, share))
    return columns
