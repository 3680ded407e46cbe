"""`solve tiers`: the cheapest sizes of tiers with which requests meet a mean time to first token.

Price rises with every size, and so do the hits of exclusive and of inclusive tiers. Loading hits is
at best free: the rest of the prompt is computed in any case. So the largest sizes of a box bound
its times and what is written, the smallest its price, whatever writing takes of the links. No such
thing is shown of victims: sizes that are not too dear are enumerated, each by a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from nearkv.costmodel.mechanisms.reuse.tiers import TIERS
from nearkv.costmodel.mechanisms.reuse.wear import write_price
from nearkv.hardware.errors import InputError
from nearkv.hardware.units import parse
from nearkv.solvers.boxes import Boxes, Integers, Optimum, minimise
from nearkv.sweeps.explore.design.certificate import certificate_of
from nearkv.sweeps.explore.kv_node import Node
from nearkv.sweeps.explore.reuse import (
    Hits,
    Reuse,
    check,
    curve_hits,
    fewest_nodes,
    hits_of,
    mean_ttft,
    request_seconds,
    write_loads,
)
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.sizes import Reader, comma_list, values
from nearkv.sweeps.study.study import Numbers

YEAR_HOURS = 365 * 24
HOUR = 3600.0
"""Seconds of an hour."""
WHOLE_ROLES = ("host", "gpu")
"""Media of which all memory is one size."""
BYTES = Reader(lambda text, where: parse(text, "B", where), lambda size: "")
LEAST_GAIN = 1e-3
"""Share of the TTFT that a further node must save, where nodes are chosen."""
POINTS = 256
"""Boxes that are bounded together, each with all prompts."""
MOST_REPLAYED = 256
"""Sizes that are enumerated by a replay each, at most."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a tier of a node to choose from, none among them.

    Attributes:
        name: of the tier.
        capacity: of all its parts, rising: (sizes,) [B].
        parts: drives or memories that it is made of: (sizes,) [1].
    """

    name: str
    capacity: Numbers
    parts: Numbers

    def text(self, place: int) -> str:
        """One of the sizes, as `reuse` takes it."""
        parts, capacity = self.parts[place], self.capacity[place]
        if TIERS[self.name].medium in WHOLE_ROLES:
            return f"{self.name}={capacity:.0f}B"
        return f"{self.name}={parts:.0f}x{capacity / parts:.0f}B"


@dataclass(frozen=True)
class TierSizes:
    """Which sizes are open, and what is asked of them.

    Attributes:
        question: about the tiers at their largest, with the nodes and the mean TTFT asked for.
        sizes: of each tier of a node.
        years: over which tiers are paid for; those that wear out sooner are bought again.
    """

    question: Reuse
    sizes: Sequence[Sizes]
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
        last = np.array([[len(each.capacity) - 1 for each in self.sizes]])
        return Boxes(np.zeros(1, np.int64), np.zeros_like(last), last)

    def at(self, point: Integers) -> Reuse:
        """The question about the sizes at some points."""
        places = zip(self.sizes, np.atleast_2d(point).T, strict=True)
        node = self.question.node
        tiers = [
            node.sized(each.name, each.capacity[place, None], each.parts[place, None])
            for each, place in places
        ]
        return replace(self.question, sized=tuple(tiers))

    def texts(self, point: Integers) -> list[str]:
        """The tiers at one point that hold something, as `reuse` takes them."""
        places = zip(self.sizes, point.tolist(), strict=True)
        return [each.text(place) for each, place in places if place]

    @cached_property
    def prices(self) -> dict[str, tuple[float, float]]:
        """Of a byte of each tier, and of writing one by its share of the life [USD/B]."""
        return {
            tier.name: (
                scalar(tier.byte_price),
                scalar(write_price(tier.capacity * tier.byte_price, tier.endurance)),
            )
            for tier in self.question.built
        }

    def usd_hour(self, asked: Reuse, written: Numbers) -> Numbers:
        """Price of the tiers of all nodes, each paid over the years or its life: (...) [USD/h].

        Args:
            asked: about the tiers.
            written: to each: (..., tiers) [B/s].
        """
        a_byte, a_written = np.array([self.prices[tier.name] for tier in asked.built]).T
        bought = asked.capacities * a_byte / (self.years * YEAR_HOURS)
        worn = HOUR * written * a_written
        price: Numbers = np.sum(np.maximum(bought, worn), axis=-1)
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

    def served(self, point: Integers) -> tuple[Numbers, Numbers, Numbers]:
        """Mean TTFT [s], infinite where a path bears no such writes, hits, and price [USD/h]."""
        if self.question.is_replayed:
            each = np.array([self._replay(tuple(place)) for place in point.tolist()])
            return each[:, 0], each[:, 1], each[:, 2]
        asked = self.at(point)
        return self._served(asked, curve_hits(asked))

    def _served(self, asked: Reuse, hits: Hits) -> tuple[Numbers, Numbers, Numbers]:
        is_borne = np.all(write_loads(asked, hits) <= 1, axis=-1)
        first = mean_ttft(asked, request_seconds(asked, hits))
        price = self.usd_hour(asked, hits.written)
        return np.where(is_borne, first, np.inf), np.sum(hits.share, axis=-1), price

    @cached_property
    def _replay(self) -> Callable[[tuple[int, ...]], tuple[float, float, float]]:
        """What is served at sizes, replayed once."""

        def replayed(places: tuple[int, ...]) -> tuple[float, float, float]:
            point = np.array(places)
            asked = replace(self.question, tiers=self.texts(point))
            if asked.tiers:
                hits = hits_of(asked)
            else:
                asked = self.at(point)
                hits = curve_hits(asked)
            ttft, share, price = self._served(asked, hits)
            return scalar(ttft), scalar(share), scalar(price)

        return cache(replayed)

    def ttft(self, point: Integers) -> Numbers:
        """Mean time to the first token: (points,) [s]."""
        return self.served(point)[0]

    def least_ttft(self, hits: Hits) -> Numbers:
        """Mean TTFT where all that some sizes hit is loaded in no time: (points,) [s].

        No smaller sizes are faster, since prefill rises with the length of what is computed.
        """
        question, node = self.question, self.question.node
        known = np.sum(hits.tokens, axis=-1)
        return mean_ttft(question, node.prefill(question.prompts) - node.compute(known))

    def quick(self, boxes: Boxes) -> Numbers:
        """Price at the smallest sizes of each box, if nothing wears: (boxes, 1) [USD/h]."""
        return self.usd_hour(self.at(boxes.low), np.zeros(boxes.low.shape))[:, np.newaxis]

    def bound(self, boxes: Boxes) -> Numbers:
        """Price at the smallest sizes, worn by what the largest leave to write: (boxes, 1) [USD/h].

        Infinite where even the largest sizes are too slow.
        """
        if self.question.is_replayed:
            return self.quick(boxes)
        hits = curve_hits(self.at(boxes.high))
        price = self.usd_hour(self.at(boxes.low), hits.written * (boxes.low > 0))
        meets = self.least_ttft(hits) <= self.question.ttft
        return np.where(meets, price, np.inf)[:, np.newaxis]

    def value(self, _: Integers, point: Integers) -> Numbers:
        """Price of sizes that meet the target, infinite of others: (points, 1) [USD/h]."""
        ttft, *_hits, price = self.served(point)
        meets = ttft <= self.question.ttft
        return np.where(meets, price, np.inf)[:, np.newaxis]

    def solved(self) -> Optimum:
        """The cheapest sizes, and the cuts that show it."""
        at_once = 1 if self.question.is_replayed else POINTS
        return minimise(self, at_once=at_once)


def sizes_of(node: Node, text: str) -> Sizes:
    """Sizes of a tier to choose from, none among them.

    Args:
        node: whose parts are counted where no size is stated, as in `ssd`.
        text: `dram=128GB:2TB:+128GB`, `ssd=8TB,16TB` on as many drives of the platform as hold
            them, `ssd=1x4TB,2x4TB`, or a name.

    Raises:
        InputError: there is no such tier, or no such size.
    """
    name, equals, listed = (part.strip() for part in text.partition("="))
    place, where = node.place(name), f"--tier {name}"
    part = node.hw.roles.get(place.sold_as or place.medium, node.hw[place.medium])
    one = scalar(part.maybe("capacity", part.maybe("memory", 0.0)))
    if not equals:
        parts = np.arange(scalar(part.count) + 1)
        capacity = one * parts
        if name == "hbm":
            capacity = np.unique(np.minimum(capacity, node.free))
    elif "x" in listed:
        each = [node.tier(f"{name}={item}") for item in comma_list(listed)]
        parts = np.array([0.0, *(scalar(tier.parts) for tier in each)])
        capacity = np.array([0.0, *(scalar(tier.capacity) for tier in each)])
        if np.any(np.diff(capacity) <= 0):
            raise InputError(f"{where}={listed}: sizes must rise")
    else:
        capacity = np.unique([0.0, *values(listed, BYTES, where)])
        parts = np.ceil(capacity / one) if one else np.ones(len(capacity))
    if place.medium in WHOLE_ROLES:
        parts = scalar(node.hw[place.medium].count) * np.ones(len(capacity))
    return Sizes(name, capacity, np.maximum(parts, 1.0))


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
    sizes = [sizes_of(asked.node, text) for text in tiers]
    largest = [each.text(len(each.capacity) - 1) for each in sizes]
    question = replace(asked, tiers=largest)
    check(question)
    count = int(np.prod([len(each.capacity) for each in sizes]))
    if question.is_replayed and count > MOST_REPLAYED:
        many = f"--policy victim: replays {MOST_REPLAYED} sizes at most, and asked are {count:,}"
        raise InputError(f"{many}; state fewer, as in --tier dram=1TB,2TB")
    for tier in question.built:
        if not np.isfinite(tier.byte_price):
            priced = f"--tier {tier.name}: platform {question.node.hw.platform!r} states no price"
            raise InputError(f"{priced} of it; leave it out, or choose another platform")
    return _with_nodes(TierSizes(question, sizes, years))


def find_tier_sizes(asked: TierSizes) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """The cheapest sizes as a row, sentences about them, and their certificate."""
    question, answer = asked.question, asked.solved()
    certificate = certificate_of(asked, answer)
    has_answer = len(answer.point) > 0
    best = answer.point if has_answer else asked.boxes.high
    (ttft,), (hit_share,), (price,) = asked.served(best)
    bound = float(np.min(answer.progress.bound)) if has_answer else np.nan
    row: dict[str, Any] = {
        "status": "ok" if has_answer else "infeasible",
        "nodes": question.nodes,
        "usd_hour": price if has_answer else np.nan,
        "bound_usd_hour": bound,
        "gap": price - bound,
        "ttft_s": ttft,
        "hit_share": hit_share,
    }
    for sizes, place in zip(asked.sizes, best[0].tolist(), strict=True):
        row[f"{sizes.name}_gb"] = sizes.capacity[place] / 1e9
    row |= {
        "evaluations": answer.progress.evaluations,
        "cuts": len(answer.cuts),
        "designs": int(np.sum(asked.boxes.sizes)),
    }
    nodes = f"{question.nodes} node{'s' if question.nodes > 1 else ''}"
    if not has_answer:
        first = (
            f"the first token comes after {ttft:.3g} s with the largest tiers on {nodes}"
        )
        why = (
            first if np.isfinite(ttft) else f"requests come faster than {nodes} serve them"
        )
        return row, [f"infeasible: {why}; allow more time, tiers or nodes."], certificate
    said = f"No other of {row['designs']:,} sizes is cheaper; {row['cuts']:,} cuts show it."
    tiers = "".join(f" --tier {text}" for text in asked.texts(best[0]))
    kept = f"--policy {question.policy} --admission {question.admission}"
    same = (
        f"The tiers are asked by nearkv reuse ... {kept} --nodes {question.nodes}{tiers}."
    )
    none = "No tier is needed: prompts that are all computed meet it."
    return row, [said, same if tiers else none], certificate
