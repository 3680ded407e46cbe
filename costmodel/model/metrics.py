"""Columns of a result: each a function of an estimate, computed only when a table asks for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nearkv.costmodel.algebra.span import Booleans, Real, Span, choose
from nearkv.costmodel.model.estimate import Estimate
from nearkv.hardware.machine import Machine, Role


@dataclass(frozen=True)
class Evaluated:
    """An estimate and the machine that gave it.

    Attributes:
        estimate: what the system answered.
        hw: the machine, swept numbers as arrays.
        owns: roles that are bought and powered, where the platform has them.
    """

    estimate: Estimate
    hw: Machine
    owns: tuple[str, ...]

    @property
    def devices(self) -> dict[str, Role]:
        """The roles this platform has of those that the system owns, and its server."""
        owned = (*self.owns, SERVER)
        return {role: self.hw[role] for role in owned if role in self.hw.roles}

    @cached_property
    def step_joules(self) -> Real:
        """Energy of a decode step [J]."""
        return _joules(self, self.estimate.step)

    @cached_property
    def joules(self) -> Real:
        """Energy of the batch: of its prompts, then of n - 1 steps [J].

        Of requests that arrive, those that are present: what the machine draws while they are.
        """
        if self.estimate.busy is not None:
            return _power_under_load(self, self.estimate.busy) * self.estimate.total.seconds
        steps = self.estimate.work.output - 1
        return _joules(self, self.estimate.prefill) + steps * self.step_joules


COSTS = ("cost_usd", "tok_s_per_kusd", "usd_hour", "usd_mtok")
"""Columns of a price."""
SERVER = "server"
"""The role that every system needs, where a platform has it: what its devices sit in."""
HOURS = 8766.0
"""Hours of a year."""
Compute = Callable[[Evaluated], Real]


@dataclass(frozen=True)
class Column:
    """One column: its name carries the unit.

    Attributes:
        name, what: its name, and a sentence on it.
        higher_is_better: whether the higher of two values is the better one.
        compute: an answer -> its value.
        of_machine: whether it is of the machine alone, however requests are served.
    """

    name: str
    what: str
    higher_is_better: bool
    compute: Compute
    of_machine: bool = False


COLUMNS: dict[str, Column] = {}


def column(
    name: str, what: str, *, higher_is_better: bool, of_machine: bool = False
) -> Callable[[Compute], Compute]:
    """Register the function of a column under its name; arguments as of `Column`."""

    def register(compute: Compute) -> Compute:
        COLUMNS[name] = Column(name, what, higher_is_better, compute, of_machine)
        return compute

    return register


def is_of_costs(names: Collection[str]) -> bool:
    """True if any of some columns, or the ratio that one is, is of a price."""
    return any(name.removesuffix("_ratio") in COSTS for name in names)


@column(
    "batch_run",
    "sequences served together, on average where rounds or requests differ; fewer than `batch` "
    "where memory or the engine ends them",
    higher_is_better=True,
)
def _batch_run(answer: Evaluated) -> Real:
    return answer.estimate.batch_run


def _alone(answer: Evaluated, amount: Real) -> Real:
    """Time of prefill or of a step; NaN where prompts ride in steps, which mixes the two."""
    carries = answer.estimate.step_carries
    if not np.any(carries):
        return amount
    return choose(carries == 0, amount, np.nan)


@column(
    "prefill_s",
    "time to process all prompts of the batch; blank if prompts ride in steps [s]",
    higher_is_better=False,
)
def _prefill(answer: Evaluated) -> Real:
    return _alone(answer, answer.estimate.prefill.seconds)


@column(
    "prefill_tok_s",
    "tokens of all prompts of the batch over prefill_s; blank if prompts ride in steps [1/s]",
    higher_is_better=True,
)
def _prefill_rate(answer: Evaluated) -> Real:
    work = answer.estimate.work
    return work.batch * work.prompt / _alone(answer, answer.estimate.prefill.seconds)


@column(
    "decode_s",
    "n - 1 steps, without the prompts; blank if prompts ride in steps [s]",
    higher_is_better=False,
)
def _decode(answer: Evaluated) -> Real:
    steps = answer.estimate.work.output - 1
    return _alone(answer, steps * answer.estimate.step.seconds)


@column(
    "step_ms",
    "one more token for every sequence of the batch, at the mean context; "
    "blank if prompts ride [ms]",
    higher_is_better=False,
)
def _step(answer: Evaluated) -> Real:
    return 1e3 * _alone(answer, answer.estimate.step.seconds)


@column("total_s", "prefill and n - 1 steps [s]", higher_is_better=False)
def _total(answer: Evaluated) -> Real:
    return answer.estimate.total.seconds


@column(
    "decode_tok_s",
    "tokens per second while decoding; blank if prompts ride [1/s]",
    higher_is_better=True,
)
def _decode_rate(answer: Evaluated) -> Real:
    estimate = answer.estimate
    return estimate.work.batch / _alone(answer, estimate.step.seconds)


@column(
    "ttft_s",
    "mean time to first token: waiting and the prompt; of a static batch, all its prompts [s]",
    higher_is_better=False,
)
def _time_to_first_token(answer: Evaluated) -> Real:
    return answer.estimate.latency.ttft


@column(
    "tpot_ms",
    "mean time per output token of a request after the first, pauses for prompts counted; "
    "blank if all answers are of one token [ms]",
    higher_is_better=False,
)
def _time_per_output_token(answer: Evaluated) -> Real:
    estimate = answer.estimate
    has_second = estimate.work.output > 1
    return choose(has_second, 1e3 * estimate.latency.tpot, np.nan)


@column(
    "throughput_tok_s",
    "tokens generated per second from first prompt to last token [1/s]",
    higher_is_better=True,
)
def throughput(answer: Evaluated) -> Real:
    """All tokens of the batch over the total time [1/s]."""
    estimate = answer.estimate
    return estimate.work.batch * estimate.work.output / estimate.total.seconds


def _idle_power(answer: Evaluated) -> Real:
    """Power of all devices that do nothing; NaN where one does not state it [W]."""
    parts = answer.devices.values()
    return sum((part.count * part.maybe("idle_power", np.nan) for part in parts), 0.0)


def _power_under_load(answer: Evaluated, busy: Real) -> Real:
    """Power of a machine on which requests arrive: idle, and the rest while it is busy [W].

    Iterations follow one another while requests are present; prompts that come first
    draw as the iterations they stop. NaN where answers have one token, of which none decodes.
    """
    idle, seconds = _idle_power(answer), answer.estimate.step.seconds
    decodes = answer.estimate.work.output > 1
    of_iteration = answer.step_joules / np.where(decodes, seconds, np.nan)
    return idle + busy * (of_iteration - idle)


def _joules(answer: Evaluated, span: Span) -> Real:
    """Idle power all the time of a span, the rest by what a role does [J].

    Energy is a sum over devices, overlapped or not. A device that states no power draws its idle
    power; NaN where one states no idle power, see `without_idle_power`.
    """
    always: Real = (
        0.0  # W; summed before it meets the seconds, which vary over far more points
    )
    working: Real = 0.0  # J
    for role, part in answer.devices.items():
        idle = part.maybe("idle_power", np.nan)
        always = always + part.count * idle
        if np.any(part.maybe("power", idle) - idle):
            working = working + part.count * _joules_at_work(part, span, role)
    for name, watts in answer.estimate.accelerator_power.items():
        working = working + watts * _working_seconds(span, name)
    return always * span.seconds + working


def _joules_at_work(part: Role, span: Span, role: str) -> Real:
    """Energy of one part of a role beyond what it draws idle [J].

    A part may state what it draws by what it does: `power_waiting` of its power while any of its
    resources works, `power_streaming` while it reads its memory. While it multiplies it draws all
    of it, and no more while it reads and multiplies at a time.
    """
    idle = part.maybe("idle_power", np.nan)
    power, active = part.maybe("power", idle), span.active_of(role)
    most = (power - idle) * active
    if "power_waiting" not in part:
        return most
    waiting = np.maximum(part.power_waiting * power, idle)
    streaming = np.maximum(part.power_streaming * power, waiting)
    reads = (streaming - waiting) * span.busy_of(f"{role}.hbm")
    multiplies = (power - waiting) * span.busy_of(f"{role}.tensor")
    return np.minimum((waiting - idle) * active + reads + multiplies, most)


@column(
    "energy_j_tok",
    "energy of all owned devices per generated token [J]",
    higher_is_better=False,
)
def energy(answer: Evaluated) -> Real:
    """Energy of a batch over the tokens that it generates [J/token]."""
    work = answer.estimate.work
    return answer.joules / (work.batch * work.output)


@column(
    "decode_energy_j_tok",
    "energy of all owned devices per token while decoding; blank if prompts ride [J]",
    higher_is_better=False,
)
def _decode_energy(answer: Evaluated) -> Real:
    return _alone(answer, answer.step_joules / answer.estimate.work.batch)


@column(
    "power_w",
    "mean power of all owned devices while they serve [W]",
    higher_is_better=False,
)
def power(answer: Evaluated) -> Real:
    """Energy of a batch over its seconds [W]."""
    return answer.joules / answer.estimate.total.seconds


@column(
    "power_cap_w",
    "power of all owned devices while all of them work [W]",
    higher_is_better=False,
    of_machine=True,
)
def power_cap(answer: Evaluated) -> Real:
    """Sum over the owned roles; NaN where a device states no power at all [W]."""
    devices = answer.devices.values()
    idle = (part.maybe("idle_power", np.nan) for part in devices)
    return sum(
        (
            part.count * part.maybe("power", least)
            for part, least in zip(devices, idle, strict=True)
        ),
        0.0,
    )


def without_idle_power(answer: Evaluated) -> dict[str, Booleans]:
    """Notes on owned devices whose idle power alone is missing, so that energy is not known."""
    devices = answer.devices
    if not all("power" in part or "idle_power" in part for part in devices.values()):
        return {}  # some device states no power at all, which no column is expected to know
    missing = [role for role, part in devices.items() if "idle_power" not in part]
    return {f"no energy: {role} states no idle_power": np.array(True) for role in missing}


def _working_seconds(span: Span, name: str) -> Real:
    """Seconds a resource (`role.port`) or any resource of a role works [s]."""
    return span.busy_of(name) if "." in name else span.active_of(name)


@column(
    "cost_usd",
    "price of the machine that the system needs, host and server included [USD]",
    higher_is_better=False,
    of_machine=True,
)
def cost(answer: Evaluated) -> Real:
    """Sum over the owned roles, and DRAM that is not in a price; NaN where one is missing [USD]."""
    devices = answer.devices
    prices = (part.count * part.maybe("price", np.nan) for part in devices.values())
    dimms: Real = 0.0
    if SERVER in devices and "host" in devices:
        dimms = devices[SERVER].maybe("memory_price", 0.0) * devices["host"].memory
    return sum(prices, 0.0) + dimms


@column(
    "rack_units", "height of the server in a rack", higher_is_better=False, of_machine=True
)
def rack_units(answer: Evaluated) -> Real:
    """Rack units of the server; NaN where the platform names none [1]."""
    return answer.devices[SERVER].rack_units if SERVER in answer.devices else np.nan


@column(
    "parts",
    "parts that the system needs, each of several counted",
    higher_is_better=False,
    of_machine=True,
)
def parts(answer: Evaluated) -> Real:
    """Sum over the owned roles [1]."""
    return sum((part.count for part in answer.devices.values()), 0.0)


@column(
    "usd_hour",
    "an hour of the machine: its purchase over the years and power, or its rent [USD/h]",
    higher_is_better=False,
)
def usd_hour(answer: Evaluated) -> Real:
    """Amortised price and electricity, or rent where it is rented [USD/h].

    NaN where the platform says nothing of ownership, or a price, power or rent is missing.
    """
    if "ownership" not in answer.hw.roles:
        return np.nan
    return hour_at(power(answer), answer)


def hour_at(watts: Real, answer: Evaluated) -> Real:
    """An hour of a machine that draws some power, or its rent [USD/h].

    Args:
        watts: what it draws where it is bought [W].
        answer: the machine, with its terms of ownership.
    """
    terms = answer.hw.ownership
    electricity = 3600 * terms.pue * terms.usd_kwh * watts
    bought = cost(answer) / (terms.years * HOURS) + electricity
    rents = [part.count * part.rent for part in answer.devices.values() if "rent" in part]
    rent = 3600 * sum(rents) if rents else np.nan
    return choose(terms.rented > 0, rent, bought)


@column(
    "usd_mtok",
    "a million generated tokens, with drives replaced as they wear out [USD]",
    higher_is_better=False,
)
def usd_mtok(answer: Evaluated) -> Real:
    """Hourly cost of a machine over what it generates then, and wear of what it owns [USD]."""
    if "ownership" not in answer.hw.roles:
        return np.nan
    terms = answer.hw.ownership
    tokens = 3600 * terms.utilisation * throughput(answer)
    wear = np.where(terms.rented > 0, 0.0, _wear(answer))
    return 1e6 * (usd_hour(answer) / tokens + wear)


def _wear(answer: Evaluated) -> Real:
    """Price of the flash that a token wears out: bytes written over those it endures [USD]."""
    estimate = answer.estimate
    worn: Real = 0.0
    for (resource, _), written in estimate.total.traffic("write").items():
        part = answer.devices.get(resource.partition(".")[0])
        if part is not None and "endurance" in part:
            worn = worn + written / part.endurance * part.maybe("price", np.nan)
    return worn / (estimate.work.batch * estimate.work.output)


@column(
    "tok_s_per_kusd",
    "throughput_tok_s for every 1,000 USD [1/s/kUSD]",
    higher_is_better=True,
)
def _throughput_per_cost(answer: Evaluated) -> Real:
    return throughput(answer) / (cost(answer) / 1e3)


@column(
    "endurance_requests",
    "requests until the flash that is written most wears out; blank where none is written",
    higher_is_better=True,
)
def endurance(answer: Evaluated) -> Real:
    """Writable bytes of a role over those one request writes, the least over roles [1].

    NaN where no flash is written, which never wears out.
    """
    estimate = answer.estimate
    least: Real = np.inf
    for (resource, _), written in estimate.total.traffic("write").items():
        role = resource.partition(".")[0]
        if role not in answer.devices:
            continue
        part = answer.devices[role]
        writable = part.count * part.maybe("endurance", np.nan)
        with np.errstate(divide="ignore"):
            requests = np.divide(writable * estimate.work.batch, written)
        least = np.minimum(least, requests)
    return np.where(np.isinf(least), np.nan, least)
