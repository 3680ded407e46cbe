"""Tiers that keep KV caches between requests: paths to the GPUs, ways back of a prefix, wear.

A tier is a memory of the platform: its parts say the rates. Several servers share a pooled one. A
cached prefix comes back loaded, recomputed, or its end loaded while its head is computed.

Symbols: p prefix tokens, k tokens computed, c(k) seconds of computing the first k tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.algebra.span import Port, Real, Span, serial, stream, wait
from nearkv.costmodel.mechanisms.serving.residents import crossing
from nearkv.costmodel.mechanisms.weights.streaming import DataPath
from nearkv.costmodel.model.resources import link, per
from nearkv.hardware.machine import Machine, Role


@dataclass(frozen=True)
class Place:
    """The memory that holds the blocks of a tier, and its way to the GPUs.

    Attributes:
        medium: role of the platform that holds them.
        capacity: its number of bytes.
        links: roles that the bytes pass to the GPUs.
        is_shared: whether all nodes share one.
        is_spread: whether what is shared lies on all nodes, each of which adds its rates.
        sold_as: role whose price is that of the capacity; the medium where empty.
    """

    medium: str
    capacity: str
    links: tuple[str, ...] = ()
    is_shared: bool = False
    is_spread: bool = False
    sold_as: str = ""


TIERS = {
    "hbm": Place("gpu", "memory", sold_as="hbm"),
    "dram": Place("host", "memory", ("gpu_link",), sold_as="dram"),
    "cxl": Place("cxl", "memory", ("gpu_link",)),
    "ssd": Place("ssd", "capacity", ("ssd_link", "gpu_link")),
    "pool": Place("host", "memory", ("fabric",), True, True, sold_as="dram"),
    "pool-ssd": Place("ssd", "capacity", ("fabric",), is_shared=True),
    "object": Place("object_store", "capacity", ("fabric",), is_shared=True),
}
"""Tiers by name, from the GPUs outwards."""
WHOLE_ROLES = ("host", "gpu")
"""Media of which all memory of a node is one size."""
LEAST_LEFT = 1e-9
"""Share of a medium's time that is left to reads where writes fill it: next to none."""
TO_GPUS = ("gpu_link", "fabric")
"""Links of which each leads to a GPU of its own."""
LINK_DERATES = {"gpu_link": "pcie", "ssd_link": "pcie", "fabric": "fabric"}
SecondsOfTokens = Callable[[Real], Real]
DAY = 86_400.0
"""Seconds of a day."""
YEAR = 365 * DAY
"""Seconds of a year, as drives' endurance counts it."""


@dataclass(frozen=True)
class Tier:
    """A memory that keeps blocks of KV.

    Attributes:
        name: of `TIERS`.
        read, write: the medium and the links, to the GPUs and from them.
        staged: the second copy of what is read, from host DRAM; none where it is empty.
        latency: before the first byte arrives [s].
        attend: attention beside the memory, in KV bytes; none where nothing computes there.
        capacity: of all its parts [B].
        endurance: that may be written before it wears out; infinite of DRAM [B].
        parts: drives or memories that it is made of [1].
        byte_price: of a byte of capacity; not a number where the platform has no price [USD].
        write_share: of the medium's time that writing takes [1].
        readers: nodes that share the medium's reads evenly [1].
    """

    name: str
    read: DataPath
    write: DataPath
    staged: DataPath
    latency: Real
    attend: Port | None
    capacity: Real
    endurance: Real
    parts: Real
    byte_price: Real
    write_share: Real = 0.0
    readers: Real = 1.0

    def load(self, amount: Real) -> Span:
        """Bring bytes to the GPUs [B]: t = t0 + bytes / min over the path.

        A staged path is two, one after the other. What is written takes its share of the medium's
        time; links carry both directions at once.
        """
        medium = self.read["medium"]
        left = np.maximum(1 - self.write_share, LEAST_LEFT)
        shared = medium.with_rate(medium.rate * left / self.readers)
        path = {**self.read, "medium": shared}
        return serial(
            latency=wait("fetch", self.latency, "t0"),
            read=stream(amount, "KV of the prefix", **path),
            copy=stream(amount, "from host DRAM", **self.staged),
        )

    @property
    def place(self) -> Place:
        """The memory that holds its blocks."""
        return TIERS[self.name]

    def media(self, nodes: int) -> int:
        """Media of its rates that all nodes write to: one that they share, or one each [1]."""
        return 1 if self.place.is_shared and not self.place.is_spread else nodes

    def while_written(self, written: Real, nodes: int) -> Tier:
        """The tier as a node reads it while all nodes write to it [B/s]."""
        media = self.media(nodes)
        share = np.minimum(written / media / self.write["medium"].rate, 1.0)
        return replace(self, write_share=share, readers=nodes / media)

    def write_load(self, written: Real, nodes: int) -> Real:
        """Share of the rate of the slowest part of the path that writing takes, over 1 or not [1].

        Args:
            written: by all nodes [B/s].
        """
        links = [port.rate for name, port in self.write.items() if name != "medium"]
        of_medium = written / (self.media(nodes) * self.write["medium"].rate)
        shares = [of_medium, *(written / (nodes * rate) for rate in links)]
        most: Real = np.maximum.reduce(np.broadcast_arrays(*shares))[()]
        return most


