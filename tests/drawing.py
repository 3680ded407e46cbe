"""Random designs: any system on a random machine, with a random model, work and knobs."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from conftest import NATIVE, SYSTEMS, machine_of
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.models import llm_from_part
from nearkv.costmodel.registry import System
from nearkv.costmodel.span import Real
from nearkv.costmodel.workload import Workload
from nearkv.hardware.catalog import load_llm, load_platform
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import Machine
from nearkv.hardware.part import Part
from nearkv.hardware.platform import Platform
from nearkv.hardware.schema import Key
from nearkv.solvers.knobs import Requested, Resolved, resolve_knobs

CASES = int(os.environ.get("NEARKV_CASES", "20"))
"""Cases a system: a few in the tests, thousands in `make fuzz`."""
SHARES = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
RATES = {"B/s", "FLOP/s", "Hz", "T/s"}
MODELS = sorted(file.stem for file in (Path(__file__).parent.parent / "costmodel/llms").glob("*"))
ANY = "any system"
RING = "a degree of tensor parallelism, which is a choice: all-reduces of a larger ring take longer"
BY_BYTES = (
    "FlexGen's static split fills HBM by bytes, as H2M2 compares it (sec. 3.2): more of a memory "
    "whose chip is the slower takes work from the faster"
)
ALL_ON_GPU = (
    "a token on the GPU is attended to without being scored, so a larger share there attends to "
    "more tokens than alpha retains (HillInfer sec. 4.2): other work, not the same in less time"
)
NO_GOOD = {
    (ANY, "cluster_host.count"): "nodes split a fixed number of GPUs between them",
    ("tensor-parallel", "gpu.count"): RING,
    ("tensor-parallel", "nvlink.count"): RING,
    ("flexgen-mapping", "hbm.memory"): BY_BYTES,
    ("flexgen-mapping", "hbm.count"): BY_BYTES,
    ("leoam", "gpu.memory"): ALL_ON_GPU,
    ("leoam", "gpu.count"): ALL_ON_GPU,
    ("infinigen", "gpu.memory"): ALL_ON_GPU,
    ("infinigen", "gpu.count"): ALL_ON_GPU,
    ("hillinfer", "gpu.memory"): ALL_ON_GPU,
    ("hillinfer", "gpu.count"): ALL_ON_GPU,
}
"""Of which system more of what may hurt, and why; everything else is held to it."""
# Two numbers that bound each other: drawing one alone would be refused.
BOUND = {"host.kv_memory"}

seeded = settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize="NEARKV_SEED" not in os.environ,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@dataclass(frozen=True, repr=False)
class Design:
    """One design point.

    Attributes:
        system, hw, llm, work: what is evaluated.
        named: the model's name.
        knobs: a number, a rule or `auto` for every knob that sets no hardware number.
    """

    system: System
    hw: Machine
    named: str
    llm: LLM
    work: Workload
    knobs: dict[str, Requested]

    def _repr_pretty_(self, printer: RepresentationPrinter, _: bool) -> None:
        """What Hypothesis prints of a failing case: what differs from the paper's machine."""
        paper = Design(self.system, machine_of(self.system), "", self.llm, self.work, {}).numbers()
        numbers = self.numbers().items()
        changed = {address: value for address, value in numbers if value != paper[address]}
        work = (self.work.batch, self.work.prompt, self.work.output)
        printer.text(f"{self.system.name} {self.named} {work} {changed} {self.knobs}")

    def having(self, **knobs: Requested) -> Design:
        return replace(self, knobs={**self.knobs, **knobs})

    def changed(self, values: dict[str, Real]) -> Design:
        return replace(self, hw=self.hw.with_values(values))

    @cached_property
    def resolved(self) -> Resolved:
        return resolve_knobs(self.system, self.hw, self.llm, self.work, self.knobs)

    @property
    def estimate(self) -> Estimate:
        return self.resolved.estimate

    @property
    def stated(self) -> Design:
        """The same with the number that every knob has."""
        return self.having(**self.resolved.knobs)

    @property
    def is_refused(self) -> bool:
        """Whether the system says that it cannot answer."""
        try:
            return not self.resolved
        except InputError:
            return True

    def numbers(self) -> dict[str, float]:
        """All hardware numbers by address."""
        numbers = {}
        for role, part in self.hw.roles.items():
            for key, value in part.values.items():
                numbers[f"{role}.{key}"] = float(np.ravel(value)[0])
        return numbers


