"""Servers, their slots, what fits these, and the machine that a build of one makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.catalog import load_part, load_platform, part_name
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.files import check_exists, check_types, names, path_of, read_toml
from nearkv.hardware.platform import Part, Platform
from nearkv.hardware.schema import PART_TYPES, numbers_of, source_names, stated_by_user
from nearkv.hardware.units import parse

_SLOT_TYPES: Mapping[str, type] = {
    "takes": str,
    "counts": float,
    "most": int,
    "sizes": str,
    "lanes": float,
    "links": dict,
    "source": str,
    "at": str,
}
"""Keys of a slot, and the types of their values."""
MOST_PARTS = 1_000_000
"""Parts that slots of one role may hold."""
_SLOT_LISTS = {"takes", "counts", "sizes", "lanes"}
SHARED_UNITS = ("PCIe lanes", "W")
"""Resources that the parts of a server share."""


@dataclass(frozen=True)
class Slot:
    """Slots of a server for one role, as its maker or its paper states it.

    Attributes:
        takes: forms of part, or names of single parts, that fit.
        counts: how many may be fitted, rising [1].
        sizes: of the host, the DRAM that its sockets may hold, rising [B].
        lanes: PCIe lanes of one part, at each count [1].
        links: role of a link that every part brings -> its part, at each count.
        source, at: where that is stated.
    """

    takes: tuple[str, ...]
    counts: tuple[float, ...]
    sizes: tuple[float, ...]
    lanes: tuple[float, ...]
    links: Mapping[str, tuple[str, ...]]
    source: str
    at: str

    @property
    def address(self) -> str:
        """Place that states it, in brackets."""
        return f" ({self.source}, {self.at})"

    def index_of(self, count: float) -> int:
        """Index of a count among those that may be fitted; the last of any other."""
        return self.counts.index(count) if count in self.counts else len(self.counts) - 1

    def fits(self, part: Part) -> bool:
        """True if a part has a form that fits, or is named."""
        return part.form in self.takes or part.name in self.takes


@dataclass(frozen=True)
class Fitted:
    """A part in a slot of a server.

    Attributes:
        part: what is fitted.
        count: how many [1].
    """

    part: Part
    count: float


@dataclass(frozen=True)
class Server:
    """A server that is sold, or the one of a paper, with its slots.

    Attributes:
        part: its own numbers: price, supply, lanes, rack units.
        platform: the machine it makes as it is delivered, with what systems read of it.
        includes: roles whose parts its price includes.
        slots: by role.
        is_sold: whether one can buy it; False where it is built around what is only proposed.
        own: parts that slots name and the catalogue lacks.
        files: the files of `own`, and of the server if it is a user's, by name.
    """

    part: Part
    platform: Platform
    includes: tuple[str, ...]
    slots: Mapping[str, Slot]
    is_sold: bool = True
    own: tuple[Part, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def delivered(self) -> dict[str, Fitted]:
        """The least that is fitted in each slot, the part of its platform where that fits."""
        fitted = {}
        for role, slot in self.slots.items():
            own = self.platform.roles.get(role)
            part = own if own and slot.fits(own) else self.parts(role)[0]
            fitted[role] = Fitted(part, slot.counts[0])
        return fitted

    @cached_property
    def as_sold(self) -> Platform:
        """The machine of what is delivered."""
        return self.machine({})

    def parts(self, role: str) -> list[Part]:
        """Parts of the catalogue that fit a slot, by name, then the user's own."""
        return list(filter(self.slots[role].fits, [*_catalogue(), *self.own]))

    def check(self, build: Mapping[str, Fitted], memory: float = 0.0) -> None:
        """Refuse a build that cannot be assembled.

        Args:
            build: role -> what is fitted in it; a role that is left out stays as delivered.
            memory: DRAM of the host; as delivered where it is 0 [B].

        Raises:
            InputError: naming the rule, and where it is stated.
        """
        check_known("slot", build, self.slots, self.part.name)
        if fault := next(self._faults(build, memory), ""):
            raise InputError(f"{self.part.name}: {fault}")

    def _faults(self, build: Mapping[str, Fitted], memory: float) -> Iterator[str]:
        """The rules that a build breaks, each with where it is stated."""
        for role, each in build.items():
            slot = self.slots[role]
            if not slot.fits(each.part):
                takes = " or ".join(slot.takes)
                yield f"{each.part.name} does not fit {role}: {takes}{slot.address}"
            if each.count not in slot.counts:
                allowed = _listed(slot.counts)
                yield f"{each.count:g} {role} cannot be fitted: {allowed}{slot.address}"
        host = self.slots.get("host")
        sizes = host.sizes if host else ()
        if memory and memory not in sizes:
            held = _listed([size / 2**30 for size in sizes])
            stated = host.address if host and sizes else ""
            yield f"{memory / 2**30:g} GiB cannot be fitted: {held} GiB{stated}"
        for rule, (needed, there) in self.draws(build).items():
            if needed > there:
                yield f"needs {needed:g} {rule}, and has {there:g}"

    def draws(self, build: Mapping[str, Fitted]) -> dict[str, tuple[float, float]]:
        """Demand of a build on what its slots share, and how much of that there is.

        Args:
            build: as `check` takes it.

        Returns:
            Name of what is shared, with its unit -> (drawn, there).
        """
        total = self.own_draw
        for role, fitted in {**self.delivered, **build}.items():
            total = total + self.drawn(role, fitted)
        pairs = zip(total.tolist(), self.carries.tolist(), strict=True)
        return dict(zip(SHARED_UNITS, pairs, strict=True))

    def drawn(self, role: str, fitted: Fitted) -> NDArray[np.float64]:
        """Demand of parts in a slot on what is shared: lanes [1], power [W]."""
        part = fitted.part.si
        watts = part.get("power", part.get("idle_power", 0.0))
        slot = self.slots[role]
        return fitted.count * np.array([slot.lanes[slot.index_of(fitted.count)], watts])

    @property
    def own_draw(self) -> NDArray[np.float64]:
        """Demand of the server itself on what is shared: lanes [1], power [W]."""
        own = self.part.si
        return np.array([0.0, own.get("power", own.get("idle_power", 0.0))])

    @property
    def carries(self) -> NDArray[np.float64]:
        """Amount of what is shared: lanes [1], power [W]."""
        return np.array([self.part.si["lanes"], self.part.si["supply"]])

    def machine(self, build: Mapping[str, Fitted], memory: float = 0.0) -> Platform:
        """The machine that a build makes, with each part at its price.

        Args:
            build, memory: as `check` takes them.

        Raises:
            InputError: it cannot be assembled.
        """
        self.check(build, memory)
        roles = {**self.platform.roles, "server": _with(self.part, "count", 1.0, "as sold")}
        for role, fitted in {**self.delivered, **build}.items():
            roles[role] = self.placed(role, fitted)
            roles |= self.linked(role, fitted.count)
        if memory:
            for key, size in memory_of(roles["host"], memory).items():
                roles["host"] = _with(roles["host"], key, size, "DIMMs as fitted")
        return replace(self.platform, roles=roles)

    def linked(self, role: str, count: float) -> dict[str, Part]:
        """The links that parts in a slot bring, by role."""
        slot, links = self.slots[role], {}
        for link, parts in slot.links.items():
            part = load_part(parts[slot.index_of(count)])
            links[link] = _in_place(part, self.platform.roles.get(link), count)
        return links

    def placed(self, role: str, fitted: Fitted) -> Part:
        """A part in its slot, with what its place adds; free where the server's price has it."""
        placed = _in_place(fitted.part, self.platform.roles.get(role), fitted.count)
        if role in self.includes:
            return _with(placed, "price", 0.0, f"in the price of {self.part.name}")
        return placed


