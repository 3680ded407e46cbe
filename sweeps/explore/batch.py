"""`nearkv solve batch`: the largest batch that is served at once, and the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.costmodel.model.metrics import Evaluated
from nearkv.costmodel.model.registry import MONOTONE_COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import choices_of
from nearkv.solvers.search import MOST_TRIED, Peak, Test, largest, peak
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.evaluate.probe import Probe, column
from nearkv.sweeps.evaluate.slo import Target, check_quantities, parse_targets
from nearkv.sweeps.explore.knob import answer_columns
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.study.sizes import names
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Row, Rows, plain

ROUNDS = "memory; more than that run in rounds"
SEQUENCE_LIMIT = "the limit of sequences; --knob sequences=0 runs what memory holds"
NOT_MODELLED = "no model: "


def find_batches(study: Study, slo: Sequence[str] = ()) -> Rows:
    """The largest batch served at once and the batch of best throughput, at every design point.

    Args:
        study: what to evaluate; its batch does not count.
        slo: upper limits on columns that grow with the batch: `step_ms=50`, comma-separated.

    Returns:
        A row per point, with its axes and

        - `largest_batch`: over all values of the knobs that are `auto`;
        - `short_of`: the memory or the limit that ends it;
        - `value`: the batch of best throughput, with the knobs chosen for it, its
          `throughput_tok_s`, `step_ms` and the limited columns;
        - `bound_tok_s`: a throughput that no batch up to the largest exceeds;
        - `gap`: the relative distance to that bound. Both are NaN where there are too many batches
          to try each.

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
        hw, llm, work, settings = block.inputs(block.grid.whole)
        knobs = choices_of(block.system, hw, llm, work, settings)
        rest = {name: knob for name, knob in block.open_knobs.items() if name not in knobs}
        check_quantities(targets, Probe(block).own_columns)
        rows += _Sizing(Probe(replace(block, open_knobs=rest)), targets, knobs).rows()
    return rows


def _limits(texts: Sequence[str]) -> tuple[Target, ...]:
    """Upper limits, as a user writes them.

    Raises:
        InputError: one is no limit, or no upper one.
    """
    listed = names(texts, "--slo")
    targets = parse_targets(listed) if listed else ()
    for target in targets:
        if target.at_least or target.against:
            advice = "limit what grows with the batch, as in tpot_ms<=50"
            raise InputError(f"--slo {target.name} is no upper limit; {advice}")
    return targets


