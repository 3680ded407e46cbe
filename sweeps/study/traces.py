"""Requests of a trace, drawn or read from a CSV, and the workload that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.model.workload import Lengths, Spread, Workload
from nearkv.hardware.catalog import Part, load_part, names
from nearkv.hardware.errors import InputError, unknown, warn
from nearkv.hardware.files import read_rows, read_text
from nearkv.sweeps.study.block_traces import TRACE_FORMATS, number_from_0, read_blocks
from nearkv.sweeps.study.sizes import size

_TRACE_COLUMNS = ("input_tokens", "output_tokens")
_ARRIVAL = "arrival_s"
"""A further column of a trace, of when each request comes [s]."""
REQUESTS = 1000
"""Requests drawn from each trace (L3 sec. 6.2)."""
OUTRUN = (
    "the requests of the trace come faster than they are answered, which no closed form covers; "
    "--method simulate serves them to the last one"
)
_AT_ONE_TIME = 1e-9
"""Span of requests that all come at one time, so that they have a rate [s]."""
MOST_BYTES = 1 << 26
TRACE_PARTS = 16
"""Parts of equal weight in which the lengths of a trace's requests are averaged."""
_MIDDLES = ((np.arange(TRACE_PARTS) + 0.5) / TRACE_PARTS)[:, np.newaxis]
"""Moments of a request's life at which its context is looked at, as shares of it."""


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    Attributes:
        name: of the trace, or the path of the CSV.
        prompt, output: tokens each brings and generates [1].
        arrival: when each comes; None where a trace does not say [s].
        known: tokens of each prompt that a cache has, or takes the time of; None where none [1].
        weights: share of all requests that each stands for; None where each is one.
    """

    name: str
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    arrival: NDArray[np.float64] | None = None
    known: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None

    def mean(self, values: NDArray[np.float64]) -> float:
        """The mean of a number of each request."""
        return float(np.average(values, weights=self.weights))

    @property
    def computed(self) -> NDArray[np.float64]:
        """Tokens of each prompt that are computed [1]."""
        return self.prompt if self.known is None else self.prompt - self.known

    @property
    def rate(self) -> float:
        """Requests per second, of those that say when they come; 0 where they do not [1/s]."""
        if self.arrival is None:
            return 0.0
        return max(len(self.arrival) - 1, 1) / max(
            float(np.ptp(self.arrival)), _AT_ONE_TIME
        )

    @cached_property
    def workload(self) -> Workload:
        """Means of the requests and the moments that a decode step depends on."""
        s, n, c = self.prompt, self.output, self.computed
        products, c_squares, n_squares = s * n, c * c, n * n
        contexts_squared = products * (s + n) + n_squares * n / 3
        prompt, output = self.mean(c), self.mean(n)
        product, n_square = self.mean(products), self.mean(n_squares)
        context = (product + n_square / 2) / output
        spread = Spread(
            prompt_square=self.mean(c_squares) / prompt**2,
            output_square=n_square / output**2,
            product=product / (prompt * output),
            context_square=self.mean(contexts_squared) / output / context**2,
            longest=float((s + n).max()) / (prompt + output),
            longest_output=float(n.max()) / output,
            lengths=self._lengths(),
        )
        return Workload(float(len(s)), prompt, output, spread=spread)

    def _lengths(self) -> Lengths:
        """A step meets a request once for each token it generates."""
        s, n, c = self.prompt, self.output, self.computed
        once = np.ones_like(s) if self.weights is None else self.weights
        requests_per_token = _parts(1 / c, once * c)
        return Lengths(
            contexts=_parts(s + n * _MIDDLES, once * n / TRACE_PARTS),
            finals=_parts(s + n, once * n),
            prompts=_parts(c, once),
            prompt_parts=tuple(1 / part for part in requests_per_token),
            outputs=_parts(n, once),
        )


def alike(prompt: float, output: float) -> Trace:
    """Requests that are all alike [tokens]."""
    return Trace("alike", np.full(REQUESTS, prompt), np.full(REQUESTS, output))


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
    edges = np.linspace(0.0, weights_below[-1], TRACE_PARTS + 1)
    sums = np.interp(edges, weights_below, sums_below)
    parts = TRACE_PARTS * np.diff(sums) / sums_below[-1]
    return tuple(parts.tolist())


def workload_of(traces: tuple[Trace, ...], index: NDArray[np.int64]) -> Workload:
    """Workloads of several traces, arranged as an index of them."""
    workloads = [trace.workload for trace in traces]

    def arranged(items: Sequence[Any]) -> Any:
        """Numbers of the traces, or records and tuples of them, field by field."""
        first = items[0]
        if isinstance(first, Spread | Lengths):
            parts = zip(*(vars(item).values() for item in items), strict=True)
            return type(first)(*map(arranged, parts))
        if isinstance(first, tuple):
            return tuple(map(arranged, zip(*items, strict=True)))
        return np.array(items, float)[index]

    return Workload(
        batch=arranged([workload.batch for workload in workloads]),
        prompt=arranged([workload.prompt for workload in workloads]),
        output=arranged([workload.output for workload in workloads]),
        spread=arranged([workload.spread for workload in workloads]),
    )


def traces_of(
    names: tuple[str, ...], method: str, seed: int, lengths: bool
) -> tuple[Trace, ...]:
    """Draw or read the traces a study names.

    Args:
        names: of the catalogue, or CSV files; none where lengths are given.
        method: `fluid` or `simulate`.
        seed: of the random numbers.
        lengths: whether a batch, its rounds, a prompt or an output are given as well.

    Raises:
        InputError: an unknown name or method, a bad CSV, or options that exclude each other.
    """
    if not names and method != "fluid":
        raise InputError(
            f"--method {method} serves requests one by one; add --trace, --rate or --users"
        )
    if names and lengths:
        raise InputError(
            "--trace brings its own requests; leave out --batch, --context, --output-tokens and "
            "--per-round"
        )
    traces = tuple(load_trace(name, seed=seed) for name in names)
    timed = [trace.name for trace in traces if trace.arrival is not None]
    if timed and len(timed) < len(traces):
        raise InputError(
            f"--trace: only {', '.join(timed)} has arrival_s; ask the others apart"
        )
    return traces


def is_file(name: str) -> bool:
    """True if a trace is a file of a user, whose requests are taken as they are."""
    return name.endswith((".csv", ".jsonl", ".gz"))


def load_trace(name: str, seed: int = 0) -> Trace:
    """Draw a trace of the catalogue, or read a CSV.

    Args:
        name: of the catalogue (L3 Table 4), or a path: CSV, or a published format.
        seed: of the random numbers.

    Raises:
        InputError: no such trace, or a CSV that holds no requests.
    """
    if is_file(name):
        path = Path(name)
        return _published(path) if _is_published(path) else _read(path)
    if name not in names("trace"):
        raise unknown("trace", name, [*names("trace"), "FILE.csv"])
    return draw(load_part(name, "trace"), REQUESTS, seed)


def draw(part: Part, requests: int, seed: int) -> Trace:
    """Draw requests whose lengths follow a Beta law between 1 token and the longest.

    The paper prints mean and deviation only (Table 4). The Beta law is the plainest one on a
    bounded range that meets both, in closed form; prompt and output are independent, and a request
    that would exceed the longest is cut. Where a trace says `lognormal` its answers follow that
    law, which has no bound of its own, up to the longest.
    """
    random = np.random.default_rng(seed)
    prompt = _lengths(random, requests, part, "prompt")
    if part.si.get("lognormal", 0.0):
        output = _lognormal_lengths(random, requests, part)
    else:
        output = _lengths(random, requests, part, "output")
    longest = part.si["longest"]
    prompt = np.minimum(prompt, longest - 1)
    return Trace(part.name, prompt, np.minimum(output, longest - prompt))


def _lengths(
    random: np.random.Generator, requests: int, part: Part, what: str
) -> NDArray[np.float64]:
    """Draw the lengths of all prompts or outputs of a trace [tokens]."""
    mean = part.si[f"{what}_mean"]
    std = part.si[f"{what}_std"]
    longest = part.si[f"{what}_longest"]
    if not 0 < mean < longest or std**2 >= mean * (longest - mean):
        law = f"lengths up to {longest:g} have mean {mean:g} and deviation {std:g}"
        raise InputError(f"{part.name}: {what}: no {law}")
    if std == 0:
        return np.full(requests, float(round(mean)))
    mean_share = mean / longest
    concentration = mean_share * (1 - mean_share) / (std / longest) ** 2 - 1
    shape = mean_share * concentration
    shares = random.beta(shape, (1 - mean_share) * concentration, requests)
    return np.maximum(np.rint(longest * shares), 1.0)


def _lognormal_lengths(
    random: np.random.Generator, requests: int, part: Part
) -> NDArray[np.float64]:
    """Draw the lengths of all outputs of a trace by a lognormal law [tokens]."""
    mean = part.si["output_mean"]
    variance = np.log1p((part.si["output_std"] / mean) ** 2)
    middle = np.log(mean) - variance / 2
    lengths = random.lognormal(middle, np.sqrt(variance), requests)
    return np.clip(np.rint(lengths), 1.0, part.si["output_longest"])


def _is_published(path: Path) -> bool:
    """True if a file is in another format than a CSV of our own."""
    if path.suffix != ".csv":
        return True
    try:
        header = read_text(path, "trace of requests", MOST_BYTES).partition("\n")[0]
    except UnicodeDecodeError:
        return False  # the reader of our own format says what is wrong
    return any(
        form.prompt in header for form in TRACE_FORMATS if form.prompt not in _TRACE_COLUMNS
    )


def _published(path: Path) -> Trace:
    """Lengths and arrivals of a trace in a published format."""
    trace = read_blocks(path)
    return Trace(trace.name, trace.prompt, np.maximum(trace.output, 1.0), trace.arrival)


def _read(path: Path) -> Trace:
    """Read a trace from a user's CSV."""
    advice = "give a sample of the requests"
    header, lines = read_rows(path, "trace of requests", _TRACE_COLUMNS, MOST_BYTES, advice)
    known = (*_TRACE_COLUMNS, _ARRIVAL)
    others = [name for name in header if name not in known]
    if others:
        warn(f"{path}: {', '.join(known)} are read, {', '.join(map(repr, others))} not")

    def column(name: str, read: Callable[[str, str], float]) -> NDArray[np.float64]:
        return np.array([read(cells[name], f"{where}, {name}") for where, cells in lines])

    prompt, output = (column(name, size) for name in _TRACE_COLUMNS)
    if _ARRIVAL not in header:
        return Trace(str(path), prompt, output)
    arrival = column(_ARRIVAL, number_from_0)
    order = np.argsort(arrival, kind="stable")
    return Trace(str(path), prompt[order], output[order], arrival[order])