def memory_of(host: Part, memory: float) -> dict[str, float]:
    """DRAM of a host with other DIMMs; what its system may use of it grows alike [B]."""
    stated = host.si
    keys = [key for key in ("memory", "kv_memory") if key in stated]
    return {key: stated[key] / stated["memory"] * memory for key in keys}


def load_server(name: str) -> Server:
    """Read a server, by name or from a user's .toml file.

    Raises:
        InputError: an unknown name, a slot that states no part, count or source, or one that takes
            what is no part and no form of one.
    """
    path = path_of("server", name)
    where = str(path)
    table = read_toml(path, "server")
    part = load_part(name)
    platform = str(table.get("platform", ""))
    check_exists("platform", platform, f"{where}: platform")
    check_types(table, {"slots": dict, "includes": str}, where, lists=["includes"])
    stated, includes = table.get("slots", {}), _as_list(table.get("includes", []))
    check_types(stated, dict.fromkeys(stated, dict), f"{where}: slots")
    slots = {role: _slot(slot, f"{where}: slots.{role}") for role, slot in stated.items()}
    files = _own_parts(slots, path)
    own = tuple(map(load_part, files.values()))
    if name.endswith(".toml"):
        files[part.name] = str(path.absolute())
    is_sold = table.get("sold", True)
    if not isinstance(is_sold, bool):
        raise InputError(f"{where}: sold = {is_sold!r}: state true or false")
    return Server(
        part, load_platform(platform), tuple(includes), slots, is_sold, own, files
    )


