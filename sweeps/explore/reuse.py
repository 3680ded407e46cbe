"""`nearkv reuse`: KV caches that outlive a request: what each tier hits, saves and wears.

A node serves prompts one after the other. The prefix that lies in a tier is loaded, or computed
anew, or its end is loaded while its beginning is computed; the rest of the prompt is computed.
Requests go to the node that has the longest prefix, so that nodes' own tiers hold different blocks,
or to any.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.reuse.fetch import crossover, layerwise
from nearkv.costmodel.mechanisms.reuse.tiers import Tier
from nearkv.costmodel.mechanisms.reuse.wear import (
    drive_writes_a_day,
    write_price,
    years,
)
from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.evaluate.replay import ADMISSIONS, replay
from nearkv.sweeps.explore.kv_node import Node, scalar
from nearkv.sweeps.explore.rows import Rows
from nearkv.sweeps.study.block_traces import BlockTrace, ReuseSummary
from nearkv.sweeps.study.study import Numbers

POLICIES = ("victim", "exclusive", "inclusive")
"""What a tier keeps of the one above it."""
ROUTINGS = ("prefix", "random")
"""Which node a request goes to: the one with its longest prefix, or any."""
BUSY = 0.8
"""Share of its time that a node computes prompts, at most, where the number of nodes is chosen."""
QUANTILES = {"ttft_p50_s": 0.5, "ttft_p90_s": 0.9, "ttft_p99_s": 0.99}
WEAR = ("dwpd", "drives_1_dwpd", "life_years", "usd_tb_written", "pays_from_reads")
"""Columns of what writing does to drives."""


@dataclass(frozen=True)
class Reuse:
    """What is asked of a trace of prompts, or of a prefix and how often it is found.

    Attributes:
        node: a server.
        tiers: as `dram=512GB` or `ssd=8x3.84TB`, the nearest first.
        trace: the requests, where they are replayed.
        summary: of the requests, where there is one.
        prefix, hit, rate: tokens, how often they are found, requests a second; without a trace.
        policy, admission, routing: of `POLICIES`, `ADMISSIONS`, `ROUTINGS`.
        nodes: servers, each with tiers of its own; 0 for the fewest below `BUSY`.
        ttft: mean of requests at the rate that is asked for; 0 where none is [s].
        drive: capacity of one drive, in which wear is counted; 0 for those of the tier [B].
    """

    node: Node
    tiers: Sequence[str]
    trace: BlockTrace | None = None
    summary: ReuseSummary | None = None
    prefix: float = 0.0
    hit: float = 0.0
    rate: float = 0.0
    policy: str = "victim"
    admission: str = "all"
    routing: str = "prefix"
    nodes: int = 0
    ttft: float = 0.0
    drive: float = 0.0

    @cached_property
    def built(self) -> tuple[Tier, ...]:
        """The tiers of a node, the nearest first."""
        return tuple(map(self.node.tier, self.tiers))

    @property
    def is_replayed(self) -> bool:
        """Whether hits and writes are those of a replay."""
        return self.summary is not None and self.policy == "victim"

    @cached_property
    def prompts(self) -> Numbers:
        """Tokens of each request that is replayed whole, else of parts of them: (requests,)."""
        if self.trace and self.is_replayed and self.trace.share == 1:
            return self.trace.prompt
        return self.summary.prompts if self.summary else np.array([self.prefix])

    @property
    def requests(self) -> float:
        """Requests of all nodes [1/s]."""
        return self.summary.rate if self.summary else self.rate


@dataclass(frozen=True)
class Hits:
    """What the tiers do in service of all requests.

    Attributes:
        share: of the blocks that each tier has: (tiers,).
        half: how far the hits of each tier and those before it may be off in what comes: (tiers,).
        tokens: of each request in each tier: (requests, tiers).
        written: to each tier: (tiers,) [B/s].
    """

    share: Numbers
    half: Numbers
    tokens: Numbers
    written: Numbers


def reuse(question: Reuse) -> tuple[Rows, list[str]]:
    """What each tier hits, how its blocks come back soonest, what that saves and wears.

    Returns:
        A row a tier, of all nodes together; then sentences about the service. Where wear is counted
        in drives of a size, the rows come again with as many of these as bear what is written.

    Raises:
        InputError: a tier, a share or a length that cannot be.
    """
    check(question)
    nodes = question.nodes or fewest_nodes(question)
    hits = hits_of(question, nodes)
    service = service_of(question, nodes, hits)
    places = range(len(question.built))
    rows = [_row(question, nodes, place, hits) | service for place in places]
    said = _sentences(question, nodes, hits, service)
    worn = [row for row in rows if question.drive and row["drives_1_dwpd"] > 0]
    if worn:
        sized = replace(question, tiers=_sized(question, worn), drive=0.0, nodes=nodes)
        more, _ = reuse(sized)
        rows += [row | {"sized_by": "wear"} for row in more]
    return rows, said


def _sized(question: Reuse, worn: Rows) -> list[str]:
    """The tiers, those of drives with as many as bear what is written at one drive write a day."""
    drives = {row["tier"]: int(np.ceil(row["drives_1_dwpd"])) for row in worn}
    texts = []
    for text, built in zip(question.tiers, question.built, strict=True):
        count = drives.get(built.name)
        texts.append(f"{built.name}={count}x{question.drive}B" if count else text)
    return texts


def check(question: Reuse) -> None:
    """Refuse what cannot be asked together.

    Raises:
        InputError: it cannot.
    """
    for name, value, choices in (
        ("policy", question.policy, POLICIES),
        ("admission", question.admission, ADMISSIONS),
        ("routing", question.routing, ROUTINGS),
    ):
        if value not in choices:
            raise unknown(name, value, choices, f"--{name}")
    names = [tier.partition("=")[0].strip() for tier in question.tiers]
    if not names:
        raise InputError("--tier: name at least one, as in --tier dram=512GB")
    if len(set(names)) < len(names):
        raise InputError(f"--tier: {', '.join(names)} names a tier twice; add their sizes")
    if question.admission != "all" and question.policy != "victim":
        raise InputError(f"--admission {question.admission}: is for --policy victim alone")
    if question.drive and all(np.isinf(tier.endurance) for tier in question.built):
        raise InputError(f"--drive: {', '.join(names)} does not wear out; name drives")
    if question.summary is None:
        _check_prefix(question)
    else:
        _check_trace(question)


def _check_trace(question: Reuse) -> None:
    """Refuse what cannot be asked of a trace.

    Raises:
        InputError: it cannot.
    """
    if question.prefix or question.hit or question.rate:
        raise InputError("--prefix, --hit, --rate: are for no trace; leave them out, or it")
    is_random = question.routing == "random"
    if question.is_replayed and not question.trace:
        alone = "--policy victim: replays the trace itself, and there is its summary alone"
        raise InputError(f"{alone}; take --policy exclusive or inclusive")
    if question.is_replayed and len(question.tiers) > 2:
        most = "--policy victim: replays two tiers at most"
        raise InputError(f"{most}; name two, or take --policy exclusive")
    if is_random and not question.trace:
        raise InputError("--routing random: sends each request; give the trace itself")
    shared = [tier.name for tier in question.built if tier.is_shared]
    if is_random and shared:
        raise InputError(
            f"--routing random: leave out {', '.join(shared)}, which nodes share"
        )


def _check_prefix(question: Reuse) -> None:
    """Refuse a prefix that cannot be, or of which something is missing.

    Raises:
        InputError: it is.
    """
    prefix, longest = question.prefix, question.node.longest
    if not 0 <= question.hit <= 1:
        raise InputError(f"--hit: {question.hit:g} is no share; give 0 to 1")
    if not (prefix > 0 and 0 < question.rate < np.inf):
        raise InputError("give --trace FILE, or --prefix, --hit and --rate of the requests")
    if len(question.tiers) > 1:
        raise InputError("--tier: without a trace the prefix lies in one tier; name one")
    if (question.admission, question.routing) != ("all", "prefix"):
        raise InputError("--admission, --routing: need a trace to replay")
    if prefix > longest:
        takes = f"the model takes {longest:,.0f} tokens; choose another model"
        raise InputError(f"--prefix: a prompt has {prefix:,.0f} tokens, {takes}")


def fewest_nodes(question: Reuse) -> int:
    """Nodes that compute prompts at most `BUSY` of their time; without reuse more would do."""

    def service(nodes: int) -> dict[str, float]:
        return service_of(question, nodes, hits_of(question, nodes))

    most = max(int(np.ceil(service(1)["plain_load"] / BUSY)), 1)
    busy = range(1, most)
    return 1 + bisect_left(busy, True, key=lambda nodes: service(nodes)["load"] <= BUSY)


def service_of(question: Reuse, nodes: int, hits: Hits) -> dict[str, float]:
    """How each node serves its share of the requests, one prompt after the other.

    Returns:
        `load`, the share of its time that it computes or loads prompts, `plain_load` without reuse,
        the share of prefill time saved, the mean wait and time to the first token, its quantiles
        over the prompts behind a mean wait, and the requests a second of all nodes whose mean is
        the one that is asked for.
    """
    node, rate = question.node, question.requests / nodes
    tiers = [
        tier.written_at(written / tier.own(nodes))
        for tier, written in zip(question.built, hits.written, strict=True)
    ]
    plain = node.prefill(np.maximum(question.prompts, 1.0))
    seconds = request_seconds(node, tiers, question.prompts, hits.tokens)
    saved = node.compute(np.sum(hits.tokens, axis=1)) / np.sum(plain)
    found = 1.0 if question.summary else question.hit
    weights = np.full(len(plain), 1 / len(plain))
    if found < 1:
        seconds, plain = np.append(seconds, plain), np.append(plain, plain)
        weights = np.array([found, 1 - found])
    mean, square = (float(np.sum(weights * power)) for power in (seconds, seconds**2))
    wait = float(mean_wait(rate, mean, square))
    spare = max(question.ttft - mean, 0.0) if question.ttft else np.nan
    quantiles = {
        name: np.quantile(seconds, share, weights=weights, method="inverted_cdf")
        for name, share in QUANTILES.items()
    }
    return {
        "nodes": nodes,
        "load": rate * mean,
        "plain_load": rate * float(np.sum(weights * plain)),
        "prefill_saved": found * float(np.sum(saved)),
        "wait_s": wait,
        "ttft_s": wait + mean,
        **{name: wait + float(value) for name, value in quantiles.items()},
        "most_req_s": nodes * 2 * spare / (square + 2 * spare * mean),
    }


def mean_wait(rate: Real, mean: Real, square: Real) -> Real:
    """Mean time that a request waits for its turn; infinite from a load of 1 on [s].

    l E[S^2] / (2 (1 - l E[S])) for Poisson arrivals (Pollaczek and Khinchine).

    Args:
        rate: l, requests of a node [1/s].
        mean, square: E[S] and E[S^2] of their service [s, s^2].
    """
    idle = 1 - rate * np.asarray(mean)
    wait = rate * square / (2 * np.where(idle > 0, idle, 1.0))
    return np.where(idle > 0, wait, np.inf)[()]


def request_seconds(
    node: Node, tiers: Sequence[Tier], prompts: Numbers, tokens: Numbers
) -> Numbers:
    """Seconds of requests from their turn to their first token.

    Either each tier's tokens come back by their best way and the rest of the prompt is computed, or
    all are loaded, layer by layer, while the rest is computed; the faster of both.

    Args:
        prompts: tokens: (requests,).
        tokens: in each tier, the nearest first: (..., requests, tiers).
    """
    reached = np.cumsum(tokens, axis=-1)
    known = np.sum(tokens, axis=-1)
    rest = node.prefill(np.maximum(prompts, 1.0)) - node.compute(known)
    fetched, loaded = np.zeros(rest.shape), np.zeros(rest.shape)
    for place, tier in enumerate(tiers):
        here = tokens[..., place]
        before = reached[..., place] - here
        fetched = fetched + node.fetch(tier, here, before, prompts - known)
        loaded = loaded + np.where(here > 0, node.load(tier, here), 0.0)
    hidden = layerwise(loaded, rest, node.llm.layers)
    return np.minimum(rest + fetched, hidden)


def hits_of(question: Reuse, nodes: int) -> Hits:
    """What the tiers of all nodes hit; a prefix that is stated lies in the tier that is named."""
    node, summary, tiers = question.node, question.summary, question.built
    if summary is None:
        share = np.full(len(tiers), question.hit)
        missed = (1 - question.hit) * question.rate
        one = scalar(missed * node.kv_bytes(question.prefix))
        tokens = np.full((1, len(tiers)), question.prefix)
        return Hits(share, np.zeros(len(tiers)), tokens, np.full(len(tiers), one))
    trace = question.trace
    if trace and question.routing == "random":
        trace = trace.routed(nodes)
    curve = trace.summary.curve if trace else summary.curve
    block_bytes = node.token_bytes * summary.block
    capacities = [tier.own(nodes) * scalar(tier.capacity) for tier in tiers]
    blocks = np.array(capacities) / block_bytes
    reach = reach_of(question.policy, blocks)
    if trace and question.is_replayed:
        share, tokens, inserted = _replayed(question, trace, blocks)
    else:
        upto = curve.hit_ratio(reach)
        share = np.diff(upto, prepend=0.0)
        tokens = prefix_tokens(summary, upto)
        inserted = inserted_of(question.policy, upto)
    written = inserted * summary.accesses * block_bytes
    return Hits(share, curve.half_band(reach), tokens, written)


def reach_of(policy: str, blocks: Numbers) -> Numbers:
    """Capacity of the one cache that hits as much as each tier and those before it: (..., tiers).

    Args:
        policy: of `POLICIES`; victims lie about as if no block lay in two tiers.
        blocks: capacities: (..., tiers).
    """
    if policy == "inclusive":
        return np.maximum.accumulate(blocks, axis=-1)
    return np.cumsum(blocks, axis=-1)


def inserted_of(policy: str, upto: Numbers) -> Numbers:
    """Blocks that enter each tier over all that are accessed: (..., tiers).

    Of exclusive tiers all that those above do not have, of inclusive ones all that none has.
    """
    if policy == "inclusive":
        return 1 - upto
    return 1 - upto + np.diff(upto, axis=-1, prepend=0.0)


def prefix_tokens(summary: ReuseSummary, upto: Numbers) -> Numbers:
    """Tokens of each request in each tier: the mean share of its prompt (..., requests, tiers).

    Args:
        upto: share of the blocks in each tier and those before it: (..., tiers).
    """
    of_tokens = np.minimum(upto / summary.token_share, 1.0)
    share = np.diff(of_tokens, axis=-1, prepend=0.0)
    return share[..., np.newaxis, :] * summary.prompts[:, np.newaxis]


def _replayed(
    question: Reuse, trace: BlockTrace, blocks: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Share of the blocks in each tier, tokens of each request, and blocks written over all."""
    first, second = (int(count * trace.share) for count in (*blocks, 0, 0)[:2])
    played = replay(trace.blocks, trace.ends, first, second, question.admission)
    accesses, each = len(trace.blocks), played.hits[:, : len(blocks)]
    share = np.sum(each, axis=0) / accesses
    entered = accesses - np.sum(played.hits[:, 0]), played.written
    inserted = np.array(entered[: len(blocks)]) / accesses
    if trace.share < 1:  # of a request too few blocks are known
        return share, prefix_tokens(trace.summary, np.cumsum(share)), inserted
    tokens = each * trace.block
    # the last block of a prompt is not full
    upto = np.minimum(np.cumsum(tokens, axis=1), trace.prompt[:, np.newaxis])
    return share, np.diff(upto, axis=1, prepend=0.0), inserted


