"""The engine of a server that keeps KV caches: seconds of prompts of any length, and its queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.sweeps.study.grid import Block, Inputs, scalar

PREFIX_LENGTHS = 129
"""Prompts at which the system is asked; between them its seconds are interpolated."""


@dataclass(frozen=True)
class Engine:
    """A system that computes prompts on the GPUs of a server.

    Attributes:
        hw, llm: scalars of one design point; links, adapters and DRAM's rate are those of its GPUs.
        point: this design point, whose system is asked about prompts of any length.
    """

    hw: Machine
    llm: LLM
    point: Block = field(repr=False)

    def _inputs(self, lengths: Numbers) -> Inputs:
        """Arguments of the system for one prompt of each length."""
        grid = self.point.grid
        return self.point.at({**grid.mesh(grid.whole), "context_tok": lengths})

    def _resolved(self, lengths: Numbers) -> Resolved:
        """One prompt of each length alone, with the system's knobs solved for each."""
        return resolve_knobs(self.point.system, *self._inputs(lengths))

    @cached_property
    def _lengths(self) -> Numbers:
        """Lengths of prompts that the model takes and that fit.

        Raises:
            InputError: not even the shortest one fits.
        """
        lengths = np.unique(
            np.round(np.geomspace(1, scalar(self.llm.longest), PREFIX_LENGTHS))
        )
        checked = self._resolved(lengths).estimate.fits
        fits = np.broadcast_to(checked.ok, lengths.shape)
        if not fits[0]:
            short = np.broadcast_to(checked.short_bytes, lengths.shape)[0] / 1e9
            why = checked.reasons[int(np.broadcast_to(checked.reason, lengths.shape)[0])]
            lacks = f"lacks {short:,.1f} GB for this model; add GPUs" if short else why
            raise InputError(
                f"platform {self.hw.platform!r}: {lacks}, or take another platform or knobs"
            )
        return lengths[fits]

    @property
    def longest(self) -> float:
        """Tokens of the longest prompt that the model takes [1]."""
        return float(self._lengths[-1])

    @cached_property
    def knobs(self) -> dict[str, float]:
        """Knobs of the system, solved for the longest prompt: one engine serves all lengths."""
        solved = self._resolved(self._lengths[-1:]).knobs
        return {name: scalar(value) for name, value in solved.items()}

    @cached_property
    def prompts(self) -> Estimate:
        """Prompts of all lengths, each alone."""
        hw, llm, work, _ = self._inputs(self._lengths)
        return self.point.system(hw, llm, work, self.knobs)

    @cached_property
    def _prefill(self) -> Numbers:
        """Seconds of prompts of all lengths, none shorter than a shorter prompt's [s]."""
        seconds = np.broadcast_to(self.prompts.prefill.seconds, self._lengths.shape)
        return np.maximum.accumulate(seconds)

    def prefill(self, tokens: Real) -> Numbers:
        """Seconds of a prompt of which nothing is cached; those of one token at least [s]."""
        return np.asarray(np.interp(tokens, self._lengths, self._prefill))

    def compute(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes less where its first tokens are not computed [s].

        A pass over the weights is made for the rest of the prompt in either case.
        """
        return self.prefill(tokens) - self.prefill(1.0)

    def serve(self, work: Workload) -> Estimate:
        """Requests that arrive, decoding beside prompts.

        Raises:
            InputError: the system serves no queue.
        """
        if self.prompts.serving is None:
            name = self.point.system.name
            raise InputError(f"--system {name}: serves one batch at a time; take gpu")
        hw, llm, _, _ = self._inputs(self._lengths[-1:])
        return self.point.system(hw, llm, work, self.knobs)

    def equivalent(self, seconds: Numbers) -> Numbers:
        """Tokens of prompts that take as long where nothing of them is cached [1]."""
        return np.interp(seconds, self._prefill, self._lengths)

    @cached_property
    def heads_over(self) -> float:
        """GPUs that share the heads of a prompt, each with a part of its cache or a copy [1]."""
        if self.knobs.get("attention"):
            return 1.0
        return self.knobs.get("tp", scalar(self.hw.gpu.count))

    @cached_property
    def holders(self) -> float:
        """GPUs that hold the cache of one prompt [1]."""
        return self.heads_over * self.knobs.get("pp", 1.0)
