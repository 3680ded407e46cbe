"""The time algebra: spans of time are composed from leaves: `serial`, `overlap`, `pipeline`.

A leaf is an amount (bytes, FLOPs, operations) on a resource that works at a rate. A tree of
leaves knows its seconds; which leaves the time is attributed to (`breakdown`), how long each
resource works (`busy`) and what it carries (`traffic`) are computed only when asked for.

A resource serves one thing at a time. Where two branches of an `overlap` use the same one, the
overlap lasts at least as long as that resource needs for both, so nothing is booked twice.

All numbers broadcast over design points (NumPy); scalars stay scalars.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property, reduce
from operator import add
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.intp]
Booleans = NDArray[np.bool_]
Real = float | Numbers
"""A number for every design point: a scalar or an array that broadcasts with the others."""
ByName = Mapping[str, Real]
"""Numbers by name."""
Mask = bool | np.bool_ | NDArray[np.bool_]
"""A flag for every design point."""
TINY = 1e-30
"""Stands for none where one divides by a number of things."""
_TIE = 1 - 1e-10
"""Share of the longest time from which on another is as long: what is less is rounding [1]."""
_Key = TypeVar("_Key", bound=Hashable)
Leaves = Iterator[tuple[str, "Leaf", Real]]
"""Paths, leaves, and a number of each."""


def shapes(*values: object) -> Iterator[tuple[int, ...]]:
    """Shapes of all arrays among numbers, dictionaries of them, and objects that have them."""
    for value in values:
        if isinstance(value, np.ndarray):
            yield value.shape
        elif isinstance(value, dict):
            yield from shapes(*value.values())
        elif hasattr(value, "__dict__"):
            yield from shapes(*vars(value).values())


class Span(ABC):
    """A piece of work that takes time."""

    __array_ufunc__ = None  # `array * span` must reach Span.__rmul__, not NumPy

    parts: Mapping[str, Span] = MappingProxyType({})
    """The named spans this one is composed of."""

    @property
    @abstractmethod
    def seconds(self) -> Real:
        """Wall-clock time [s], broadcast over design points."""

    @property
    @abstractmethod
    def resources(self) -> frozenset[str]:
        """Names of all resources that work in this span."""

    @abstractmethod
    def busy_of(self, resource: str) -> Real:
        """Seconds one resource works in this span [s]."""

    def active_of(self, role: str) -> Real:
        """Seconds in which any resource of a role works, overlapped parts starting together [s]."""
        roles = {name.partition(".")[0] for name in self.resources}
        if role not in roles:
            return 0.0
        return self.seconds if len(roles) == 1 else self._active_of(role)

    @abstractmethod
    def _active_of(self, role: str) -> Real:
        """`active_of` for a span in which other roles work as well [s]."""

    @abstractmethod
    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        """Yield (path, leaf, seconds of wall-clock time attributed to the leaf).

        Args:
            path: of this span.
            times: how often it runs [1].
            where: the design points at which its time is attributed to its leaves.
        """

    def __mul__(self, times: Real) -> Span:
        return Repeat(times, self)

    __rmul__ = __mul__

    def walk(self, path: str = "", times: Real = 1.0) -> Iterator[tuple[str, Span, Real]]:
        """Yield (path, span, how many times it runs [1]), parents before their parts.

        Repetitions are no spans of their own here: they multiply what they repeat.

        Args:
            path: of this span.
            times: how often it runs [1].
        """
        yield path, self, times
        for name, part in self.parts.items():
            yield from part.walk(join(path, name), times)

    def leaves(self) -> Leaves:
        """Yield (path, leaf, how many times it runs [1]) for every leaf."""
        for path, span, times in self.walk():
            if isinstance(span, Leaf):
                yield path or span.resource, span, times

    def attributed_leaves(self) -> Leaves:
        """Yield (path, leaf, wall-clock seconds attributed to it [s]); they sum to `seconds`."""
        yield from self._attribute("", 1.0, True)

    def breakdown(self) -> dict[str, Real]:
        """Wall-clock seconds attributed to each leaf [s], by path; they sum to `seconds`.

        In an overlap the time is the longest branch's (of equals, to ten digits, the first's);
        where branches queue for one resource, it is that of the leaves on the resource, each its
        own.
        """
        leaves = self.attributed_leaves()
        return sum_by_key((path, seconds) for path, _, seconds in leaves)

    def attribution(self) -> dict[str, Real]:
        """Wall-clock seconds attributed to each resource [s]; they sum to `seconds`."""
        return sum_by_key(
            (leaf.resource, seconds) for _, leaf, seconds in self.attributed_leaves()
        )

    def busy(self) -> dict[str, Real]:
        """Seconds each resource works [s]; never more than `seconds`."""
        return {name: self.busy_of(name) for name in sorted(self.resources)}

    def traffic(self, verb: str = "") -> dict[tuple[str, str], Real]:
        """Amount each resource carries, by (resource, verb) [B, FLOP or operations].

        Args:
            verb: count this verb alone; all where empty.
        """
        amounts: list[tuple[tuple[str, str], Real]] = []
        for _, leaf, times in self.leaves():
            if verb in ("", leaf.verb):
                amounts.append(((leaf.resource, leaf.verb), times * leaf.amount))
        return sum_by_key(amounts)


class Leaf(Span):
    """An amount of work on one resource.

    Args:
        resource: who works, as `role.port`, such as `csd.flash`.
        verb: `read`, `write`, `move`, `run` or `wait`.
        amount: how much [B, FLOP or operations].
        rate: how fast [amount/s]; infinite is allowed.
        unit: `B`, `FLOP` or `op`.
        eq: the equation this leaf comes from, for readers.
    """

    seconds: Real = 0.0
    """Amount over rate [s]."""

    def __init__(
        self, resource: str, verb: str, amount: Real, rate: Real, unit: str, eq: str = ""
    ) -> None:
        self.resource = resource
        self.verb = verb
        self.amount = amount
        self.rate = rate
        self.unit = unit
        self.eq = eq
        self.seconds = amount / rate

    def with_amount(self, amount: Real) -> Leaf:
        """A leaf on this resource at this rate, with another amount [B, FLOP or operations]."""
        return Leaf(self.resource, self.verb, amount, self.rate, self.unit, self.eq)

    def of_several(self, number: Real) -> Leaf:
        """A leaf on as many such resources, each with as much to do [1]."""
        amount, rate = number * self.amount, number * self.rate
        return Leaf(self.resource, self.verb, amount, rate, self.unit, self.eq)

    @property
    def resources(self) -> frozenset[str]:
        """The one resource that works."""
        return frozenset((self.resource,))

    def busy_of(self, resource: str) -> Real:
        """All of its seconds on its own resource, none on others [s]."""
        return self.seconds if resource == self.resource else 0.0

    def _active_of(self, role: str) -> Real:
        return self.seconds

    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        seconds = np.where(where, times * self.seconds, 0.0)
        yield path or self.resource, self, seconds[()]


class Port:
    """One resource doing one thing at a rate: call it with an amount to get a leaf.

    Args:
        resource, verb, rate, unit: as in `Leaf`.
    """

    def __init__(self, resource: str, verb: str, rate: Real, unit: str = "B") -> None:
        self.resource = resource
        self.verb = verb
        self.rate = rate
        self.unit = unit

    def with_rate(self, rate: Real) -> Port:
        """This port at another rate [amount/s]."""
        return Port(self.resource, self.verb, rate, self.unit)

    def __call__(self, amount: Real, eq: str = "") -> Leaf:
        """Work on an amount [B, FLOP or op]."""
        return Leaf(self.resource, self.verb, amount, self.rate, self.unit, eq)


class Group(Span):
    """Several named spans."""

    def __init__(self, parts: Mapping[str, Span]) -> None:
        for name, part in parts.items():
            if not isinstance(part, Span):
                kind = type(part).__name__
                raise TypeError(f"{name} is no span, but {kind}; a leaf is port(amount)")
        self.parts = dict(parts)
        self._busy: dict[str, Real] = {}

    @cached_property
    def resources(self) -> frozenset[str]:
        """Names of all resources of all parts."""
        return frozenset().union(*[part.resources for part in self.parts.values()])

    def busy_of(self, resource: str) -> Real:
        """Sum over the parts: work is work, at the same time or not [s]."""
        if resource not in self._busy:
            users = [part for part in self.parts.values() if resource in part.resources]
            self._busy[resource] = total(part.busy_of(resource) for part in users)
        return self._busy[resource]


class Serial(Group):
    """One after the other."""

    def _active_of(self, role: str) -> Real:
        return total(part.active_of(role) for part in self.parts.values())

    @cached_property
    def seconds(self) -> Real:
        """Sum of the parts [s]."""
        return total(part.seconds for part in self.parts.values())

    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        for name, part in self.parts.items():
            yield from part._attribute(join(path, name), times, where)


class Repeat(Span):
    """A span several times in a row."""

    def __init__(self, times: Real, span: Span) -> None:
        self.times = times
        self.span = span
        self.parts = span.parts

    @cached_property
    def seconds(self) -> Real:
        """Times x seconds of the span, with all its axes even if it never runs [s]."""
        return self.times * self.span.seconds

    @property
    def resources(self) -> frozenset[str]:
        """The resources of the repeated span."""
        return self.span.resources

    def busy_of(self, resource: str) -> Real:
        """Times x busy seconds of the span [s]."""
        return self.times * self.span.busy_of(resource)

    def _active_of(self, role: str) -> Real:
        return self.times * self.span.active_of(role)

    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        yield from self.span._attribute(path, times * self.times, where)

    def walk(self, path: str = "", times: Real = 1.0) -> Iterator[tuple[str, Span, Real]]:
        """Walk the span as one that runs as many times."""
        yield from self.span.walk(path, times * self.times)


class SideBySide(Repeat):
    """A span several times at once, each on resources of its own: as long as one."""

    def __init__(self, number: Real, span: Span) -> None:
        super().__init__(1.0, span)
        self.number = number

    def walk(self, path: str = "", times: Real = 1.0) -> Iterator[tuple[str, Span, Real]]:
        """Walk the span with the amounts, and the rates, of all."""
        for place, part, runs in self.span.walk(path, times):
            several = part.of_several(self.number) if isinstance(part, Leaf) else part
            yield place, several, runs


def quotient(dividend: Real, divisor: Real) -> Real:
    """A quotient of numbers that are not negative; of nothing by nothing, nothing [its unit]."""
    return dividend / np.maximum(divisor, TINY)


def choose(condition: Mask | Real, one: Real, other: Real) -> Real:
    """One number where a condition holds, elsewhere another; scalars stay scalars [theirs]."""
    number: Real = np.where(condition, one, other)[()]
    return number


def total(numbers: Iterable[Real]) -> Real:
    """Sum of numbers that broadcast [theirs]; 0 of none."""
    remaining = iter(numbers)
    return reduce(add, remaining, next(remaining, 0.0))


def first_longest(seconds: Iterable[Real]) -> Indices:
    """Place of the longest of several times; of equals, to ten digits, that of the first."""
    stacked = np.stack(np.broadcast_arrays(*seconds))
    first: Indices = np.argmax(stacked >= _TIE * np.max(stacked, axis=0), axis=0)
    return first


def is_same(one: Real, other: Real) -> bool:
    """True if two numbers agree at every design point; either may lack an axis of the other."""
    return one is other or bool(np.equal(one, other).all())


def sum_by_key(items: Iterable[tuple[_Key, Real]]) -> dict[_Key, Real]:
    """Sums of the values that share a key [theirs]."""
    sums: dict[_Key, Real] = {}
    for key, value in items:
        sums[key] = sums[key] + value if key in sums else value
    return sums


def join(path: str, name: str) -> str:
    """The path of a part, below that of its span."""
    return f"{path}/{name}" if path else name


# --- spans at the same time: the longest branch or queue, and the leaves it is attributed to -----


class Overlap(Group):
    """At the same time, one resource serving one part at a time."""

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Resources that more than one part needs."""
        used, shared = set[str](), set[str]()
        for part in self.parts.values():
            shared |= used & part.resources
            used |= part.resources
        return tuple(sorted(shared))

    @cached_property
    def seconds(self) -> Real:
        """The longest part, or the longest queue for a shared resource [s]."""
        parts = [part.seconds for part in self.parts.values()]
        queues = [self.busy_of(resource) for resource in self.shared]
        return _longest(parts + queues)

    def _active_of(self, role: str) -> Real:
        parts = [part.active_of(role) for part in self.parts.values()]
        queues = [self.busy_of(name) for name in self.shared if name.startswith(f"{role}.")]
        return _longest(parts + queues)

    def _attribute(self, path: str, times: Real, where: Mask) -> Leaves:
        # argmax over stacked candidates would copy each at full size; compare one by one instead
        tied = _TIE * self.seconds
        for name, part in self.parts.items():
            longest = where & np.greater_equal(part.seconds, tied)
            yield from part._attribute(join(path, name), times, longest)
            where = where & ~longest  # of equals the first counts
        for resource in self.shared:
            longest = where & np.greater_equal(self.busy_of(resource), tied)
            for leaf_path, leaf, runs in self.leaves():
                if leaf.resource == resource:
                    yield from leaf._attribute(join(path, leaf_path), times * runs, longest)
            where = where & ~longest


