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

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.kv_tiers import (
    TIERS,
    Tier,
    crossover,
    drive_writes_a_day,
    layerwise,
    write_price,
    years,
)
from nearkv.costmodel.model.workload import ENDLESS_TOKENS, Arrivals
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.evaluate.kv_policies import (
    ADMISSIONS,
    REUSE_POLICIES,
    BlockHits,
    is_stack,
    tier_hits,
)
from nearkv.sweeps.explore.kv_node import Node
from nearkv.sweeps.study.block_traces import BlockTrace
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.traces import Trace
from nearkv.sweeps.tables.table import Rows

ROUTINGS = ("prefix", "random")
"""Which node a request goes to: the one with its longest prefix, or any."""
BUSY = 0.8
"""Share of its time that a node computes prompts, at most, where the number of nodes is chosen."""
MOST_RATE = 1e9
"""Requests a second of the largest question."""
TTFT_QUANTILES = {"ttft_p50_s": 0.5, "ttft_p90_s": 0.9, "ttft_p99_s": 0.99}
DRIFT_BAND = 1.5
"""Half a band over the drift: what comes may differ from the second half by as much again as that
does from the first, so from their mean by one and a half times."""
STATIONARY = 0.1
"""Largest drift of the hits of a trace that is called stationary [1]."""
CLOSED_LOOPS = 8
"""Turns after which the rate of a closed loop no longer changes, nor what is written at it."""
LOOP_TOLERANCE = 1e-6
"""Change of that rate by a turn that counts as none [1]."""
RATE_HALVINGS = 20
"""Of the rates between which the one lies at which a mean TTFT is met: to a part in a million."""


@dataclass(frozen=True)
class Reuse:
    """Question about a trace of prompts, or about a prefix and the share of requests that find it.

    Attributes:
        node: a server.
        tiers: as `dram=512GB` or `ssd=8x3.84TB`, the nearest first.
        trace: the requests, where there are some.
        prefix, hit, rate: tokens, how often they are found, requests a second; without a trace.
        output: tokens of an answer, without a trace.
        users: that ask again when they are answered, in place of a rate; 0 for a rate.
        policy, admission, routing: of `REUSE_POLICIES`, `ADMISSIONS`, `ROUTINGS`.
        nodes: servers, each with tiers of its own; 0 for the fewest below `BUSY`.
        ttft: mean of requests at the rate that is asked for; 0 where none is [s].
        drive: capacity of one drive, in which wear is counted; 0 for those of the tier [B].
        built: the tiers of a node, where they are not those that `tiers` name.
        served_rate: at which users are answered, once it is known [1/s].
    """

    node: Node
    tiers: Sequence[str]
    trace: BlockTrace | None = None
    prefix: float = 0.0
    hit: float = 0.0
    rate: float = 0.0
    output: float = 1.0
    users: int = 0
    policy: str = "exclusive"
    admission: str = "all"
    routing: str = "prefix"
    nodes: int = 0
    ttft: float = 0.0
    drive: float = 0.0
    built: tuple[Tier, ...] = ()
    served_rate: float = 0.0

    @cached_property
    def of_node(self) -> tuple[Tier, ...]:
        """The tiers of a node, the nearest first."""
        return self.built or tuple(map(self.node.tier, self.tiers))

    @cached_property
    def own(self) -> Numbers:
        """Number of each tier, one of each node or one that all share: (tiers,)."""
        return np.array(
            [1 if each.place.is_shared else self.nodes for each in self.of_node]
        )

    @property
    def capacities(self) -> Numbers:
        """Of each tier of all nodes: (tiers,) [B]."""
        of_node = [scalar(each.capacity) for each in self.of_node]
        capacities: Numbers = self.own * np.array(of_node)
        return capacities

    @property
    def rate_of_all(self) -> float:
        """Requests of all nodes, of users none before they are served [1/s]."""
        if self.served_rate or self.users:
            return self.served_rate
        return self.trace.rate if self.trace else self.rate

    @cached_property
    def block_bytes(self) -> Numbers:
        """A block as each tier keeps it: (tiers,) [B]."""
        return np.array([self.node.block_bytes(each.name) for each in self.of_node])


