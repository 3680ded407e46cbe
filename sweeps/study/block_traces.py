"""Traces of requests whose prompts share prefixes: which blocks each asks for, and when.

The form is Mooncake's (FAST 2025): a line a request with `timestamp` [ms], `input_length`,
`output_length` and `hash_ids`, a number for each block of the prompt that stands for the block and
all before it; as JSON lines or as CSV, whose `hash_ids` are separated by blanks.
"""

from __future__ import annotations

import csv
import gzip
import json
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.reuse.curve import ReuseCurve, reuse_curve
from nearkv.hardware.errors import InputError
from nearkv.hardware.files import read_text

TRACE_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
PRINTED = 1e-4
"""Relative error of numbers as a summary prints them."""
CURVES = Path(__file__).with_name("curves")
"""Summaries that come with the package, by name."""
BLOCK_TOKENS = 512
"""Tokens of a block, where nothing else is stated."""
LONGEST_FIELD = 1 << 30
"""Characters of the blocks of one prompt in CSV."""
PROMPT_CLASSES = 64
"""Parts of a summary's requests, by the length of their prompts."""
MOST_ACCESSES = 10_000_000
"""Accesses of the longest trace that is kept as it is."""
SAMPLE = 2_000_000
"""Accesses that are kept of a longer one: a sample of its blocks, which stands for all."""


@dataclass(frozen=True)
class ReuseSummary:
    """A trace in a few kilobytes: enough for every cache that is LRU in all its tiers together.

    Attributes:
        name: of the trace.
        rate: requests a second [1/s].
        accesses: to blocks, a second [1/s].
        prompts: mean tokens of equal parts of the requests, rising: (parts,).
        block: tokens of a block [1].
        curve: hits over capacity.
        error: standard error of the hits where blocks were sampled, 0 where they were not [1].
        source: where the trace comes from, and its licence.
    """

    name: str
    rate: float
    accesses: float
    prompts: NDArray[np.float64]
    block: int
    curve: ReuseCurve
    error: float = 0.0
    source: str = ""

    @property
    def token_share(self) -> float:
        """Tokens of prompts over tokens of their blocks, whose last is not full [1]."""
        of_prompts = self.rate * float(np.mean(self.prompts))
        return of_prompts / (self.accesses * self.block)

    def text(self) -> str:
        """As JSON, which `read_summary` reads: arrays to six digits."""

        def listed(values: NDArray[np.float64]) -> list[float]:
            return [float(f"{value:.6g}") for value in values.tolist()]

        return json.dumps(asdict(self), default=listed) + "\n"

    def faster(self, scale: float) -> ReuseSummary:
        """Return these requests, so many times as fast.

        Raises:
            InputError: not above 0.
        """
        if not 0 < scale < np.inf:
            raise InputError(f"--rate-scale: {scale:g} must be above 0, and finite")
        return replace(self, rate=self.rate * scale, accesses=self.accesses * scale)


def stored_curves() -> list[str]:
    """Names of the summaries that come with the package."""
    return sorted(file.stem for file in CURVES.glob("*.json"))


def read_summary(path: Path) -> ReuseSummary:
    """Read what `ReuseSummary.text` wrote.

    Raises:
        InputError: it is something else.
    """
    try:
        numbers = json.loads(read_text(path, "the summary of a trace"))
        curve: dict[str, Any] = {
            key: np.asarray(value, float)[()] for key, value in numbers["curve"].items()
        }
        prompts = np.asarray(numbers["prompts"], float)
        summary = ReuseSummary(
            **{**numbers, "prompts": prompts, "curve": ReuseCurve(**curve)}
        )
        _check_summary(summary)
        return summary
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(f"{path}: is no summary; --save-curve writes one") from None


