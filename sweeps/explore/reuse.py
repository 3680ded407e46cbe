"""`nearkv reuse`: KV caches that outlive a request: what each tier hits, saves and wears.

A node serves prompts one after the other. The prefix that lies in a tier is loaded, or computed
anew, or its end is loaded while its beginning is computed; the rest of the prompt is computed.
Requests go to the node that has the longest prefix, so that nodes' own tiers hold different blocks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.mechanisms.reuse.fetch import both, crossover
from nearkv.costmodel.mechanisms.reuse.tiers import TIERS, Tier
from nearkv.costmodel.mechanisms.reuse.wear import drive_writes_a_day, drives_for, years
from nearkv.costmodel.mechanisms.serving.parallel import copies
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.resources import gpu
from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.machine import Machine
from nearkv.hardware.platform import Platform
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.evaluate.replay import ADMISSIONS, replay
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.explore.rows import Rows
from nearkv.sweeps.study.block_traces import BlockTrace, ReuseSummary
from nearkv.sweeps.study.sizes import number
from nearkv.sweeps.study.study import Numbers, Study, one_point

POLICIES = ("victim", "exclusive", "inclusive")
"""What a tier keeps of the one above it."""
BUSY = 0.8
"""Share of its time that a node computes prompts, at most, where the number of nodes is chosen."""
LENGTHS = 129
"""Prompts at which the system is asked; between them its seconds are interpolated."""


@dataclass(frozen=True)
class Reuse:
    """What is asked of a trace of prompts, or of a prefix and how often it is found.

    Attributes:
        study: one system, model and platform.
        tiers: as `dram=512GB` or `ssd=8x3.84TB`, the nearest first.
        trace: the requests, where they are replayed.
        summary: of the requests, where there is one.
        prefix, hit, rate: tokens, how often they are found, requests a second; without a trace.
        policy, admission: of `POLICIES`, `ADMISSIONS`.
        nodes: servers, each with tiers of its own; 0 for the fewest below `BUSY`.
    """

    study: Study
    tiers: Sequence[str]
    trace: BlockTrace | None = None
    summary: ReuseSummary | None = None
    prefix: float = 0.0
    hit: float = 0.0
    rate: float = 0.0
    policy: str = "victim"
    admission: str = "all"
    nodes: int = 0

    @cached_property
    def node(self) -> Node:
        """One server with its tiers."""
        hw, llm = one_point(self.study)
        block = searched(self.study)[0]
        tiers = tuple(_tier(text, hw, block.platform) for text in self.tiers)
        return Node(hw, llm, tiers, Probe(block))


def _tier(text: str, hw: Machine, platform: Platform) -> Tier:
    """A tier as it is named: `dram=512GB`, or `ssd=8x3.84TB`.

    Raises:
        InputError: it is written differently, or the platform has no such memory.
    """
    name, equals, size = (part.strip() for part in text.partition("="))
    if name not in TIERS:
        raise unknown("tier", name, TIERS, "--tier")
    if not equals:
        raise InputError(f"--tier {text!r}: write it as dram=512GB or ssd=8x3.84TB")
    build, needed, address = TIERS[name]
    lacking = [role for role in needed if role not in hw.roles]
    if lacking:
        has_none = f"--tier {name}: platform {hw.platform!r} has no {lacking[0]}"
        raise InputError(f"{has_none}; choose a platform that has one, as h200-node")
    role, _, _ = address.partition(".")
    count, times, each = size.rpartition("x")
    sizes = {address: number(platform.key(address))(each, f"--tier {name}")}
    if times and name == "dram":
        raise InputError(f"--tier {text!r}: state all DRAM of a node, as dram=512GB")
    if times:
        of_parts = f"{role}.count"
        sizes[of_parts] = number(platform.key(of_parts))(count, f"--tier {name}")
    if not all(sizes.values()):
        raise InputError(f"--tier {text!r}: must hold something; leave out an empty tier")
    if role == "ssd":  # a larger drive of the same kind bears as many drive writes a day
        per_byte = hw.ssd.endurance / hw.ssd.capacity
        sizes["ssd.endurance"] = scalar(per_byte) * sizes[address]
    return build(hw.with_values(sizes))


@dataclass(frozen=True)
class Node:
    """A server: its GPUs, what they run, and the tiers that keep its KV caches.

    Attributes:
        hw, llm: scalars of one design point.
        tiers: the nearest first.
        probe: asks the system about prompts of any length.
    """

    hw: Machine
    llm: LLM
    tiers: tuple[Tier, ...]
    probe: Probe

    @cached_property
    def curve(self) -> tuple[Numbers, Numbers]:
        """Lengths of prompts and the seconds that one alone takes."""
        longest = scalar(self.llm.longest)
        lengths = np.unique(np.round(np.geomspace(1, longest, LENGTHS)))
        same = np.zeros(len(lengths), np.intp)
        answer = self.probe.answer(same, {"context_tok": lengths})
        estimate = answer.estimate
        seconds = np.broadcast_to(estimate.prefill.seconds, lengths.shape)
        return lengths, np.asarray(seconds, float)

    def prefill(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes which nothing is known of [s]."""
        lengths, seconds = self.curve
        return np.asarray(np.interp(tokens, lengths, seconds))

    def compute(self, tokens: Real) -> Numbers:
        """Seconds that a prompt takes less where its first tokens are not computed [s].

        A pass over the weights is made for the rest of the prompt in either case.
        """
        return self.prefill(np.maximum(tokens, 1.0)) - self.prefill(1.0)

    @property
    def token_bytes(self) -> float:
        """KV of one more token far inside a prompt, on all GPUs that keep it [B]."""
        lengths, _ = self.curve
        last = float(lengths[-1])
        return scalar(self.kv_bytes(last) - self.kv_bytes(last / 2)) / (last / 2)

    def kv_bytes(self, tokens: Real) -> Real:
        """KV of a prefix, copied where heads are fewer than the GPUs that share them [B]."""
        tp = self.hw.gpu.count

        def of_layer(layer_type: LLM) -> Real:
            cache = layer_type.kv_bytes(1.0, tokens) + layer_type.state_bytes(1.0)
            return copies(layer_type, tp) * cache

        return self.llm.sum_over_layers(of_layer)

    def x_bytes(self, tokens: Real) -> Real:
        """The layers' inputs, from which K and V can be rebuilt [B]."""
        return self.llm.sum_over_layers(lambda layer_type: layer_type.x_bytes(1.0, tokens))

    def load(self, tier: Tier, tokens: Real) -> Real:
        """Seconds to bring the KV of a prefix to the GPUs [s]."""
        return tier.load(self.kv_bytes(tokens)).seconds

    def restore(self, tier: Tier, tokens: Real) -> Real:
        """Seconds to bring X of a prefix and rebuild K and V from it [s]: HCache, EuroSys 2025.

        Not a number where a layer keeps a state, which X of the prefix does not bring back.
        """
        if scalar(self.llm.all_state_bytes(1.0)):
            return np.nan
        flops = self.llm.sum_over_layers(
            lambda layer_type: layer_type.kv_from_x_flops(1.0, tokens)
        )
        rebuild = gpu(self.hw).run(flops).seconds
        return np.maximum(tier.load(self.x_bytes(tokens)).seconds, rebuild)

    def ways(self, tier: Tier, tokens: Real, before: Real = 0.0) -> dict[str, Real]:
        """Seconds that tokens of a prefix take by each way back, after those before them [s]."""

        def computed(some: Real) -> Real:
            return self.compute(before + some) - self.compute(before)

        return {
            "load": self.load(tier, tokens),
            "recompute": computed(tokens),
            "both": both(computed, lambda some: self.load(tier, some), tokens),
        }

    def fetch(self, tier: Tier, tokens: Real, before: Real) -> Real:
        """Seconds by the best way; none where there are no tokens [s]."""
        ways = self.ways(tier, tokens, before)
        best = np.minimum(np.minimum(ways["load"], ways["recompute"]), ways["both"])
        return np.where(np.greater(tokens, 0), best, 0.0)


