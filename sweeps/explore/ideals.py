"""The best that rows of boxes could be, and what beats all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.bounds import Bound
from nearkv.sweeps.evaluate.intervals import Interval
from nearkv.sweeps.evaluate.slo import Target, higher_is_better

Values = NDArray[np.generic]
Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Ideals:
    """The best that rows of boxes could be, box by box.

    Attributes:
        costs: what rows are compared by, less is better: (boxes, columns).
        groups: number of the group of all rows; -1 where it is not known.
        rows: number of the first row.
        are_blank: no row has an answer.
    """

    costs: Numbers
    groups: Indices
    rows: Indices
    are_blank: Mask

    def take(self, chosen: Values) -> Ideals:
        """Those of some boxes, by index or by mask."""
        return Ideals(
            costs=self.costs[chosen],
            groups=self.groups[chosen],
            rows=self.rows[chosen],
            are_blank=self.are_blank[chosen],
        )

    def __add__(self, other: Ideals) -> Ideals:
        both = {}
        for name, own in vars(self).items():
            others = getattr(other, name)
            both[name] = np.concatenate([own, others])
        return Ideals(**both)


class Incumbents(Protocol):
    """The best rows so far."""

    def beat(self, ideals: Ideals) -> Mask:
        """Boxes none of whose rows is among the best, whatever else is visited."""


class Groups:
    """Numbers of groups, by what their rows have in common in some columns."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}

    def numbers(self, columns: Sequence[Values], rows: int) -> Indices:
        """The number of the group of each row."""
        codes = np.zeros(rows, np.int64)
        for column in columns:
            distinct, own = np.unique(column, return_inverse=True)
            codes = codes * len(distinct) + own
            _, codes = np.unique(codes, return_inverse=True)
        _, first = np.unique(codes, return_index=True)
        numbers = []
        for row in first:
            key = tuple(column[row].item() for column in columns)
            number = self._numbers.setdefault(key, len(self._numbers))
            numbers.append(number)
        of_code = np.array(numbers, np.int64)
        return of_code[codes]


@dataclass(frozen=True)
class Contest:
    """What rows are compared by.

    Attributes:
        by: columns.
        per: columns whose every combination of values is a group.
        groups: their numbers.
        limits: conditions that a row must meet.
    """

    by: tuple[str, ...]
    per: tuple[str, ...]
    groups: Groups = field(default_factory=Groups)
    limits: tuple[Target, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them."""
        limited = [limit.quantity for limit in self.limits]
        return (*self.by, *self.per, *limited)

    def ideals(self, bounds: Mapping[str, Bound] | None, rows: Indices) -> Ideals:
        """The ideals of boxes with such bounds, which begin with such rows."""
        count = len(rows)
        costs = np.full((count, len(self.by)), -np.inf)
        groups = np.full(count, -1, np.int64)
        are_blank = np.zeros(count, bool)
        ideals = Ideals(costs, groups, rows, are_blank)
        if bounds is None:
            return ideals
        for place, name in enumerate(self.by):
            if name not in bounds:
                are_blank[:] = True
                continue
            numbers = bounds[name].numbers
            is_higher = higher_is_better(name)
            costs[:, place] = -numbers.high if is_higher else numbers.low
            are_blank |= numbers.low > numbers.high
        for limit in self.limits:
            if limit.quantity in bounds:
                are_blank |= _fails(limit, bounds[limit.quantity].numbers)
        if all(name in bounds for name in self.per):
            groups[:] = self._groups(bounds, count)
        return ideals

    def _groups(self, bounds: Mapping[str, Bound], count: int) -> Indices:
        """The group of each box; -1 where its rows may be of several."""
        is_known = np.ones(count, bool)
        columns = []
        for name in self.per:
            values, is_one = _shared(bounds[name])
            columns.append(values)
            is_known &= is_one
        numbers = self.groups.numbers(columns, count)
        return np.where(is_known, numbers, -1)


def _fails(limit: Target, numbers: Interval) -> Mask:
    """Where no number meets a limit; those below 0 meet none."""
    nearest = numbers.high if limit.at_least else np.maximum(numbers.low, 0.0)
    fails: Mask = limit.margin(nearest) < 0
    return fails


def _shared(bound: Bound) -> tuple[Values, Mask]:
    """The value that all rows of a box have in a column, and where there is only one."""
    numbers = bound.numbers
    is_one = numbers.low == numbers.high
    is_one = is_one & np.logical_not(numbers.blank)
    if not bound.names:
        return numbers.low, is_one
    places = np.where(is_one, numbers.low, 0)
    names = np.array(bound.names)
    return names[places.astype(int)], is_one