def _check_summary(summary: ReuseSummary) -> None:
    """Refuse numbers that no trace has.

    Raises:
        ValueError: there are some.
    """
    curve = summary.curve
    columns = (curve.windows, curve.footprint, curve.hits, curve.drift)
    positive = (
        summary.rate,
        summary.accesses,
        curve.accesses,
        curve.distinct,
        *summary.prompts,
    )
    if not len(summary.prompts):
        raise ValueError
    possible = (
        len({column.shape for column in columns}) == 1 and curve.windows.ndim == 1,
        isinstance(summary.block, int) and summary.block > 0,
        all(0 < value < np.inf for value in positive),
        np.all(np.diff(curve.footprint) >= 0) and np.all(np.diff(curve.hits) >= 0),
        np.all((curve.hits >= 0) & (curve.hits <= 1) & (np.abs(curve.drift) <= 1)),
        0 <= summary.error <= 1 and 0 < summary.token_share <= 1 + PRINTED,
    )
    if not all(possible):
        raise ValueError


@dataclass(frozen=True)
class BlockTrace:
    """Requests in order of arrival, and the blocks that each asks for.

    Attributes:
        name: path of the file.
        duration: from the first arrival to the last [s].
        prompt: tokens of each request: (requests,).
        blocks: of all requests, one after the other: (accesses,).
        ends: where the blocks of each request end; of a sample, of those that have any.
        block: tokens of a block [1].
        share: of the accesses that is kept, 1 where all blocks are [1].
    """

    name: str
    duration: float
    prompt: NDArray[np.float64]
    blocks: NDArray[np.int64]
    ends: NDArray[np.int64]
    block: int
    share: float

    @cached_property
    def summary(self) -> ReuseSummary:
        """What is kept of the trace where it is not replayed.

        A sample of the blocks reuses each as often, with as many fewer others between: its curve
        holds for capacities that are larger by 1 / share (SHARDS: Waldspurger et al. 2015).
        """
        curve = reuse_curve(self.blocks)
        whole = replace(
            curve,
            footprint=curve.footprint / self.share,
            accesses=curve.accesses / self.share,
            distinct=curve.distinct / self.share,
        )
        parts = np.array_split(np.sort(self.prompt), min(PROMPT_CLASSES, len(self.prompt)))
        return ReuseSummary(
            name=self.name,
            rate=len(self.prompt) / self.duration,
            accesses=whole.accesses / self.duration,
            prompts=np.array([part.mean() for part in parts]),
            block=self.block,
            curve=whole,
            error=self._sampling_error(curve.ceiling),
        )

    def _sampling_error(self, hits: float) -> float:
        """Standard error of the hits of a sample of the blocks: that of a ratio estimate [1]."""
        _, counts = np.unique(self.blocks, return_counts=True)
        beyond = counts - 1 - hits * counts
        error = np.sqrt((1 - self.share) * np.sum(beyond**2)) / len(self.blocks)
        return float(error)

    def routed(self, nodes: int) -> BlockTrace:
        """The trace where each request goes to any of the nodes, with equal chance.

        A node keeps only what it was sent, so a block of each node is a block of its own.
        """
        routes = np.random.default_rng(0).integers(0, nodes, len(self.ends))
        of_access = np.repeat(routes, np.diff(self.ends, prepend=0))
        _, numbers = np.unique(self.blocks, return_inverse=True)
        return replace(self, blocks=numbers * nodes + of_access)