class Stream(Overlap):
    """Bytes through a chain of resources, at the rate of the slowest."""


def _longest(seconds: list[Real]) -> Real:
    """The largest of several times, 0 of none [s]."""
    # small arrays first: few operations then meet the full grid of design points
    smallest_first = sorted(seconds, key=np.size)
    return reduce(np.maximum, smallest_first) if seconds else 0.0


# --- the words of every system --------------------------------------------------------------------


def serial(**parts: Span) -> Span:
    """One after the other: seconds = sum of the parts' [s]."""
    return Serial(parts)


def overlap(**parts: Span) -> Span:
    """At the same time: seconds = the longest part or queue for a shared resource [s]."""
    return Overlap(parts)


def stream(amount: Real, eq: str = "", **ports: Port) -> Span:
    """Send bytes through a chain of ports at once: what leaves the first arrives at the last.

    Args:
        amount: bytes that pass every port [B].
        eq: the equation the amount comes from.
        ports: the resources on the way.

    Returns:
        seconds = those of the slowest port [s].
    """
    leaves = {name: port(amount, eq) for name, port in ports.items()}
    return Stream(leaves)


def wait(resource: str, seconds: Real, eq: str) -> Leaf:
    """Let one resource, which carries nothing, delay what is beside it [s]."""
    return Leaf(resource, "wait", seconds, 1.0, "s", eq)


FASTER = 2.0
"""Stands for whichever of two takes less."""


def either(choice: Real, first: Span, second: Span) -> Span:
    """The first span where the choice is 0, the second where it is 1, at 2 whichever takes less."""
    is_slower = np.greater(first.seconds, second.seconds)
    is_second = choose(choice == FASTER, is_slower, choice)
    return Serial({"first": (1 - is_second) * first, "second": is_second * second})


def pipeline(items: Real, **stages: Span) -> Span:
    """Send items through stages: fill with the first, then one item every slowest stage.

    Args:
        items: how many items [1], at least one.
        stages: the span of one item in each stage.

    Returns:
        seconds = sum of the stages + (items - 1) x overlap of the stages [s].
    """
    fill = Serial(stages)
    steady = Repeat(items - 1, Overlap(stages))
    return Serial({"first": fill, "steady": steady})
