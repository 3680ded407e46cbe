"""`solve tiers`: the cheapest sizes of tiers with which requests meet a mean time to first token.

All sizes are tried, the cheapest before wear first. Drives that wear out before they are paid for
are bought again, so wear only adds to a price. The search therefore ends at the first size whose
price before wear is above the best price after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from nearkv.costmodel.algebra.span import Integers, Numbers
from nearkv.costmodel.mechanisms.kv_tiers import TIERS, WHOLE_ROLES, write_price
from nearkv.hardware.errors import InputError
from nearkv.hardware.units import parse
from nearkv.sweeps.evaluate.columns import Cell
from nearkv.sweeps.evaluate.slo import Target
from nearkv.sweeps.explore.reuse.node import Node
from nearkv.sweeps.explore.reuse.question import ReuseQuestion, check, tiers_of
from nearkv.sweeps.explore.reuse.service import (
    bears_writes,
    fewest_nodes,
    hits_of,
    is_replayed,
    serve,
)
from nearkv.sweeps.jobs.search import (
    BEST,
    NO_BETTER,
    Best,
    Candidates,
    Search,
    check_points,
)
from nearkv.sweeps.study.grid import scalar
from nearkv.sweeps.study.sizes import Reader, comma_list, values
from nearkv.sweeps.tables.table import Categories, counted

YEAR_HOURS = 365 * 24
HOUR = 3600.0
"""Seconds of an hour."""
BYTES = Reader(
    lambda text, where: parse(text, "B", where),
    lambda size: "" if size else "must hold something",
)
BYTE_UNITS = {"GiB": 2**30, "GB": 1e9, "B": 1}
"""Units of sizes [B], of which the first that gives a whole number is shown."""
LEAST_GAIN = 1e-3
"""Share of the TTFT that a further node must save, where nodes are chosen."""
TOGETHER = 8
"""Sizes that are tried before the price of the next is compared with the best."""
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
        count = "" if TIERS[self.name].medium in WHOLE_ROLES else f"{parts:.0f}x"
        each = capacity if not count else capacity / parts
        size, unit = next(
            (each / in_bytes, unit)
            for unit, in_bytes in BYTE_UNITS.items()
            if each % in_bytes == 0 or in_bytes == 1
        )
        return f"{self.name}={count}{size:.0f}{unit}"


@dataclass(frozen=True)
class TierSizes:
    """Sizes of every tier to choose from, and the question that they are to meet.

    Attributes:
        question: about the tiers at their largest, with the nodes and the mean TTFT asked for.
        sizes: of each tier of a node.
        years: over which tiers are paid for; those that wear out sooner are bought again.
    """

    question: ReuseQuestion
    sizes: Sequence[Sizes]
    years: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of sizes of each tier."""
        return tuple(len(each.capacity) for each in self.sizes)

    def at(self, row: int) -> tuple[int, ...]:
        """One of all sizes as a place in each list, by its number in row-major order."""
        return tuple(map(int, np.unravel_index(row, self.shape)))

    def question_of(self, places: Sequence[int]) -> ReuseQuestion:
        """The question about one size of each tier."""
        node = self.question.node
        tiers = [
            node.sized(each.name, each.capacity[place], each.parts[place])
            for each, place in zip(self.sizes, places, strict=True)
        ]
        return replace(self.question, tiers=tuple(tiers))

    def texts(self, places: Sequence[int]) -> list[str]:
        """The tiers that hold something, as `reuse` takes them."""
        pairs = zip(self.sizes, places, strict=True)
        return [each.text(place) for each, place in pairs if place]

    @cached_property
    def prices(self) -> Numbers:
        """Prices of a byte of each tier, and of the wear by writing one: (2, tiers) [USD/B]."""
        each = [
            (
                scalar(tier.byte_price),
                scalar(write_price(tier.capacity * tier.byte_price, tier.endurance)),
            )
            for tier in self.question.tiers
        ]
        return np.array(each).T

    def usd_hour(self, question: ReuseQuestion, written: Numbers) -> float:
        """Price of the tiers of all nodes, each paid over the years or its life [USD/h].

        Args:
            question: about the tiers.
            written: to each: (tiers,) [B/s].
        """
        a_byte, a_written = self.prices
        bought = question.capacities * a_byte / (self.years * YEAR_HOURS)
        return float(np.sum(np.maximum(bought, HOUR * written * a_written)))

    def answer(self, row: int) -> Mapping[str, float]:
        """Price, mean TTFT and hits of one of all sizes, by its number in row-major order.

        Returns:
            `usd_hour`; `ttft_s`, infinite where a path is written faster than it bears;
            `hit_share`, of the blocks that any tier has.
        """
        question = self.question_of(self.at(row))
        hits = hits_of(question)
        bears = bears_writes(question, hits)
        return {
            "usd_hour": self.usd_hour(question, question.rate_of_all * hits.written),
            "ttft_s": serve(question, hits).ttft if bears else np.inf,
            "hit_share": float(np.sum(hits.share)),
        }

    @property
    def unworn(self) -> Numbers:
        """Price of all sizes if nothing wears, which none of them is below: (sizes,) [USD/h]."""
        a_byte, _ = self.prices
        hourly = self.question.counts * a_byte / (self.years * YEAR_HOURS)
        prices = [
            each.capacity * rate for each, rate in zip(self.sizes, hourly, strict=True)
        ]
        total: Numbers = reduce(np.add.outer, prices)
        return total.ravel()

    def candidates(self) -> Iterator[Candidates]:
        """All sizes in chunks, the cheapest first by their price before wear."""
        unworn = self.unworn
        order = np.argsort(unworn, kind="stable")
        for start in range(0, len(order), TOGETHER):
            rows = order[start : start + TOGETHER]
            least = (0.0, float(unworn[rows[0]]))
            yield Candidates(rows, rows.shape, partial(self.columns, rows), least)

    def columns(self, rows: Integers, _: Sequence[str]) -> Mapping[str, Cell]:
        """Price, mean TTFT and hits of some sizes, by their number in row-major order."""
        answers = list(map(self.answer, rows.tolist()))
        return {
            **{name: np.array([each[name] for each in answers]) for name in answers[0]},
            "row": rows.astype(float),
            "status": Categories(np.zeros((), int), ("ok",)),
        }

    @property
    def limit(self) -> Target:
        """The mean time to the first token that is asked for."""
        return Target("ttft_s", "", False, self.question.ttft, "--slo")

    def solved(self) -> Search:
        """The cheapest sizes that meet the target."""
        best = Best(("usd_hour",), (False,), where=(self.limit,), ties=("row",))
        return Search(best).over(self.candidates())


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
    where = f"--tier {name}"
    each, count = node.part(name)
    # 2x4TB states drives; the x of 1TB:8TB:x2 is the ratio of a range
    if equals and "x" in listed.replace(":x", ":"):
        texts = [f"{name}={item}" for item in comma_list(listed)]
    elif equals:
        texts = [f"{name}={size}B" for size in values(listed, BYTES, where)]
    elif TIERS[name].medium in WHOLE_ROLES:
        one = node.hw.roles.get(TIERS[name].sold_as)
        least = scalar(one.maybe("capacity", one.maybe("memory", each))) if one else each
        texts = [f"{name}={size}B" for size in np.arange(least, each + 1, least)]
    else:
        texts = [f"{name}={parts}x{each}B" for parts in range(1, int(count) + 1)]
    tiers = [node.tier(item) for item in texts]
    capacity = np.array([0.0, *(scalar(tier.capacity) for tier in tiers)])
    if np.any(np.diff(capacity) <= 0):
        raise InputError(f"{where}={listed}: sizes must rise")
    return Sizes(name, capacity, np.array([1.0, *(scalar(tier.parts) for tier in tiers)]))


