"""The Pareto frontier of a million random designs."""

import time

import numpy as np

from nearkv.solvers.frontier import frontier

POINTS = 1_000_000


def main() -> None:
    rng = np.random.default_rng(0)
    for what, costs in (
        ("two random columns", rng.random((POINTS, 2))),
        ("three random columns", rng.random((POINTS, 3))),
        ("three columns, nothing dominated", rng.dirichlet((1, 1, 1), POINTS)),
    ):
        start = time.perf_counter()
        found = frontier(costs).sum()
        spent = time.perf_counter() - start
        print(
            f"frontier of {POINTS:,} points, {what}: {found:,} on it, {spent:.2f} s "
            "(at most 1 s wanted of random)"
        )
