"""The cheapest machines that share several kinds of request, as an integer program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pulp

from nearkv.costmodel.algebra.span import Numbers

_SHARE_TOLERANCE = 1e-6
"""Share of a class up to which HiGHS may leave what is none [1]."""


@dataclass(frozen=True)
class Mix:
    """Number of machines of each kind that serve all classes of requests.

    Attributes:
        count: machines of each kind: (kinds,).
        busy: how many of them each class takes: (kinds, classes).
        bound: no mix costs less.
    """

    count: Numbers
    busy: Numbers
    bound: float


def cheapest_mix(
    cost: Numbers,
    rate: Numbers,
    demand: Numbers,
    limits: Sequence[tuple[Numbers, float]] = (),
    seconds: float = np.inf,
) -> Mix | None:
    """Choose how many machines of each kind serve all requests at the least cost.

    Source: the integer program of Mélange (Griggs et al. 2024). A machine gives each class a share
    of its time. There a class is cut into slices, each of which one kind of machine serves; here
    into shares of any size.

    Args:
        cost: of a machine of each kind: (kinds,).
        rate: of the requests of each class that a machine serves alone [1/s]: (kinds, classes).
        demand: requests of each class [1/s]: (classes,).
        limits: what a machine of each kind takes of something, (kinds,), and the most there is.
        seconds: after which the best so far is returned.

    Returns:
        The mix; none where no mix is within the limits, or none was found in time.

    Example: one large machine at 3, or two small ones at 2 each, serve both classes.

    >>> rate = np.array([[1.0, 1.0], [4.0, 2.0]])
    >>> mix = cheapest_mix(np.array([2.0, 3.0]), rate, demand=np.array([1.0, 1.0]))
    >>> mix.count.tolist(), mix.busy.tolist(), mix.bound
    ([0.0, 1.0], [[0.0, 0.0], [0.25, 0.5]], 3.0)
    """
    kinds, classes = map(range, rate.shape)
    program = pulp.LpProblem("mix", pulp.LpMinimize)
    count = [program.add_variable(f"n{k}", 0, cat="Integer") for k in kinds]
    share = {
        (k, c): program.add_variable(f"x{k}_{c}", 0)
        for k, c in np.argwhere(rate > 0).tolist()
    }
    program += pulp.lpSum(price * n for price, n in zip(cost.tolist(), count, strict=True))
    for c in classes:
        program += pulp.lpSum(share[k, c] for k in kinds if (k, c) in share) == 1
    for (k, _), one in share.items():
        program += (
            one <= count[k]
        )  # a share too small for HiGHS to see takes a machine, too
    for k in kinds:
        own = [c for c in classes if (k, c) in share]
        taken = [float(demand[c] / rate[k, c]) * share[k, c] for c in own]
        program += pulp.lpSum(taken) <= count[k]
    for needs, most in limits:
        taken = [need * n for need, n in zip(needs.tolist(), count, strict=True)]
        program += pulp.lpSum(taken) <= most
    left = seconds if np.isfinite(seconds) else None
    program.solve(pulp.HiGHS(msg=False, gapRel=0.0, timeLimit=left))
    found = (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    if program.sol_status not in found:
        return None
    busy = np.zeros(rate.shape)
    for (k, c), served in share.items():
        if served.varValue > _SHARE_TOLERANCE:
            busy[k, c] = demand[c] / rate[k, c] * served.varValue
    bound = float(program.solverModel.getInfo().mip_dual_bound)
    whole = np.abs(np.round([n.varValue for n in count]))
    return Mix(whole, busy, bound)