def _with_nodes(sizes: TierSizes) -> TierSizes:
    """Set the nodes: as many as are stated, or the fewest with which the largest tiers do.

    No number of nodes is enough where requests that never wait take too long already, so nodes are
    added only while the next saves time.
    """
    question, largest = sizes.question, math.prod(sizes.shape) - 1

    def on_nodes(nodes: int) -> TierSizes:
        return replace(sizes, question=replace(question, nodes=nodes))

    if question.nodes:
        return sizes
    nodes = fewest_nodes(question)
    ttft = on_nodes(nodes).answer(largest)["ttft_s"]
    while ttft > question.ttft:
        faster = on_nodes(nodes + 1).answer(largest)["ttft_s"]
        if faster > (1 - LEAST_GAIN) * ttft:
            break
        nodes, ttft = nodes + 1, faster
    return on_nodes(nodes)


def sizing(reuse: ReuseQuestion, tiers: Sequence[str], years: float) -> TierSizes:
    """The sizes to choose from, and what is asked of them.

    Args:
        reuse: but for the tiers.
        tiers: as `sizes_of` takes them.
        years: over which tiers are paid for.

    Raises:
        InputError: a tier without a price, or more sizes than are replayed.
    """
    sizes = [sizes_of(reuse.node, text) for text in tiers]
    largest = [each.text(len(each.capacity) - 1) for each in sizes]
    question = replace(reuse, tiers=tiers_of(reuse.node, largest))
    check(question)
    count = math.prod(len(each.capacity) for each in sizes)
    check_points(count, {each.name: len(each.capacity) for each in sizes}, "sizes")
    if is_replayed(question) and count > MOST_REPLAYED:
        replays = f"--policy {question.policy}: replays {MOST_REPLAYED} sizes at most"
        many = f"{replays}, and asked are {count:,}"
        raise InputError(f"{many}; state fewer, as in --tier dram=1TB,2TB")
    for tier in question.tiers:
        if not np.isfinite(tier.byte_price):
            priced = f"--tier {tier.name}: platform {question.node.hw.platform!r} states no price"
            raise InputError(f"{priced} of it; leave it out, or choose another platform")
    return _with_nodes(TierSizes(question, sizes, years))


