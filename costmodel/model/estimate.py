"""What a system answers: prefill, one decode step, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.compose import serial
from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.capacity import Fits
from nearkv.costmodel.model.queue import Serving
from nearkv.costmodel.model.workload import Workload


@dataclass(frozen=True)
class Estimate:
    """Times of a whole batch of requests on a system.

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
    notes: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    @cached_property
    def total(self) -> Span:
        """Prefill, then n - 1 steps (HILOS sec. 2.1: prefill makes the first token)."""
        return serial(prefill=self.prefill, decode=(self.work.output - 1) * self.step)
