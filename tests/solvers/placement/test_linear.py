"""Small linear programs solved by hand, and the bounds that prices prove."""

from __future__ import annotations

import numpy as np
import pytest
from support.linear_programs import reference

from nearkv.solvers.placement.linear import Program, Simplex

PROGRAM = Program(
    cost=np.array([-3.0, -2.0, 1.0]),
    matrix=np.array([[1.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 1.0, 1.0]]),
    limit=np.array([4.0, 6.0, 2.0]),
    equal=np.array([False, False, True]),
    low=np.zeros(3),
    high=np.array([3.0, 10.0, 10.0]),
)
"""x at its end 3, y = 1 by both inequalities, z = 2 - y = 1: -9 - 2 + 1 = -10."""


def test_a_small_program_by_hand() -> None:
    for optimum in (Simplex()(PROGRAM), reference(PROGRAM)):
        assert optimum is not None
        assert optimum.value == pytest.approx(-10)
        assert optimum.bound == pytest.approx(-10)
        assert optimum.x == pytest.approx([3, 1, 1])


def test_a_row_more_changes_the_optimum_as_it_must() -> None:
    """With y at most 0.5: z = 1.5, -9 - 1 + 1.5."""
    tighter = PROGRAM.with_row(np.array([0.0, 1.0, 0.0]), 0.5)
    simplex = Simplex()
    simplex(PROGRAM)
    optimum = simplex(tighter)
    assert optimum is not None
    assert optimum.value == pytest.approx(-8.5)
    assert not tighter.equal[-1]


def test_prices_of_the_wrong_sign_prove_nothing_and_others_a_bound() -> None:
    """Free to leave z and y at their ends: -3 x 3 - 2 x 10 at no price, more at any other."""
    assert PROGRAM.bound(np.zeros(3)) == pytest.approx(-29)
    assert PROGRAM.bound(np.array([5.0, 0.0, 0.0])) == pytest.approx(-29)
    # a price of -3 for the sum: 12 off, and what is left is 0 x and 1 y
    assert PROGRAM.bound(np.array([-3.0, 0.0, 0.0])) == pytest.approx(-12)


def test_the_bound_of_a_program_knows_equalities() -> None:
    program = Program(
        cost=np.array([1.0, 2.0]),
        matrix=np.array([[1.0, 1.0], [1.0, 0.0]]),
        limit=np.array([1.0, 0.25]),
        equal=np.array([True, False]),
        low=np.zeros(2),
        high=np.ones(2),
    )
    answer = Simplex()(program)
    assert answer is not None
    assert answer.x == pytest.approx([0.25, 0.75])
    assert answer.bound == pytest.approx(1.75)
    assert answer.prices == pytest.approx([2.0, -1.0])