def find_tier_sizes(sizes: TierSizes) -> tuple[dict[str, Any], list[str]]:
    """The cheapest sizes as a row, and sentences about them."""
    question, search = sizes.question, sizes.solved()
    count, left = math.prod(sizes.shape), search.outcomes[NO_BETTER]
    has_answer = len(search.kept.rows) > 0
    best = int(search.kept.rows[0]) if has_answer else count - 1
    answer = sizes.answer(best)
    row: dict[str, Any] = {
        "status": "ok" if has_answer else "infeasible",
        "nodes": question.nodes,
        **answer,
    }
    if not has_answer:
        row["usd_hour"] = np.nan
    for tier, place in zip(sizes.sizes, sizes.at(best), strict=True):
        row[f"{tier.name}_gb"] = tier.capacity[place] / 1e9
    row |= {"designs": count, "evaluations": count - left}
    nodes = counted(question.nodes, "node")
    if not has_answer:
        ttft = answer["ttft_s"]
        slow = f"the first token comes after {ttft:.3g} s with the largest tiers on {nodes}"
        why = slow if np.isfinite(ttft) else f"requests come faster than {nodes} serve them"
        return row, [f"infeasible: {why}; allow more time, tiers or nodes."]
    dear = f"{left:,} cost more even before they wear, not evaluated; " if left else ""
    missed = f"miss {sizes.limit.text}"
    ends = f"{search.outcomes[missed]:,} {missed}, {search.outcomes[BEST]:,} meet it"
    proof = f"{count:,} sizes: {dear}{count - left:,} evaluated: {ends}."
    tiers = "".join(f" --tier {text}" for text in sizes.texts(sizes.at(best)))
    kept = f"--policy {question.policy} --admission {question.admission}"
    again = (
        f"The tiers are asked by nearkv reuse ... {kept} --nodes {question.nodes}{tiers}."
    )
    none = "No tier is needed: prompts that are all computed meet it."
    return row, [proof, again if tiers else none]