@dataclass(frozen=True)
class Hits:
    """Service of all requests by the tiers.

    Attributes:
        share: of the blocks that each tier has: (tiers,).
        half: how far hits of each tier and those before it may be off in what comes: (tiers,).
        prompts, outputs: tokens of each request, and of its answer: (requests,).
        tokens: of each request in each tier: (requests, tiers).
        weights: share of all requests that each stands for: (requests,).
        written: to each tier for a request, on average: (tiers,) [B].
        are_known: whether each request's tokens are known, or their mean share alone.
    """

    share: Numbers
    half: Numbers
    prompts: Numbers
    outputs: Numbers
    tokens: Numbers
    weights: Numbers
    written: Numbers
    are_known: bool = True

    @property
    def known(self) -> Numbers:
        """Tokens of each request that some tier has: (requests,)."""
        known: Numbers = np.sum(self.tokens, axis=1)
        return known


@dataclass(frozen=True)
class Service:
    """Service of each node for its share of the requests.

    Attributes:
        rate: requests of all nodes [1/s].
        seconds: of each request from its turn to its first token: (requests,) [s].
        load: share of its time that a node computes or loads prompts [1].
        ttft: from arrival to first token, on average; infinite where requests come too fast [s].
        tpot: for each further token, on average; not a number where there are none [s].
    """

    rate: float
    seconds: Numbers
    load: float
    ttft: float
    tpot: float = np.nan


def evaluate_reuse(question: Reuse) -> tuple[Rows, list[str]]:
    """Say what each tier hits, how its blocks come back soonest, what that saves and wears.

    Returns:
        A row a tier, of all nodes together; then sentences about the service. Where wear is counted
        in drives of a size, the rows come again with as many of these as bear what is written.

    Raises:
        InputError: a tier, a share or a length that cannot be.
    """
    check(question)
    served = replace(question, nodes=question.nodes or fewest_nodes(question))
    hits = hits_of(served)
    answered = serve(served, hits)
    if question.users:
        served = replace(served, served_rate=answered.rate)
    reasons = faults_of(served, hits, answered)
    status = {"status": "infeasible" if reasons else "ok"}
    service = status | _service_columns(served, hits, answered)
    if reasons:
        service |= dict.fromkeys(("wait_s", "ttft_s", *TTFT_QUANTILES), np.inf)
    rows = [_row(served, place, hits) | service for place in range(len(served.of_node))]
    sentences = _sentences(served, hits, service, reasons)
    worn = [row for row in rows if question.drive and row["drives_1_dwpd"] > 0]
    if worn:
        more, _ = evaluate_reuse(replace(served, built=_of_drives(served, worn), drive=0.0))
        rows += [row | {"sized_by": "wear"} for row in more]
    return rows, sentences


def _of_drives(question: Reuse, worn: Rows) -> tuple[Tier, ...]:
    """The tiers, those of drives with as many as bear what is written at one drive write a day."""
    drives = {row["tier"]: row["drives_1_dwpd"] for row in worn}
    tiers = []
    for built, own in zip(question.of_node, question.own, strict=True):
        count = np.ceil(drives.get(built.name, 0.0) / own)
        capacity = count * question.drive
        tiers.append(question.node.sized(built.name, capacity, count) if count else built)
    return tuple(tiers)


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
    if question.users and question.ttft:
        raise InputError("--slo asks for a rate, which --users sets; leave out one of them")
    if question.trace is None:
        _check_prefix(question)
    else:
        _check_trace(question, question.trace)
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
    if question.drive and all(np.isinf(tier.endurance) for tier in question.of_node):
        raise InputError(f"--drive: {', '.join(names)} does not wear out; name drives")


