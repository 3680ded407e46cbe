"""Traces of requests whose prompts share prefixes: which blocks each asks for, and when.

Files are JSON lines or CSV in a published format of `TRACE_FORMATS`; a workload of groups
that share a prefix, or of conversations, is made here.
"""

from __future__ import annotations

import csv
import gzip
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError, check_known, warn
from nearkv.sweeps.study.prompt_blocks import PromptBlocks

STORED_TRACES = Path(__file__).parents[1] / "traces"
"""Traces that come with the package: Mooncake's of FAST 2025, Apache-2.0."""
BLOCK_TOKENS = 512
"""Tokens of a block, where neither the user nor the format says."""
LONGEST_FIELD = 1 << 30
"""Characters of the blocks of one prompt in CSV."""
MOST_ACCESSES = 10_000_000
"""Accesses of the longest trace that is kept as it is."""
SAMPLE = 2_000_000
"""Accesses that are kept of a longer one: a sample of its blocks, which stands for all."""
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of arrivals [s]."""
DATE_UNIT = "date"
"""Unit of arrivals that are written as dates."""
GROUP_ORDERS = ("random", "round")
"""Orders in which groups ask: each at random, or one after the other."""


@dataclass(frozen=True)
class TraceFormat:
    """Keys of a published format.

    Attributes:
        name: of the format.
        arrival, prompt, output, blocks: what a request has; no `blocks` where it has lengths alone.
        unit: of arrivals, of `TIME_UNITS`, or `DATE_UNIT`.
        mark: a further key that tells the format from others.
        block: tokens of a block [1].
    """

    name: str
    arrival: str
    prompt: str
    output: str
    blocks: str
    unit: str
    mark: str = ""
    block: int = BLOCK_TOKENS

    @property
    def keys(self) -> list[str]:
        """Keys that a request of this format must have."""
        every = (self.arrival, self.prompt, self.output, self.blocks, self.mark)
        return [key for key in every if key]


_LENGTHS = ("timestamp", "input_length", "output_length", "hash_ids")
TRACE_FORMATS = (
    TraceFormat("Bailian", *_LENGTHS, unit="s", mark="chat_id", block=16),
    TraceFormat("Mooncake", *_LENGTHS, unit="ms"),
    TraceFormat("nearkv", "arrival_s", "input_tokens", "output_tokens", "hash_ids", "s"),
    TraceFormat("nearkv", "arrival_s", "input_tokens", "output_tokens", "", "s"),
    TraceFormat("BurstGPT", "Timestamp", "Request tokens", "Response tokens", "", "s"),
    TraceFormat("Azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", "", DATE_UNIT),
)
"""Formats that are read; the first whose keys the first request has is taken."""
EXAMPLE_REQUEST = (
    '{"timestamp": 27482, "input_length": 1000, "output_length": 52, "hash_ids": [46, 47]}'
)
"""A request as Mooncake publishes it, with a block of 512 tokens and one of 488."""


@dataclass(frozen=True)
class BlockTrace:
    """Requests in order of arrival, and the blocks that each asks for.

    Attributes:
        name: path of the file, or what was made.
        unit: in which arrivals were read.
        arrival: of each request: (requests,) [s].
        prompt, output: tokens of each request: (requests,).
        prompts: the blocks that they ask for; none of lengths alone.
        block: tokens of a block.
        share: of the accesses that is kept, 1 where all blocks are [1].
        stated_rate: of requests that are made; 0 where arrivals tell it [1/s].
    """

    name: str
    unit: str
    arrival: NDArray[np.float64]
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    prompts: PromptBlocks
    block: int
    share: float = 1.0
    stated_rate: float = 0.0

    @property
    def span(self) -> float:
        """Time from the first arrival to the last [s]."""
        return float(self.arrival[-1] - self.arrival[0])

    @property
    def rate(self) -> float:
        """Requests per second [1/s]."""
        return self.stated_rate or (len(self.arrival) - 1) / self.span

    @property
    def accesses(self) -> float:
        """Blocks of the prompts, with those that are not kept [1]."""
        return len(self.prompts.blocks) / self.share

    @cached_property
    def ceiling(self) -> float:
        """Share of the blocks that were asked for before: no cache hits more [1]."""
        return 1 - len(np.unique(self.prompts.blocks)) / len(self.prompts.blocks)

    @cached_property
    def sampling_error(self) -> float:
        """Standard error of the hits of a sample of the blocks, that of a ratio estimate [1].

        A sample of the blocks reuses each as often, with as many fewer others between: it behaves
        as all do in tiers that are larger by 1 / share (SHARDS: Waldspurger et al., FAST 2015).
        """
        _, counts = np.unique(self.prompts.blocks, return_counts=True)
        beyond = counts - 1 - self.ceiling * counts
        squares = (1 - self.share) * np.sum(beyond**2)
        return float(np.sqrt(squares)) / len(self.prompts.blocks)

    def faster(self, scale: float) -> BlockTrace:
        """Return these requests, so many times as fast.

        Raises:
            InputError: not above 0.
        """
        if not 0 < scale < np.inf:
            raise InputError(f"--rate-scale: {scale:g} must be above 0, and finite")
        return replace(self, arrival=self.arrival / scale)

    def with_snapshots(self, snapshot: float) -> BlockTrace:
        """Return these requests with a state that is kept at the end of each prompt [blocks]."""
        return replace(self, prompts=replace(self.prompts, snapshot=snapshot))

    def routed(self, nodes: int) -> BlockTrace:
        """The trace where each request goes to any of the nodes, with equal chance.

        A node keeps only what it was sent, so a block of each node is a block of its own.
        """
        prompts = self.prompts
        routes = np.random.default_rng(0).integers(0, nodes, len(prompts.ends))
        blocks = prompts.blocks * nodes + routes[prompts.request]
        return replace(self, prompts=replace(prompts, blocks=blocks))


def stored_traces() -> list[str]:
    """Names of the traces that come with the package."""
    return sorted(
        file.name.removesuffix(".jsonl.gz") for file in STORED_TRACES.glob("*.jsonl.gz")
    )


# --- workloads that are made ----------------------------------------------------------------------


@dataclass(frozen=True)
class PromptGroups:
    """Groups of prompts that share a prefix, or conversations that begin with it.

    Attributes:
        groups: number of prefixes [1].
        prefix: tokens of each [1].
        requests: in all [1].
        order: of `GROUP_ORDERS`.
        turns: of a conversation; 1 for requests that stand alone [1].
        grow: tokens that each turn adds to the prompt, not shared with other conversations [1].
        pause: between the turns of a conversation; that of the requests where it is 0 [s].
        rate: requests per second [1/s].
        output: tokens of an answer [1].
    """

    groups: int
    prefix: float
    requests: int
    order: str = "random"
    turns: int = 1
    grow: float = 0.0
    pause: float = 0.0
    rate: float = 1.0
    output: float = 1.0

    def check(self) -> None:
        """Refuse what makes no requests.

        Raises:
            InputError: it does not.
        """
        check_known("order", [self.order], GROUP_ORDERS, "--order")
        if self.requests < 2:
            raise InputError(f"--requests: {self.requests} must be 2 or more")
        if self.prefix + self.grow < 1:
            raise InputError(
                "--groups: state the tokens that they share, as in --prefix 30k"
            )

    def trace(self, block: int) -> BlockTrace:
        """The requests: conversations begin one after the other, evenly over time.

        Args:
            block: tokens of a block.
        """
        self.check()
        number = np.arange(self.requests)
        conversation, turn = np.divmod(number, self.turns)
        begun = conversation * self.turns / self.rate
        arrival = begun + turn * (self.pause or 1 / self.rate)
        group = conversation % self.groups
        if self.order == "random":
            drawn = np.random.default_rng(0).integers(0, self.groups, self.requests)
            group = drawn[conversation]
        prompt = self.prefix + self.grow * (turn + 1)
        sequence = np.argsort(arrival, kind="stable")
        shared = self.prefix // block if self.grow else np.inf
        blocks, ends = [], []
        for at in sequence.tolist():
            places = np.arange(-(-prompt[at] // block))
            # a block belongs to the group, to the conversation, or, not yet full, to one request
            owner = np.where(places < shared, group[at], self.groups + conversation[at])
            if self.grow and prompt[at] % block:
                owner[-1] = self.groups + self.requests + at
            blocks.append(_mixed(owner.astype(np.uint64)))
            ends.append(len(places))
        return BlockTrace(
            name=f"{self.groups} groups",
            unit="s",
            arrival=arrival[sequence],
            prompt=prompt[sequence].astype(float),
            output=np.full(self.requests, self.output),
            prompts=_numbered(map(prefix_hashes, blocks), np.cumsum(ends)),
            block=block,
            stated_rate=self.rate,
        )


def prefix_hashes(blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers that stand for each block of a prompt and all before it: a polynomial hash."""
    powers = np.multiply.accumulate(np.full(len(blocks), _ODD))
    return _mixed(np.cumsum(_mixed(blocks) * powers, dtype=np.uint64))


