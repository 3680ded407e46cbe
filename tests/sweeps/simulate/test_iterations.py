"""Functions tabulated at nodes are affine between them."""

from __future__ import annotations

import numpy as np
import pytest

from nearkv.costmodel.algebra.span import Real
from nearkv.sweeps.simulate.iterations import Interpolant

NODES = np.array([0.0, 1.0, 4.0, 10.0])


def test_a_function_is_met_at_its_nodes_and_lies_in_the_middle_between_them() -> None:
    squares = Interpolant(lambda x, y: x**2 * y, NODES, NODES)
    assert squares(4.0, 10.0) == 160
    assert squares(7.0, 10.0) == (160 + 1000) / 2
    assert squares(7.0, 2.5) == pytest.approx((16 + 100) / 2 * 2.5)


def test_beyond_the_last_node_a_function_goes_on_as_before_it() -> None:
    squares = Interpolant(lambda x: x**2, NODES)
    assert squares(16.0) == 100 + (100 - 16)


@pytest.mark.parametrize("axis", range(3))
def test_a_function_may_depend_on_one_of_its_variables(axis: int) -> None:
    """Models compute what depends on one axis along it alone."""

    def of_one(*place: Real) -> Real:
        return 3 * place[axis] + 2

    place = [0.5, 2.0, 9.0]
    assert Interpolant(of_one, NODES, NODES, NODES)(*place) == pytest.approx(3 * place[axis] + 2)
    assert Interpolant(lambda *_: 7.0, NODES, NODES)(2.0, 3.0) == 7