def _check_trace(question: Reuse, trace: BlockTrace) -> None:
    """Refuse what cannot be asked of a trace.

    Raises:
        InputError: it cannot.
    """
    if question.prefix or question.hit or question.rate:
        raise InputError(
            "--prefix, --hit and --rate replace --trace; give one or the other"
        )
    if not len(trace.prompts.blocks):
        lengths = f"{trace.name}: has lengths alone, and reuse needs hash_ids"
        raise InputError(f"{lengths}; nearkv compare --trace takes it")
    shared = [tier.name for tier in question.of_node if tier.place.is_shared]
    if question.routing == "random" and shared:
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
    if not (prefix > 0 and (question.users or 0 < question.rate < np.inf)):
        raise InputError("give --trace FILE, or --prefix, --hit and --rate of the requests")
    if len(question.tiers) > 1:
        raise InputError("--tier: without a trace the prefix lies in one tier; name one")
    if (question.admission, question.routing) != ("all", "prefix"):
        raise InputError("--admission, --routing: need a trace to replay")
    if prefix > longest:
        takes = f"the model takes {longest:,.0f} tokens; choose another model"
        raise InputError(f"--prefix: a prompt has {prefix:,.0f} tokens, {takes}")
    (tier,) = question.of_node
    if question.node.kept_bytes(prefix, tier.name) > scalar(tier.capacity):
        held = scalar(tier.capacity) / question.node.token_bytes(tier.name)
        holds = f"holds {held:,.0f} tokens, and the prefix has {prefix:,.0f}"
        raise InputError(f"--tier {question.tiers[0]}: {holds}; state more")


def fewest_nodes(question: Reuse) -> int:
    """Nodes that compute prompts at most `BUSY` of their time, and bear what is written.

    Without reuse as many as its load needs would do, and of writes as many as bear all of them.
    """
    if question.users:
        return 1

    def does(nodes: int) -> bool:
        on_nodes = replace(question, nodes=nodes)
        hits = hits_of(on_nodes)
        is_borne = bool(np.all(write_loads(on_nodes, hits) <= 1))
        return is_borne and serve(on_nodes, hits).load <= BUSY

    alone = replace(question, nodes=1)
    hits = hits_of(alone)
    plain = plain_load(alone, hits) / BUSY
    most = int(np.ceil(max(plain, np.max(write_loads(alone, hits)), 1.0)))
    return 1 + bisect_left(range(1, most), True, key=does)


# --- hits ---------------------------------------------------------------------------------------


def is_replayed(question: Reuse) -> bool:
    """True if hits are found by a replay, and are not shown to rise with the sizes of tiers."""
    has_states = question.node.snapshot > 0
    of_stack = is_stack(question.policy, question.admission, len(question.of_node))
    return question.trace is not None and (has_states or not of_stack)


def hits_of(question: Reuse) -> Hits:
    """What the tiers of all nodes hit; a prefix that is stated lies in the tier that is named."""
    trace, node = question.trace, question.node
    if trace is None:
        (tier,) = question.of_node
        missed = 1 - question.hit
        written = missed * scalar(node.kept_bytes(question.prefix, tier.name))
        return Hits(
            share=np.array([question.hit]),
            half=np.zeros(1),
            prompts=np.full(2, question.prefix),
            outputs=np.full(2, question.output),
            tokens=np.array([[question.prefix], [0.0]]),
            weights=np.array([question.hit, missed]),
            written=np.array([written]),
        )
    if question.routing == "random":
        trace = trace.routed(question.nodes)
    held = trace.share * question.capacities / question.block_bytes
    if node.snapshot:
        trace = trace.with_snapshots(node.snapshot)
    found = tier_hits(trace.prompts, held.tolist(), question.policy, question.admission)
    each = trace.share * len(trace.prompt)
    return Hits(
        share=np.sum(found.found, axis=0) / len(trace.prompts.blocks),
        half=DRIFT_BAND * _drift(trace, found),
        prompts=trace.prompt,
        outputs=np.maximum(trace.output, 1.0),
        tokens=_tokens(trace, found),
        weights=np.full(len(trace.prompt), 1 / len(trace.prompt)),
        written=found.written / each * question.block_bytes,
        are_known=trace.share == 1,
    )


