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

from nearkv.hardware.errors import InputError
from nearkv.hardware.units import parse
from nearkv.solvers.boxes import Boxes, Integers, Optimum, minimise
from nearkv.sweeps.explore.design.certificate import certificate_of
from nearkv.sweeps.explore.kv_node import Node, scalar
from nearkv.sweeps.explore.reuse import (
    Hits,
    Reuse,
    bears_writes,
    check,
    curve_hits,
    fewest_nodes,
    hits_of,
    mean_ttft,
    request_seconds,
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
        question: about the tiers at their largest, with the nodes and the mean TTFT asked for.
        sizes: of each tier of a node, rising [B].
        years: over which tiers are paid for.
    """

    question: Reuse
    sizes: Sequence[Numbers]
    years: float

    @property
    def names(self) -> list[str]:
        """The one case, by all that is asked."""
        question = self.question
        admitted = f"{question.policy} tiers, {question.admission} admitted"
        paid = f"{' '.join(question.tiers)} paid over {self.years:g} years"
        return [f"{admitted}, on {question.nodes} nodes: {paid}"]

    @property
    def boxes(self) -> Boxes:
        """All sizes, as places in the lists."""
        last = np.array([[len(each) - 1 for each in self.sizes]])
        return Boxes(np.zeros(1, np.int64), np.zeros_like(last), last)

    def bytes_at(self, point: Integers) -> Numbers:
        """Sizes of a node's tiers: (points, tiers) [B]."""
        columns = [each[point[:, axis]] for axis, each in enumerate(self.sizes)]
        return np.stack(columns, axis=1)

    def usd_hour(self, point: Integers) -> Numbers:
        """Price of the tiers of all nodes: (points,) [USD/h]."""
        byte_prices = [scalar(tier.byte_price) for tier in self.question.built]
        hours = self.years * YEAR_HOURS
        a_byte_hour = self.question.own * np.array(byte_prices) / hours
        price: Numbers = np.sum(self.bytes_at(point) * a_byte_hour, axis=-1)
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

    def served(self, point: Integers) -> tuple[Numbers, Numbers]:
        """Mean TTFT, infinite where a path bears no such writes, and hits: (points,) [s, 1]."""
        sizes = self.bytes_at(point)
        if self.question.is_replayed:
            each = np.array([self._replay(tuple(of_point)) for of_point in sizes.tolist()])
            return each[:, 0], each[:, 1]
        return self._served(self.question, curve_hits(self.question, self.summary, sizes))

    @cached_property
    def _replay(self) -> Callable[[tuple[float, ...]], tuple[float, float]]:
        """Mean TTFT and hits at sizes, replayed once."""

        def replayed(sizes: tuple[float, ...]) -> tuple[float, float]:
            names = [tier.name for tier in self.question.built]
            question = replace(self.question, tiers=_texts(names, sizes))
            ttft, share = self._served(question, hits_of(question))
            return float(ttft), float(share)

        return cache(replayed)

    def _served(self, question: Reuse, hits: Hits) -> tuple[Numbers, Numbers]:
        """Mean TTFT and hits: (...)."""
        is_borne = np.all(bears_writes(question, hits), axis=-1)
        first = mean_ttft(question, request_seconds(question, hits))
        return np.where(is_borne, first, np.inf), np.sum(hits.share, axis=-1)

    def ttft(self, point: Integers) -> Numbers:
        """Mean time to the first token: (points,) [s]."""
        return self.served(point)[0]

    def least_ttft(self, point: Integers) -> Numbers:
        """Mean TTFT where all that these sizes hit is loaded in no time: (points,) [s].

        No smaller sizes are faster, since prefill rises with the length of what is computed.
        """
        question, node = self.question, self.question.node
        hits = curve_hits(question, self.summary, self.bytes_at(point))
        known = np.sum(hits.tokens, axis=-1)
        return mean_ttft(question, node.prefill(question.prompts) - node.compute(known))

    @property
    def summary(self) -> ReuseSummary:
        """The trace."""
        assert self.question.summary
        return self.question.summary

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


def _with_nodes(asked: TierSizes) -> TierSizes:
    """What is asked of as many nodes as are stated, or of the fewest that the largest tiers need.

    Without a wait no number of nodes is enough where the mean of the requests alone is too long.
    """
    question, largest = asked.question, asked.boxes.high
    if question.nodes:
        return asked
    asked = replace(asked, question=replace(question, nodes=fewest_nodes(question)))
    while (slower := asked.ttft(largest)[0]) > question.ttft:
        nodes = asked.question.nodes + 1
        more = replace(asked, question=replace(question, nodes=nodes))
        if more.ttft(largest)[0] > (1 - LEAST_GAIN) * slower:
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
    return _with_nodes(TierSizes(question, list(sizes.values()), years))


def cheapest(asked: TierSizes) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """The cheapest sizes as a row, sentences about them, and their certificate."""
    question, answer = asked.question, asked.solved()
    certificate = certificate_of(asked, answer)
    nodes = f"{question.nodes} node{'s' if question.nodes > 1 else ''}"
    row: dict[str, Any] = {"status": "infeasible", "nodes": question.nodes}
    if not len(answer.point):
        fastest = asked.ttft(asked.boxes.high)[0]
        best = f"the first token comes after {fastest:.3g} s with the largest tiers"
        return row, [f"infeasible: {best} on {nodes}; allow more."], certificate
    names = [tier.name for tier in question.built]
    best_sizes = asked.bytes_at(answer.point)[0].tolist()
    price = answer.value[0, 0]
    bound = min(price, float(np.min(answer.bounds)))
    (ttft,), (hit_share,) = asked.served(answer.point)
    row |= {
        "status": "ok",
        "usd_hour": price,
        "bound_usd_hour": bound,
        "gap": price - bound,
        "ttft_s": ttft,
        "hit_share": hit_share,
        **{f"{name}_gb": size / 1e9 for name, size in zip(names, best_sizes, strict=True)},
        "evaluations": answer.progress.evaluations,
        "cuts": len(answer.cuts),
        "designs": int(np.sum(asked.boxes.sizes)),
    }
    said = f"No other of {row['designs']:,} sizes is cheaper; {row['cuts']:,} cuts show it."
    again = "".join(f" --tier {each}" for each in _texts(names, best_sizes))
    kept = f"--policy {question.policy} --admission {question.admission}"
    same = f"nearkv reuse {kept} --nodes {question.nodes}{again}"
    return row, [said, f"The tiers are asked by {same}."], certificate
