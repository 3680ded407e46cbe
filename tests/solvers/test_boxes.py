"""Branch and bound over boxes against looking at every point."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.solvers.boxes import Boxes, Integers, Numbers, Progress, covers, minimise
from nearkv.solvers.frontier import frontier


class Shop:
    """A random space: rising costs, rising rates with steps, and a least rate."""

    def __init__(
        self, seed: int, cases: int = 12, side: int = 9, axes: int = 3, is_quick: bool = True
    ) -> None:
        rng = np.random.default_rng(seed)
        low = rng.integers(0, 3, (cases, axes))
        self.is_quick = is_quick
        self.boxes = Boxes(np.arange(cases), low, low + rng.integers(0, side, (cases, axes)))
        self.price = rng.integers(1, 30, (cases, axes)).astype(float)
        self.fixed = rng.integers(0, 60, cases).astype(float)
        self.speed = rng.random((cases, axes)) * rng.integers(0, 2, (cases, axes))
        self.least = rng.random() * 8
        self.group = rng.integers(0, 3, cases)

    def cost(self, case: Integers, point: Integers) -> Numbers:
        cost: Numbers = self.fixed[case] + np.sum(self.price[case] * point, axis=1)
        return cost

    def rate(self, case: Integers, point: Integers) -> Numbers:
        steps = np.floor(np.minimum(2 * point, point + 4) * self.speed[case])
        rate: Numbers = np.sum(steps, axis=1)
        return rate

    def cheapest(self, boxes: Boxes) -> Numbers:
        return self.cost(boxes.case, boxes.low)[:, np.newaxis]

    def groups_of_cases(self) -> Integers:
        return self.group

    def quick(self, boxes: Boxes) -> Numbers:
        return self.cheapest(boxes) if self.is_quick else np.full((len(boxes), 1), -np.inf)

    def bound(self, boxes: Boxes) -> Numbers:
        reached = self.rate(boxes.case, boxes.high) >= self.least
        return np.where(reached[:, np.newaxis], self.cheapest(boxes), np.inf)

    def value(self, case: Integers, point: Integers) -> Numbers:
        reached = self.rate(case, point) >= self.least
        return np.where(reached, self.cost(case, point), np.inf)[:, np.newaxis]

    def points(self) -> tuple[Integers, Integers]:
        """All points and their cases."""
        listed = []
        for low, high in zip(self.boxes.low, self.boxes.high, strict=True):
            axes = [np.arange(a, b + 1) for a, b in zip(low, high, strict=True)]
            listed.append(np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes)))
        return np.repeat(self.boxes.case, [len(part) for part in listed]), np.concatenate(listed)


class Front(Shop):
    """A shop without a least rate, asked for its costs over its rates."""

    def quick(self, boxes: Boxes) -> Numbers:
        return np.full((len(boxes), 2), -np.inf)

    def bound(self, boxes: Boxes) -> Numbers:
        return np.stack([self.cheapest(boxes)[:, 0], -self.rate(boxes.case, boxes.high)], axis=1)

    def value(self, case: Integers, point: Integers) -> Numbers:
        return np.stack([self.cost(case, point), -self.rate(case, point)], axis=1)


class Unknown:
    """One case of six points, the first three of which have a value that is none."""

    boxes = Boxes(np.array([0]), np.array([[0]]), np.array([[5]]))

    def __init__(self, value: float) -> None:
        self.none = value

    def groups_of_cases(self) -> Integers:
        return np.zeros(1, np.int64)

    def quick(self, boxes: Boxes) -> Numbers:
        return np.full((len(boxes), 1), -np.inf)

    def bound(self, boxes: Boxes) -> Numbers:
        return self.quick(boxes)

    def value(self, _: Integers, point: Integers) -> Numbers:
        return np.where(point < 3, self.none, point.astype(float))


@pytest.mark.parametrize("seed", range(40))
def test_each_group_has_its_least_value_as_by_brute_force(seed: int) -> None:
    shop = Shop(seed, is_quick=bool(seed % 2))
    found = minimise(shop, at_once=7 + seed)
    case, point = shop.points()
    values = shop.value(case, point)[:, 0]
    for group in range(3):
        least = np.min(values[shop.group[case] == group], initial=np.inf)
        best = found.value[found.group == group, 0]
        assert best.tolist() == ([least] if np.isfinite(least) else [])
    assert np.array_equal(shop.value(found.case, found.point), found.value)
    assert not len(found.open)


@pytest.mark.parametrize("seed", range(20))
def test_two_objectives_give_the_front_of_each_group(seed: int) -> None:
    shop = Front(seed)
    found = minimise(shop)
    case, point = shop.points()
    values = shop.value(case, point)
    for group in np.unique(shop.group):
        own = values[shop.group[case] == group]
        front = np.unique(own[frontier(own)], axis=0)
        assert np.array_equal(found.value[found.group == group], front)


@pytest.mark.parametrize("seed", range(20))
def test_cuts_fill_the_space_and_hide_no_better_point(seed: int) -> None:
    shop = Shop(seed)
    found = minimise(shop)
    assert np.all(covers(shop.boxes, found.cuts))
    best = np.full(3, np.inf)
    best[found.group] = found.value[:, 0]
    case, point = shop.points()
    for cut, bound in enumerate(best[shop.group[found.cuts.case]]):
        own = case == found.cuts.case[cut]
        own &= np.all((found.cuts.low[cut] <= point) & (point <= found.cuts.high[cut]), axis=1)
        assert np.all(shop.value(case[own], point[own])[:, 0] >= bound)


def test_cuts_that_do_not_fill_the_space_are_noticed() -> None:
    shop = Shop(3, is_quick=False)
    cuts = minimise(shop).cuts
    rng = np.random.default_rng(0)
    for _ in range(100):
        row = int(rng.integers(len(cuts)))
        rest = np.arange(len(cuts)) != row
        case = cuts.case[row]
        assert not covers(shop.boxes, cuts[rest])[case], "a dropped cut"
        twice = cuts[np.append(np.flatnonzero(rest), [row, row])]
        assert not covers(shop.boxes, twice)[case], "a cut given twice"
        moved = Boxes(cuts.case, cuts.low.copy(), cuts.high.copy())
        moved.high[row, rng.integers(3)] += 1
        assert not covers(shop.boxes, moved)[case], "a cut that is too large"
    # a cut of one case cannot stand for a missing cut of another
    other = Boxes(np.where(cuts.case == 0, 1, cuts.case), cuts.low, cuts.high)
    assert not covers(shop.boxes, other)[0]
    overlap = Boxes(np.zeros(3, int), np.array([[0], [0], [2]]), np.array([[0], [1], [2]]))
    space = Boxes(np.zeros(1, int), np.array([[0]]), np.array([[3]]))
    assert not covers(space, overlap)[0], "equal in number of points, not in points"


def test_a_search_that_is_stopped_keeps_its_best_and_a_true_bound() -> None:
    shop = Shop(5, cases=30, side=40)
    rounds: list[Progress] = []

    def stop_later(progress: Progress) -> None:
        rounds.append(progress)
        if len(rounds) == 12:
            raise KeyboardInterrupt

    found = minimise(shop, at_once=4, report=stop_later)
    whole = minimise(shop)
    assert len(found.open)
    assert not len(whole.open)
    both = Boxes(
        np.append(found.cuts.case, found.open.case),
        np.append(found.cuts.low, found.open.low, axis=0),
        np.append(found.cuts.high, found.open.high, axis=0),
    )
    assert np.all(covers(shop.boxes, both))
    final = whole.progress.value
    known = np.minimum(found.progress.bound, found.progress.value)
    assert np.all(known <= final)
    assert np.all(final <= found.progress.value)
    # of a group that is solved, too
    assert np.all(found.progress.bound <= found.progress.value)
    assert np.all(whole.progress.bound == final)
    assert minimise(shop, seconds=0).progress.evaluations == 0
    assert all(one.value.shape == one.bound.shape == (3,) for one in rounds), "a value each group"


def test_a_large_space_takes_few_evaluations() -> None:
    shop = Shop(7, cases=20, side=2000)
    found = minimise(shop)
    assert np.sum(shop.boxes.sizes) > 1e9
    assert found.progress.evaluations < 50_000


@pytest.mark.parametrize("unknown", [np.nan, -np.inf])
def test_points_whose_value_is_not_known_are_none(unknown: float) -> None:
    best = minimise(Unknown(unknown))
    assert best.point.tolist() == [[3]]
    assert not len(best.open)