def _drift(trace: BlockTrace, found: BlockHits) -> Numbers:
    """Distance of the hits of both halves of a trace, up to each tier: (tiers,)."""
    upto = np.cumsum(found.found, axis=1)
    lengths = trace.prompts.ends - trace.prompts.starts
    half = int(np.searchsorted(trace.prompts.ends, len(trace.prompts.blocks) / 2)) + 1
    parts = (slice(0, half), slice(half, None))
    first, second = (
        np.sum(upto[part], axis=0) / max(np.sum(lengths[part]), 1) for part in parts
    )
    apart: Numbers = np.abs(second - first)
    return apart


def _tokens(trace: BlockTrace, found: BlockHits) -> Numbers:
    """Tokens of each request in each tier: (requests, tiers)."""
    upto = np.cumsum(found.found, axis=1)
    prompts = trace.prompt[:, np.newaxis]
    if trace.share == 1:  # the last block of a prompt is not full
        within = np.minimum(trace.block * upto, prompts)
    else:  # of a request too few blocks are known, so each has the mean share
        share = np.sum(upto, axis=0) / len(trace.prompts.blocks)
        of_tokens = trace.block * trace.accesses / np.sum(trace.prompt)
        within = np.minimum(share * of_tokens, 1.0) * prompts
    return np.diff(within, axis=1, prepend=0.0)


# --- service ------------------------------------------------------------------------------------


def serve(question: Reuse, hits: Hits, rate: float = 0.0) -> Service:
    """Service of requests by the nodes, each for the time that is left of its prompt.

    Args:
        question, hits: what is asked, and what the tiers do.
        rate: of all nodes, the one that is asked of where it is 0 [1/s].
    """
    if question.users and not rate:
        return _closed_loop(question, hits)
    rate = rate or question.rate_of_all
    seconds = request_seconds(question, hits, rate)
    alone = _queued(rate, question.nodes, seconds, hits.weights)
    if np.max(hits.outputs) <= 1 or alone.load >= 1:
        return alone
    return _beside_decoding(question, hits, alone, Arrivals(rate=rate / question.nodes))


def _closed_loop(question: Reuse, hits: Hits) -> Service:
    """Users that ask again when they are answered: what is written depends on how often they do."""
    rate = 0.0
    users = Arrivals(users=question.users / question.nodes)
    for _ in range(CLOSED_LOOPS):
        seconds = request_seconds(question, hits, rate)
        alone = _queued(rate, question.nodes, seconds, hits.weights)
        service = _beside_decoding(question, hits, alone, users)
        if abs(service.rate - rate) <= LOOP_TOLERANCE * rate:
            break
        rate = service.rate
    return service


def _beside_decoding(
    question: Reuse, hits: Hits, alone: Service, arrivals: Arrivals
) -> Service:
    """Service of prompts that take the seconds of `alone`, by the serving model.

    A request of which a part is found computes as a prompt that takes as long, and then attends to
    all of its tokens.
    """
    node = question.node
    computed = np.minimum(node.equivalent(alone.seconds), hits.prompts)
    trace = Trace("", hits.prompts, hits.outputs, known=hits.prompts - computed)
    batch = ENDLESS_TOKENS if arrivals.users is None else arrivals.users
    distinct = _distinct(question)
    work = replace(trace.workload, batch=batch, arrivals=arrivals, distinct=distinct)
    estimate = node.serve(work)
    ttft, tpot = scalar(estimate.latency.ttft), scalar(estimate.latency.tpot)
    if not np.all(estimate.fits.ok):
        return replace(alone, ttft=np.inf)
    rate = alone.rate
    if question.users:
        steps = float(np.sum(hits.weights * hits.outputs)) - 1
        rate = question.users / (ttft + steps * tpot)
    mean = float(np.sum(hits.weights * alone.seconds))
    return Service(rate, alone.seconds, rate / question.nodes * mean, ttft, tpot)


