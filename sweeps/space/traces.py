"""Requests of a trace: drawn from a distribution with a seed, or read from a user's CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Spread, Workload
from nearkv.hardware.catalog import Part, load_part, names
from nearkv.hardware.errors import InputError, unknown

COLUMNS = ("input_tok", "output_tok")
REQUESTS = 1000
"""Requests drawn from each trace (L3 sec. 6.2)."""
METHODS = ("fluid", "simulate")
MOST_BYTES = 1 << 26


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
        """Means of the requests and the moments that tell what a decode step sees."""
        s, n = self.prompt, self.output
        met = np.mean(n)
        context = (np.mean(s * n) + np.mean(n**2) / 2) / met
        context_square = np.mean(s**2 * n + s * n**2 + n**3 / 3) / met
        spread = Spread(
            prompt_square=float(np.mean(s**2) / np.mean(s) ** 2),
            output_square=float(np.mean(n**2) / met**2),
            product=float(np.mean(s * n) / (np.mean(s) * met)),
            context_square=float(context_square / context**2),
            longest=float(np.max(s + n) / np.mean(s + n)),
        )
        return Workload(float(len(s)), float(np.mean(s)), float(met), spread=spread)


def workload_of(traces: tuple[Trace, ...], index: NDArray[np.int64]) -> Workload:
    """Workloads of several traces, arranged as an index of them."""
    works = [trace.workload for trace in traces]

    def arranged(values: list[Real]) -> NDArray[np.float64]:
        return np.array(values, float)[index]

    spread = {
        f.name: arranged([getattr(work.spread, f.name) for work in works]) for f in fields(Spread)
    }
    batch, prompt, output = (
        arranged([getattr(w, name) for w in works]) for name in ("batch", "prompt", "output")
    )
    return Workload(batch, prompt, output, spread=Spread(**spread))


def traces_of(names: tuple[str, ...], method: str, seed: int, lengths: bool) -> tuple[Trace, ...]:
    """Draw or read the traces a study names.

    Args:
        names: of the catalogue, or CSV files; none where lengths are given.
        method: `fluid` or `simulate`.
        seed: of the random numbers.
        lengths: whether a batch, a prompt or an output was given as well.

    Raises:
        InputError: an unknown name or method, a bad CSV, or options that exclude each other.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS, "--method")
    if not names and method != "fluid":
        raise InputError(f"--method {method} plays the requests of a trace; name one with --trace")
    if names and lengths:
        raise InputError(
            "--trace brings its own requests; leave out --batch, --context and --output"
        )
    return tuple(load_trace(name, seed=seed) for name in names)


def load_trace(name: str, requests: int = REQUESTS, seed: int = 0) -> Trace:
    """Draw a trace of the catalogue, or read a CSV.

    Args:
        name: of the catalogue (L3 Table 4), or a path ending in .csv.
        requests: how many to draw; a CSV is taken as it is [1].
        seed: of the random numbers.

    Raises:
        InputError: no such trace, or a CSV that holds no requests.
    """
    if name.endswith(".csv"):
        return _read(Path(name))
    if name not in names("trace"):
        raise unknown("trace", name, [*names("trace"), "FILE.csv"])
    return draw(load_part(name, "trace"), requests, seed)


def draw(part: Part, requests: int, seed: int) -> Trace:
    """Draw requests whose lengths follow a Beta law between 1 token and the longest.

    The paper prints mean and deviation only (Table 4). The Beta law is the plainest one on a bounded
    range that meets both, in closed form; prompt and output are independent, and a request that
    would exceed the longest is cut.
    """
    si = {key: number.si for key, number in part.numbers.items()}
    random = np.random.default_rng(seed)
    prompt = _beta(
        random,
        requests,
        si["prompt_mean"],
        si["prompt_std"],
        si["prompt_longest"],
        f"{part.name}: prompt",
    )
    output = _beta(
        random,
        requests,
        si["output_mean"],
        si["output_std"],
        si["output_longest"],
        f"{part.name}: output",
    )
    prompt = np.minimum(prompt, si["longest"] - 1)
    return Trace(part.name, prompt, np.minimum(output, si["longest"] - prompt))


def _beta(
    random: np.random.Generator, requests: int, mean: float, std: float, longest: float, where: str
) -> NDArray[np.float64]:
    if not 0 < mean < longest or std**2 >= mean * (longest - mean):
        raise InputError(
            f"{where}: no lengths up to {longest:g} have mean {mean:g} and deviation {std:g}"
        )
    at = mean / longest
    if std == 0:
        return np.full(requests, float(round(mean)))
    both = at * (1 - at) / (std / longest) ** 2 - 1
    return np.maximum(np.rint(longest * random.beta(at * both, (1 - at) * both, requests)), 1.0)


def _read(path: Path) -> Trace:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path}: larger than 64 MiB; give a sample of the trace")
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise InputError(
            f"{path}: not a CSV file ({problem}); it needs columns {', '.join(COLUMNS)}"
        ) from None
    except OSError as problem:
        raise InputError(f"{path}: cannot be read ({problem.strerror}); check the path") from None
    header = [name.strip() for name in lines[0]] if lines else []
    if len(lines) < 2:
        raise InputError(
            f"{path}: holds no requests; write one row a request under {', '.join(COLUMNS)}"
        )
    for column in COLUMNS:
        if header.count(column) != 1:
            fault = (
                f"has column {column!r} twice" if column in header else f"has no column {column!r}"
            )
            raise InputError(f"{path}: {fault}; it has {', '.join(header)}")
    for i, row in enumerate(lines[1:], 2):
        if len(row) != len(header):
            raise InputError(
                f"{path}, row {i}: has {len(row)} values for {len(header)} columns; write one for each"
            )
    lengths = [
        [_tokens(row[header.index(column)], f"{path}, row {i}, {column}") for column in COLUMNS]
        for i, row in enumerate(lines[1:], 2)
    ]
    table = np.array(lengths)
    return Trace(str(path), table[:, 0], table[:, 1])


def _tokens(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a number of tokens") from None
    if not 1 <= value <= 2**53 or value != int(value):
        raise InputError(f"{where}: {text!r} must be a whole number of tokens, 1 or more")
    return value