def _row(question: Reuse, nodes: int, place: int, hits: Hits) -> dict[str, Any]:
    """What a tier of all nodes does, and how a prefix of its mean hit comes back from it."""
    node, tokens = question.node, hits.tokens[:, place]
    written = float(hits.written[place])
    tier = question.built[place]
    tier = tier.written_at(written / tier.own(nodes))
    is_hit = tokens > 0
    mean = float(np.mean(tokens[is_hit])) if np.any(is_hit) else np.nan
    read = question.requests * float(np.mean(node.kv_bytes(tokens)))
    if question.summary is None:
        read = question.hit * read
    total, half = float(np.sum(hits.share[: place + 1])), float(hits.half[place])
    if question.summary is None:
        total = question.hit
    capacity = tier.own(nodes) * scalar(tier.capacity)
    row = {
        "tier": tier.name,
        "admission": question.admission,
        "sized_by": "stated",
        "capacity_gb": capacity / 1e9,
        "capacity_tok": capacity / node.token_bytes,
        "hit_share": hits.share[place],
        "total_share": total,
        "total_low": max(total - half, 0.0),
        "total_high": min(total + half, 1.0),
        "prefix_tok": mean,
        **_ways(node, tier, mean, float(np.mean(question.prompts))),
        "read_gb_s": read / 1e9,
        "write_gb_s": written / 1e9,
        "reads_per_write": read / written if written else np.nan,
        "write_share": written / (nodes * scalar(tier.write_rate)),
        "usd": tier.own(nodes) * scalar(tier.capacity * tier.byte_price),
    }
    drive = question.drive or scalar(tier.capacity / tier.parts)
    return row | _wear(node, tier, mean, tier.own(nodes), written, drive)


