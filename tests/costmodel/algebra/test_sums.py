"""Sums and maxima of numbers over many axes: equal to NumPy's, and nobody's array changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearkv.costmodel.algebra.sums import Number, longest_of, total

SHAPES = ((), (1, 1, 1), (3, 1, 1), (1, 4, 1), (1, 1, 5), (3, 4, 1), (3, 1, 5), (3, 4, 5))


@st.composite
def numbers(draw: st.DrawFn) -> list[Number]:
    """Scalars and arrays over some of three axes, some of them 0 everywhere or at an end."""
    some: list[Number] = []
    for shape in draw(st.lists(st.sampled_from(SHAPES), max_size=6)):
        seed = draw(st.integers(0, 99))
        values = np.random.default_rng(seed).random(shape) if seed % 3 else np.zeros(shape)
        some.append(values if shape else float(values))
    return some


@pytest.mark.parametrize(
    ("joined", "by_numpy"), [(total, np.add), (longest_of, np.maximum)], ids=["sum", "longest"]
)
@given(some=numbers())
@settings(max_examples=400, deadline=None)
def test_they_are_numpys_and_leave_every_number_as_it_was(
    joined: Callable[[list[Number]], Number], by_numpy: np.ufunc, some: list[Number]
) -> None:
    before = [np.copy(number) for number in some]
    answer = joined(some)
    expected = np.asarray(reduce(by_numpy, before, 0.0))
    assert np.shape(answer) == expected.shape
    np.testing.assert_array_equal(answer, expected)
    for number, copy in zip(some, before, strict=True):
        np.testing.assert_array_equal(number, copy)


def test_a_sum_is_nobodys_array_but_where_it_is_one_number() -> None:
    """Blanks of other axes are added, and what follows them is not changed in their place."""
    rows, columns = np.zeros((3, 1)), np.zeros((1, 4))
    times = np.arange(12.0).reshape(3, 4)
    assert total([rows, columns, times]) is times
    assert np.array_equal(total([rows, columns, times, times]), 2 * times)
    assert np.array_equal(times, np.arange(12.0).reshape(3, 4))
