"""Tiers that keep KV caches between requests: the way to the GPUs, capacity, endurance.

A tier is a memory of the platform: its parts say the rates. Several servers share a pooled one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.algebra.compose import stream
from nearkv.costmodel.algebra.span import Port, Real, Span
from nearkv.costmodel.model.resources import drives, host, link
from nearkv.hardware.machine import Machine

Path = Mapping[str, Port]
"""The ports bytes pass at the same time, by name."""


@dataclass(frozen=True)
class Tier:
    """A memory that keeps blocks of KV.

    Attributes:
        name: as the user calls it.
        read: from the memory to the GPUs.
        write: from the GPUs to the memory.
        capacity: of all its parts [B].
        endurance: that may be written before it wears out; infinite of DRAM [B].
        parts: drives or memories that it is made of [1].
    """

    name: str
    read: Path
    write: Path
    capacity: Real
    endurance: Real
    parts: Real

    def load(self, amount: Real) -> Span:
        """Bring bytes to the GPUs [B]; the slowest part of the way decides."""
        return stream(amount, "KV of the prefix", **self.read)

    @property
    def write_rate(self) -> Real:
        """Of the slowest part of the way from the GPUs [B/s]."""
        rates = [port.rate for port in self.write.values()]
        slowest: Real = np.minimum.reduce(np.broadcast_arrays(*rates))[()]
        return slowest


def dram(hw: Machine) -> Tier:
    """Host DRAM behind the GPUs' link."""
    memory, to_gpu = host(hw), link(hw, "gpu_link", "pcie")
    read = {"dram": memory.read, "link": to_gpu.inward}
    write = {"link": to_gpu.outward, "dram": memory.read}
    return Tier("dram", read, write, memory.memory, np.inf, 1.0)


def ssd(hw: Machine) -> Tier:
    """Drives of the same server, their blocks read past the page cache."""
    flash = drives(hw, "ssd")
    lanes, to_gpu = link(hw, "ssd_link", "pcie"), link(hw, "gpu_link", "pcie")
    read = {"flash": flash.read, "lanes": lanes.inward, "link": to_gpu.inward}
    write = {"link": to_gpu.outward, "lanes": lanes.outward, "flash": flash.write}
    endurance = hw.ssd.count * hw.ssd.endurance
    return Tier("ssd", read, write, flash.capacity, endurance, hw.ssd.count)


def pool(hw: Machine) -> Tier:
    """DRAM of other servers behind the fabric; an adapter a GPU, no copy in this host's DRAM."""
    memory, fabric = host(hw), link(hw, "fabric", "link")
    read = {"dram": memory.read, "fabric": fabric.inward}
    write = {"fabric": fabric.outward, "dram": memory.read}
    return Tier("pool", read, write, memory.memory, np.inf, 1.0)


TIERS: dict[str, tuple[Callable[[Machine], Tier], tuple[str, ...], str]] = {
    "dram": (dram, ("host", "gpu_link"), "host.memory"),
    "ssd": (ssd, ("ssd", "ssd_link", "gpu_link"), "ssd.capacity"),
    "pool": (pool, ("host", "fabric"), "host.memory"),
}
"""By name: what builds a tier, the roles that it needs, and where its capacity stands."""