def tier_of(
    name: str,
    hw: Machine,
    block_bytes: Real,
    staged: bool = False,
    of_a_prompt: Real = 1.0,
) -> Tier:
    """Build a tier of a platform.

    Args:
        name: of `TIERS`.
        hw: its roles are those of the place, and `host` where reads are staged.
        block_bytes: KV of a block, which a drive reads as one request [B].
        staged: blocks from beyond the server's memory are first put into host DRAM, not sent to
            the GPUs directly.
        of_a_prompt: share of the links to the GPUs that lead to those which hold one prompt [1].

    Raises:
        MissingNumberError: a link states no time that software takes to begin a load.
    """
    place = TIERS[name]
    part = hw[place.medium]
    is_staged = staged and ("read" in part or place.is_shared)
    before = [role for role in place.links if not (is_staged and role == "gpu_link")]
    links = {role: link(hw, role, LINK_DERATES[role]) for role in before}
    derate = hw.gpu.hbm if place.medium == "gpu" else 1.0
    each = part.maybe("read", part.maybe("bandwidth", np.nan))
    reads = part.count * each * derate
    writes = part.count * part.maybe("write", each) * derate
    software = hw[place.links[-1]].fetch if place.links else 0.0
    hops = sum(hw[role].maybe("latency", 0.0) for role in place.links)
    read: dict[str, Port] = {"medium": Port(f"{place.medium}.media", "read", reads)}
    write: dict[str, Port] = {"medium": Port(f"{place.medium}.media", "write", writes)}
    for role, port in links.items():
        reached = of_a_prompt if role in TO_GPUS else 1.0
        read[role], write[role] = _part_of(port.inward, reached), port.outward
    return Tier(
        name=name,
        read=read | _requests(hw, part, block_bytes),
        write=write,
        staged=_copy(hw, of_a_prompt) if is_staged else {},
        latency=software + part.maybe("latency", 0.0) + hops,
        attend=_attend(hw) if place.medium == "host" else None,
        capacity=part.count * part[place.capacity],
        endurance=part.count * part.maybe("endurance", np.inf),
        parts=part.count,
        byte_price=_byte_price(hw.roles.get(place.sold_as or place.medium)),
    )


def _requests(hw: Machine, part: Role, block_bytes: Real) -> dict[str, Port]:
    """Rate of requests of a block: IOPS of the drives, and the file system's time a block.

    A file system serves one block after the other, whatever the number of drives.
    """
    ports: dict[str, Port] = {}
    if "iops" in part:
        ports["iops"] = Port("drive.iops", "read", part.count * part.iops * block_bytes)
        of_files = hw.policy.maybe("block_time", 0.0) if "policy" in hw.roles else 0.0
        ports["files"] = Port("host.files", "move", block_bytes * per(of_files))
    return ports


