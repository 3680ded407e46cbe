"""What checks of input need to name the value at fault."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real


def first_where(wrong: NDArray[np.bool_], value: Real) -> float:
    """Value at the first design point that is wrong [that of the value]."""
    return float(np.broadcast_to(value, wrong.shape)[wrong][0])