def read_blocks(path: Path, block: int = BLOCK_TOKENS) -> BlockTrace:
    """Read a trace of blocks; a file that ends in .gz is unpacked on the way.

    Args:
        path: of JSON lines, or of CSV where the name says so.
        block: tokens of a block.

    Raises:
        InputError: a line that is no request, arrivals out of order, or blocks that do not fit the
            prompt's length.
    """
    share = _share_kept(path, block)
    begin = arrival = -1.0
    prompts, blocks, ends = array("d"), array("q"), array("q")
    accesses = 0
    for number, request in _lines(path):
        where = f"{path}: line {number}"
        last = arrival
        arrival, prompt, ids = _request(request, where)
        if arrival < last:
            raise InputError(f"{where}: arrives before the request above; sort the trace")
        if len(ids) != -(-prompt // block):
            needs = f"{prompt:g} tokens are {-(-prompt // block):.0f} blocks of {block}"
            advice = "state the block's size, as in --block 16"
            raise InputError(f"{where}: {needs}, hash_ids has {len(ids)}; {advice}")
        if not prompts:
            begin = arrival
        prompts.append(prompt)
        accesses += len(ids)
        kept = _sampled(ids, share) if share < 1 else ids
        blocks.extend(kept)
        if kept or share == 1:
            ends.append(len(blocks))
    if arrival <= begin:
        raise InputError(f"{path}: needs two requests that arrive at different times")
    if not blocks:
        raise InputError(f"{path}: its requests ask for no block")
    return BlockTrace(
        name=str(path),
        duration=arrival - begin,
        prompt=np.frombuffer(prompts),
        blocks=np.frombuffer(blocks, np.int64),
        ends=np.frombuffer(ends, np.int64),
        block=block,
        share=len(blocks) / accesses,
    )


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open a trace for reading.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    if not path.is_file():
        stored = " and ".join(stored_curves())
        raise InputError(
            f"{path}: is not there, or is no regular file; stored are {stored}"
        )
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rt", encoding="utf-8") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read ({problem})") from None


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Requests as they stand in the file, with the numbers of their lines."""
    with _opened(path) as file:
        if ".csv" in path.suffixes:
            csv.field_size_limit(LONGEST_FIELD)
            rows = csv.DictReader(file)
            missing = [key for key in TRACE_KEYS if key not in (rows.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: lacks the column {missing[0]!r}")
            for number, row in enumerate(rows, 2):
                yield number, {**row, "hash_ids": row["hash_ids"] or ""}
            return
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):
                form = '{"timestamp": 0, "input_length": 6758, ...}'
                raise InputError(
                    f"{path}: line {number}: is no JSON; a request is {form}"
                ) from None
            if not isinstance(request, dict):
                raise InputError(f"{path}: line {number}: is no request")
            yield number, request


def _request(request: Mapping[str, Any], where: str) -> tuple[float, float, array[int]]:
    """Arrival [s], tokens of the prompt, and blocks of a request.

    Raises:
        InputError: a number is missing, or cannot be.
    """
    for key in TRACE_KEYS:
        if key not in request:
            raise InputError(f"{where}: lacks {key!r}")
    numbers = []
    for key in TRACE_KEYS[:3]:
        try:
            value = float(request[key])
        except (TypeError, ValueError):
            raise InputError(f"{where}: {key}: {request[key]!r} is no number") from None
        if not 0 <= value < np.inf:
            raise InputError(f"{where}: {key}: is {value:g}; it must be 0 or more")
        numbers.append(value)
    listed = request["hash_ids"]
    try:
        ids = array("q", map(int, listed.split()) if isinstance(listed, str) else listed)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: hash_ids: must be a list of whole numbers") from None
    milliseconds, prompt, _ = numbers
    return milliseconds / 1000, prompt, ids


def _share_kept(path: Path, block: int) -> float:
    """Share of the blocks to keep, so that the trace fits memory; from the length of its lines."""
    beginning, blocks = 0, 0
    between = " " if ".csv" in path.suffixes else ","
    with _opened(path) as file:
        for line in file:
            beginning += len(line)
            blocks += line.count(between)
            if beginning > 1 << 20:
                break
    unpacked = 4 if path.suffix == ".gz" else 1
    expected = blocks * unpacked * path.stat().st_size / max(beginning, 1)
    return 1.0 if expected <= MOST_ACCESSES else SAMPLE / expected


def _sampled(ids: array[int], share: float) -> array[int]:
    """Blocks whose hash lies below a threshold: always the same ones, however often asked for."""
    every = np.asarray(ids)
    mixed = every.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    is_kept = (mixed >> np.uint64(11)).astype(float) < share * 2.0**53
    return array("q", every[is_kept].tobytes())
