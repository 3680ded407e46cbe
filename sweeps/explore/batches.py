"""`nearkv solve batch`: the largest batch that is served at once, and the best one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError
from nearkv.solvers.peak import peak
from nearkv.solvers.search import Points, largest
from nearkv.sweeps.evaluation.probe import Probe, column
from nearkv.sweeps.evaluation.table import plain
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.explore.rows import Rows, aligned
from nearkv.sweeps.space.sizes import size, values
from nearkv.sweeps.space.study import Numbers, Study

ROUNDS = "memory; more than that run in rounds"


def best_batches(study: Study) -> Rows:
    """The largest batch served at once and the batch of best throughput, at every design point.

    Returns:
        A row per point: `largest_batch` and the memory that ends it, `value`, the best batch, with
        its `throughput_tok_s` and `step_ms`, `bound_tok_s` that no batch up to the largest exceeds,
        and the relative `gap` to it.

    Raises:
        InputError: the study cannot be evaluated.
    """
    if study.traces:
        advice = "leave out --trace, and state their lengths"
        raise InputError(
            f"solve batch chooses the batch of requests that are alike; {advice}"
        )
    values(study.batch, size, "--batch")
    rows: Rows = []
    for block in searched(replace(study, batch="1")):
        rows += _batches(Probe(block))
    return aligned(rows)


def _batches(probe: Probe) -> Rows:
    def fits(point: Points, batch: Numbers) -> NDArray[np.bool_]:
        estimate = probe.answer(point, {"batch": batch}).estimate
        at_once = np.greater_equal(estimate.batch_run, batch)
        return np.broadcast_to(estimate.fits.ok & at_once, point.shape)

    def rate(point: Points, batch: Numbers) -> Numbers:
        answer = probe.answer(point, {"batch": batch})
        return column(answer, "throughput_tok_s", len(point))

    points = np.arange(probe.size)
    most = largest(fits, probe.size)
    best = peak(rate, most)
    solved = np.maximum(np.nan_to_num(best.value), 1.0)
    at_best = probe.answer(points, {"batch": solved})
    beyond = probe.answer(points, {"batch": most + 1})
    steps = column(at_best, "step_ms", probe.size)
    short_of = np.broadcast_to(beyond.estimate.fits.short_of, most.shape)
    answer = {
        "largest_batch": most,
        "short_of": np.where(short_of == "", ROUNDS, short_of),
        "value": best.value,
        "throughput_tok_s": best.rate,
        "step_ms": np.where(most >= 1, steps, np.nan),
        "bound_tok_s": best.bound,
        "gap": best.bound / best.rate - 1,
        "method": np.full(probe.size, "bisection; each batch, or branch and bound"),
    }
    rows: Rows = []
    for i in points:
        row = probe.names(int(i), ("batch",))
        for name, answers in answer.items():
            row[name] = plain(answers[i])
        rows.append(row)
    return rows
