"""Parts, whose numbers must agree with one another, and platforms: roles that parts fill.

A number of a platform is named `role.key`, by which it is replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from nearkv.hardware.errors import InputError, a_few, check_known, unknown, warn
from nearkv.hardware.machine import Machine, by_role
from nearkv.hardware.schema import (
    NO_DEVICES,
    PART_TYPES,
    RELATIONS,
    ROLES,
    Key,
    Quantity,
    check_factor,
    keys_of,
    stated_by_user,
)

PartValues = Mapping[str, Sequence[float]]
"""Key -> the values it takes, in SI."""


@dataclass(frozen=True)
class Part:
    """A part, a model or a trace.

    Attributes:
        name: kebab-case, or the stem of a user's file.
        type: key of `schema.PART_TYPES`; a file states it as `kind`.
        title: for readers.
        numbers: key -> number with its source.
        placed: keys of numbers that a platform adds to its part: its count, what its place does.
        layer_types: of a model, its types of layer, each with all numbers a model has; empty where
            all layers are alike, with full attention.
        form: of a card, what slots of servers take it.
        maker, generation: of a chip, by which its siblings are found.
        follows: key -> number of another role that it is always equal to, as `role.key`.
    """

    name: str
    type: str
    title: str
    numbers: Mapping[str, Quantity]
    layer_types: tuple[Part, ...] = ()
    placed: frozenset[str] = frozenset()
    form: str = ""
    maker: str = ""
    generation: str = ""
    follows: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_device(self) -> bool:
        """True if it is bought by itself: no link, no software, no terms."""
        return self.type not in NO_DEVICES

    @property
    def layer_types_or_self(self) -> tuple[Part, ...]:
        """The types of layer; a model whose layers are alike has one, of full attention."""
        return self.layer_types or (replace(self, name="full"),)

    @cached_property
    def si(self) -> dict[str, float]:
        """Every number in SI base units, by key."""
        return {key: number.si for key, number in self.numbers.items()}

    @property
    def siblings(self) -> list[str]:
        """Chips on which some of its numbers were measured in its place, by name."""
        return sorted({number.sibling for number in self.numbers.values()} - {""})

    def in_place_of(self, before: Part) -> Part:
        """This part where another stood: what the place adds stays, as the count."""
        kept = [key for key in PART_TYPES[self.type] if key in before.placed]
        numbers = {key: before.numbers[key] for key in kept}
        return replace(
            self,
            numbers={**numbers, **self.numbers},
            placed=before.placed,
            follows=before.follows,
        )

    def with_numbers(self, numbers: Mapping[str, Quantity]) -> Part:
        """This part with other numbers, which follow no other role's from then on."""
        follows = {
            key: leader for key, leader in self.follows.items() if key not in numbers
        }
        return replace(self, numbers={**self.numbers, **numbers}, follows=follows)


def check_role(part: Part, role: str, where: str) -> None:
    """Refuse a part of another type than a role takes.

    Raises:
        InputError: it is.
    """
    if part.type not in ROLES.get(role, [part.type]):
        types = " or ".join(ROLES[role])
        raise InputError(
            f"{where}: {part.name} is a part of type {part.type}; this role takes {types}"
        )


def check_shape(shape: Mapping[str, float], where: str) -> None:
    """Refuse a model whose sizes contradict one another.

    Raises:
        InputError: heads are not a multiple of KV heads, or a relation does not hold.
    """
    heads, kv_heads = shape["heads"], shape["kv_heads"]
    if heads % kv_heads:
        raise InputError(
            f"{where}: heads, {heads:g}, must be a multiple of kv_heads, {kv_heads:g}"
        )
    check_relations("llm", {name: (size,) for name, size in shape.items()}, where)


