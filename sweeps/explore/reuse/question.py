"""Question about KV caches that outlive a request, and what cannot be asked together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.mechanisms.kv_tiers import TIERS, Tier
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.evaluate.kv_policies import ADMISSIONS, REUSE_POLICIES
from nearkv.sweeps.explore.reuse.node import Node
from nearkv.sweeps.study.block_traces import BlockTrace
from nearkv.sweeps.study.grid import scalar

ROUTINGS = ("prefix", "random")
"""Nodes that a request goes to: the one with its longest prefix, or any."""
MOST_RATE = 1e9
"""Requests a second of the largest question."""


@dataclass(frozen=True)
class ReuseQuestion:
    """Question about a trace of prompts, or about a prefix and the share of requests that find it.

    Attributes:
        node: a server.
        tiers: of a node, the nearest first.
        trace: the requests, where there are some.
        prefix, hit, rate: tokens, how often they are found, requests a second; without a trace.
        output: tokens of an answer, without a trace.
        users: that ask again when they are answered, in place of a rate; 0 for a rate.
        policy, admission, routing: of `REUSE_POLICIES`, `ADMISSIONS`, `ROUTINGS`.
        nodes: servers, each with tiers of its own; 0 for the fewest below `BUSY`.
        ttft: mean of requests at the rate that is asked for; 0 where none is [s].
        drive: capacity of one drive, in which wear is counted; 0 for those of the tier [B].
        served_rate: at which users are answered, once it is known [1/s].
    """

    node: Node
    tiers: tuple[Tier, ...]
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
    served_rate: float = 0.0

    @cached_property
    def counts(self) -> Numbers:
        """Number of each tier, one of each node or one that all share: (tiers,)."""
        return np.array([1 if each.place.is_shared else self.nodes for each in self.tiers])

    @cached_property
    def capacities(self) -> Numbers:
        """Capacity of each tier of all nodes: (tiers,) [B]."""
        capacities: Numbers = self.counts * [scalar(each.capacity) for each in self.tiers]
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
        return np.array([self.node.block_bytes(each.name) for each in self.tiers])


def tiers_of(node: Node, texts: Sequence[str]) -> tuple[Tier, ...]:
    """Tiers of a node as `dram=512GB` or `ssd=8x3.84TB`, the nearest first.

    Raises:
        InputError: one cannot be built, is named twice or in another order, or none is named.
    """
    names = [text.partition("=")[0].strip() for text in texts]
    if not names:
        raise InputError("--tier: name at least one, as in --tier dram=512GB")
    if len(set(names)) < len(names):
        raise InputError(f"--tier: {', '.join(names)} names a tier twice; add their sizes")
    outwards = [name for name in TIERS if name in names]
    if outwards != [name for name in names if name in TIERS]:
        raise InputError(f"--tier: name the nearest first, as {', '.join(outwards)}")
    return tuple(map(node.tier, texts))


def check(question: ReuseQuestion) -> None:
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
    if question.drive and all(np.isinf(tier.endurance) for tier in question.tiers):
        names = ", ".join(tier.name for tier in question.tiers)
        raise InputError(f"--drive: {names} does not wear out; name drives")
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


def _check_trace(question: ReuseQuestion, trace: BlockTrace) -> None:
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
    shared = [tier.name for tier in question.tiers if tier.place.is_shared]
    if question.routing == "random" and shared:
        raise InputError(
            f"--routing random: leave out {', '.join(shared)}, which nodes share"
        )


def _check_prefix(question: ReuseQuestion) -> None:
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
    (tier,) = question.tiers
    if question.node.kept_bytes(prefix, tier.name) > scalar(tier.capacity):
        held = scalar(tier.capacity) / question.node.token_bytes(tier.name)
        holds = f"holds {held:,.0f} tokens, and the prefix has {prefix:,.0f}"
        raise InputError(f"--tier {tier.name}: {holds}; state more")
