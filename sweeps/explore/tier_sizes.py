"""`solve tiers`: the cheapest sizes of tiers with which requests meet a mean time to first token.

Price rises with every size, and so do the hits of exclusive and of inclusive tiers. Loading hits is
at best free: the rest of the prompt is computed in any case. So the largest sizes of a box bound
its times and the smallest its price, whatever writing takes of the links. No such thing is shown of
victims: sizes that are not too dear are enumerated, each by a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.mechanisms.reuse.tiers import Tier
from nearkv.hardware.errors import InputError
from nearkv.hardware.units import parse
from nearkv.solvers.boxes import Boxes, Integers, Optimum, minimise
from nearkv.sweeps.explore.design.certificate import certificate_of
from nearkv.sweeps.explore.kv_node import Node, scalar
from nearkv.sweeps.explore.reuse import (
    Reuse,
    check,
    fewest_nodes,
    hits_of,
    inserted_of,
    mean_wait,
    overfull,
    prefix_tokens,
    reach_of,
    request_seconds,
    service_of,
)
from nearkv.sweeps.study.block_traces import ReuseSummary
from nearkv.sweeps.study.sizes import Reader, values
from nearkv.sweeps.study.study import Numbers

YEAR_HOURS = 365 * 24
BYTES = Reader(lambda text, where: parse(text, "B", where), lambda size: "")
LEAST_GAIN = 1e-3
"""Share of the TTFT that a further node must save, where nodes are chosen."""
POINTS = 256
"""Boxes that are bounded together, each with all prompts."""
MOST_REPLAYED = 256
"""Sizes that are enumerated by a replay each, at most."""


@dataclass(frozen=True)
class TierSizes:
    """Which sizes are open, and what is asked of them.

    Attributes:
        question: about the tiers at their largest, with the mean TTFT that is asked for.
        sizes: of each tier of a node, rising [B].
        nodes: servers [1].
        years: over which tiers are paid for.
    """

    question: Reuse
    sizes: Sequence[Numbers]
    nodes: int
    years: float

    @property
    def names(self) -> list[str]:
        """The one case, by all that is asked."""
        question = self.question
        kept = (
            f"{question.policy} tiers, {question.admission} admitted, on {self.nodes} nodes"
        )
        return [f"{kept}: {' '.join(question.tiers)} paid over {self.years:g} years"]

    @property
    def boxes(self) -> Boxes:
        """All sizes, as places in the lists."""
        last = np.array([[len(each) - 1 for each in self.sizes]])
        return Boxes(np.zeros(1, np.int64), np.zeros_like(last), last)

    @property
    def summary(self) -> ReuseSummary:
        """The trace."""
        assert self.question.summary
        return self.question.summary

    @cached_property
    def byte_hours(self) -> Numbers:
        """Price of a byte of each tier of all nodes for an hour: (tiers,) [USD]."""
        own = [
            tier.own(self.nodes) * scalar(tier.byte_price) for tier in self.question.built
        ]
        return np.array(own) / (self.years * YEAR_HOURS)

    def bytes_at(self, point: Integers) -> Numbers:
        """Sizes of a node's tiers: (points, tiers) [B]."""
        columns = [each[point[:, axis]] for axis, each in enumerate(self.sizes)]
        return np.stack(columns, axis=1)

    def usd_hour(self, point: Integers) -> Numbers:
        """Price of the tiers of all nodes: (points,) [USD/h]."""
        price: Numbers = self.bytes_at(point) @ self.byte_hours
        return price

    def asked(self) -> dict[str, Any]:
        """Objective and limit, as a certificate states them."""
        limit = f"ttft_s <= {self.question.ttft!r}"
        return {"objectives": [["usd_hour", "least"]], "limits": [limit]}

    def relied_on(self) -> list[str]:
        """What the bounds take as monotone in each size."""
        return ["usd_hour"] if self.question.is_replayed else ["usd_hour", "hit_share"]

    def groups_of_cases(self) -> Integers:
        """All sizes are of one group."""
        return np.zeros(1, np.int64)

    def replayed(self, point: Integers) -> Numbers:
        """Mean TTFT and hits of victims, a replay a point: (points, 2) [s, 1]."""
        sizes = map(tuple, self.bytes_at(point).tolist())
        return np.array([self._replay(each) for each in sizes]).reshape(-1, 2)

    @cached_property
    def _replay(self) -> Callable[[tuple[float, ...]], tuple[float, float]]:
        """Mean TTFT and hits at sizes, replayed once."""

        def replayed(sizes: tuple[float, ...]) -> tuple[float, float]:
            names = [tier.name for tier in self.question.built]
            question = replace(self.question, tiers=_texts(names, sizes))
            hits = hits_of(question, self.nodes)
            ttft = service_of(question, self.nodes, hits)["ttft_s"]
            is_borne = not overfull(question, self.nodes, hits)
            return ttft if is_borne else np.inf, float(np.sum(hits.share))

        return cache(replayed)

    def reached(self, point: Integers) -> Numbers:
        """Share of the blocks that each tier and those before it have: (points, tiers)."""
        question, summary = self.question, self.summary
        own = np.array([tier.own(self.nodes) for tier in question.built])
        blocks = own * self.bytes_at(point) / (question.node.token_bytes * summary.block)
        return summary.curve.hit_ratio(reach_of(question.policy, blocks))

    def ttft(self, point: Integers) -> Numbers:
        """Mean time to the first token; infinite where a path bears no such writes: (points,)."""
        if self.question.is_replayed:
            return self.replayed(point)[:, 0]
        question, summary, upto = self.question, self.summary, self.reached(point)
        inserted = inserted_of(question.policy, upto) * (self.bytes_at(point) > 0)
        written = inserted * summary.accesses * question.node.token_bytes * summary.block
        tiers: list[Tier] = []
        is_borne = np.ones(len(point), bool)
        for axis, tier in enumerate(question.built):
            rate = written[:, axis] / tier.own(self.nodes)
            is_borne &= written[:, axis] <= self.nodes * scalar(tier.write_rate)
            tiers.append(tier.written_at(rate[:, np.newaxis]))
        tokens = prefix_tokens(summary, upto)
        seconds = request_seconds(question.node, tiers, summary.prompts, tokens)
        return np.where(is_borne, self._with_wait(seconds), np.inf)

    def least_ttft(self, point: Integers) -> Numbers:
        """Mean TTFT where all that these sizes hit is loaded in no time: (points,) [s].

        No smaller sizes are faster, since prefill rises with the length of what is computed.
        """
        node, prompts = self.question.node, self.summary.prompts
        tokens = np.sum(prefix_tokens(self.summary, self.reached(point)), axis=-1)
        return self._with_wait(node.prefill(prompts) - node.compute(tokens))

    def _with_wait(self, seconds: Numbers) -> Numbers:
        """Means of requests with their wait: (..., requests) -> (...) [s]."""
        mean, square = np.mean(seconds, axis=-1), np.mean(seconds**2, axis=-1)
        return np.asarray(mean + mean_wait(self.summary.rate / self.nodes, mean, square))

    def hit_share(self, point: Integers) -> Numbers:
        """Share of the blocks that all tiers have: (points,)."""
        if self.question.is_replayed:
            return self.replayed(point)[:, 1]
        return self.reached(point)[:, -1]

    def quick(self, boxes: Boxes) -> Numbers:
        """Price at the smallest sizes of each box: (boxes, 1) [USD/h]."""
        return self.usd_hour(boxes.low)[:, np.newaxis]

    def bound(self, boxes: Boxes) -> Numbers:
        """That price; infinite where even the largest sizes are too slow: (boxes, 1) [USD/h]."""
        if self.question.is_replayed:
            return self.quick(boxes)
        meets = self.least_ttft(boxes.high) <= self.question.ttft
        return np.where(meets[:, np.newaxis], self.quick(boxes), np.inf)

    def value(self, _: Integers, point: Integers) -> Numbers:
        """Price of sizes that meet the target, infinite of others: (points, 1) [USD/h]."""
        meets = self.ttft(point) <= self.question.ttft
        return np.where(meets, self.usd_hour(point), np.inf)[:, np.newaxis]

    def solved(self) -> Optimum:
        """The cheapest sizes, and the cuts that show it."""
        at_once = 1 if self.question.is_replayed else POINTS
        return minimise(
            self.boxes, self.bound, self.value, quick=self.quick, at_once=at_once
        )