def _ways(node: Node, tier: Tier, mean: float, prompt: float) -> dict[str, Any]:
    """How a prefix of a mean length comes back, which way is fastest, and from which length."""
    ways = node.ways(tier, mean, queries=prompt - mean)
    every = {way: scalar(value) for way, value in ways.items()}
    rest = scalar(node.prefill(prompt) - node.compute(mean))
    every["layerwise"] = scalar(layerwise(every["load"], rest, node.llm.layers)) - rest
    near = scalar(node.attend_near(tier, mean))
    known = {way: value for way, value in every.items() if np.isfinite(value)}
    pays_from = crossover(node.compute, lambda p: node.load(tier, p), node.longest)
    return {
        **{f"{way}_ms": 1e3 * value for way, value in every.items()},
        "best": min(known, key=known.__getitem__, default=""),
        "load_pays_from_tok": pays_from,
        "near_pays_to_tok": every["load"] / near,
    }


def _wear(
    node: Node, tier: Tier, mean: float, own: int, written: float, drive: float
) -> dict[str, Any]:
    """What writing does to drives [B/s]; nothing to memory that does not wear out."""
    capacity, endurance = own * scalar(tier.capacity), own * scalar(tier.endurance)
    if not np.isfinite(endurance):
        return dict.fromkeys(WEAR, np.nan)
    a_byte = scalar(write_price(capacity * tier.byte_price, endurance))
    rent = node.hw.gpu.count * node.hw.gpu.maybe("rent", np.nan)
    recomputed = scalar(rent * node.compute(mean) / node.kv_bytes(mean))
    values = (
        drive_writes_a_day(written, capacity),
        drive_writes_a_day(written, drive),
        years(written, endurance) if written else np.nan,
        1e12 * a_byte,
        a_byte / recomputed,
    )
    return dict(zip(WEAR, values, strict=True))