def _numbered(
    hashes: Iterable[NDArray[np.uint64]], ends: NDArray[np.int64]
) -> PromptBlocks:
    """Prompts whose blocks are numbered from 0 on."""
    every = np.concatenate([np.zeros(0, np.uint64), *hashes])
    _, numbers = np.unique(every, return_inverse=True)
    return PromptBlocks(numbers.astype(np.int64), ends)


_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bits spread over the whole number, so that alike ones differ: two rounds of splitmix64."""
    mixed = (numbers + _ODD) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(32)


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Requests:
    """Lines of a file, and how they are read."""

    path: Path
    form: TraceFormat
    unit: str
    lines: Iterator[tuple[int, Mapping[str, Any]]]

    def read(self, number: int, request: Mapping[str, Any]) -> tuple[float, float, float]:
        """Arrival [s], tokens of the prompt, and of the answer.

        Raises:
            InputError: a number is missing, or cannot be.
        """
        where = f"{self.path}: line {number}"
        form = self.form
        for key in form.keys:
            if key not in request:
                raise InputError(f"{where}: lacks {key!r}")
        return (
            self._arrival(request[form.arrival], where),
            number_from_0(request[form.prompt], f"{where}: {form.prompt}"),
            number_from_0(request[form.output], f"{where}: {form.output}"),
        )

    def _arrival(self, value: Any, where: str) -> float:
        """Time of a request [s].

        Raises:
            InputError: it is none.
        """
        if self.unit != DATE_UNIT:
            stamp = number_from_0(value, f"{where}: {self.form.arrival}")
            return stamp * TIME_UNITS[self.unit]
        try:
            return float(np.datetime64(value, "ns").astype(np.int64)) * TIME_UNITS["ns"]
        except (ValueError, TypeError):
            raise InputError(f"{where}: {value!r} is no date") from None


def read_blocks(path: Path, block: int = 0, time_unit: str = "") -> BlockTrace:
    """Read a trace; a file that ends in .gz is unpacked on the way.

    Args:
        path: of JSON lines, or of CSV where the name says so.
        block: tokens of a block; 0 for those of the format.
        time_unit: of the arrivals, of `TIME_UNITS`; that of the format where it is empty.

    Raises:
        InputError: a line that is no request, arrivals out of order, or blocks that do not fit the
            prompt's length.
    """
    source = _requests(path, time_unit)
    size = block or source.form.block
    share = _share_kept(path) if source.form.blocks else 1.0
    arrivals, prompts, outputs = array("d"), array("d"), array("d")
    hashes, ends = [], array("q")
    accesses = kept_accesses = 0
    for number, request in source.lines:
        arrival, prompt, output = source.read(number, request)
        where = f"{path}: line {number}"
        if arrivals and arrival < arrivals[-1]:
            raise InputError(f"{where}: arrives before the request above; sort the trace")
        arrivals.append(arrival)
        prompts.append(prompt)
        outputs.append(output)
        if not source.form.blocks:
            continue
        ids = _blocks(request[source.form.blocks], f"{where}: {source.form.blocks}")
        if len(ids) != -(-prompt // size):
            needs = f"{prompt:g} tokens are {-(-prompt // size):.0f} blocks of {size}"
            advice = "state the block's size, as in --block 16"
            raise InputError(f"{where}: {needs}, hash_ids has {len(ids)}; {advice}")
        accesses += len(ids)
        kept = prefix_hashes(ids)
        if share < 1:
            kept = kept[(kept >> np.uint64(11)).astype(float) < share * 2.0**53]
        kept_accesses += len(kept)
        hashes.append(kept)
        if len(kept) or share == 1:
            ends.append(kept_accesses)
    if not arrivals or arrivals[-1] <= arrivals[0]:
        raise InputError(f"{path}: needs two requests that arrive at different times")
    if source.form.blocks and not kept_accesses:
        raise InputError(f"{path}: its requests ask for no block")
    return BlockTrace(
        name=str(path),
        unit=source.unit,
        arrival=np.frombuffer(arrivals) - arrivals[0],
        prompt=np.frombuffer(prompts),
        output=np.frombuffer(outputs),
        prompts=_numbered(hashes, np.array(ends, np.int64)),
        block=size,
        share=kept_accesses / accesses if accesses else 1.0,
    )


def _requests(path: Path, time_unit: str) -> _Requests:
    """The requests of a file, whose format its first one tells.

    Raises:
        InputError: the format is none of `TRACE_FORMATS`, or the unit is none.
    """
    lines = _lines(path)
    number, first = next(lines, (0, {}))
    form = next((each for each in TRACE_FORMATS if set(each.keys) <= set(first)), None)
    if form is None:
        published = ", ".join(dict.fromkeys(each.name for each in TRACE_FORMATS))
        has = f"has the keys {', '.join(map(str, first)) or 'of no request'}"
        raise InputError(
            f"{path}: {has}; formats are those of {published}, as {EXAMPLE_REQUEST}"
        )
    if time_unit:
        check_known("unit", [time_unit], TIME_UNITS, "--time-unit")
    elif form.unit == "ms" and _is_fraction(first.get(form.arrival)):
        reads = f"{path}: {form.arrival} has fractions and is read as milliseconds"
        warn(f"{reads}; --time-unit s reads seconds")
    every = chain([(number, first)], lines)
    return _Requests(path, form, time_unit or form.unit, every)


def _is_fraction(stamp: Any) -> bool:
    """True if a time is a number, but not a whole one."""
    return isinstance(stamp, float) and stamp % 1 > 0


def number_from_0(value: Any, where: str) -> float:
    """A number from 0 on.

    Raises:
        InputError: it is none.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where}: {value!r} is no number") from None
    if not 0 <= number < np.inf:
        raise InputError(f"{where}: {number:g} must be 0 or more")
    return number