def with_dense_layers_between(part: Part) -> Part:
    """The model as two types of layer where only one layer in `moe_every` has experts.

    Returns:
        The part itself where all layers are alike.
    """
    every = part.si.get("moe_every", 1.0)
    if every == 1 or part.si["experts"] == 1:
        return part
    layers = part.si["layers"]
    moe_layers = float(layers // every)
    dense = {"experts": 1.0, "active_experts": 1.0, "layers": layers - moe_layers}
    of_dense = _layer_type(part, "full_dense", dense)
    of_moe = _layer_type(part, "full_moe", {"layers": moe_layers})
    return replace(part, layer_types=(of_dense, of_moe))


def _layer_type(part: Part, name: str, sizes: Mapping[str, float]) -> Part:
    """A type of layer that differs from its model in these sizes [1]."""
    numbers = dict(part.numbers)
    for key, size in sizes.items():
        numbers[key] = replace(numbers[key], value=size)
    return Part(name, "llm-layer", name, numbers)


def check_relations(
    part_type: str, values: PartValues, where: str, prefix: str = ""
) -> None:
    """Refuse numbers of one part that contradict each other.

    Args:
        part_type: of the part.
        values: every value that each key takes; each combination must be possible.
        where: file or option, put in front of the sentence.
        prefix: put in front of the keys, as `dimm.`.

    Raises:
        InputError: naming both keys and values.
    """
    keys = PART_TYPES[part_type]
    for smaller, word, larger in RELATIONS[part_type]:
        if smaller not in values or larger not in values:
            continue
        # the worst pair of values decides for all combinations
        left, right = max(values[smaller]), min(values[larger])
        if left > right or (left == right and word == "<"):
            bound = "must be below" if word == "<" else "must be at most"
            raise InputError(
                f"{where}: {prefix}{smaller}, {keys[smaller].text(left)}, "
                f"{bound} {prefix}{larger}, {keys[larger].text(right)}"
            )


def warn_of_doubts(keys: Mapping[str, Key], values: PartValues, where: str) -> None:
    """Warn, once a key, of values that are possible but outside the usual range.

    Args:
        keys: of each value.
        values: name -> every value that it takes, in SI.
        where: put in front of the name.
    """
    for name, numbers in values.items():
        key = keys[name]
        odd = (value for value in numbers if key.doubt(value))
        if (value := next(odd, None)) is not None:
            warn(f"{where}{name} = {key.text(value)} {key.doubt(value)}")


def check_part(part: Part, where: str, is_own: bool) -> None:
    """Refuse a part whose numbers contradict each other; of a user's own, warn of odd ones.

    Raises:
        InputError: two numbers that cannot stand in one part.
    """
    values = {name: (number,) for name, number in part.si.items()}
    check_relations(part.type, values, where)
    if is_own:
        warn_of_doubts(keys_of(part.type, values), values, f"{where}: ")


# --- numbers of kernels, taken from the chip of a sibling that was measured ------------------


def with_siblings(part: Part, catalogue: Callable[[str], Sequence[Part]]) -> Part:
    """A part with the numbers of its siblings where kernels decide them and it states none.

    The sibling is the chip of its maker and generation that is nearest in bandwidth, else the
    nearest of its maker; for a maker of which nothing is known, the one in the middle of all. Chips
    that were measured go before those of which a file assumes the number, and numbers that hold on
    their chip alone (`Quantity.alone`) are taken where there is no other.

    Args:
        part: with what its own file states.
        catalogue: type of part -> parts with what their own files state.
    """
    keys = PART_TYPES[part.type].items()
    missing = [name for name, key in keys if key.sibling and name not in part.numbers]
    if not missing:
        return part
    others = catalogue(part.type)
    taken = {name: _of_sibling(part, name, others) for name in missing}
    return replace(part, numbers={**part.numbers, **taken})


def _of_sibling(part: Part, name: str, catalogue: Sequence[Part]) -> Quantity:
    """A number of the nearest sibling that states it, with the range over all of them."""
    stating = [other for other in catalogue if name in other.numbers]
    others = [other for other in stating if not other.numbers[name].alone] or stating
    of_maker = [other for other in others if other.maker == part.maker != ""]
    siblings = [other for other in of_maker if other.generation == part.generation]
    siblings = siblings or of_maker or others
    measured = [other for other in siblings if other.numbers[name].kind != "assumed"]
    siblings = measured or siblings
    if of_maker:
        nearest = min(siblings, key=lambda other: (_distance(part, other), other.name))
    else:
        in_order = sorted(siblings, key=lambda other: (other.si[name], other.name))
        nearest = in_order[len(in_order) // 2]
    number = nearest.numbers[name]
    derived = ", where it is derived from a whole run" if number.alone else ""
    stated = [other.numbers[name] for other in siblings]
    bounds = [bound for each in stated for bound in each.range or (each.value,)]
    return replace(
        number,
        kind="assumed",
        range=(min(bounds), max(bounds)),
        quantiles=None,
        note=f"Taken from {nearest.name}{derived}; nobody measured it on {part.name}.",
        sibling=nearest.name,
        alone=False,
    )


def _distance(part: Part, other: Part) -> float:
    """Distance of the bandwidths of two parts, in their logarithm [1]."""
    return abs(math.log(part.si["bandwidth"] / other.si["bandwidth"]))


# --- platforms --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Platform:
    """A test bed: its roles, each filled by a part.

    Attributes:
        name: kebab-case, or the path of a user's file.
        title: for readers.
        cite: key into sources.toml.
        roles: role -> part in its place; `derate` holds the correction factors.
        swapped: role -> name of the part that took the place of the platform's own.
    """

    name: str
    title: str
    cite: str
    roles: Mapping[str, Part]
    swapped: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give the numbers that follow those of another role their values."""
        stated = self.numbers
        following = {at: stated[leader] for at, leader in self.follows.items()}
        for role, own in by_role(following).items():
            part = self.roles[role]
            roles = {**self.roles, role: replace(part, numbers={**part.numbers, **own})}
            object.__setattr__(self, "roles", roles)

    @property
    def follows(self) -> dict[str, str]:
        """Number -> the number of another role that it is always equal to, as `role.key`."""
        return {
            f"{role}.{key}": leader
            for role, part in self.roles.items()
            for key, leader in part.follows.items()
        }

    @property
    def label(self) -> str:
        """Its name, and the parts that were swapped."""
        swaps = [f"{role}={name}" for role, name in self.swapped.items()]
        return " ".join([self.name, *swaps])

    @property
    def numbers(self) -> dict[str, Quantity]:
        """Every number, by `role.key`."""
        numbers: dict[str, Quantity] = {}
        for role, part in self.roles.items():
            numbers |= {f"{role}.{key}": number for key, number in part.numbers.items()}
        return numbers

    @property
    def part_columns(self) -> dict[str, str]:
        """Names of the parts that were swapped, by the column that shows them."""
        return {f"{role}.part": name for role, name in self.swapped.items()}

    def machine(self) -> Machine:
        """The numbers in SI, as cost models read them."""
        values = {
            role: {key: number.si for key, number in part.numbers.items()}
            for role, part in self.roles.items()
        }
        return Machine(self.name, values, self.follows)

    def with_part(self, role: str, part: Part, name: str) -> Platform:
        """A copy with another part in a role; what the place adds, as its count, stays.

        Args:
            role: whose part is swapped.
            part: the new part.
            name: what the user calls it.

        Raises:
            InputError: no such role, or the part is of another type or contradicts its place.
        """
        where = f"--part {role}={name}"
        check_known("part", [role], self.roles, f"{where}: platform {self.name!r}")
        check_role(part, role, where)
        before = self.roles[role]
        if part.type != before.type and role not in ROLES:
            raise InputError(
                f"{where} is a part of type {part.type}; {role} takes one of type {before.type}"
            )
        placed = part.in_place_of(before)
        check_part(placed, where, is_own=False)
        roles = {**self.roles, role: placed}
        return replace(self, roles=roles, swapped={**self.swapped, role: name})

    def key(self, address: str) -> Key:
        """The schema of a number named as `role.key`.

        Raises:
            InputError: no such role, or no such number in it.
        """
        where = f"platform {self.name!r}"
        role, dot, name = address.partition(".")
        if not dot:
            roles = a_few(sorted(self.roles), like=address)
            raise InputError(
                f"{address!r} is not ROLE.KEY, as in csd.count; the roles are {roles}"
            )
        if role == "derate":
            check_factor(name, where)
        check_known("part", [role], self.roles, where)
        part = self.roles[role]
        keys = keys_of(part.type, part.numbers)
        if name not in keys:
            raise unknown("number", address, [f"{role}.{key}" for key in keys], where)
        return keys[name]

    def check(self, changes: PartValues, option: str = "--set ") -> None:
        """Refuse values of numbers that are impossible or contradict those beside them.

        Args:
            changes: `role.key` -> every value that it takes, in SI.
            option: put in front of an address in messages.

        Raises:
            InputError: no such number, an impossible value, or two that contradict each other.
        """
        for address, values in changes.items():
            key = self.key(address)
            for value in values:
                if fault := key.fault(value):
                    raise InputError(f"{option}{address}: {key.text(value)} {fault}")
        for role, changed in by_role(changes).items():
            part = self.roles[role]
            beside = {name: (number,) for name, number in part.si.items()}
            where = ", ".join(f"{option}{role}.{name}" for name in changed)
            check_relations(part.type, {**beside, **changed}, where, f"{role}.")

    def warn_of_doubts(self, changes: PartValues) -> None:
        """Warn of values that are set and possible, but outside the usual range.

        Args:
            changes: `role.key` -> every value that it takes, in SI.
        """
        keys = {address: self.key(address) for address in changes}
        warn_of_doubts(keys, changes, "--set ")

    def override(self, address: str, value: float) -> Platform:
        """A copy with one number replaced.

        Args:
            address: `role.key`.
            value: the new value in SI units.

        Raises:
            InputError: no such role, no such number in it, or a value that cannot be believed.
        """
        self.check({address: (value,)})
        self.warn_of_doubts({address: (value,)})
        role, _, name = address.partition(".")
        part = self.roles[role]
        number = stated_by_user(value, self.key(address), "set by the user")
        return replace(self, roles={**self.roles, role: part.with_numbers({name: number})})