def overfull(question: Reuse, nodes: int, hits: Hits) -> list[str]:
    """Tiers that are written faster than the paths of all nodes bear."""
    return [
        tier.name
        for tier, written in zip(question.built, hits.written, strict=True)
        if written > nodes * scalar(tier.write_rate)
    ]


def _sentences(
    question: Reuse, nodes: int, hits: Hits, service: dict[str, float]
) -> list[str]:
    """What reuse does to the service."""
    reused = f"{100 * float(np.sum(hits.share)):.1f} % of the blocks are reused"
    busy = f"Prompts keep a node busy for {100 * service['load']:.0f} % of its time"
    less = f"{100 * (1 - service['load'] / service['plain_load']):.0f} % less than without reuse"
    told = [f"{reused} on {nodes} node{'s' if nodes > 1 else ''}.", f"{busy}, {less}."]
    if question.summary:
        told += _doubts(question.summary)
    too_long = float(np.mean(question.prompts > question.node.longest))
    if too_long:
        are = f"{100 * too_long:.2g} % of the prompts are longer than the model takes"
        told.append(f"{are}; they are timed at {question.node.longest:,.0f} tokens.")
    for name in overfull(question, nodes, hits):
        told.append(f"infeasible: {name} is written faster than its path bears.")
    if service["load"] >= 1:
        why = "infeasible: prompts come faster than they are served"
        return [*told, f"{why}; --nodes {fewest_nodes(question)} would do."]
    first = f"The first token comes after {service['ttft_s']:.3g} s in the mean"
    return [*told, f"{first}, {service['wait_s']:.2g} s of it waiting."]


def _doubts(summary: ReuseSummary) -> list[str]:
    """What stands against taking a trace for what comes."""
    told, curve = [], summary.curve
    if not curve.is_stationary:
        drift = 100 * np.max(np.abs(curve.drift))
        apart = f"its second half hits up to {drift:.0f} points more or less than its first"
        told.append(f"{summary.name} is not stationary: {apart}; it is no forecast.")
    if summary.error:
        sampled = "The hits are those of a sample of the blocks"
        told.append(
            f"{sampled}, with a standard error of {100 * summary.error:.2g} points."
        )
    return told