def _distinct(question: Reuse) -> float:
    """Tokens that the requests hold which fill a node's HBM together, over the sum of theirs [1].

    With a cache in HBM, requests that run keep a prefix that they share once; each has its answer.
    """
    trace, node, nodes = question.trace, question.node, question.nodes
    if trace is None or all(tier.name != "hbm" for tier in question.of_node):
        return 1.0
    prompt, answer = float(np.mean(trace.prompt)), float(np.mean(trace.output))
    running = np.arange(1, len(trace.prompts.ends) // nodes + 1)
    prompts = trace.prompts.footprint[nodes * running - 1] / nodes
    of_block = np.sum(trace.prompt) / len(trace.prompts.blocks)
    held = of_block * prompts + running * answer / 2
    most = int(np.searchsorted(held, node.free / node.token_bytes("hbm")))
    filling = min(most, len(running) - 1)
    return float(held[filling] / (running[filling] * (prompt + answer / 2)))


def _queued(rate: float, nodes: int, seconds: Numbers, weights: Numbers) -> Service:
    """The queue of each node before prompts of a duration, one after the other.

    The mean wait is l E[S^2] / (2 (1 - l E[S])) for Poisson arrivals (Pollaczek and Khinchine).
    """
    mean, square = float(np.sum(weights * seconds)), float(np.sum(weights * seconds**2))
    load = rate / nodes * mean
    wait = rate / nodes * square / (2 * (1 - load)) if load < 1 else np.inf
    return Service(rate, seconds, load, wait + mean)


def most_rate(question: Reuse, hits: Hits) -> float:
    """Requests a second whose mean TTFT is the one that is asked for; 0 where none is so fast."""

    def meets(rate: float) -> bool:
        is_borne = np.all(write_loads(question, hits, rate) <= 1)
        return bool(is_borne) and serve(question, hits, rate).ttft <= question.ttft

    mean = float(request_seconds(question, hits, 0.0) @ hits.weights)
    low, high = 0.0, question.nodes / mean
    for _ in range(RATE_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def plain_load(question: Reuse, hits: Hits) -> float:
    """Share of its time that a node would compute prompts without reuse [1]."""
    plain = question.node.prefill(np.maximum(hits.prompts, 1.0)) @ hits.weights
    return question.rate_of_all / question.nodes * float(plain)


def least_ttft(question: Reuse) -> float:
    """Mean TTFT if all blocks that were asked for before were found and loaded in no time [s]."""
    assert question.trace, "a stated prefix is found as often as is stated"
    first = question.of_node[0]
    unbounded = replace(
        question,
        policy="exclusive",
        admission="all",
        built=(replace(first, capacity=question.trace.accesses * question.block_bytes[0]),),
    )
    return free_ttft(unbounded, hits_of(unbounded))


def free_ttft(question: Reuse, hits: Hits) -> float:
    """Mean TTFT if all that is hit were loaded in no time: no smaller tiers are faster [s]."""
    node = question.node
    rest = node.prefill(np.maximum(hits.prompts, 1.0)) - node.compute(hits.known)
    return _queued(question.rate_of_all, question.nodes, rest, hits.weights).ttft


def request_seconds(question: Reuse, hits: Hits, rate: float) -> Numbers:
    """Seconds of requests from their turn to their first token: (requests,).

    Either each tier's tokens come back by their best way and the rest of the prompt is computed, or
    all are loaded, layer by layer, while the rest is computed; the faster of both.
    """
    node, prompts, tokens = question.node, hits.prompts, hits.tokens
    rest = node.prefill(np.maximum(prompts, 1.0)) - node.compute(hits.known)
    fetched, loaded = np.zeros(len(rest)), np.zeros(len(rest))
    before = np.cumsum(tokens, axis=1) - tokens
    for place, built in enumerate(question.of_node):
        tier = built.served(rate * hits.written[place], question.nodes)
        hit = tokens[:, place] > 0
        here, ahead = tokens[hit, place], before[hit, place]
        fetched[hit] += node.fetch(tier, here, ahead, (prompts - hits.known)[hit])
        loaded[hit] += node.load(tier, here)
    return np.minimum(rest + fetched, layerwise(loaded, rest, node.llm.layers))


def write_loads(question: Reuse, hits: Hits, rate: float = 0.0) -> Numbers:
    """Share of the rate of the path to each tier that writing takes, of all nodes: (tiers,)."""
    written = (rate or question.rate_of_all) * hits.written
    pairs = zip(question.of_node, written, strict=True)
    return np.array([scalar(tier.write_load(each, question.nodes)) for tier, each in pairs])


def faults_of(question: Reuse, hits: Hits, service: Service) -> list[str]:
    """Why the nodes do not serve all requests; nothing where they do."""
    reasons: list[str] = []
    loads = write_loads(question, hits)
    for tier, load in zip(question.of_node, loads, strict=True):
        if load > 1:
            reasons.append(f"{tier.name} is written faster than its path bears")
    if service.load >= 1:
        reasons.append("prompts come faster than they are served")
    if reasons and (more := fewest_nodes(question)) > question.nodes:
        reasons[-1] += f"; --nodes {more} would do"
    return reasons


# --- rows and sentences -------------------------------------------------------------------------


def _service_columns(question: Reuse, hits: Hits, service: Service) -> dict[str, float]:
    """Columns of the service: load, share of prefill saved, wait, TTFT and its quantiles."""
    node = question.node
    plain = float(node.prefill(np.maximum(hits.prompts, 1.0)) @ hits.weights)
    saved = float(node.compute(hits.known) @ hits.weights)
    wait = service.ttft - float(np.sum(hits.weights * service.seconds))
    tokens = float(np.sum(hits.weights * (hits.prompts + hits.outputs)))
    quantiles = dict.fromkeys(TTFT_QUANTILES, np.nan)
    if hits.are_known:
        quantiles = {
            name: wait + _quantile(service.seconds, hits.weights, share)
            for name, share in TTFT_QUANTILES.items()
        }
    return {
        "nodes": question.nodes,
        "load": service.load,
        "plain_load": plain_load(question, hits),
        "prefill_saved": saved / plain,
        "wait_s": wait,
        "ttft_s": service.ttft,
        "tpot_ms": 1e3 * service.tpot,
        "req_s": service.rate,
        "total_tok_s": service.rate * tokens,
        **quantiles,
        "most_req_s": most_rate(question, hits) if question.ttft else np.nan,
    }


def _quantile(values: Numbers, weights: Numbers, share: float) -> float:
    """A quantile of weighted values."""
    found = np.quantile(values, share, weights=weights, method="inverted_cdf")
    return float(found)


def _row(question: Reuse, place: int, hits: Hits) -> dict[str, Any]:
    """What a tier of all nodes does, and how a prefix of its mean hit comes back from it."""
    node, own = question.node, question.own[place]
    tokens = hits.tokens[:, place]
    written = question.rate_of_all * float(hits.written[place])
    built = question.of_node[place]
    tier = built.served(written, question.nodes)
    write_load = scalar(built.write_load(written, question.nodes))
    is_hit = tokens > 0
    of_hits = hits.weights * is_hit
    found = float(np.sum(of_hits))
    mean = float(tokens @ of_hits) / found if found else np.nan
    fetched = mean if write_load < 1 else np.nan
    each = np.where(is_hit, node.kv_bytes(tokens, tier.name), 0.0)
    asked = question.rate_of_all * float(each @ hits.weights)
    total, half = float(np.sum(hits.share[: place + 1])), float(hits.half[place])
    capacity = own * scalar(tier.capacity)
    drive = question.drive or scalar(tier.capacity / tier.parts)
    prompt = float(hits.prompts @ hits.weights)
    ways = _ways(node, tier, fetched, prompt)
    return {
        "tier": tier.name,
        "policy": question.policy,
        "admission": question.admission,
        "sized_by": "stated",
        "capacity_gb": capacity / 1e9,
        "capacity_tok": prompt * capacity / scalar(node.kept_bytes(prompt, tier.name)),
        "hit_share": hits.share[place],
        "total_share": total,
        "total_low": max(total - half, 0.0),
        "total_high": min(total + half, 1.0),
        "prefix_tok": mean,
        **ways,
        "read_gb_s": scalar(node.kv_bytes(mean, tier.name)) / 1e6 / ways["load_ms"],
        "asked_gb_s": asked / 1e9,
        "write_gb_s": written / 1e9,
        "reads_per_write": asked / written if written else np.nan,
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
    best = min(known, key=known.__getitem__, default="")
    pays_from = crossover(node.compute, lambda p: node.load(tier, p), node.longest)
    return {
        **{f"{way}_ms": 1e3 * value for way, value in every.items()},
        "best": best,
        "prompt_ms": 1e3 * (rest + known[best]) if best else np.nan,
        "load_pays_from_tok": pays_from,
        "near_pays_to_tok": every["load"] / near,
    }


def _wear(
    node: Node, tier: Tier, mean: float, own: float, written: float, drive: float
) -> dict[str, Any]:
    """Wear of drives by what is written [B/s]; nothing to memory that does not wear out."""
    endurance = own * scalar(tier.endurance)
    capacity = own * scalar(tier.capacity)
    wears = 1.0 if np.isfinite(endurance) else np.nan
    a_byte = write_price(capacity * scalar(tier.byte_price), endurance)
    rent = node.hw.gpu.count * node.hw.gpu.maybe("rent", np.nan)
    seconds = scalar(node.compute(mean)) or np.nan
    recomputed = rent * seconds / scalar(node.kept_bytes(mean, tier.name))
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
    """Effect of reuse on the service, or why there is none."""
    told = [*_of_trace(question.trace)] if question.trace else []
    reused = f"{100 * float(np.sum(hits.share)):.1f} % of the blocks are reused"
    busy = f"Prompts keep a node busy for {100 * service['load']:.0f} % of its time"
    change = 100 * (1 - service["load"] / service["plain_load"])
    less = f"{abs(change):.0f} % {'less' if change > -0.5 else 'more'} than without reuse"
    told += [
        f"{reused} on {question.nodes} node{'s' if question.nodes > 1 else ''}.",
        f"{busy}, {less}.",
    ]
    if question.trace:
        told += _doubts(question.trace, hits)
    too_long = float((hits.prompts > question.node.longest) @ hits.weights)
    if too_long:
        are = f"{100 * too_long:.3g} % of the prompts are longer than the model takes"
        timed = f"timed at {question.node.longest:,.0f} tokens, and kept whole"
        told.append(f"{are}; they are {timed}.")
    if reasons:
        return [*told, *(f"infeasible: {reason}." for reason in reasons)]
    first = f"The first token comes after {service['ttft_s']:.3g} s in the mean"
    told.append(f"{first}, {service['wait_s']:.2g} s of it waiting.")
    if service["ttft_s"] > question.ttft > 0:
        told.append(_missed(question, service["most_req_s"]))
    return told


def _missed(question: Reuse, most: float) -> str:
    """Why requests have no mean TTFT as asked for, and what would."""
    asked = f"{question.rate_of_all:.3g} requests per second"
    if question.trace and (least := least_ttft(question)) > question.ttft:
        none = f"No cache of any size gives {asked} a mean TTFT of {question.ttft:g} s here"
        return f"{none}: {least:.3g} s if all that recurs were found."
    would = f"{most:.3g} requests per second would have"
    return f"{asked} have no mean TTFT of {question.ttft:g} s here; {would}."


def _of_trace(trace: BlockTrace) -> list[str]:
    """Summary of what was read of a trace."""
    requests = f"{len(trace.prompt):,} requests in {trace.span:,.4g} s"
    read = f"{requests}, {trace.rate:.3g} per second; times were read in {trace.unit}"
    return [f"{trace.name}: {read}, blocks of {trace.block} tokens."]


def _doubts(trace: BlockTrace, hits: Hits) -> list[str]:
    """Reasons not to take a trace for what comes."""
    told, drift = [], np.max(hits.half) / DRIFT_BAND
    if drift > STATIONARY:
        apart = f"its halves differ by up to {100 * drift:.0f} points in hits"
        told.append(f"{trace.name} is not stationary: {apart}; it is no forecast.")
    if trace.share < 1:
        error = 100 * trace.sampling_error
        sampled = "The hits are those of a sample of the blocks"
        told.append(f"{sampled}, with a standard error of {error:.2g} points.")
    return told
