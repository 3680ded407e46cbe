"""Interval arithmetic: whatever lies between the operands, the answer lies between the ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nearkv.sweeps.evaluate.intervals import Interval, NoBoundError, Outcomes, interval_of
from nearkv.sweeps.evaluate.intervals.interval import RULES

Numbers = NDArray[np.float64]
ENDS = (-np.inf, -7.5, -1.0, -0.0, 0.0, 1e-300, 0.3, 1.0, 4.0, 1e300, np.inf)
"""Where arithmetic changes its rules, and some ordinary numbers."""

UNARY = (
    *(np.floor, np.ceil, np.rint, np.trunc, np.sqrt, np.negative, np.absolute, np.square),
    *(np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.logical_not),
)
BINARY = (
    *(np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum),
    *(np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal),
    *(np.logical_and, np.logical_or),
)


def drawn(seed: int, least: float = -np.inf) -> tuple[Interval, Numbers]:
    """500 intervals, and 9 numbers within each, its ends among them."""
    random = np.random.default_rng(seed)
    ends = np.array([end for end in ENDS if end >= least])
    exact, near = random.choice(ends, (2, 500))
    far = np.where(random.random(500) < 0.3, exact, near)
    low, high = np.minimum(exact, far), np.maximum(exact, far)
    finite_low, finite_high = np.nan_to_num(low), np.nan_to_num(high)
    shares = random.random((9, 500))
    shares[0], shares[1] = 0.0, 1.0
    inside = finite_low * (1 - shares) + finite_high * shares
    inside[0], inside[1] = low, high
    return Interval(low, high, False, Outcomes()), np.clip(inside, low, high)


def assert_encloses(answer: Any, values: NDArray[Any]) -> None:
    interval = interval_of(answer, Outcomes())
    blank = np.broadcast_to(interval.blank, interval.shape)
    low = np.broadcast_to(interval.low, values.shape)
    high = np.broadcast_to(interval.high, values.shape)
    is_blank = np.isnan(values.astype(float))
    assert np.all(np.broadcast_to(blank, values.shape)[is_blank])
    assert np.all(low[~is_blank] <= values[~is_blank])
    assert np.all(values[~is_blank] <= high[~is_blank])


@pytest.mark.parametrize("function", UNARY, ids=lambda function: function.__name__)
def test_functions_of_one_number(function: Any) -> None:
    interval, inside = drawn(1)
    with np.errstate(all="ignore"):
        assert_encloses(function(interval), function(inside))


@pytest.mark.parametrize("function", BINARY, ids=lambda function: function.__name__)
def test_functions_of_two_numbers(function: Any) -> None:
    (a, in_a), (b, in_b) = drawn(2), drawn(3)
    with np.errstate(all="ignore"):
        answer = function(a, b)
        for values in in_a:
            assert_encloses(answer, function(values, in_b))
        assert_encloses(function(a, 2.5), function(in_a, 2.5))
        assert_encloses(function(0.0, b), function(0.0, in_b))


def test_powers() -> None:
    (base, in_base), (exponent, in_exponent) = drawn(4, least=0.0), drawn(5)
    with np.errstate(all="ignore"):
        answer = np.power(base, exponent)
        for values in in_base:
            assert_encloses(answer, np.power(values, in_exponent))
    with pytest.raises(NoBoundError):
        np.power(drawn(4)[0], 2.0)


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "where": lambda a, b: np.where(a > b, a, 2 * b),
    "select": lambda a, b: np.select([a > 1, b > 1], [b, a], 3.0),
    "clip": lambda a, b: np.clip(a, b, 4.0),
    "stack": lambda a, b: np.stack(np.broadcast_arrays(a, b))[0],
    "max": lambda a, b: np.max(np.stack([a, b]), axis=0),
    "min": lambda a, b: np.min(np.stack([a, b]), axis=0),
    "sum": lambda a, b: np.sum(np.stack([a, b, 0.1 * a]), axis=0),
    "argmax": lambda a, b: np.argmax(np.stack([a, b, a + 1]), axis=0),
    "reshape": lambda a, b: np.expand_dims(a, 0).reshape(-1) + np.ravel(b),
    "concatenate": lambda a, b: np.concatenate([a, b])[: len(ENDS)],
    "broadcast": lambda a, b: np.squeeze(np.broadcast_to(a, (1, 500))) * np.copy(b),
    "moved": lambda a, b: np.moveaxis(np.reshape(a, (5, 100)), 0, 1).ravel(),
    "masked": lambda a, b: (a > 0) & ~(b > 0) | (a == b),
    "whole": lambda a, b: np.clip(a, -9, 9).astype(int) + (b > 0).astype(int),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_else_has_a_rule(name: str) -> None:
    compute = OTHERS[name]
    (a, in_a), (b, in_b) = drawn(6, least=-10.0), drawn(7, least=-10.0)
    with np.errstate(all="ignore"):
        answer = compute(a, b)
        for place, values in enumerate(in_a):
            assert_encloses(answer, np.asarray(compute(values, in_b[-place])))


def test_every_rule_is_among_those_tested() -> None:
    named = {function.__name__ for function in (*UNARY, *BINARY)}
    tested_below = {"any", "all", "array_equal", "frexp"}
    within_others = {"broadcast_arrays", "broadcast_to", "expand_dims", "ravel", "squeeze"}
    within_others |= {"copy", "moveaxis", "bitwise_and", "bitwise_or", "invert", "power"}
    rules = {function.__name__ for function in RULES}
    assert {name.replace("amax", "max").replace("amin", "min") for name in rules} <= (
        named | tested_below | within_others | OTHERS.keys()
    )


def test_what_holds_everywhere_is_known() -> None:
    outcomes = Outcomes()
    interval = Interval(np.array([1.0, 3.0]), np.array([2.0, 5.0]), False, outcomes)
    assert np.any(interval > 2.5)
    assert not np.all(interval > 2.5)
    assert not np.any(interval > 6)
    assert not np.array_equal(interval, np.array([0.0, 4.0]))
    assert (interval > 2.5).tolist() == [False, True]
    assert not outcomes.all


def test_what_may_hold_is_told_as_asked() -> None:
    outcomes = Outcomes(first=(False,))
    interval = Interval(np.array([1.0]), np.array([2.0]), False, outcomes)
    assert not np.any(interval > 1.5)
    assert np.all(interval < 1.6)
    assert outcomes.all == [False, True]


def test_exponents_of_two() -> None:
    interval = Interval(np.array([3.0]), np.array([9.0]), False, Outcomes())
    frexp: Any = np.frexp
    mantissa, exponent = frexp(interval)
    assert (exponent.low.item(), exponent.high.item()) == (2, 4)
    assert (mantissa.low.item(), mantissa.high.item()) == (0.5, 1.0)


def test_blanks_are_no_numbers() -> None:
    """Where the condition surely fails there is nothing between the ends."""
    interval = Interval(np.array([1.0, 5.0]), np.array([2.0, 6.0]), False, Outcomes())
    where: Any = np.where
    chosen = where(interval < 3, interval, math.nan)
    assert chosen.low.tolist() == [1.0, math.inf]
    assert chosen.high.tolist() == [2.0, -math.inf]
    assert chosen.blank.tolist() == [False, True]


@pytest.mark.parametrize(
    "leave",
    [float, int, np.asarray, list, len, lambda x: np.arange(9)[x], np.cumsum, np.arctan],
)
def test_nothing_passes_without_a_rule(leave: Callable[[Any], object]) -> None:
    with pytest.raises(NoBoundError):
        leave(Interval(np.array([1.0]), np.array([2.0]), False, Outcomes()))


def test_an_endless_interval_is_no_whole_number() -> None:
    with pytest.raises(NoBoundError):
        Interval(np.array([1.0]), np.array([np.inf]), False, Outcomes()).astype(int)
