"""The answer of a system: prefill, one decode step, whether it fits, and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import (
    Booleans,
    ByName,
    Indices,
    Numbers,
    Real,
    Span,
    choose,
    serial,
    total,
)
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Serving, Workload

# --- what fits each memory, and what a system models -------------------------------------------

_FULL = 1e-12
"""Share of a memory by which rounding alone may overfill it."""

Contents = ByName
"""Content of a memory -> its bytes [B]."""

STATUSES = ("ok", "infeasible", "not-modelled")
"""Knowledge of a design point."""


@dataclass(frozen=True)
class Fits:
    """True if a design point has an answer, and why not.

    Attributes:
        tiers: name of a memory -> (bytes needed, bytes available) [B].
        not_modelled: sentence saying what the system does not model -> where that is needed.
        contents: name of a memory -> what makes up its need, where the system says so.
    """

    tiers: Mapping[str, tuple[Real, Real]]
    not_modelled: Mapping[str, Booleans] = field(default_factory=dict)
    contents: Mapping[str, Contents] = field(default_factory=dict)

    def without(self, not_modelled: Mapping[str, Booleans]) -> Fits:
        """These memories, with no answer where the system does not model what is needed."""
        return replace(self, not_modelled={**self.not_modelled, **not_modelled})

    def times(self, number: Real) -> Fits:
        """The fit of as many such memories together, each with as much to hold [1]."""
        tiers = {
            name: (number * needed, number * available)
            for name, (needed, available) in self.tiers.items()
        }
        contents = {
            name: {what: number * size for what, size in held.items()}
            for name, held in self.contents.items()
        }
        return replace(self, tiers=tiers, contents=contents)

    @cached_property
    def ok(self) -> Booleans:
        """True where the system models the point and every memory holds what it must."""
        return self.fit & ~self.unmodelled if self.not_modelled else self.fit

    @cached_property
    def fit(self) -> Booleans:
        """True where every memory holds what it must."""
        fitting = (_holds(needed, available) for needed, available in self.tiers.values())
        return reduce(np.logical_and, fitting)

    @property
    def unmodelled(self) -> Booleans:
        """True where the system does not model what is needed."""
        return reduce(np.logical_or, self.not_modelled.values(), np.zeros((), bool))

    @property
    def status(self) -> Indices:
        """Place in `STATUSES`."""
        return np.where(self.unmodelled, 2, np.where(self.fit, 0, 1))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences that `reason` points into; the first is empty."""
        return ("", *map(shortage, self.tiers), *self.not_modelled)

    @property
    def reason(self) -> Indices:
        """Place in `reasons` of the first that holds; 0 where the point has an answer."""
        place = self.limiting
        for i, where in reversed(list(enumerate(self.not_modelled.values()))):
            place = np.where(where, 1 + len(self.tiers) + i, place)
        return place

    @property
    def short_bytes(self) -> Real:
        """Bytes missing in the memory that is shortest; 0 where all fit [B]."""
        worst: Real = np.max(self._missing, axis=0)
        return worst

    @property
    def limiting(self) -> Indices:
        """Place of the memory that misses most bytes, counted from 1; 0 where all fit."""
        return np.where(self.short_bytes > 0, np.argmax(self._missing, axis=0) + 1, 0)

    @property
    def short_of(self) -> NDArray[np.str_]:
        """Name of the memory that misses most bytes; empty where all fit."""
        return np.array(["", *self.tiers])[self.limiting]

    @cached_property
    def _missing(self) -> Numbers:
        by_tier = [
            np.where(self.unmodelled, 0.0, missing_bytes(*tier))
            for tier in self.tiers.values()
        ]
        return np.stack(np.broadcast_arrays(*by_tier))


def shortage(tier: str) -> str:
    """A sentence about a memory that is short; `both` are two that hold something together."""
    return (
        "both memories together are short" if tier == "both" else f"{tier} memory is short"
    )


def _holds(needed: Real, available: Real) -> Booleans:
    """True if it fits, rounding aside: a share solved for the last byte may miss it by that."""
    limit = np.multiply(available, 1 + _FULL)
    return needed <= limit


def missing_bytes(needed: Real, available: Real) -> Real:
    """Bytes needed beyond those available; 0 where they fit [B]."""
    excess = np.subtract(needed, available)
    return np.where(_holds(needed, available), 0.0, excess)