@dataclass(frozen=True)
class _Sizing:
    """The batches of the design points of a probe, with every combination of its free knobs.

    What is asked of a point with a combination is a case; those of a point follow one another.

    Attributes:
        probe: the design points, without the knobs that are chosen.
        limits: upper limits; a batch is served where it keeps all.
        knobs: knob that is chosen -> its values, a number a combination.
    """

    probe: Probe
    limits: tuple[Target, ...]
    knobs: Mapping[str, Numbers]

    @property
    def combinations(self) -> int:
        """Number of combinations of knobs at each point."""
        return len(next(iter(self.knobs.values()), [0.0]))

    def answer(self, case: Indices, batch: Numbers) -> Evaluated:
        """The system's answer to some batches."""
        point, chosen = np.divmod(case, self.combinations)
        knobs = {name: values[chosen] for name, values in self.knobs.items()}
        return self.probe.answer(point, {"batch": batch, **knobs})

    def of_cases(self, test: Test, case: Indices, batch: Numbers) -> NDArray[np.bool_]:
        """A test of the answers to very many cases, some at once."""
        cuts = range(self.probe.block.at_once, len(case), self.probe.block.at_once)
        pieces = zip(np.split(case, cuts), np.split(batch, cuts), strict=True)
        return np.concatenate([test(*piece) for piece in pieces])

    def lacks_model(self, case: Indices, batch: Numbers) -> NDArray[np.bool_]:
        """True if a batch is not modelled, as one too small to keep all replicas at work."""
        unmodelled = self.answer(case, batch).estimate.fits.unmodelled
        return np.broadcast_to(unmodelled, batch.shape)

    def fits(self, case: Indices, batch: Numbers) -> NDArray[np.bool_]:
        """True if memory holds a batch at once and all limits are kept."""
        return self._is_served(self.answer(case, batch), batch)

    def rates(self, most: Numbers, point: Indices, batch: Numbers) -> Numbers:
        """Throughput with each combination of knobs: (points, combinations) [1/s].

        Args:
            most: the largest batch of each case.
            point, batch: points, and a batch of each.

        Returns:
            Minus infinity where a batch is not served at once.
        """
        case = point[:, np.newaxis] * self.combinations + np.arange(self.combinations)
        batches = np.broadcast_to(batch[:, np.newaxis], case.shape)
        rates = np.full(case.shape, -np.inf)
        tried = most[case] >= batches
        if np.any(tried):
            answer = self.answer(case[tried], batches[tried])
            rate = column(answer, "throughput_tok_s", int(tried.sum()))
            served = self._is_served(answer, batches[tried])
            rates[tried] = np.where(served, rate, -np.inf)
        return rates

    def _is_served(self, answer: Evaluated, batch: Numbers) -> NDArray[np.bool_]:
        at_once = np.greater_equal(answer.estimate.batch_run, batch)
        served = answer.estimate.fits.ok & at_once
        for limit in self.limits:
            quantity = column(answer, limit.quantity, len(batch))
            served = served & (limit.margin(quantity) >= 0)
        return np.broadcast_to(served, batch.shape)

    def smallest(self) -> Numbers:
        """The smallest batch of each case that is modelled; infinite where none is."""
        cases = self.probe.size * self.combinations
        return largest(partial(self.of_cases, self.lacks_model), cases) + 1

    def largest(self, smallest: Numbers) -> Numbers:
        """The largest batch of each case that is served.

        Bisection takes it that what fits a batch fits every smaller one that is modelled. Where a
        larger one may take less time, and keep a limit that a smaller one breaks, each up to twice
        as many is tried.

        Args:
            smallest: batch of each case that is modelled.
        """
        first = np.where(np.isfinite(smallest), smallest, 1.0)
        known = largest(partial(self.of_cases, self.fits), len(first), first)
        system = self.probe.block.system
        measures = MONOTONE_COLUMNS if self.limits else ("step_ms",)
        # splits, which reverse a measure where they are chosen, are given here
        is_given = system.combinations is not None
        if is_given or all(system.is_monotone(measure, "batch") for measure in measures):
            return known

        def more(case: Indices, number: Numbers) -> Numbers:
            return np.where(self.fits(case, known[case] + number), number, np.nan)

        beyond = np.where(np.isfinite(known), known, 0.0)
        further = peak(more, beyond, self.probe.block.at_once)
        return known + np.nan_to_num(further.value)

    def best(self, most: Numbers, largest_batch: Numbers) -> Peak:
        """The batch of the highest throughput at each point, with the best combination.

        Args:
            most, largest_batch: the largest batch of each case, and of each point.
        """

        def highest(point: Indices, batch: Numbers) -> Numbers:
            rate = np.max(self.rates(most, point, batch), axis=1)
            return np.where(np.isinf(rate), np.nan, rate)

        many = self.combinations
        at_once = max(self.probe.block.at_once // many, 1)
        return peak(highest, largest_batch, at_once, MOST_TRIED // many)

    def rows(self) -> Rows:
        """An answer per design point."""
        points, many = np.arange(self.probe.size), self.combinations
        smallest = self.smallest()
        most = self.largest(smallest)
        largest_batch = np.max(most.reshape(-1, many), axis=1)
        best = self.best(most, largest_batch)
        is_served, is_proven = largest_batch >= 1, ~np.isnan(best.bound)
        solved = np.where(np.isnan(best.value), 1.0, best.value)
        case = points * many + np.argmax(self.rates(most, points, solved), axis=1)
        at_best = self.answer(case, solved)
        names = ("step_ms", *(limit.quantity for limit in self.limits))
        quantities = {name: column(at_best, name, len(points)) for name in names}
        answers: dict[str, NDArray[Any]] = {
            "largest_batch": largest_batch,
            "short_of": self.ends(most, smallest),
            "value": best.value,
            **answer_columns(self._chosen(case % many), is_served),
            "throughput_tok_s": best.rate,
            **answer_columns(quantities, is_served),
            "bound_tok_s": best.bound,
            "gap": best.bound / best.rate - 1,
            "method": np.where(
                is_proven | ~is_served,
                "bisection; each batch",
                "branch and bound, without proof",
            ),
        }
        rows: Rows = []
        for i in points:
            row = self.probe.names(int(i), ("batch",))
            rows.append(row | {name: plain(cells[i]) for name, cells in answers.items()})
        return rows

    def _chosen(self, combination: Indices) -> dict[str, NDArray[Any]]:
        """Values of the knobs in some combinations, names of choices."""
        chosen: dict[str, NDArray[Any]] = {}
        for name, values in self.knobs.items():
            choices = np.array(self.probe.block.system.knobs[name].choices)
            value = values[combination]
            chosen[name] = choices[value.astype(int)] if len(choices) else value
        return chosen

    def ends(self, most: Numbers, smallest: Numbers) -> NDArray[np.str_]:
        """Name what a batch beyond the largest lacks: a memory, a limit it keeps, or a model.

        Where none is served, of the combination that misses the fewest bytes.

        Args:
            most, smallest: batches of each case.
        """
        cases = np.arange(len(most))
        batches = np.where(
            most >= 1, most + 1, np.where(np.isfinite(smallest), smallest, 1.0)
        )
        fits = self.answer(cases, batches).estimate.fits
        missing = np.where(fits.unmodelled, np.inf, fits.short_bytes)
        missing = np.broadcast_to(missing, most.shape).reshape(-1, self.combinations)
        held = most.reshape(missing.shape)
        fewest = np.argmin(missing, axis=1)
        best = np.where(np.any(held >= 1, axis=1), np.argmax(held, axis=1), fewest)
        case = np.arange(len(held)) * self.combinations + best
        beyond = self.answer(case, batches[case])
        fits = beyond.estimate.fits
        rounds = np.where(beyond.estimate.ends_at_limit, SEQUENCE_LIMIT, ROUNDS)
        ends = np.where(np.equal(fits.short_of, ""), rounds, fits.short_of)
        lacks = np.char.add(NOT_MODELLED, np.array(fits.reasons)[fits.reason])
        ends = np.where(fits.unmodelled, lacks, ends)
        for limit in self.limits:
            quantity = column(beyond, limit.quantity, len(case))
            broken = np.isfinite(quantity) & (limit.margin(quantity) < 0)
            ends = np.where(broken, f"the limit of {limit.quantity}", ends)
        return np.broadcast_to(ends, case.shape)


def why_batch(row: Row) -> str:
    """Say what ends a batch: memory, a limit, or the batch that is fastest."""
    point = f"{row['system']}, {row['model']}"
    largest, best, ends = row["largest_batch"], row["value"], row["short_of"]
    if ends.startswith(NOT_MODELLED):
        ends = f"the lack of a model ({ends.removeprefix(NOT_MODELLED)})"
    resource, _, note = ends.partition("; ")
    ends = f"{resource} ({note})" if note else ends
    if not largest:
        return f"{point}: no batch is served, bound by {ends}."
    more = f"the largest of them, {largest:,.0f}, is bound by {ends}"
    if best == largest:
        move = "a looser one" if ends.startswith("the limit") else f"more of {resource}"
        return f"{point}: batch {best:,.0f}, bound by {ends}; {move} would raise the batch."
    return f"{point}: batch {best:,.0f}, the fastest of all that run at once; {more}."