def sold_servers(servers: Sequence[str] = ()) -> list[str]:
    """Names of some servers, or of all, that one can buy.

    Raises:
        InputError: none of them can be bought, or a name is unknown.
    """
    found = [name for name in servers or names("server") if load_server(name).is_sold]
    if not found:
        raise InputError(
            f"--installable leaves no server: nobody sells {' or '.join(servers)}; name others"
        )
    return found


def _own_parts(slots: Mapping[str, Slot], path: Path) -> dict[str, str]:
    """Files of parts that slots name and the catalogue lacks, by name.

    Raises:
        InputError: a slot takes what is no part and no form of one.
    """
    known = {known for part in _catalogue() for known in (part.name, part.form)}
    files = {}
    for role, slot in slots.items():
        for taken in slot.takes:
            if taken not in known:
                file = part_name(taken, path)
                check_exists("part", file, f"{path}: slots.{role}: takes")
                files[taken] = str(path_of("part", file).absolute())
    return files


def ownership(stated: Mapping[str, float]) -> Part:
    """The terms under which a machine is bought or rented, as a role of its platform.

    Args:
        stated: numbers in place of those of `ownership.toml`, in the units that it has them in.

    Raises:
        InputError: an unknown number, or an impossible one.
    """
    keys = PART_TYPES["ownership"]
    path = Path(__file__).with_name("ownership.toml")
    numbers = numbers_of(read_toml(path, "terms of ownership"), keys, str(path))
    for key, value in stated.items():
        si = value * keys[key].size
        if fault := keys[key].fault(si):
            raise InputError(f"--{key.replace('_', '-')} {value:g}: {fault}")
        numbers[key] = stated_by_user(si, keys[key], "as asked")
    return Part("ownership", "ownership", "Terms of ownership", numbers)


def _slot(table: Mapping[str, Any], where: str) -> Slot:
    """One slot of a server's file.

    Raises:
        InputError: an unknown key, or one that lacks its source.
    """
    check_known("key", table, _SLOT_TYPES, where)
    check_types(table, _SLOT_TYPES, where, _SLOT_LISTS)
    if table.get("source") not in source_names() or not table.get("at"):
        advice = "needs a source (sources.toml), and where it says so (at)"
        raise InputError(f"{where}: {advice}")
    most = table.get("most", 1)
    if not table.get("takes") or not 1 <= most <= MOST_PARTS:
        needed = f"needs what it takes, and 1 to {MOST_PARTS:,} of it as the most"
        raise InputError(f"{where}: {needed}")
    counts = _as_list(table.get("counts") or [*range(1, most + 1)])
    links = table.get("links", {})
    check_types(links, dict.fromkeys(links, str), f"{where}: links", links)
    sizes = [parse(str(size), "B", where) for size in _as_list(table.get("sizes", []))]
    return Slot(
        takes=tuple(_as_list(table["takes"])),
        counts=tuple(sorted(map(float, counts))),
        sizes=tuple(sorted(sizes)),
        lanes=tuple(map(float, _at_each(table.get("lanes", 0), len(counts), where))),
        links={
            role: tuple(_at_each(part, len(counts), where)) for role, part in links.items()
        },
        source=table["source"],
        at=table["at"],
    )


def _as_list(stated: Any) -> list[Any]:
    return stated if isinstance(stated, list) else [stated]


def _at_each(stated: Any, counts: int, where: str) -> Sequence[Any]:
    """One value at each count; the value itself where one is stated for all.

    Raises:
        InputError: there are more or fewer values than counts.
    """
    listed: Sequence[Any] = stated if isinstance(stated, list) else [stated] * counts
    if len(listed) != counts:
        raise InputError(
            f"{where}: {len(listed)} values for {counts} counts; give one, or as many"
        )
    return listed


@cache
def _catalogue() -> tuple[Part, ...]:
    """Every part of the catalogue, by name."""
    return tuple(map(load_part, names("part")))


def _in_place(part: Part, before: Part | None, count: float) -> Part:
    """A part of a machine, with what its place adds."""
    placed = part.in_place_of(before) if before else part
    return _with(placed, "count", count, "as fitted")


def _with(part: Part, key: str, si: float, at: str) -> Part:
    """A part with another value of one number [SI]."""
    number = stated_by_user(si, PART_TYPES[part.type][key], at)
    placed = part.placed | {key} if key == "count" else part.placed
    return replace(part, numbers={**part.numbers, key: number}, placed=placed)


def _listed(values: Sequence[float]) -> str:
    """Values as people read them, the ends alone of a long list."""
    texts = [f"{value:g}" for value in values]
    return ", ".join(texts) if len(texts) < 12 else f"{texts[0]} to {texts[-1]}"