def fits(**memories: tuple[Real | Contents, Real]) -> Fits:
    """State what each memory must hold and can hold [B].

    Args:
        memories: name -> (bytes needed, bytes available); what is needed may be named part by
            part, which `estimate --footprint` lists.

    >>> held = fits(gpu=({"weights": 30e9, "KV cache": 20e9}, 40e9), host=(9e9, 8e9))
    >>> held.tiers["gpu"], float(held.short_bytes)
    ((50000000000.0, 40000000000.0), 10000000000.0)
    """
    tiers: dict[str, tuple[Real, Real]] = {}
    contents: dict[str, Contents] = {}
    for name, (needed, available) in memories.items():
        if isinstance(needed, Mapping):
            contents[name] = needed
            tiers[name] = (total(needed.values()), available)
        else:
            tiers[name] = (needed, available)
    return Fits(tiers, contents=contents)


def reduced_batch(batch: Real, per_sequence: Real, available: Real) -> Real:
    """Batch that runs at once: all of it, or equal rounds of at most a power of two.

    HILOS sec. 6.3 reduces the batch to what fits; INF² and FlexGen take powers of two. 24 sequences
    of which 16 fit run as two rounds of 12.

    Args:
        batch: sequences requested [1].
        per_sequence: bytes one sequence needs [B].
        available: bytes free for sequences [B]; may be negative.

    Returns:
        Sequences served together, at least one; where not even one fits, `Fits` says what is
        short [1].
    """
    most = np.floor(np.divide(available, np.maximum(per_sequence, 1.0)))
    _, exponent = np.frexp(np.maximum(most, 1.0))
    power_of_two = np.exp2(exponent - 1.0)
    sequences = np.maximum(batch, 1.0)
    largest = np.where(most >= sequences, sequences, np.minimum(power_of_two, sequences))
    rounds = np.ceil(sequences / largest)
    return (sequences / rounds)[()]


def possible_batches(batch: Real) -> list[Real]:
    """Batches from which on `reduced_batch` runs more at once: powers of two, then all [1].

    A batch that is no whole number, as the mean over GPUs, runs at once where the next one fits.
    """
    most = int(np.frexp(np.max(batch))[1])
    return [*(2.0**exponent for exponent in range(most)), np.ceil(np.maximum(batch, 1.0))]


def batch_with_states(most: Real, batch: Real, state: Real, free: Real) -> Real:
    """Sequences at once: `most`, or fewer where recurrent states do not fit the GPU [1].

    Args:
        most: sequences that other memories hold [1].
        batch: sequences requested [1].
        state: recurrent states of one sequence; none of most models [B].
        free: GPU memory for states [B].
    """
    recurrent = state > 0
    if not np.any(recurrent):
        return most
    with_states = reduced_batch(batch, state, free)
    return choose(recurrent, np.minimum(most, with_states), most)


Notes = Mapping[str, Booleans]
"""Sentence -> the design points where it holds."""
# --- the answer ----------------------------------------------------------------------------------

ONE_BATCH_ONLY = (
    "it serves one batch at a time, not requests that arrive; ask it with --users"
)
_ROUNDING = 1e-9
"""A batch of which less than this share does not run counts as run."""


@dataclass(frozen=True)
class Latency:
    """Waiting time of a mean request.

    Attributes:
        ttft: time to first token, from when the request is there [s].
        tpot: mean time per output token after the first [s].
    """

    ttft: Real
    tpot: Real


@dataclass(frozen=True)
class WaitingLine:
    """Time before a first token.

    Attributes:
        rho: share of the time in which prompts wait [1].
        wait, waits: for prompts of others: mean, and chance [s, 1].
        residual: of the iteration that runs, on average (uniform) [s].
        met: time of a prompt that is met, over its mean, by part; each is met as often [1].
        computing: iterations of one's own prompt, of parts of the requests along a first axis [s].
        weights: requests of each part, over their mean [1].
    """

    rho: Real
    wait: Real
    waits: Real
    residual: Real
    met: Real
    computing: Real
    weights: Real

    @property
    def mean(self) -> Real:
        """Mean time to first token [s]."""
        computing: Real = np.mean(self.weights * self.computing, axis=0)
        return self.wait + self.residual + computing


@dataclass(frozen=True)
class LatencyLaws:
    """Spread of the latencies of requests.

    Attributes:
        plain, scatter: mean and deviation of an iteration without a prompt (normal) [s].
        least: an iteration of a request that is alone [s].
        longest: what an iteration with a prompt takes longer, at most [s].
        mixed, size: mean share of such iterations, and the size of its Beta law, by part [1].
        line: what precedes a first token.
    """

    plain: Real
    least: Real
    scatter: Real
    longest: Real
    mixed: Real
    size: Real
    line: WaitingLine


