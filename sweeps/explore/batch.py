"""`nearkv solve batch`: the largest batch that is served at once, and the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Indices
from nearkv.costmodel.model.metrics import Evaluated
from nearkv.costmodel.model.registry import MONOTONE_COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.solvers.search import largest, peak
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.evaluate.probe import Probe, column
from nearkv.sweeps.evaluate.slo import Target, check_quantities, parse_targets
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.explore.rows import sentences
from nearkv.sweeps.study.study import Numbers, Study, comma_list
from nearkv.sweeps.tables.table import Row, Rows, plain

ROUNDS = "memory; more than that run in rounds"


def find_batches(study: Study, slo: Sequence[str] = ()) -> Rows:
    """The largest batch served at once and the batch of best throughput, at every design point.

    Args:
        study: what to evaluate; its batch does not count.
        slo: upper limits on columns that grow with the batch: `step_ms=50`, comma-separated.

    Returns:
        A row per point: `largest_batch` and what ends it, a memory or a limit, `value`, the best
        batch, with its `throughput_tok_s`, `step_ms` and the limited columns, `bound_tok_s` that
        no batch up to the largest exceeds, and the relative `gap` to it; both NaN where there are
        too many batches to try each.

    Raises:
        InputError: the study cannot be evaluated, has a band, or a limit cannot be used.
    """
    if study.traces:
        advice = "leave out --trace, and state their lengths"
        raise InputError(
            f"solve batch chooses the batch of requests that are alike; {advice}"
        )
    if study.band:
        advice = f"compare --batch 1,4,16 --band {study.band:g} gives that of each batch"
        raise InputError(f"--band: solve batch gives one batch, not a band; {advice}")
    targets = _limits(slo)
    rows: Rows = []
    study_blocks = searched(replace(study, batch=(1.0,)))
    warn_of_unread(study_blocks)
    for block in study_blocks:
        probe = Probe(block)
        check_quantities(targets, probe.own_columns)
        rows += _Sizing(probe, targets).rows()
    return rows


def _limits(texts: Sequence[str]) -> tuple[Target, ...]:
    """Upper limits, as a user writes them.

    Raises:
        InputError: one is no limit, or no upper one.
    """
    listed = [text for item in texts for text in comma_list(item)]
    targets = parse_targets(listed) if listed else ()
    for target in targets:
        if target.at_least or target.against:
            advice = "limit what grows with the batch, as in tpot_ms<=50"
            raise InputError(f"--slo {target.name}: is no upper limit; {advice}")
    return targets


@dataclass(frozen=True)
class _Sizing:
    """The batches of the design points of a probe.

    Attributes:
        probe: the design points.
        slo: upper limits; a batch is served where it keeps all.
    """

    probe: Probe
    limits: tuple[Target, ...]

    def fits(self, point: Indices, batch: Numbers) -> NDArray[np.bool_]:
        """Whether memory holds a batch at once and all limits are kept."""
        answer = self.probe.answer(point, {"batch": batch})
        return self._served(answer, batch)

    def rate(self, point: Indices, batch: Numbers) -> Numbers:
        """Throughput of a batch [1/s], NaN where it does not fit."""
        answer = self.probe.answer(point, {"batch": batch})
        rates = column(answer, "throughput_tok_s", len(point))
        return np.where(self._served(answer, batch), rates, np.nan)

    def _served(self, answer: Evaluated, batch: Numbers) -> NDArray[np.bool_]:
        at_once = np.greater_equal(answer.estimate.batch_run, batch)
        served = answer.estimate.fits.ok & at_once
        for limit in self.limits:
            quantity = column(answer, limit.quantity, len(batch))
            served = served & (limit.margin(quantity) >= 0)
        return np.broadcast_to(served, batch.shape)

    def largest(self) -> Numbers:
        """The largest batch of each point that fits.

        Bisection takes it that what fits a batch fits every smaller one. Where a larger one may
        take less time, and keep a limit that a smaller one breaks, each up to twice as many is
        tried.
        """
        known = largest(self.fits, self.probe.size)
        system = self.probe.block.system
        measures = MONOTONE_COLUMNS if self.limits else ("step_ms",)
        if all(system.is_monotone(measure, "batch") for measure in measures):
            return known

        def more(point: Indices, number: Numbers) -> Numbers:
            fits = self.fits(point, known[point] + number)
            return np.where(fits, number, np.nan)

        beyond = np.where(np.isfinite(known), known, 0.0)
        further = peak(more, beyond, self.probe.block.at_once)
        return known + np.nan_to_num(further.value)

    def rows(self) -> Rows:
        """An answer per design point."""
        count = self.probe.size
        points = np.arange(count)
        most = self.largest()
        best = peak(self.rate, most, self.probe.block.at_once)
        proven = np.isnan(best.value) | ~np.isnan(best.bound)
        solved = np.maximum(np.nan_to_num(best.value), 1.0)
        at_best = self.probe.answer(points, {"batch": solved})
        shown = ["step_ms", *(limit.quantity for limit in self.limits)]
        quantities = {
            name: np.where(most >= 1, column(at_best, name, count), np.nan)
            for name in dict.fromkeys(shown)
        }
        answers = {
            "largest_batch": most,
            "short_of": self.ends(points, most),
            "value": best.value,
            "throughput_tok_s": best.rate,
            **quantities,
            "bound_tok_s": best.bound,
            "gap": best.bound / best.rate - 1,
            "method": np.where(
                proven, "bisection; each batch", "branch and bound, without proof"
            ),
        }
        rows: Rows = []
        for i in points:
            row = self.probe.names(int(i), ("batch",))
            for name, answer in answers.items():
                row[name] = plain(answer[i])
            rows.append(row)
        return rows

    def ends(self, points: Indices, most: Numbers) -> NDArray[np.str_]:
        """What a batch beyond the largest lacks: a memory, or a limit it keeps."""
        beyond = self.probe.answer(points, {"batch": most + 1})
        short_of = np.broadcast_to(beyond.estimate.fits.short_of, most.shape)
        ends = np.where(short_of == "", ROUNDS, short_of)
        for limit in self.limits:
            quantity = column(beyond, limit.quantity, len(points))
            broken = np.isfinite(quantity) & (limit.margin(quantity) < 0)
            ends = np.where(broken, f"the limit of {limit.quantity}", ends)
        return ends


def explain_batch(rows: Sequence[Row]) -> list[str]:
    """Say what ends each batch: memory, a limit, or the batch that is fastest."""
    return sentences(map(_why_batch, rows))


def _why_batch(row: Row) -> str:
    point = f"{row['system']}, {row['model']}"
    largest, best, ends = row["largest_batch"], row["value"], row["short_of"]
    if not largest:
        return f"{point}: no batch is served, bound by {ends}."
    more = f"the largest of them, {largest:,.0f}, is bound by {ends}"
    if best == largest:
        move = "a looser one" if ends.startswith("the limit") else "more of it"
        return f"{point}: batch {best:,.0f}, bound by {ends}; {move} would raise the batch."
    return f"{point}: batch {best:,.0f}, the fastest of all that run at once; {more}."