@cache
def platform_of(named: str) -> Platform:
    return load_platform(SYSTEMS[named].platform)


def key_of(named: str, address: str) -> Key:
    return platform_of(named).key(address)


@cache
def part_of(name: str) -> Part:
    return load_llm(name)


@cache
def goods(named: str) -> list[str]:
    """Every rate, capacity and count of a system's machine; more hurts in `NO_GOOD` at most."""
    addresses = []
    for role, part in platform_of(named).machine().roles.items():
        for name in part.values:
            address = f"{role}.{name}"
            good = name in ("count", "memory", "capacity")
            good = good or key_of(named, address).unit in RATES
            if good and address not in BOUND:
                addresses.append(address)
    return addresses


def hurts(named: str, address: str) -> bool:
    """Whether more of a number is declared to be no better for a system."""
    return (named, address) in NO_GOOD or (ANY, address) in NO_GOOD


@st.composite
def machines(draw: st.DrawFn, named: str) -> Machine:
    """The platform of a system's paper with up to six numbers from a tenth to ten times theirs."""
    machine = platform_of(named).machine()
    chosen = draw(st.lists(st.sampled_from(goods(named)), max_size=6, unique=True))
    values = {}
    for address in chosen:
        value = value_of(machine, address) * 10 ** draw(st.floats(-1.0, 1.0))
        values[address] = value
    return changed_machine(machine, named, values)


@st.composite
def tight_machines(
    draw: st.DrawFn, named: str, machine: Machine, llm: LLM, work: Workload
) -> Machine:
    """A machine of which a memory holds about the weights, the KV cache or parts of both.

    What moves, or is refused, once it does not fit shows on such machines alone.
    """
    memories = [name for name in goods(named) if name.endswith((".memory", ".capacity"))]
    address = draw(st.sampled_from(memories))
    role = address.partition(".")[0]
    weights = draw(SHARES) * float(llm.weight_bytes)
    cache = 1.5 * draw(SHARES) * float(llm.kv_cache_bytes(work.batch, work.final))
    count = float(machine.roles[role].values.get("count", 1.0))
    return changed_machine(machine, named, {address: (weights + cache) / count})


def value_of(machine: Machine, address: str) -> float:
    role, _, name = address.partition(".")
    return float(np.ravel(machine.roles[role].values[name])[0])


def changed_machine(machine: Machine, named: str, values: dict[str, float]) -> Machine:
    """A machine with other numbers, but for those that no part can have."""
    possible: dict[str, Real] = {}
    for address, value in values.items():
        key = key_of(named, address)
        rounded = max(round(value), 1.0) if key.whole else value
        if not key.fault(rounded):
            possible[address] = float(rounded)
    return machine.with_values(possible)


@st.composite
def designs(draw: st.DrawFn, named: str) -> Design:
    """A system at any point, every knob at a number, or `auto` where it is solved with others."""
    system = SYSTEMS[named]
    name = draw(st.sampled_from(MODELS))
    hw = draw(machines(named))
    llm = llm_from_part(part_of(name), hw.roles.get("precision", NATIVE))
    batch = draw(st.integers(1, 256))
    prompt = draw(st.integers(1, 200_000))
    output = draw(st.integers(1, 2048))
    work = Workload(float(batch), float(prompt), float(output))
    if draw(st.booleans()):
        hw = draw(tight_machines(named, hw, llm, work))
    knobs: dict[str, Requested] = {}
    for knob_name, knob in system.knobs.items():
        if knob.sets:
            continue
        if knob.solver:
            knobs[knob_name] = draw(st.one_of(st.just("auto"), st.integers(0, 8).map(float)))
        elif knob.kind == "share":
            knobs[knob_name] = knob.low + draw(SHARES) * (knob.high - knob.low)
        else:
            knobs[knob_name] = float(draw(st.integers(int(knob.low), int(knob.high))))
    return Design(system, hw, name, llm, work, knobs)