@dataclass(frozen=True)
class Estimate:
    """Times of a batch of requests on a system.

    Attributes:
        prefill: processing all prompts.
        step: one token more for every sequence, at the mean context.
        fits: bytes needed and there, by memory.
        work: the workload this answers.
        batch_run: sequences served together; fewer than asked where memory or the engine ends
            them, and then prefill and step count every round [1].
        accelerator_power: power an accelerator adds to its device's, by role where it is drawn
            while any part of the device works, by resource where only while that works [W].
        columns: further ones that this family alone has, by name with the unit in it.
        step_carries: prompt tokens that ride in an iteration of the step; with any, the step is
            no decode step [1].
        serving: how the system serves a queue, where it does, for a simulation event by event.
        notes: sentence saying what differs from the workload as asked -> where it does; one that
            holds nowhere is left out by `System`.
        queued: times of a mean request of a queue; where none are stated, of a static batch.
        laws: of the latencies of requests that arrive.
        busy: share of the time in which replicas serve those; none for a batch [1].
        attention: role -> share of the attention of a step that it computes [1].
    """

    prefill: Span
    step: Span
    fits: Fits
    work: Workload
    batch_run: Real
    accelerator_power: ByName = field(default_factory=dict)
    columns: ByName = field(default_factory=dict)
    step_carries: Real = 0.0
    serving: Serving | None = None
    notes: Notes = field(default_factory=dict)
    queued: Latency | None = None
    laws: LatencyLaws | None = None
    busy: Real | None = None
    attention: ByName = field(default_factory=lambda: {"gpu": 1.0})

    @property
    def latency(self) -> Latency:
        """Times of a mean request: of a queue, or of a static batch in as many rounds as it needs.

        All prompts of a round are computed before its first tokens, and a later round waits for
        those before it: with R rounds, K = ceil(R) - 1 of them full, K (R - (K + 1) / 2) / R times
        a round on average.
        """
        if self.queued is not None:
            return self.queued
        at_once = np.maximum(self.batch_run, 1e-9)
        rounds = np.maximum(self.work.batch / at_once, 1.0)
        before = np.ceil(rounds * (1 - _ROUNDING)) - 1
        waited = before * (1 - (before + 1) / (2 * rounds))
        of_a_round = self.total.seconds / rounds
        prefill = self.prefill.seconds / rounds
        return Latency(waited * of_a_round + prefill, self.step.seconds / rounds)

    @property
    def ends_at_limit(self) -> Booleans:
        """True where the engine runs no more sequences at once, whatever memory holds."""
        most = self.serving.most_running if self.serving else np.inf
        return self.batch_run >= np.multiply(most, 1 - _ROUNDING)

    @cached_property
    def total(self) -> Span:
        """Prefill, then n - 1 steps (HILOS sec. 2.1: prefill makes the first token)."""
        return serial(prefill=self.prefill, decode=(self.work.output - 1) * self.step)


def missed(estimate: Estimate, sentence: str, claim: str, where: Real) -> Estimate:
    """This answer with what a paper states and the model does not meet, as a note.

    Args:
        estimate: the answer.
        sentence: what the paper states.
        claim: id of its row, as `nearkv validate --id` takes it.
        where: design points that it concerns.
    """
    note = f"{sentence} ({claim}, docs/misses.md)"
    return replace(estimate, notes={**estimate.notes, note: np.asarray(where, bool)})


IN_ROUNDS = "batch_run sequences at a time on average, times count all rounds"
"""The note of a design point that runs fewer sequences together than the batch has."""
AT_LIMIT = "the engine runs no more at once (--knob sequences=0 runs what memory holds)"
"""The note of a design point whose rounds are as large as its engine makes them."""
BEYOND_WINDOW = "prompt and output exceed the model's context window"
"""The note of a design point that asks for more tokens than the model's positions reach."""


def notes_of(
    estimate: Estimate, llm: LLM, work: Workload, counts: Mapping[str, tuple[Real, str]]
) -> Notes:
    """Differences from the requested workload, on any system.

    Args:
        estimate: the system's answer.
        llm, work: what was asked.
        counts: knob -> its value and the number of the workload that bounds what it can use.
    """
    fewer = np.less(estimate.batch_run, np.multiply(work.batch, 1 - _ROUNDING))
    fewer = fewer & (work.arrivals is None) & estimate.fits.ok
    notes = {
        BEYOND_WINDOW: np.greater(estimate.work.longest, llm.longest),
        IN_ROUNDS: fewer,
        AT_LIMIT: fewer & estimate.ends_at_limit,
    }
    for knob, (value, most) in counts.items():
        sentence = f"{knob} beyond the {most} has no effect"
        notes[sentence] = np.greater(value, getattr(work, most))
    return notes
