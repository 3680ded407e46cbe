"""Service of requests by nodes whose tiers keep blocks of KV: hits, times to first tokens, load.

A node serves prompts one after the other. The prefix that lies in a tier is loaded, or computed
anew, or its end is loaded while its beginning is computed; the rest of the prompt is computed.
Requests go to the node that has the longest prefix, so that nodes' own tiers hold different blocks,
or to any.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Integers, Numbers
from nearkv.costmodel.mechanisms.kv_tiers import layerwise
from nearkv.costmodel.model.workload import ENDLESS_TOKENS, Arrivals
from nearkv.sweeps.evaluate.kv_policies import is_stack, tier_hits
from nearkv.sweeps.explore.reuse.question import ReuseQuestion
from nearkv.sweeps.explore.reuse.ways import fetch, load_seconds
from nearkv.sweeps.study.block_traces import BlockTrace
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.traces import Trace

BUSY = 0.8
"""Share of its time that a node computes prompts, at most, where the number of nodes is chosen."""
DRIFT_BAND = 1.5
"""Half a band over the drift: what comes may differ from the second half by as much again as that
does from the first, so from their mean by one and a half times."""
CLOSED_LOOPS = 8
"""Turns after which the rate of a closed loop no longer changes, nor what is written at it."""
LOOP_TOLERANCE = 1e-6
"""Change of that rate by a turn that counts as none [1]."""
RATE_HALVINGS = 20
"""Halvings of the range of rates in which a mean TTFT is met: to a part in a million."""


@dataclass(frozen=True)
class Hits:
    """Service of all requests by the tiers.

    Attributes:
        share: of the blocks that each tier has: (tiers,).
        margin: error of the hits of each tier and those before it in what comes: (tiers,).
        prompts, outputs: tokens of each request, and of its answer: (requests,).
        tokens: of each request in each tier: (requests, tiers).
        weights: share of all requests that each stands for: (requests,).
        written: to each tier for a request, on average: (tiers,) [B].
        is_whole: whether all blocks were replayed, not a sample, which tells mean shares alone.
    """

    share: Numbers
    margin: Numbers
    prompts: Numbers
    outputs: Numbers
    tokens: Numbers
    weights: Numbers
    written: Numbers
    is_whole: bool = True

    @property
    def cached(self) -> Numbers:
        """Tokens of each request that some tier has: (requests,)."""
        cached: Numbers = np.sum(self.tokens, axis=1)
        return cached

    def mean(self, values: Numbers | Booleans) -> float:
        """The mean of a number of each request."""
        return float(values @ self.weights)


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


# --- hits ---------------------------------------------------------------------------------------


def is_replayed(question: ReuseQuestion) -> bool:
    """True if hits are found by a replay, and are not shown to rise with the sizes of tiers."""
    has_states = question.node.snapshot > 0
    of_stack = is_stack(question.policy, question.admission, len(question.tiers))
    return question.trace is not None and (has_states or not of_stack)


def hits_of(question: ReuseQuestion) -> Hits:
    """Find the hits of all nodes' tiers; a prefix that is stated lies in the tier that is named."""
    trace, node = question.trace, question.node
    if trace is None:
        (tier,) = question.tiers
        missed = 1 - question.hit
        written = missed * scalar(node.kept_bytes(question.prefix, tier.name))
        return Hits(
            share=np.array([question.hit]),
            margin=np.zeros(1),
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
    upto = np.cumsum(found.found, axis=1)
    each = trace.share * len(trace.prompt)
    return Hits(
        share=np.sum(found.found, axis=0) / len(trace.prompts.blocks),
        margin=DRIFT_BAND * _drift(trace, upto),
        prompts=trace.prompt,
        outputs=np.maximum(trace.output, 1.0),
        tokens=_tokens(trace, upto),
        weights=np.full(len(trace.prompt), 1 / len(trace.prompt)),
        written=found.written / each * question.block_bytes,
        is_whole=trace.share == 1,
    )


def _drift(trace: BlockTrace, upto: Integers) -> Numbers:
    """Distance of the hits of both halves of a trace, up to each tier: (tiers,)."""
    lengths = trace.prompts.ends - trace.prompts.starts
    half = int(np.searchsorted(trace.prompts.ends, len(trace.prompts.blocks) / 2)) + 1
    first, second = (
        np.sum(upto[part], axis=0) / max(np.sum(lengths[part]), 1)
        for part in (slice(half), slice(half, None))
    )
    distance: Numbers = np.abs(second - first)
    return distance


def _tokens(trace: BlockTrace, upto: Integers) -> Numbers:
    """Tokens of each request in each tier: (requests, tiers)."""
    prompts = trace.prompt[:, np.newaxis]
    if trace.share == 1:  # the last block of a prompt is not full
        within = np.minimum(trace.block * upto, prompts)
    else:  # of a request too few blocks are known, so each has the mean share
        share = np.sum(upto, axis=0) / len(trace.prompts.blocks)
        of_tokens = trace.block * trace.accesses / np.sum(trace.prompt)
        within = np.minimum(share * of_tokens, 1.0) * prompts
    return np.diff(within, axis=1, prepend=0.0)


# --- service ------------------------------------------------------------------------------------


def serve(question: ReuseQuestion, hits: Hits, rate: float = 0.0) -> Service:
    """Service of requests by the nodes; a prompt takes the time of what is left to compute or load.

    Args:
        question: about the nodes.
        hits: of their tiers.
        rate: of all nodes; that of the question where it is 0 [1/s].
    """
    if question.users and not rate:
        return _closed_loop(question, hits)
    rate = rate or question.rate_of_all
    alone = _queued(question, hits, rate, request_seconds(question, hits, rate))
    if np.max(hits.outputs) <= 1 or alone.load >= 1:
        return alone
    return _beside_decoding(question, hits, alone, Arrivals(rate=rate / question.nodes))


def _closed_loop(question: ReuseQuestion, hits: Hits) -> Service:
    """Service of users that ask again when answered; their rate decides what is written."""
    rate = 0.0
    users = Arrivals(users=question.users / question.nodes)
    for _ in range(CLOSED_LOOPS):
        alone = _queued(question, hits, rate, request_seconds(question, hits, rate))
        service = _beside_decoding(question, hits, alone, users)
        if abs(service.rate - rate) <= LOOP_TOLERANCE * rate:
            break
        rate = service.rate
    return service


def _beside_decoding(
    question: ReuseQuestion, hits: Hits, alone: Service, arrivals: Arrivals
) -> Service:
    """Service of prompts that take the seconds of `alone`, by the serving model.

    A request of which a part is found computes as a prompt that takes as long, and then attends to
    all of its tokens.
    """
    node = question.node
    computed = np.minimum(node.equivalent(alone.seconds), hits.prompts)
    known = hits.prompts - computed
    trace = Trace("", hits.prompts, hits.outputs, known=known, weights=hits.weights)
    batch = ENDLESS_TOKENS if arrivals.users is None else arrivals.users
    distinct = _distinct(question)
    work = replace(trace.workload, batch=batch, arrivals=arrivals, distinct=distinct)
    estimate = node.serve(work)
    ttft, tpot = scalar(estimate.latency.ttft), scalar(estimate.latency.tpot)
    if not np.all(estimate.fits.ok):
        return replace(alone, ttft=np.inf)
    rate = alone.rate
    if question.users:
        steps = hits.mean(hits.outputs) - 1
        rate = question.users / (ttft + steps * tpot)
    load = rate / question.nodes * hits.mean(alone.seconds)
    return Service(rate, alone.seconds, load, ttft, tpot)


def _distinct(question: ReuseQuestion) -> float:
    """Tokens that the requests hold which fill a node's HBM together, over the sum of theirs [1].

    With a cache in HBM, requests that run keep a prefix that they share once; each has its answer.
    """
    trace, node, nodes = question.trace, question.node, question.nodes
    if trace is None or all(tier.name != "hbm" for tier in question.tiers):
        return 1.0
    prompt, answer = float(np.mean(trace.prompt)), float(np.mean(trace.output))
    running = np.arange(1, len(trace.prompts.ends) // nodes + 1)
    prompts = trace.prompts.footprint[nodes * running - 1] / nodes
    of_block = np.sum(trace.prompt) / len(trace.prompts.blocks)
    held = of_block * prompts + running * answer / 2
    most = int(np.searchsorted(held, node.free / node.token_bytes("hbm")))
    filling = min(most, len(running) - 1)
    return float(held[filling] / (running[filling] * (prompt + answer / 2)))


def _queued(question: ReuseQuestion, hits: Hits, rate: float, seconds: Numbers) -> Service:
    """The queue of each node before prompts of a duration, one after the other.

    The mean wait is l E[S^2] / (2 (1 - l E[S])) for Poisson arrivals (Pollaczek and Khinchine).
    """
    arriving, mean = rate / question.nodes, hits.mean(seconds)
    load = arriving * mean
    wait = arriving * hits.mean(seconds**2) / (2 * (1 - load)) if load < 1 else np.inf
    return Service(rate, seconds, load, wait + mean)


def most_rate(question: ReuseQuestion, hits: Hits) -> float:
    """Requests a second whose mean TTFT is the one that is asked for; 0 where none is so fast."""

    def meets(rate: float) -> bool:
        is_borne = bears_writes(question, hits, rate)
        return is_borne and serve(question, hits, rate).ttft <= question.ttft

    low, high = 0.0, question.nodes / hits.mean(request_seconds(question, hits, 0.0))
    for _ in range(RATE_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def plain_load(question: ReuseQuestion, hits: Hits) -> float:
    """Share of its time that a node would compute prompts without reuse [1]."""
    plain = hits.mean(question.node.prefill(hits.prompts))
    return question.rate_of_all / question.nodes * plain


def least_ttft(question: ReuseQuestion) -> float:
    """Mean TTFT if all blocks that were asked for before were found and loaded in no time [s]."""
    assert question.trace, "a stated prefix is found as often as is stated"
    capacity = question.trace.accesses * question.block_bytes[0]
    endless = replace(question.tiers[0], capacity=capacity)
    question = replace(question, policy="exclusive", admission="all", tiers=(endless,))
    hits = hits_of(question)
    rest = _computed(question, hits)
    return _queued(question, hits, question.rate_of_all, rest).ttft


def _computed(question: ReuseQuestion, hits: Hits) -> Numbers:
    """Seconds of what no tier has of each prompt: (requests,)."""
    node = question.node
    return node.prefill(hits.prompts) - node.compute(hits.cached)


def request_seconds(question: ReuseQuestion, hits: Hits, rate: float) -> Numbers:
    """Seconds of requests from their turn to their first token: (requests,).

    Either each tier's tokens come back by their best way and the rest of the prompt is computed, or
    all are loaded, layer by layer, while the rest is computed; the faster of both.
    """
    node, tokens, rest = question.node, hits.tokens, _computed(question, hits)
    fetched, loaded = np.zeros(len(rest)), np.zeros(len(rest))
    before = np.cumsum(tokens, axis=1) - tokens
    for place, built in enumerate(question.tiers):
        tier = built.while_written(rate * hits.written[place], question.nodes)
        hit = tokens[:, place] > 0
        here, ahead = tokens[hit, place], before[hit, place]
        fetched[hit] += fetch(node, tier, here, ahead, (hits.prompts - hits.cached)[hit])
        loaded[hit] += load_seconds(node, tier, here)
    return np.minimum(rest + fetched, layerwise(loaded, rest, node.llm.layers))


def write_loads(question: ReuseQuestion, hits: Hits, rate: float = 0.0) -> Numbers:
    """Share of the rate of the path to each tier that writing takes, of all nodes: (tiers,)."""
    written = (rate or question.rate_of_all) * hits.written
    pairs = zip(question.tiers, written, strict=True)
    return np.array([scalar(tier.write_load(each, question.nodes)) for tier, each in pairs])


def bears_writes(question: ReuseQuestion, hits: Hits, rate: float = 0.0) -> bool:
    """True if the path to each tier is as fast as it is written."""
    return bool(np.all(write_loads(question, hits, rate) <= 1))


def faults_of(question: ReuseQuestion, hits: Hits, service: Service) -> list[str]:
    """Say why the nodes do not serve all requests; nothing where they do."""
    reasons: list[str] = []
    for tier, load in zip(question.tiers, write_loads(question, hits), strict=True):
        if load > 1:
            reasons.append(f"{tier.name} is written faster than its path bears")
    if service.load >= 1:
        reasons.append("prompts come faster than they are served")
    if reasons and (more := fewest_nodes(question)) > question.nodes:
        reasons[-1] += f"; --nodes {more} would do"
    return reasons


def fewest_nodes(question: ReuseQuestion) -> int:
    """Fewest nodes that compute prompts at most `BUSY` of their time, and bear what is written.

    The load without any reuse, and that of all writes on one node, say how many are enough.
    """
    if question.users:
        return 1

    def suffices(nodes: int) -> bool:
        on_nodes = replace(question, nodes=nodes)
        hits = hits_of(on_nodes)
        return bears_writes(on_nodes, hits) and serve(on_nodes, hits).load <= BUSY

    alone = replace(question, nodes=1)
    hits = hits_of(alone)
    plain = plain_load(alone, hits) / BUSY
    most = int(np.ceil(max(plain, np.max(write_loads(alone, hits)), 1.0)))
    return 1 + bisect_left(range(1, most), True, key=suffices)
