"""Random designs: any system on a random machine, with a random model, work and knobs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from numpy.typing import NDArray
from support.systems import NATIVE, SYSTEMS

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.models import llm_from_part
from nearkv.costmodel.model.registry import Knob, System
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.hardware.platform import Part, Platform
from nearkv.hardware.schema import Key
from nearkv.solvers.knobs import KnobSetting, Resolved, resolve_knobs

POINTS = 10
"""Design points of one model that are evaluated at once: hardly more than one takes."""
Values = NDArray[np.float64]
"""One value a design point."""
CASES = int(os.environ.get("NEARKV_CASES", "20"))
"""Design points a system: a few in the tests, thousands in `make fuzz`."""
RATES = {"B/s", "FLOP/s", "Hz", "T/s"}
MODELS = sorted(file.stem for file in (Path(__file__).parents[2] / "costmodel/llms").glob("*"))
IN_DRAM = (
    "weights fill host DRAM before the drives, so that where DRAM is the bottleneck, at a tenth of "
    "its bandwidth or beside the CPU's attention, they would have come faster from the drives"
)
SLIGHTLY_SLOWER = {
    ("flexgen-ssd", "host.memory"): IN_DRAM,
    ("flexgen-16ssd", "host.memory"): IN_DRAM,
    ("hilos", "host.memory"): IN_DRAM,
}
"""At a stated placement more of which may take a twentieth longer, and why; `auto` does better."""
SLIGHTLY = 0.05
# Two numbers that bound each other: drawing one alone would be refused.
BOUND = {"host.kv_memory"}

seeded = settings(
    max_examples=max(CASES // POINTS, 1),
    deadline=None,
    database=None,
    derandomize="NEARKV_SEED" not in os.environ,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@dataclass(frozen=True, repr=False)
class Design:
    """Several design points of one system and one model.

    Attributes:
        system, hw, llm, work: what is evaluated; numbers have one value a point.
        named: the model's name.
        knobs: numbers, a rule or `auto` for every knob that sets no hardware number.
    """

    system: System
    hw: Machine
    named: str
    llm: LLM
    work: Workload
    knobs: dict[str, KnobSetting]

    def _repr_pretty_(self, printer: RepresentationPrinter, _: bool) -> None:
        """Print, for Hypothesis, where a failing case differs from the paper's machine."""
        work = (self.work.batch, self.work.prompt, self.work.output)
        paper = platform_of(self.system.name).machine()
        changed = {
            address: values
            for address, values in self.numbers().items()
            if np.any(np.not_equal(values, value_of(paper, address)))
        }
        lines = [f"{self.system.name} {self.named}", f"{work}", f"{changed}", f"{self.knobs}"]
        printer.text("\n".join(lines))

    def having(self, **knobs: KnobSetting) -> Design:
        return replace(self, knobs={**self.knobs, **knobs})

    def changed(self, values: dict[str, Real]) -> Design:
        return replace(self, hw=self.hw.with_values(values))

    @cached_property
    def resolved(self) -> Resolved:
        return resolve_knobs(self.system, self.hw, self.llm, self.work, self.knobs)

    @property
    def estimate(self) -> Estimate:
        return self.resolved.estimate

    @cached_property
    def stated(self) -> Design:
        """The same with the number that every knob has."""
        return self.having(**self.resolved.knobs)

    @property
    def is_refused(self) -> bool:
        """True if the system says that it cannot answer."""
        try:
            return not self.resolved
        except InputError:
            return True

    def numbers(self) -> dict[str, Real]:
        """All hardware numbers by address."""
        numbers = {}
        for role, part in self.hw.roles.items():
            for key, value in part.values.items():
                numbers[f"{role}.{key}"] = value
        return numbers


@cache
def platform_of(named: str) -> Platform:
    return load_platform(SYSTEMS[named].platform)


@cache
def key_of(named: str, address: str) -> Key:
    return platform_of(named).key(address)


@cache
def part_of(name: str) -> Part:
    return load_llm(name)


@cache
def goods(named: str) -> list[str]:
    """Every rate, capacity and count of a system's machine."""
    addresses = []
    for role, part in platform_of(named).machine().roles.items():
        for name in part.values:
            address = f"{role}.{name}"
            good = name in ("count", "memory", "capacity")
            good = good or key_of(named, address).unit in RATES
            if good and address not in BOUND:
                addresses.append(address)
    return addresses


def is_good(named: str, address: str) -> bool:
    """True if more of a number never makes what fits too large."""
    return SYSTEMS[named].is_monotone("status", address)


