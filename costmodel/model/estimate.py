"""The answer of a system: prefill, one decode step, whether it fits, and notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Booleans, Real, Span
from nearkv.costmodel.model.capacity import Fits
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.queue import Serving
from nearkv.costmodel.model.workload import Workload

Notes = Mapping[str, Booleans]
"""Sentence -> the design points where it holds."""
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
class Laws:
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
        batch_run: sequences served together; fewer than asked where memory is short, and then
            prefill and step count every round [1].
        accelerator_power: power an accelerator adds to its device's, by role where it is drawn
            while any part of the device works, by resource where only while that works [W].
        also: further columns only this family has, by name with the unit in it.
        step_carries: prompt tokens that ride in an iteration of the step; with any, the step is
            no decode step [1].
        serving: how the system serves a queue, where it does, for a simulation event by event.
        notes: sentence saying what differs from the workload as asked -> where it does.
        queued: times of a mean request of a queue; those of a static batch where there is none.
        laws: of the latencies of requests that arrive.
        attention: role -> share of the attention of a step that it computes [1].
    """

    prefill: Span
    step: Span
    fits: Fits
    work: Workload
    batch_run: Real
    accelerator_power: Mapping[str, Real] = field(default_factory=dict)
    also: Mapping[str, Real] = field(default_factory=dict)
    step_carries: Real = 0.0
    serving: Serving | None = None
    notes: Notes = field(default_factory=dict)
    queued: Latency | None = None
    laws: Laws | None = None
    attention: Mapping[str, Real] = field(default_factory=lambda: {"gpu": 1.0})

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

    @cached_property
    def total(self) -> Span:
        """Prefill, then n - 1 steps (HILOS sec. 2.1: prefill makes the first token)."""
        return serial(prefill=self.prefill, decode=(self.work.output - 1) * self.step)


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
    fewer = fewer & (work.arrivals is None)
    beyond = "prompt and output exceed the model's context window"
    notes = {
        beyond: np.greater(work.longest, llm.longest),
        "batch_run sequences at a time, times count all rounds": fewer & estimate.fits.ok,
    }
    for knob, (value, most) in counts.items():
        sentence = f"{knob} beyond the {most}, which leaves some without work"
        notes[sentence] = np.greater(value, getattr(work, most))
    return {sentence: where for sentence, where in notes.items() if np.any(where)}