def _texts(names: Sequence[str], sizes: Sequence[float]) -> list[str]:
    """Tiers that hold something, as `reuse` takes them."""
    held = zip(names, sizes, strict=True)
    return [f"{name}={size:.0f}B" for name, size in held if size]


def sizes_of(node: Node, text: str) -> tuple[str, Numbers]:
    """Name of a tier and sizes to choose from [B], none among them.

    Args:
        node: whose parts are counted where no size is stated, as in `ssd`.
        text: `dram=128GB:2TB:+128GB`, `ssd=8TB,16TB`, or a name.

    Raises:
        InputError: there is no such tier, or no such size.
    """
    name, equals, listed = (part.strip() for part in text.partition("="))
    place = node.place(name)
    if equals:
        stated = values(listed, BYTES, f"--tier {name}")
        return name, np.unique([0.0, *stated])
    part = node.hw.roles.get(place.sold_as or place.medium, node.hw[place.medium])
    each = part.maybe("capacity", part.maybe("memory", 0.0))
    return name, each * np.arange(scalar(part.count) + 1)


def _with_nodes(question: Reuse, sizes: Sequence[Numbers], years: float) -> TierSizes:
    """What is asked of as many nodes as are stated, or of the fewest that the largest tiers need.

    Without a wait no number of nodes is enough where the mean of the requests alone is too long.
    """
    nodes = question.nodes or fewest_nodes(question)
    asked = TierSizes(question, sizes, nodes, years)
    largest = asked.boxes.high
    while not question.nodes and asked.ttft(largest)[0] > question.ttft:
        more = replace(asked, nodes=asked.nodes + 1)
        if more.ttft(largest)[0] > (1 - LEAST_GAIN) * asked.ttft(largest)[0]:
            break
        asked = more
    return asked


