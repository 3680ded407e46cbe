"""Question of a user about machines: prices of their own, classes of requests, what is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.registry import System, find_system
from nearkv.hardware.errors import InputError, check_known, once, unknown
from nearkv.hardware.files import names, read_rows
from nearkv.hardware.platform import Part
from nearkv.hardware.schema import Quantity
from nearkv.hardware.server import Server, load_server, ownership
from nearkv.hardware.units import parse
from nearkv.sweeps.explore.design.deployments import Deployments
from nearkv.sweeps.explore.design.goal import Goal
from nearkv.sweeps.explore.design.space import (
    Builds,
    Machines,
    Read,
    needed_slots,
    options_of,
    terms_of,
)
from nearkv.sweeps.jobs.search import check_points
from nearkv.sweeps.study.sizes import per_second, size
from nearkv.sweeps.study.study import Study, name_of

_HEADER = {"part", "usd", "low", "high", "basis", "date", "source"}
_COST_BASES = {"purchase": "price", "rental": "rent"}


def read_prices(file: str) -> dict[str, dict[str, Quantity]]:
    """Prices of one's own: part -> `price` or `rent` -> number.

    Args:
        file: CSV with the columns part and usd; and where wanted low, high, basis (`purchase`, or
            `rental` by the hour), date and source.

    Raises:
        InputError: a column, a part or a number that cannot be used.
    """
    if not file:
        return {}
    header, lines = read_rows(Path(file), "price list", ("part", "usd"))
    check_known("column", header, _HEADER, file)
    prices: dict[str, dict[str, Quantity]] = {}
    for where, row in lines:
        if row["part"] not in names("part"):
            raise unknown("part", str(row["part"]), names("part"), where)
        basis = row.get("basis") or "purchase"
        check_known("basis", [basis], _COST_BASES, where)
        own = prices.setdefault(row["part"], {})
        if _COST_BASES[basis] in own:
            raise InputError(f"{where}: {row['part']} has a {basis} price already")
        own[_COST_BASES[basis]] = _price(row, basis, where)
    return prices


def _price(row: Mapping[str, str], basis: str, where: str) -> Quantity:
    """The price of one line of a price list, with its range where one is stated."""
    unit = "USD/h" if basis == "rental" else "USD"
    usd = parse(row["usd"], "1", f"{where}: usd")
    low, high = (
        parse(row.get(end) or row["usd"], "1", f"{where}: {end}") for end in ("low", "high")
    )
    if not 0 < low <= usd <= high:
        raise InputError(
            f"{where}: usd {usd:g} must lie from low {low:g} to high {high:g}, above 0"
        )
    note, date = row.get("source") or "", row.get("date") or ""
    return Quantity(usd, unit, "assumed", "user", where, note, (low, high), date=date)


@dataclass(frozen=True)
class RequestClass:
    """Requests of one length, which many machines may share.

    Attributes:
        name: of the class.
        context, output_tokens: of a request [1].
        rate: at which they arrive [1/s].
    """

    name: str
    context: float
    output_tokens: float
    rate: float

    def __str__(self) -> str:
        lengths = f"{self.context:,.0f} + {self.output_tokens:,.0f} tokens"
        return f"{self.name} {self.rate:g} requests per second of {lengths}"


def request_classes(texts: Sequence[str]) -> tuple[RequestClass, ...]:
    """Read classes of requests, each as `name:context:output:rate`.

    Raises:
        InputError: a text that is no class, or a name that comes twice.

    >>> request_classes(["chat:4k:256:2.5"])[0]
    RequestClass(name='chat', context=4096.0, output_tokens=256.0, rate=2.5)
    """
    classes = []
    for text in texts:
        where, fields = f"--class {text!r}", text.split(":")
        if len(fields) != 4 or not fields[0]:
            raise InputError(f"{where}: write name:context:output:rate, as chat:4k:256:2.5")
        name, context, output_tokens, rate = fields
        lengths = size(context, where), size(output_tokens, where)
        classes.append(RequestClass(name, *lengths, per_second(rate, where)))
    once([each.name for each in classes], "--class")
    return tuple(classes)


def _ends(values: Sequence[float]) -> str:
    """A number, or the first and the last of several, in words."""
    ends = dict.fromkeys((values[0], values[-1]))
    return " to ".join(f"{end:,.0f}" for end in ends)


@dataclass(frozen=True)
class Question:
    """Question which machine serves a workload best, within limits.

    Attributes:
        study: the workload, and the systems that may serve it.
        goal: what is made best, and what must hold.
        servers: names of servers that may be built; all of the catalogue where empty.
        prices: part -> its price or rent, in place of the catalogue's.
        terms: numbers of ownership in place of the catalogue's, as `years`.
        rents: whether rented machines are ranked beside bought ones.
        draws: whether it is asked in how many draws of all uncertain numbers the best wins.
        classes: of requests that several machines share, in place of the lengths of the study.
        laid_out: each system and its machines, where another question has laid them out.
    """

    study: Study
    goal: Goal
    servers: tuple[str, ...] = ()
    prices: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)
    terms: Mapping[str, float] = field(default_factory=dict)
    rents: bool = False
    draws: bool = False
    classes: tuple[RequestClass, ...] = ()
    laid_out: tuple[tuple[System, Read], ...] = ()

    def asking(self, study: Study, goal: Goal) -> Question:
        """Ask of another workload, or within other limits, of machines that are laid out once."""
        laid_out = tuple((each.system, each.read) for each in self.deployments)
        return replace(self, study=study, goal=goal, laid_out=laid_out)

    @property
    def text(self) -> str:
        """The workload and the limits, in words."""
        study = self.study
        limits = [limit.text for limit in self.goal.limits]
        one = f"{_ends(study.context)} tokens of context, {_ends(study.output_tokens)} of output"
        lengths = [*map(str, self.classes)] or [one]
        sequences = f"{_ends(study.batch)} sequences"
        widths = [
            f"{name} {getattr(value, 'text', value)}"
            for name, (value,) in study.sets.items()
        ]
        model = name_of(study.models[0])
        return ", ".join([model, *widths, *lengths, sequences, *limits])

    @cached_property
    def built(self) -> list[Server]:
        """The servers, with the prices and the terms that are asked for."""
        terms = ownership(self.terms)
        servers = []
        for name in sorted(set(self.servers)) or names("server"):
            server = load_server(name)
            sold = server.platform
            roles = {role: self.priced(part) for role, part in sold.roles.items()}
            platform = replace(sold, roles={**roles, "ownership": terms})
            priced = self.priced(server.part)
            servers.append(replace(server, part=priced, platform=platform))
        return servers

    def priced(self, part: Part) -> Part:
        """A part at the price that is asked for."""
        own = self.prices.get(part.name, {})
        return replace(part, numbers={**part.numbers, **own}) if own else part

    @cached_property
    def deployments(self) -> list[Deployments]:
        """Every system on all machines on which it may run, in the order of their names.

        Raises:
            InputError: no machine can be built, or more than can be tried.
        """
        axes: dict[str, Numbers] = {}
        if self.classes:
            lengths = np.array(
                [(each.context, each.output_tokens) for each in self.classes]
            )
            context, output_tokens = lengths.T[..., np.newaxis, np.newaxis]
            axes = {"context_tok": context, "output_tokens": output_tokens}
        deployments, first = [], 0
        for system, read in self.laid_out or self._lay_out():
            one = Deployments(system, read, self.study, self.goal, first, axes)
            deployments.append(one)
            first += len(read.machines)
        if not deployments:
            raise InputError(
                "no machine can be built: no server has the slots, and parts with a price, that "
                f"{' or '.join(self.study.systems[:4])} needs; name other systems or servers"
            )
        return deployments

    def deployments_of(self, row: int) -> Deployments:
        """The system on all its machines, of which one has a number in the whole search."""
        return [each for each in self.deployments if each.first <= row][-1]

    def _lay_out(self) -> list[tuple[System, Read]]:
        """Every system that has machines on which it may run, in the order of their names.

        Raises:
            InputError: there are more machines than can be tried.
        """
        systems = list(map(find_system, sorted(self.study.systems)))
        _check_size(systems, self.built)
        offered = [
            {
                role: options_of(server, role, list(map(self.priced, server.parts(role))))
                for role in server.slots
            }
            for server in self.built
        ]
        terms = {"ownership": terms_of(ownership(self.terms))} if self.rents else {}
        spaces: dict[tuple[str, ...], Machines] = {}
        for owns in dict.fromkeys(system.owns for system in systems):
            builds = [
                Builds(server, {**{role: options[role] for role in needed}, **terms})
                for server, options in zip(self.built, offered, strict=True)
                if (needed := needed_slots(owns, server))
            ]
            spaces[owns] = Machines(owns, builds)
        laid_out = [(system, Read(spaces[system.owns])) for system in systems]
        return [(system, read) for system, read in laid_out if len(read.machines)]


def _check_size(systems: Sequence[System], servers: Sequence[Server]) -> None:
    """Refuse more machines than can be tried in minutes.

    Raises:
        InputError: there are more.
    """
    count, axes = 0, dict[str, int]()
    for system, server in product(systems, servers):
        needed = needed_slots(system.owns, server)
        lengths = {}
        for role in needed:
            slot = server.slots[role]
            sizes = len(slot.counts) * max(len(slot.sizes), 1)
            lengths[f"{role} of {server.part.name}"] = len(server.parts(role)) * sizes
        count += math.prod(lengths.values()) if needed else 0
        axes |= lengths
    check_points(count, axes, "machines")
