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
from nearkv.costmodel.mechanisms.reuse.tiers import TIERS, Tier
from nearkv.costmodel.mechanisms.reuse.wear import (
    drive_writes_a_day,
    write_price,
    years,
)
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.evaluate.replay import ADMISSIONS, replay
from nearkv.sweeps.explore.kv_node import Node
from nearkv.sweeps.study.block_traces import BlockTrace, ReuseSummary
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.study import Numbers
from nearkv.sweeps.tables.table import Rows

REUSE_POLICIES = ("victim", "exclusive", "inclusive")
"""What a tier keeps of the one above it."""
ROUTINGS = ("prefix", "random")
"""Which node a request goes to: the one with its longest prefix, or any."""
BUSY = 0.8
"""Share of its time that a node computes prompts, at most, where the number of nodes is chosen."""
MOST_RATE = 1e9
"""Requests a second of the largest question."""
TTFT_QUANTILES = {"ttft_p50_s": 0.5, "ttft_p90_s": 0.9, "ttft_p99_s": 0.99}


@dataclass(frozen=True)
class Reuse:
    """What is asked of a trace of prompts, or of a prefix and how often it is found.

    Attributes:
        node: a server.
        tiers: as `dram=512GB` or `ssd=8x3.84TB`, the nearest first.
        trace: the requests, where they are replayed.
        summary: of the requests, where there is one.
        prefix, hit, rate: tokens, how often they are found, requests a second; without a trace.
        policy, admission, routing: of `REUSE_POLICIES`, `ADMISSIONS`, `ROUTINGS`.
        nodes: servers, each with tiers of its own; 0 for the fewest below `BUSY`.
        ttft: mean of requests at the rate that is asked for; 0 where none is [s].
        drive: capacity of one drive, in which wear is counted; 0 for those of the tier [B].
        sized: the tiers, in place of `tiers`, of many sizes: numbers are (points, 1).
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
    sized: tuple[Tier, ...] = ()

    @cached_property
    def built(self) -> tuple[Tier, ...]:
        """The tiers of a node, the nearest first."""
        return self.sized or tuple(map(self.node.tier, self.tiers))

    @cached_property
    def own(self) -> Numbers:
        """How many there are of each tier, one of each node or one that all share: (tiers,)."""
        return np.array([1 if tier.place.is_shared else self.nodes for tier in self.built])

    @property
    def capacities(self) -> Numbers:
        """Of each tier of all nodes: (..., tiers) [B]."""
        of_node = [np.atleast_1d(tier.capacity) for tier in self.built]
        capacities: Numbers = self.own * np.concatenate(of_node, axis=-1)
        return capacities

    @property
    def is_replayed(self) -> bool:
        """Whether hits and writes are those of a replay."""
        return self.summary is not None and self.policy == "victim"

    @cached_property
    def prompts(self) -> Numbers:
        """Tokens of each request that is replayed whole, else of groups of them: (requests,)."""
        if self.summary is None:
            return np.full(2, self.prefix)
        if self.trace and self.is_replayed and self.trace.share == 1:
            return self.trace.prompt
        return self.summary.prompts

    @cached_property
    def weights(self) -> Numbers:
        """Share of all requests that each of the prompts stands for: (requests,)."""
        if self.summary is None:
            return np.array([self.hit, 1 - self.hit])
        return np.full(len(self.prompts), 1 / len(self.prompts))

    @property
    def rate_of_all(self) -> float:
        """Requests of all nodes [1/s]."""
        return self.summary.rate if self.summary else self.rate


@dataclass(frozen=True)
class Hits:
    """What the tiers do in service of all requests.

    Attributes:
        share: of the blocks that each tier has: (..., tiers).
        half: how far hits of each tier and those before it may be off in what comes: (..., tiers).
        tokens: of each request in each tier: (..., requests, tiers).
        written: to each tier: (..., tiers) [B/s].
    """

    share: Numbers
    half: Numbers
    tokens: Numbers
    written: Numbers


def evaluate_reuse(question: Reuse) -> tuple[Rows, list[str]]:
    """What each tier hits, how its blocks come back soonest, what that saves and wears.

    Returns:
        A row a tier, of all nodes together; then sentences about the service. Where wear is counted
        in drives of a size, the rows come again with as many of these as bear what is written.

    Raises:
        InputError: a tier, a share or a length that cannot be.
    """
    check(question)
    served = replace(question, nodes=question.nodes or fewest_nodes(question))
    hits = hits_of(served)
    reasons = faults_of(served, hits)
    status = {"status": "infeasible" if reasons else "ok"}
    service = status | service_of(served, hits)
    if reasons:
        service |= dict.fromkeys(("wait_s", "ttft_s", *TTFT_QUANTILES), np.inf)
    rows = [_row(served, place, hits) | service for place in range(len(served.built))]
    said = _sentences(served, hits, service, reasons)
    worn = [row for row in rows if question.drive and row["drives_1_dwpd"] > 0]
    if worn:
        more, _ = evaluate_reuse(replace(served, tiers=_sized(served, worn), drive=0.0))
        rows += [row | {"sized_by": "wear"} for row in more]
    return rows, said


def _sized(question: Reuse, worn: Rows) -> list[str]:
    """The tiers, those of drives with as many as bear what is written at one drive write a day."""
    drives = {row["tier"]: row["drives_1_dwpd"] for row in worn}
    texts = []
    for text, built, own in zip(question.tiers, question.built, question.own, strict=True):
        count = int(np.ceil(drives.get(built.name, 0.0) / own))
        texts.append(f"{built.name}={count}x{question.drive}B" if count else text)
    return texts


# --- what cannot be asked together --------------------------------------------------------------


def check(question: Reuse) -> None:
    """Refuse what cannot be asked together.

    Raises:
        InputError: it cannot.
    """
    for name, value, choices in (
        ("policy", question.policy, REUSE_POLICIES),
        ("admission", question.admission, ADMISSIONS),
        ("routing", question.routing, ROUTINGS),
    ):
        check_known(name, [value], choices, f"--{name}")
    _check_tiers(question)
    if question.nodes < 0:
        raise InputError(f"--nodes: {question.nodes} must be 0 or more")
    if question.summary is None:
        _check_prefix(question)
    else:
        _check_trace(question)
    if question.rate_of_all > MOST_RATE:
        raise InputError(f"--rate, --rate-scale: at most {MOST_RATE:g} requests per second")


def _check_tiers(question: Reuse) -> None:
    """Refuse tiers that are named twice, in another order than the nearest first, or not at all.

    Raises:
        InputError: they are.
    """
    names = [tier.partition("=")[0].strip() for tier in question.tiers]
    if not names:
        raise InputError("--tier: name at least one, as in --tier dram=512GB")
    if len(set(names)) < len(names):
        raise InputError(f"--tier: {', '.join(names)} names a tier twice; add their sizes")
    outwards = [name for name in TIERS if name in names]
    if outwards != [name for name in names if name in TIERS]:
        raise InputError(f"--tier: name the nearest first, as {', '.join(outwards)}")
    if question.drive and all(np.isinf(tier.endurance) for tier in question.built):
        raise InputError(f"--drive: {', '.join(names)} does not wear out; name drives")


def _check_trace(question: Reuse) -> None:
    """Refuse what cannot be asked of a trace.

    Raises:
        InputError: it cannot.
    """
    if question.prefix or question.hit or question.rate:
        raise InputError("--prefix, --hit, --rate: are for no trace; leave them out, or it")
    if question.admission != "all" and question.policy != "victim":
        raise InputError(f"--admission {question.admission}: is for --policy victim alone")
    is_random = question.routing == "random"
    if question.is_replayed and not question.trace:
        alone = "--policy victim: replays the trace itself, and there is its summary alone"
        raise InputError(f"{alone}; take --policy exclusive or inclusive")
    if question.is_replayed and len(question.tiers) > 2:
        most = "--policy victim: replays two tiers at most"
        raise InputError(f"{most}; name two, or take --policy exclusive")
    if is_random and not question.trace:
        raise InputError("--routing random: sends each request; give the trace itself")
    shared = [tier.name for tier in question.built if tier.place.is_shared]
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
    held = scalar(question.built[0].capacity) / question.node.token_bytes
    if prefix > held:
        holds = f"holds {held:,.0f} tokens, and the prefix has {prefix:,.0f}"
        raise InputError(f"--tier {question.tiers[0]}: {holds}; state more")


def fewest_nodes(question: Reuse) -> int:
    """Nodes that compute prompts at most `BUSY` of their time, and bear what is written.

    Without reuse as many as its load needs would do, and of writes as many as bear all of them.
    """

    def does(nodes: int) -> bool:
        on_nodes = replace(question, nodes=nodes)
        hits = hits_of(on_nodes)
        is_borne = bool(np.all(write_loads(on_nodes, hits) <= 1))
        return is_borne and service_of(on_nodes, hits)["load"] <= BUSY

    alone = replace(question, nodes=1)
    hits = hits_of(alone)
    plain = service_of(alone, hits)["plain_load"] / BUSY
    most = int(np.ceil(max(plain, np.max(write_loads(alone, hits)), 1.0)))
    return 1 + bisect_left(range(1, most), True, key=does)


# --- service ------------------------------------------------------------------------------------


def service_of(question: Reuse, hits: Hits) -> dict[str, float]:
    """How each node serves its share of the requests, one prompt after the other.

    Returns:
        `load`, the share of its time that it computes or loads prompts, `plain_load` without reuse,
        the share of prefill time saved, the mean wait and time to the first token, its quantiles
        over the prompts behind a mean wait, and the requests a second of all nodes whose mean is
        the one that is asked for.
    """
    node, weights = question.node, question.weights
    rate = question.rate_of_all / question.nodes
    plain = float(node.prefill(np.maximum(question.prompts, 1.0)) @ weights)
    saved = float(node.compute(np.sum(hits.tokens, axis=1)) @ weights)
    seconds = request_seconds(question, hits)
    mean, square = map(float, moments(question, seconds))
    wait = float(mean_wait(rate, mean, square))
    spare = max(question.ttft - mean, 0.0) if question.ttft else np.nan
    quantiles = {
        name: np.quantile(seconds, share, weights=weights, method="inverted_cdf")
        for name, share in TTFT_QUANTILES.items()
    }
    return {
        "nodes": question.nodes,
        "load": rate * mean,
        "plain_load": rate * plain,
        "prefill_saved": saved / plain,
        "wait_s": wait,
        "ttft_s": wait + mean,
        **{name: wait + float(value) for name, value in quantiles.items()},
        "most_req_s": question.nodes * 2 * spare / (square + 2 * spare * mean),
    }


def mean_ttft(question: Reuse, seconds: Numbers) -> Numbers:
    """Mean time from arrival to the first token: (..., requests) -> (...) [s]."""
    mean, square = moments(question, seconds)
    return np.asarray(mean + mean_wait(question.rate_of_all / question.nodes, mean, square))


def moments(question: Reuse, seconds: Numbers) -> tuple[Numbers, Numbers]:
    """E[S] and E[S^2] over all requests, to the bit alike for one design point and many."""
    weighed = question.weights * seconds
    return np.sum(weighed, axis=-1), np.sum(weighed * seconds, axis=-1)


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


def request_seconds(question: Reuse, hits: Hits) -> Numbers:
    """Seconds of requests from their turn to their first token: (..., requests).

    Either each tier's tokens come back by their best way and the rest of the prompt is computed, or
    all are loaded, layer by layer, while the rest is computed; the faster of both.
    """
    node, prompts, tokens = question.node, question.prompts, hits.tokens
    reached = np.cumsum(tokens, axis=-1)
    known = np.sum(tokens, axis=-1)
    rest = node.prefill(np.maximum(prompts, 1.0)) - node.compute(known)
    fetched, loaded = np.zeros(rest.shape), np.zeros(rest.shape)
    for place, built in enumerate(question.built):
        tier = built.served(hits.written[..., [place]], question.nodes)
        here = tokens[..., place]
        before = reached[..., place] - here
        fetched = fetched + node.fetch(tier, here, before, prompts - known)
        loaded = loaded + np.where(here > 0, node.load(tier, here), 0.0)
    hidden = layerwise(loaded, rest, node.llm.layers)
    return np.minimum(rest + fetched, hidden)


def write_loads(question: Reuse, hits: Hits) -> Numbers:
    """Share of the rate of the path to each tier that writing takes, of all nodes: (..., tiers)."""
    loads = [
        tier.write_load(hits.written[..., [place]], question.nodes)
        for place, tier in enumerate(question.built)
    ]
    return np.concatenate(loads, axis=-1)


def faults_of(question: Reuse, hits: Hits) -> list[str]:
    """Why the nodes do not serve all requests; nothing where they do."""
    reasons: list[str] = []
    loads = write_loads(question, hits)
    for tier, load in zip(question.built, loads, strict=True):
        if load > 1:
            reasons.append(f"{tier.name} is written faster than its path bears")
    seconds = request_seconds(question, hits)
    if question.rate_of_all / question.nodes * float(moments(question, seconds)[0]) >= 1:
        reasons.append("prompts come faster than they are served")
    if reasons and (more := fewest_nodes(question)) > question.nodes:
        reasons[-1] += f"; --nodes {more} would do"
    return reasons


# --- hits ---------------------------------------------------------------------------------------


def hits_of(question: Reuse) -> Hits:
    """What the tiers of all nodes hit; a prefix that is stated lies in the tier that is named."""
    trace = question.trace
    if question.summary is None:
        missed = (1 - question.hit) * question.rate
        written = scalar(missed * question.node.kv_bytes(question.prefix))
        tokens = np.array([[question.prefix], [0.0]])
        return Hits(np.array([question.hit]), np.zeros(1), tokens, np.array([written]))
    if trace and question.routing == "random":
        trace = trace.routed(question.nodes)
        summary = replace(question.summary, curve=trace.summary.curve)
        question = replace(question, summary=summary)
    of_curve = curve_hits(question)
    if trace and question.is_replayed:
        return _replayed(question, trace, of_curve)
    return of_curve


def curve_hits(question: Reuse) -> Hits:
    """What tiers hit by the footprint curve of a trace.

    Exclusive tiers hit together as one cache of all their blocks, inclusive ones as the larger of
    them; victims about as if no block lay in two tiers. Of the blocks that are accessed, those
    enter an exclusive tier which the tiers above do not have, and an inclusive one which none has.
    """
    summary, is_inclusive = question.summary, question.policy == "inclusive"
    assert summary
    block_bytes = question.node.token_bytes * summary.block
    blocks = question.capacities / block_bytes
    larger = np.maximum.accumulate if is_inclusive else np.cumsum
    reach = larger(blocks, axis=-1)
    upto = summary.curve.hit_ratio(reach)
    share = np.diff(upto, axis=-1, prepend=0.0)
    missed = 1 - upto
    entered = (missed if is_inclusive else missed + share) * (blocks > 0)
    return Hits(
        share=share,
        half=summary.curve.half_band(reach),
        tokens=_prefix_tokens(summary, upto),
        written=entered * summary.accesses * block_bytes,
    )


def _prefix_tokens(summary: ReuseSummary, upto: Numbers) -> Numbers:
    """Tokens of each request in each tier: the mean share of its prompt (..., requests, tiers).

    Args:
        upto: share of the blocks in each tier and those before it: (..., tiers).
    """
    of_tokens = np.minimum(upto / summary.token_share, 1.0)
    share = np.diff(of_tokens, axis=-1, prepend=0.0)
    return share[..., np.newaxis, :] * summary.prompts[:, np.newaxis]


def _replayed(question: Reuse, trace: BlockTrace, of_curve: Hits) -> Hits:
    """What two tiers of these sizes [B] hit as the requests of a trace come one by one."""
    summary, count = question.summary, len(question.built)
    assert summary
    block_bytes = question.node.token_bytes * summary.block
    blocks = question.capacities / block_bytes
    first, second = (int(held * trace.share) for held in (*blocks, 0, 0)[:2])
    played = replay(trace.blocks, trace.ends, first, second, question.admission)
    accesses, found = len(trace.blocks), played.hits[:, :count]
    share = np.sum(found, axis=0) / accesses
    entered = np.array([accesses - np.sum(played.hits[:, 0]), played.written])[:count]
    if trace.share < 1:  # of a request too few blocks are known
        tokens = _prefix_tokens(summary, np.cumsum(share))
    else:  # the last block of a prompt is not full
        upto = trace.block * np.cumsum(found, axis=1)
        within = np.minimum(upto, trace.prompt[:, np.newaxis])
        tokens = np.diff(within, axis=1, prepend=0.0)
    written = entered / accesses * summary.accesses * block_bytes
    return replace(of_curve, share=share, tokens=tokens, written=written)


# --- rows and sentences -------------------------------------------------------------------------


def _row(question: Reuse, place: int, hits: Hits) -> dict[str, Any]:
    """What a tier of all nodes does, and how a prefix of its mean hit comes back from it."""
    node, own = question.node, question.own[place]
    tokens, written = hits.tokens[:, place], float(hits.written[place])
    tier = question.built[place].served(written, question.nodes)
    write_load = float(question.built[place].write_load(written, question.nodes))
    is_hit = tokens > 0
    mean = float(np.mean(tokens[is_hit])) if np.any(is_hit) else np.nan
    fetched = mean if write_load < 1 else np.nan
    each = np.where(is_hit, node.kv_bytes(tokens), 0.0)
    read = question.rate_of_all * float(each @ question.weights)
    total, half = float(np.sum(hits.share[: place + 1])), float(hits.half[place])
    capacity = own * scalar(tier.capacity)
    drive = question.drive or scalar(tier.capacity / tier.parts)
    return {
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
        **_ways(node, tier, fetched, float(np.mean(question.prompts))),
        "read_gb_s": read / 1e9,
        "write_gb_s": written / 1e9,
        "reads_per_write": read / written if written else np.nan,
        "write_share": write_load,
        "usd": capacity * scalar(tier.byte_price),
        **_wear(node, tier, mean, own, written, drive),
    }


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
    node: Node, tier: Tier, mean: float, own: float, written: float, drive: float
) -> dict[str, Any]:
    """What writing does to drives [B/s]; nothing to memory that does not wear out."""
    endurance = own * scalar(tier.endurance)
    capacity = own * scalar(tier.capacity)
    wears = 1.0 if np.isfinite(endurance) else np.nan
    a_byte = write_price(capacity * scalar(tier.byte_price), endurance)
    rent = node.hw.gpu.count * node.hw.gpu.maybe("rent", np.nan)
    seconds = scalar(node.compute(mean)) or np.nan
    recomputed = rent * seconds / scalar(node.kv_bytes(mean))
    return {
        "dwpd": wears * drive_writes_a_day(written, capacity),
        "drives_1_dwpd": wears * drive_writes_a_day(written, drive),
        "life_years": wears * years(written, endurance) if written else np.nan,
        "usd_tb_written": wears * 1e12 * a_byte,
        "pays_from_reads": wears * a_byte / recomputed,
    }


def _sentences(
    question: Reuse, hits: Hits, service: dict[str, Any], reasons: list[str]
) -> list[str]:
    """What reuse does to the service, or why there is none."""
    reused = f"{100 * float(np.sum(hits.share)):.1f} % of the blocks are reused"
    busy = f"Prompts keep a node busy for {100 * service['load']:.0f} % of its time"
    less = f"{100 * (1 - service['load'] / service['plain_load']):.0f} % less than without reuse"
    told = [
        f"{reused} on {question.nodes} node{'s' if question.nodes > 1 else ''}.",
        f"{busy}, {less}.",
    ]
    if question.summary:
        told += _doubts(question.summary)
    too_long = float(np.mean(question.prompts > question.node.longest))
    if too_long:
        are = f"{100 * too_long:.3g} % of the prompts are longer than the model takes"
        timed = f"timed at {question.node.longest:,.0f} tokens, and kept whole"
        told.append(f"{are}; they are {timed}.")
    if reasons:
        return [*told, *(f"infeasible: {reason}." for reason in reasons)]
    first = f"The first token comes after {service['ttft_s']:.3g} s in the mean"
    told.append(f"{first}, {service['wait_s']:.2g} s of it waiting.")
    if service["ttft_s"] > question.ttft > 0:
        most = f"{service['most_req_s']:.3g} requests per second would have"
        asked = f"{question.rate_of_all:.3g} requests per second have no mean TTFT"
        told.append(f"{asked} of {question.ttft:g} s here; {most}.")
    return told


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