def _blocks(listed: Any, where: str) -> NDArray[np.uint64]:
    """Blocks of a prompt.

    Raises:
        InputError: they are no whole numbers.
    """
    try:
        whole = map(int, listed.split()) if isinstance(listed, str) else listed
        return np.frombuffer(array("q", whole), np.uint64)
    except (TypeError, ValueError, OverflowError):
        example = "1 2 3 in CSV, [1, 2, 3] in JSON lines"
        raise InputError(f"{where}: must be a list of whole numbers: {example}") from None


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """Open a trace for reading.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    if not path.is_file():
        stored = " and ".join(stored_traces())
        raise InputError(
            f"{path}: is not there, or is no regular file; stored are {stored}"
        )
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rt", encoding="utf-8-sig") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read ({problem})") from None


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Requests as they stand in the file, with the numbers of their lines."""
    with _opened(path) as file:
        if ".csv" in path.suffixes:
            csv.field_size_limit(LONGEST_FIELD)
            for number, row in enumerate(csv.DictReader(file), 2):
                yield number, row
            return
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(
                    f"{path}: line {number} is no JSON; a request is {EXAMPLE_REQUEST}"
                ) from None
            if not isinstance(request, dict):
                raise InputError(
                    f"{path}: line {number} is no request as {EXAMPLE_REQUEST}"
                )
            yield number, request


def _share_kept(path: Path) -> float:
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