def most_lost(named: str, address: str) -> float:
    """Share of the time by which more of a number may lengthen it, at stated knobs [1].

    What solved knobs trade, along any axis, is no matter there.
    """
    if any(address in reversal.axes for reversal in SYSTEMS[named].reversals):
        return np.inf
    return SLIGHTLY if (named, address) in SLIGHTLY_SLOWER else 0.0


def value_of(machine: Machine, address: str) -> Real:
    role, _, name = address.partition(".")
    return machine.roles[role].values[name]


@dataclass(frozen=True)
class Points:
    """Random values of several design points, from one seed."""

    random: np.random.Generator

    def shares(self) -> Values:
        """Shares in thousandths, both ends among them."""
        drawn = self.random.integers(0, 1001, POINTS)
        ends = self.random.integers(0, 2, POINTS) * 1000
        return np.where(self.one_in(8), ends, drawn) / 1000

    def one_in(self, many: int) -> NDArray[np.bool_]:
        return np.equal(self.random.integers(0, many, POINTS), 0)

    def wholes(self, low: float, high: float) -> Values:
        """Whole numbers, as many small as large, both ends among them."""
        flat = self.random.integers(int(low), int(high), POINTS, endpoint=True)
        decades = self.random.uniform(0, np.log(high - low + 1), POINTS)
        scaled = low - 1 + np.round(np.exp(decades))
        return np.where(self.one_in(2), scaled, flat)

    def machine(self, named: str, chosen: list[str]) -> Machine:
        """A system's platform, half of some numbers a tenth to ten times the paper's."""
        machine = platform_of(named).machine()
        values: dict[str, Values] = {}
        for address in chosen:
            factors = 10 ** self.random.uniform(-1, 1, POINTS)
            values[address] = value_of(machine, address) * np.where(self.one_in(2), 1, factors)
        return changed_machine(machine, named, values)

    def tightened(self, design: Design, address: str) -> Design:
        """The design with a memory that holds about the weights, the KV cache or parts of both.

        What moves, or is refused, once it does not fit shows on such machines alone.
        """
        llm, work, hw = design.llm, design.work, design.hw
        weights = self.shares() * llm.weight_bytes
        cache = 1.5 * self.shares() * llm.kv_cache_bytes(work.batch, work.final)
        role = address.partition(".")[0]
        count = hw.roles[role].maybe("count", 1.0)
        held = (weights + cache) / count
        tight = np.where(self.one_in(2), value_of(hw, address), held)
        return replace(design, hw=changed_machine(hw, design.system.name, {address: tight}))

    def knob(self, knob: Knob) -> Values:
        """Values of a knob."""
        if knob.solver:
            return self.wholes(0, 8)
        if knob.is_continuous:
            return knob.low + self.shares() * (knob.high - knob.low)
        return self.wholes(knob.low, knob.high)


def changed_machine(machine: Machine, named: str, values: dict[str, Values]) -> Machine:
    """A machine with other numbers, but for those that no part can have."""
    possible: dict[str, Real] = {}
    for address, drawn in values.items():
        key = key_of(named, address)
        rounded = np.maximum(np.round(drawn), 1.0) if key.whole else drawn
        faulty = [bool(key.fault(float(value))) for value in rounded]
        possible[address] = np.where(faulty, value_of(machine, address), rounded)
    return machine.with_values(possible)


@st.composite
def designs(draw: st.DrawFn, named: str) -> Design:
    """Points of a system, every knob at a number, or `auto` where it is solved with others."""
    system = SYSTEMS[named]
    name = draw(st.sampled_from(MODELS))
    points = draw(st.integers(0, 2**32 - 1).map(np.random.default_rng).map(Points))
    chosen = draw(st.lists(st.sampled_from(goods(named)), max_size=6, unique=True))
    hw = points.machine(named, chosen)
    llm = llm_from_part(part_of(name), hw.roles.get("precision", NATIVE))
    batch, prompt = points.wholes(1, 256), points.wholes(1, 200_000)
    work = Workload(batch, prompt, points.wholes(1, 2048))
    knobs: dict[str, KnobSetting] = {}
    for knob_name, knob in system.knobs.items():
        if knob.solver and draw(st.booleans()):
            knobs[knob_name] = "auto"
        elif knob_name == "chunk" and any(other.solver for other in system.knobs.values()):
            # the mapping of prompts is a rule for whole ones; the memories bind a few tokens
            knobs[knob_name] = 0.0
        elif not knob.sets:
            knobs[knob_name] = points.knob(knob)
    design = Design(system, hw, name, llm, work, knobs)
    memories = [name for name in goods(named) if name.endswith((".memory", ".capacity"))]
    tight = draw(st.sampled_from([None, *memories]))
    return points.tightened(design, tight) if tight else design