def _part_of(port: Port, share: Real) -> Port:
    """A share of a port's rate."""
    return port.with_rate(share * port.rate)


def _copy(hw: Machine, of_a_prompt: Real) -> DataPath:
    """The path from host DRAM to the GPUs that hold a prompt."""
    read = Port("host.media", "read", hw.host.count * hw.host.bandwidth)
    links = link(hw, "gpu_link", "pcie").inward
    return {"dram": read, "gpu_link": _part_of(links, of_a_prompt)}


def _attend(hw: Machine) -> Port | None:
    """Attention of the CPU over KV in its DRAM, in KV bytes; none where no rate is known."""
    if "cpu_attention" not in hw.derate:
        return None
    rate = hw.host.count * hw.host.bandwidth * hw.derate.cpu_attention
    return Port("host.dram", "read", rate)


def _byte_price(part: Role | None) -> Real:
    """Price of a byte of a part's capacity [USD]."""
    if part is None:
        return np.nan
    capacity = part.maybe("capacity", part.maybe("memory", np.nan))
    return part.maybe("price", np.nan) / capacity


# --- ways back of a prefix ------------------------------------------------------------------------


def split(compute: SecondsOfTokens, load: SecondsOfTokens, tokens: Real) -> Real:
    """Tokens to compute from the head while the rest is loaded, so that both end together [1].

    The KV of a token depends on those before it alone, so the head can be computed while the tail
    arrives (Cake, Jin et al. 2024, sec. 4). Computing rises in k and loading p - k falls, so the
    longer of both is least where they cross, which is found for every prefix at once.

    Args:
        compute: seconds for the first tokens of a prefix, rising, 0 of none.
        load: seconds for bytes of as many tokens, rising.
        tokens: p, of each prefix [1].
    """

    def early(head: Real) -> Real:
        """Time by which the head is done before the rest arrives [s]."""
        return load(tokens - head) - compute(head)

    return crossing(early, 0.0 * tokens, tokens)


def both(compute: SecondsOfTokens, load: SecondsOfTokens, tokens: Real) -> Real:
    """Seconds to bring a prefix back where its head is computed while its tail is loaded [s]."""
    k = split(compute, load, tokens)
    return np.maximum(compute(k), load(tokens - k))


def crossover(compute: SecondsOfTokens, load: SecondsOfTokens, longest: float) -> float:
    """The prefix from which on loading is as fast as computing; nan where none is [tokens].

    Loading has a fixed part and grows with the bytes; computing grows with the tokens and, once
    attention counts, faster. Experts that more and more tokens wake may make it grow slower first.
    """
    lengths = np.arange(1.0, longest + 1)
    is_slower = np.greater(load(lengths), compute(lengths))
    if is_slower[-1]:
        return float("nan")
    return float(1 + np.max(lengths, where=is_slower, initial=0.0))


def layerwise(load: Real, compute: Real, layers: Real) -> Real:
    """Seconds where the KV of each layer is loaded while the layer before is computed [s].

    CachedAttention (Gao et al., ATC 2024), sec. 3.2: a pipeline of two stages, so one layer of both
    and the longer of the two for all others.

    Args:
        load: of the prefix in all layers [s].
        compute: of the rest of the prompt in all layers [s].
        layers: L [1].
    """
    first = (load + compute) / layers
    return first + (1 - 1 / layers) * np.maximum(load, compute)


# --- wear -----------------------------------------------------------------------------------------


def drive_writes_a_day(written: Real, capacity: Real) -> Real:
    """DWPD: times the capacity is written a day [1].

    Args:
        written: to all drives, what the flash adds included [B/s].
        capacity: of all drives [B].
    """
    return written * DAY / capacity


def years(written: Real, endurance: Real) -> Real:
    """Life of drives at a rate [years].

    Args:
        written: to all drives [B/s].
        endurance: of all drives [B].
    """
    return endurance / (written * YEAR)


def write_price(price: Real, endurance: Real) -> Real:
    """Cost of the drives' life that writing a byte takes [USD/B].

    Args:
        price: of all drives [USD].
        endurance: of all drives [B].
    """
    return price / endurance