@dataclass(frozen=True)
class Hits:
    """What the tiers do in service of all requests.

    Attributes:
        share: of the blocks that each tier has: (tiers,).
        tokens: of each request in each tier: (requests, tiers).
        written: to each tier: (tiers,) [B/s].
    """

    share: Numbers
    tokens: Numbers
    written: Numbers


def reuse(question: Reuse) -> tuple[Rows, list[str]]:
    """What each tier hits, how its blocks come back soonest, what that saves and wears.

    Returns:
        A row a tier, of all nodes together; then sentences about the service.

    Raises:
        InputError: a tier, a share or a length that cannot be.
    """
    _check(question)
    node = question.node
    _check_lengths(question)
    nodes = question.nodes or _fewest(question)
    hits = _hits(question, nodes)
    rows = [_row(question, node, nodes, place, hits) for place in range(len(node.tiers))]
    return rows, _sentences(question, nodes, hits)


def _check(question: Reuse) -> None:
    """Refuse what cannot be asked together.

    Raises:
        InputError: it cannot.
    """
    for name, value, choices in (
        ("policy", question.policy, POLICIES),
        ("admission", question.admission, ADMISSIONS),
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
    if question.summary is None:
        _check_prefix(question)
        return
    if question.prefix or question.hit or question.rate:
        raise InputError("--prefix, --hit, --rate: are for no trace; leave them out, or it")
    if question.policy == "victim" and not question.trace:
        alone = "--policy victim: replays the trace itself, and there is its summary alone"
        raise InputError(f"{alone}; take --policy exclusive or inclusive")
    if question.policy == "victim" and len(names) > 2:
        most = "--policy victim: replays two tiers at most"
        raise InputError(f"{most}; name two, or take --policy exclusive")


def _check_prefix(question: Reuse) -> None:
    """Refuse a prefix of which something is missing.

    Raises:
        InputError: it is.
    """
    if not 0 <= question.hit <= 1:
        raise InputError(f"--hit: {question.hit:g} is no share; give 0 to 1")
    if not (question.prefix > 0 and 0 < question.rate < np.inf):
        raise InputError("give --trace FILE, or --prefix, --hit and --rate of the requests")
    if len(question.tiers) > 1:
        raise InputError("--tier: without a trace the prefix lies in one tier; name one")
    if question.admission != "all":
        raise InputError(f"--admission {question.admission}: needs a trace to replay")


def _check_lengths(question: Reuse) -> None:
    """Refuse prompts that the model cannot take.

    Raises:
        InputError: there are.
    """
    longest, most = float(np.max(_prompts(question))), float(question.node.curve[0][-1])
    if longest > most:
        takes = f"the model takes {most:,.0f} tokens"
        raise InputError(
            f"a prompt has {longest:,.0f} tokens, {takes}; choose another model"
        )


@dataclass(frozen=True)
class Service:
    """How a node serves its share of the requests.

    Attributes:
        load: share of the time that it computes or loads prompts [1].
        plain: the same where nothing is reused [1].
        seconds: mean of a request, from its turn to its first token [s].
        wait: mean, for its turn; infinite from a load of 1 on [s].
    """

    load: float
    plain: float
    seconds: float
    wait: float


def _fewest(question: Reuse) -> int:
    """Nodes that compute prompts at most `BUSY` of their time; more nodes are never busier."""
    alone = _service(question, 1, _hits(question, 1)).load
    most = max(int(np.ceil(alone / BUSY)), 1)
    return 1 + bisect_left(
        range(1, most),
        True,
        key=lambda nodes: _service(question, nodes, _hits(question, nodes)).load <= BUSY,
    )


def _service(question: Reuse, nodes: int, hits: Hits) -> Service:
    """A queue of prompts at each node: Poisson arrivals, one prompt after the other.

    The wait is Pollaczek and Khinchine's, l E[S^2] / (2 (1 - load)).
    """
    node, summary = question.node, question.summary
    prompts = _prompts(question)
    rate = (summary.rate if summary else question.rate) / nodes
    plain = node.prefill(np.maximum(prompts, 1.0))
    reached = np.cumsum(hits.tokens, axis=1)
    seconds = plain - node.compute(reached[:, -1])
    for place, tier in enumerate(node.tiers):
        tokens = hits.tokens[:, place]
        seconds = seconds + node.fetch(tier, tokens, reached[:, place] - tokens)
    found = np.ones(1) if summary else np.array([question.hit])
    mean = float(np.mean(found * seconds + (1 - found) * plain))
    square = float(np.mean(found * seconds**2 + (1 - found) * plain**2))
    load = rate * mean
    wait = rate * square / (2 * (1 - load)) if load < 1 else np.inf
    return Service(load, rate * float(np.mean(plain)), mean, wait)


def _prompts(question: Reuse) -> Numbers:
    """Tokens of each request, or of parts of the requests."""
    if question.trace:
        return question.trace.prompt
    if question.summary:
        return question.summary.prompts
    return np.array([question.prefix])


def _hits(question: Reuse, nodes: int) -> Hits:
    """What the tiers of all nodes hit; a prefix that is stated lies in the tier that is named."""
    node, summary, trace = question.node, question.summary, question.trace
    prompts = _prompts(question)
    if summary is None:
        share = np.full(len(node.tiers), question.hit)
        tokens = np.zeros((1, len(node.tiers)))
        tokens[0, 0] = question.prefix
        missed = (1 - question.hit) * question.rate
        written = missed * node.kv_bytes(question.prefix)
        return Hits(share, tokens, np.full(len(node.tiers), scalar(written)))
    block_bytes = node.token_bytes * summary.block
    blocks = [
        _own(tier, nodes) * scalar(tier.capacity) / block_bytes for tier in node.tiers
    ]
    if trace and question.policy == "victim":
        first, second = (int(count * trace.share) for count in (*blocks, 0)[:2])
        lists = [list(map(int, some)) for some in trace.requests()]
        played = replay(lists, first, second, question.admission)
        each = played.hits[:, : len(blocks)]
        share = np.sum(each, axis=0) / len(trace.blocks)
        below = played.written / len(trace.blocks)
        inserted = np.array([1 - share[0], below])[: len(blocks)]
        tokens = _within(each * trace.block / trace.share, prompts)
        return Hits(share, tokens, inserted * summary.accesses * block_bytes)
    is_exclusive = question.policy == "exclusive"
    reach = np.cumsum(blocks) if is_exclusive else np.maximum.accumulate(blocks)
    upto = summary.curve.hit_ratio(reach)
    share = np.diff(upto, prepend=0.0)
    missed_above = 1 - np.concatenate([[0.0], upto[:-1]])
    inserted = missed_above if is_exclusive else 1 - upto
    tokens = share * prompts[:, np.newaxis]
    return Hits(share, tokens, inserted * summary.accesses * block_bytes)


def _own(tier: Tier, nodes: int) -> int:
    """How many tiers of this name there are: one of each node, or one that all share."""
    return 1 if tier.name == "pool" else nodes


def _within(tokens: Numbers, prompts: Numbers) -> Numbers:
    """Tokens in each tier, cut where the last block of a prompt is not full."""
    upto = np.minimum(np.cumsum(tokens, axis=1), prompts[:, np.newaxis])
    return np.diff(upto, axis=1, prepend=0.0)


def _row(question: Reuse, node: Node, nodes: int, place: int, hits: Hits) -> dict[str, Any]:
    """What a tier of all nodes does, and how a prefix of its mean hit comes back from it."""
    tier, tokens = node.tiers[place], hits.tokens[:, place]
    is_hit = tokens > 0
    mean = float(np.mean(tokens[is_hit])) if np.any(is_hit) else np.nan
    ways = {way: scalar(seconds) for way, seconds in node.ways(tier, mean).items()}
    rate = question.summary.rate if question.summary else question.rate * question.hit
    read = rate * float(np.mean(node.kv_bytes(tokens)))
    capacity = _own(tier, nodes) * scalar(tier.capacity)
    pays_from = crossover(node.compute, lambda p: node.load(tier, p), node.curve[0][-1])
    written = float(hits.written[place])
    row = {
        "tier": tier.name,
        "capacity_gb": capacity / 1e9,
        "capacity_tok": capacity / node.token_bytes,
        "hit_share": hits.share[place],
        "prefix_tok": mean,
        "load_ms": 1e3 * ways["load"],
        "recompute_ms": 1e3 * ways["recompute"],
        "both_ms": 1e3 * ways["both"],
        "restore_x_ms": 1e3 * scalar(node.restore(tier, mean)),
        "load_pays_from_tok": pays_from,
        "read_gb_s": read / 1e9,
        "write_gb_s": written / 1e9,
        "reads_per_write": read / written if written else np.nan,
    }
    way = nodes * scalar(tier.write_rate)
    return row | {"write_share": written / way} | _wear(tier, _own(tier, nodes), written)


def _wear(tier: Tier, own: int, written: float) -> dict[str, Any]:
    """What writing does to drives; nothing to memory that does not wear out [B/s]."""
    if not np.isfinite(tier.endurance):
        return {"dwpd": np.nan, "drives_1_dwpd": np.nan, "life_years": np.nan}
    capacity, drives = own * scalar(tier.capacity), own * scalar(tier.parts)
    endurance = own * scalar(tier.endurance)
    return {
        "dwpd": drive_writes_a_day(written, capacity),
        "drives_1_dwpd": drives_for(written, capacity / drives, 1.0),
        "life_years": years(written, endurance) if written else np.nan,
    }


def _sentences(question: Reuse, nodes: int, hits: Hits) -> list[str]:
    """What reuse does to the service."""
    service = _service(question, nodes, hits)
    reused = f"{100 * float(np.sum(hits.share)):.1f} % of the blocks are reused"
    busy = f"Prompts keep a node busy for {100 * service.load:.0f} % of its time"
    less = f"{100 * (1 - service.load / service.plain):.0f} % less than without reuse"
    told = [f"{reused} on {nodes} node{'s' if nodes > 1 else ''}.", f"{busy}, {less}."]
    for tier, written in zip(question.node.tiers, hits.written, strict=True):
        if written > nodes * scalar(tier.write_rate):
            told.append(f"infeasible: {tier.name} is written faster than its way bears.")
    if service.load >= 1:
        why = "infeasible: prompts come faster than they are served"
        return [*told, f"{why}; --nodes {_fewest(question)} would do."]
    first = (
        f"The first token comes after {service.seconds + service.wait:.3g} s in the mean"
    )
    return [*told, f"{first}, {service.wait:.2g} s of it waiting."]


def scalar(value: Real) -> float:
    """The number of one design point."""
    return float(np.ravel(value)[0])