def sizing(asked: Reuse, tiers: Sequence[str], years: float) -> TierSizes:
    """The sizes to choose from, and what is asked of them.

    Args:
        asked: but for the tiers.
        tiers: as `sizes_of` takes them.
        years: over which tiers are paid for.

    Raises:
        InputError: a tier without a price, or more sizes than are replayed.
    """
    sizes = dict(sizes_of(asked.node, text) for text in tiers)
    largest = [float(each[-1]) for each in sizes.values()]
    question = replace(asked, tiers=_texts(list(sizes), largest))
    check(question)
    count = int(np.prod([len(each) for each in sizes.values()]))
    if question.is_replayed and count > MOST_REPLAYED:
        many = f"--policy victim: replays {MOST_REPLAYED} sizes at most, and asked are {count:,}"
        raise InputError(f"{many}; state fewer, as in --tier dram=1TB,2TB")
    for tier in question.built:
        if not np.isfinite(tier.byte_price):
            priced = f"--tier {tier.name}: platform {question.node.hw.platform!r} states no price"
            raise InputError(f"{priced} of it; leave it out, or choose another platform")
    return _with_nodes(question, list(sizes.values()), years)


def cheapest(asked: TierSizes) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """The cheapest sizes as a row, sentences about them, and their certificate."""
    question, answer = asked.question, asked.solved()
    certificate = certificate_of(asked, answer)
    row: dict[str, Any] = {"status": "infeasible", "nodes": asked.nodes}
    if not len(answer.point):
        fastest = asked.ttft(asked.boxes.high)[0]
        best = f"the first token comes after {fastest:.3g} s with the largest tiers"
        many = f"on {asked.nodes} node{'s' if asked.nodes > 1 else ''}"
        return row, [f"infeasible: {best} {many}; allow more."], certificate
    names = [tier.name for tier in question.built]
    best_sizes = dict(zip(names, asked.bytes_at(answer.point)[0], strict=True))
    price = answer.value[0, 0]
    bound = min(price, float(np.min(answer.bounds)))
    row |= {
        "status": "ok",
        "usd_hour": price,
        "bound_usd_hour": bound,
        "gap": price - bound,
        "ttft_s": asked.ttft(answer.point)[0],
        "hit_share": asked.hit_share(answer.point)[0],
        **{f"{name}_gb": size / 1e9 for name, size in best_sizes.items()},
        "evaluations": answer.progress.evaluations,
        "cuts": len(answer.cuts),
        "designs": int(np.sum(asked.boxes.sizes)),
    }
    said = f"No other of {row['designs']:,} sizes is cheaper; {row['cuts']:,} cuts show it."
    again = "".join(f" --tier {each}" for each in _texts(names, list(best_sizes.values())))
    kept = f"--policy {question.policy} --admission {question.admission}"
    same = f"nearkv reuse {kept} --nodes {asked.nodes}{again}"
    return row, [said, f"The tiers are asked by {same}."], certificate
