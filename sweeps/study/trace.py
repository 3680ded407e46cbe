"""The requests of a trace, and the workload that their mean and their spread make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.workload import Spread, Workload

PARTS = 16
"""Parts of equal weight in which the lengths of a trace's requests are averaged."""
_MIDDLES = ((np.arange(PARTS) + 0.5) / PARTS)[:, np.newaxis]
"""Moments of a request's life at which its context is looked at, as shares of it."""


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    Attributes:
        name: of the trace, or the path of the CSV.
        prompt, output: tokens each brings and generates [1].
    """

    name: str
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]

    @property
    def workload(self) -> Workload:
        """Means of the requests and the moments that a decode step depends on."""
        means = self._means
        spread = replace(means.spread, lengths=self)
        return replace(means, spread=spread)

    @cached_property
    def _means(self) -> Workload:
        """The same without what the trace itself is asked for: they would keep each other."""
        s, n = self.prompt, self.output
        products, s_squares, n_squares = s * n, s * s, n * n
        contexts_squared = products * (s + n) + n_squares * n / 3
        prompt, output = float(s.mean()), float(n.mean())
        product, n_square = float(products.mean()), float(n_squares.mean())
        context = (product + n_square / 2) / output
        spread = Spread(
            prompt_square=float(s_squares.mean()) / prompt**2,
            output_square=n_square / output**2,
            product=product / (prompt * output),
            context_square=float(contexts_squared.mean()) / output / context**2,
            longest=float((s + n).max()) / (prompt + output),
            longest_output=float(n.max()) / output,
        )
        return Workload(float(len(s)), prompt, output, spread=spread)

    @cached_property
    def contexts(self) -> tuple[float, ...]:
        """Contexts that a step sees: a request is met once for each token it generates."""
        s, n = self.prompt, self.output
        contexts = s + n * _MIDDLES
        return _parts(contexts, n / PARTS)

    @cached_property
    def finals(self) -> tuple[float, ...]:
        """How long the requests that a step sees become."""
        finals = self.prompt + self.output
        return _parts(finals, self.output)

    @cached_property
    def prompts(self) -> tuple[float, ...]:
        """Prompts, each request counted once."""
        once = np.ones_like(self.prompt)
        return _parts(self.prompt, once)


def _parts(lengths: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, ...]:
    """Means of lengths in order, in parts of equal weight, over the mean of all [1].

    Args:
        lengths: in any order; one row for each weight, or one for all [tokens].
        weights: how much each counts [1].
    """
    values, counts = np.broadcast_arrays(lengths, weights)
    order = np.argsort(values, axis=None)
    weight, value = counts.ravel()[order], values.ravel()[order]
    weights_below = np.append(0.0, np.cumsum(weight))
    sums_below = np.append(0.0, np.cumsum(weight * value))
    edges = np.linspace(0.0, weights_below[-1], PARTS + 1)
    sums = np.interp(edges, weights_below, sums_below)
    parts = PARTS * np.diff(sums) / sums_below[-1]
    return tuple(parts.tolist())


@dataclass(frozen=True)
class _Arranged:
    """Lengths of several traces, arranged as an index of them."""

    traces: tuple[Trace, ...]
    index: NDArray[np.int64]

    @cached_property
    def contexts(self) -> tuple[Real, ...]:
        """Of the trace of each design point, as `Trace.contexts`."""
        return self._arranged([trace.contexts for trace in self.traces])

    @cached_property
    def finals(self) -> tuple[Real, ...]:
        """As `Trace.finals`."""
        return self._arranged([trace.finals for trace in self.traces])

    @cached_property
    def prompts(self) -> tuple[Real, ...]:
        """As `Trace.prompts`."""
        return self._arranged([trace.prompts for trace in self.traces])

    def _arranged(self, of_traces: Sequence[Sequence[float]]) -> tuple[Real, ...]:
        parts = zip(*of_traces, strict=True)
        return tuple(np.array(part)[self.index] for part in parts)


def workload_of(traces: tuple[Trace, ...], index: NDArray[np.int64]) -> Workload:
    """Workloads of several traces, arranged as an index of them."""
    workloads = [trace.workload for trace in traces]
    spreads = [workload.spread for workload in workloads]

    def arranged(items: Sequence[object], name: str) -> NDArray[np.float64]:
        numbers = [getattr(item, name) for item in items]
        arranged: NDArray[np.float64] = np.array(numbers, float)[index]
        return arranged

    names = [one.name for one in fields(Spread) if one.name != "lengths"]
    moments = {name: arranged(spreads, name) for name in names}
    lengths = _Arranged(traces, index)
    return Workload(
        batch=arranged(workloads, "batch"),
        prompt=arranged(workloads, "prompt"),
        output=arranged(workloads, "output"),
        spread=Spread(**moments, lengths=lengths),
    )
