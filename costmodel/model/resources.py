"""Capability of a machine's parts: effective rate = peak of the datasheet x share that is reached.

Every resource is named `role.port`; each direction of a link is a resource of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Port, Real, choose
from nearkv.costmodel.model.llm import LLM
from nearkv.hardware.machine import Machine, Role
from nearkv.hardware.schema import NARROW_OPERANDS

KERNEL_GROUPS = (1, 4, 5)
"""Queries a KV head for which HILOS built attention kernels (Table 3)."""
WIDEST = 2.0
"""Operand of the rate that every GPU has [B]."""
PORTS_KEPT = 4
"""Machines whose parts are kept built: a formula asks for them tens of times in a row."""


@dataclass(frozen=True)
class Gpu:
    """Matrix units and device memory.

    Attributes:
        run: matrix products [FLOP].
        read: device memory [B].
        memory: capacity [B].
        narrow: rates of narrower products, the widest first: widest operand [B], rate [FLOP/s].
        prompts: matrix products of prompts where they run at a rate of their own [FLOP].
    """

    run: Port
    read: Port
    memory: Real
    narrow: tuple[tuple[float, Real], ...] = ()
    prompts: Port | None = None

    @property
    def for_prompts(self) -> Gpu:
        """This GPU at the rate of prompts."""
        return replace(self, run=self.prompts or self.run)

    def multiplies(self, llm: LLM) -> Booleans:
        """True if the matrix units take the packed weights of a model as they are stored."""
        _, stored = llm.operands
        packs = any(widest < 1 for widest, _ in self.narrow)
        return packs & np.less(llm.native_operand, stored)

    def operands(self, llm: LLM) -> tuple[Real, Real]:
        """Bytes of the wider operand of the products of attention, and of the others [B]."""
        if not np.any(self.multiplies(llm)):
            return llm.operands
        dense, mlp = llm.operands
        native = choose(self.multiplies(llm), llm.native_operand, mlp)
        return choose(dense == mlp, native, dense), native

    def is_faster_for(self, operands: tuple[Real, Real]) -> bool:
        """True if any of these operands [B] is narrow enough for a faster rate."""
        if not self.narrow:
            return False
        widest, _ = self.narrow[0]
        return bool(np.any(np.minimum(*operands) <= widest))

    def products(self, operand: Real) -> Port:
        """Matrix products of operands of a width [B], at the rate of that width [FLOP]."""
        if not self.narrow:
            return self.run
        rate = self.run.rate
        for taken, narrow in self.narrow:
            rate = choose(takes(taken, operand), narrow, rate)
        return self.run.with_rate(rate)

    def product_width(self, operand: Real) -> Real:
        """Width that weights must have when they enter a product of such operands [B]."""
        width: Real = WIDEST
        for taken, _ in self.narrow:
            width = choose(takes(taken, operand), taken, width)
        return width


def takes(width: float, operand: Real) -> Booleans:
    """True if the units for a width [B] multiply operands of another, of their own kind.

    What they lack is unpacked to 16 bits: units for 8 bits take no operands of 4.
    """
    return np.less_equal(operand, width) & (operand > width / 2)


@lru_cache(PORTS_KEPT)
def gpu(hw: Machine) -> Gpu:
    """Build the GPUs, working as one.

    Products of 8 bits reach `gemm_narrow` of their peak, of 4 bits `gemm_4bit`, those of prompts
    `derate.prefill` where a platform states it.
    """
    part = hw.gpu
    peak = part.count * part.flops
    run = Port("gpu.tensor", "run", peak * part.gemm, "FLOP")
    of_prompts = peak * hw.derate.maybe("prefill", part.gemm)
    prompts = Port("gpu.tensor", "run", of_prompts, "FLOP")
    read = Port("gpu.hbm", "read", part.count * part.bandwidth * part.hbm)
    reached = {"flops_8bit": "gemm_narrow", "flops_4bit": "gemm_4bit"}
    narrow = [
        (width, part.count * part[key] * part[reached[key]])
        for key, width in NARROW_OPERANDS.items()
        if key in part
    ]
    return Gpu(run, read, part.count * part.memory, tuple(narrow), prompts)


@lru_cache(PORTS_KEPT)
def flash(hw: Machine) -> Port:
    """Build the flash behind the memory of the GPUs, all stacks working as one [B].

    Its buffers hold what it reads within twice its latency, so what is read in an order known
    before comes at its full rate (H3, eq. 1).
    """
    part = hw.hbf
    return Port("hbf.flash", "read", part.count * part.bandwidth)


@dataclass(frozen=True)
class Host:
    """CPU and DRAM of one server.

    Attributes:
        read: DRAM streaming [B].
        attend: attention of the CPU over a KV cache in DRAM, in KV bytes [B].
        memory: capacity that the system leaves to programs [B].
    """

    read: Port
    attend: Port
    memory: Real


@lru_cache(PORTS_KEPT)
def host(hw: Machine) -> Host:
    """Build the hosts, working as one; CPU attention and streaming share their DRAM."""
    part = hw.host
    read = Port("host.dram", "read", part.count * part.bandwidth)
    attend = read.with_rate(read.rate * hw.derate.cpu_attention)
    memory = part.count * part.memory * part.usable
    return Host(read, attend, memory)


@dataclass(frozen=True)
class Link:
    """A full-duplex link, seen from the GPU: inward is toward it [B]."""

    inward: Port
    outward: Port


@lru_cache(PORTS_KEPT)
def link(hw: Machine, role: str, derate: str) -> Link:
    """Build a link whose payload rate is its raw rate x a share.

    The share is the part's own, of links for drives, else a named derate: that of copies by a GPU.
    """
    part = hw[role]
    share = part.payload if "payload" in part else getattr(hw.derate, derate)
    rate = part.count * part.bandwidth * share
    inward = Port(f"{role}.in", "move", rate)
    outward = Port(f"{role}.out", "move", rate)
    return Link(inward, outward)


@dataclass(frozen=True)
class Drives:
    """Drives of a role, striped [B]."""

    read: Port
    write: Port
    capacity: Real


@lru_cache(PORTS_KEPT)
def drives(hw: Machine, role: str) -> Drives:
    """Build drives striped over all their number. Reads and writes share the flash."""
    part = hw[role]
    read = Port(f"{role}.flash", "read", part.count * part.read)
    write = Port(f"{role}.flash", "write", part.count * part.write)
    return Drives(read, write, part.count * part.capacity)


def page_cache(hw: Machine, role: str) -> Port:
    """The kernel's buffered path of the file system over all drives of a role [B]."""
    return Port("host.file", "move", hw[role].file_read)


@dataclass(frozen=True)
class Csd:
    """Computational storage devices, their number working as one.

    Attributes:
        part, group, kv_width: what the attention kernel is chosen by, once it is needed.
        read, write: flash inside the devices, to and from the accelerators [B].
        page: smallest write that is not amplified [B].
        capacity: all flash [B].
    """

    part: Role
    group: Real
    kv_width: Real
    read: Port
    write: Port
    page: Real
    capacity: Real

    @property
    def commit(self) -> Port:
        """Synchronous writes of one page each [op]."""
        return Port("csd.commit", "wait", per(self.part.commit, self.part.count), "op")

    @property
    def stage(self) -> Port:
        """Buffer transfers from host memory to the accelerators, one at a time [op]."""
        return Port("host.driver", "wait", per(self.part.dma), "op")

    @cached_property
    def attend(self) -> Port:
        """Attention kernel, in KV bytes [B]."""
        rate, _ = self._kernel
        return Port("csd.kernel", "run", self.part.count * rate)

    @property
    def kernel_power(self) -> Real:
        """Power of all kernels while they work [W]."""
        _, power = self._kernel
        return self.part.count * power

    @cached_property
    def _kernel(self) -> tuple[Real, Real]:
        return attention_kernel(self.part, self.group, self.kv_width)


def csd(hw: Machine, group: Real, kv_width: Real = 2.0) -> Csd:
    """Build the computational storage devices for a model with `group` queries a KV head.

    Args:
        kv_width: bytes of one KV element [B].
    """
    part = hw.csd
    return Csd(
        part=part,
        group=group,
        kv_width=kv_width,
        read=Port("csd.flash", "read", part.count * part.p2p_read),
        write=Port("csd.flash", "write", part.count * part.write),
        page=part.page,
        capacity=part.count * part.capacity,
    )


def per(delay: Real, at_once: Real = 1.0) -> Real:
    """Operations per second of a delay [s]; infinite where it is zero [1/s].

    Args:
        delay: of one operation [s].
        at_once: operations that wait side by side [1].
    """
    with np.errstate(divide="ignore"):
        return np.divide(at_once, delay)


def attention_kernel(part: Role, group: Real, kv_width: Real = 2.0) -> tuple[Real, Real]:
    """Choose the best kernel of a device for a GQA group (HILOS Table 3, sec. 4.4).

    A kernel built for k queries takes 2 k FLOPs an element of KV, two a multiply-add. It streams
    16-bit KV at its peak / k bytes per second, narrower KV at as many elements per second, and
    either no faster than the accelerator's memory. A group larger than k takes ceil(group / k)
    passes over the same KV, a smaller one leaves multipliers idle.

    Args:
        part: the devices.
        group: query heads per KV head, g [1].
        kv_width: bytes of one KV element; Table 3 is for 2 [B].

    Returns:
        KV bytes one device streams per second [B/s], power of its kernel [W].
    """
    best_rate: Real = 0.0
    best_power: Real = 0.0
    for built in KERNEL_GROUPS:
        flops = part.maybe(f"kernel_g{built}", 0.0)
        power = part.maybe(f"kernel_power_g{built}", np.nan)
        passes = np.ceil(np.divide(group, built))
        elements = flops / (2 * built)
        rate = np.minimum(elements * kv_width, part.memory_bandwidth) / passes
        best_power = choose(rate > best_rate, power, best_power)
        best_rate = np.maximum(best_rate, rate)
    return best_rate, best_power
