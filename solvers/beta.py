"""The best split of K and V between host DRAM and SmartSSD (HillInfer sec. 4.3, 5.4).

Symbols: beta = M_c / M_s, M = M_c + M_s bytes of K and V off the GPU, M_0 the DRAM they may take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.llm import LLM
from nearkv.costmodel.mechanisms.eviction import place
from nearkv.costmodel.mechanisms.scoring import (
    Pools,
    balanced_paths,
    beta_balanced,
    beta_eq4,
    beta_sec54,
    rates,
)
from nearkv.costmodel.registry import find_system
from nearkv.costmodel.span import Real, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.solvers.shares.balance import feasible_share, minimise

NOTHING, LINK = "none: nothing is off the GPU", "GPU link"
BINDS = ("balance", "host memory M0", "SmartSSD capacity", "skew: all tokens cold", LINK, NOTHING)

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Split:
    """One beta and what scoring and fetching take there, for a decode step.

    Attributes:
        hot_share: M_c / (M_c + M_s) [1].
        cpu, csd: T_CPU and T_SmartSSD of eq. 2 [s].
        seconds: both side by side, queueing for the GPU's link [s].
    """

    hot_share: Real
    cpu: Real
    csd: Real
    seconds: Real

    @property
    def beta(self) -> Real:
        """M_c / M_s; infinite where the SmartSSD holds nothing [1]."""
        with np.errstate(divide="ignore"):
            return np.divide(self.hot_share, np.subtract(1, self.hot_share))


@dataclass(frozen=True)
class Rule:
    """A formula of the paper: the beta it prints, and the split once that is cut to what fits."""

    beta: Real
    at: Split


@dataclass(frozen=True)
class BestBeta:
    """The exact optimum and the paper's two formulas on the same machine.

    Attributes:
        best: the optimum under eq. 3 and the SmartSSD's capacity.
        bound: no split that fits takes less [s].
        bound_by: what ends the search for a better one, one of `BINDS`.
        eq4, sec54: the paper's formulas.
    """

    best: Split
    bound: Real
    bound_by: NDArray[np.str_]
    eq4: Rule
    sec54: Rule


def best_beta(hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]) -> BestBeta:
    """Minimise max(T_CPU, T_SmartSSD) subject to M_c <= M_0 and to what the SmartSSD holds.

    The constraint beta <= M_0 / M_s of eq. 4 has beta on both sides; solved it is
    beta <= M_0 / (M - M_0), with no bound where M <= M_0.

    Args:
        hw: roles gpu, gpu_link, host, csd, csd_link.
        llm, work: what runs; broadcast over design points.
        knobs: retention, sigma, hop, score_precision, score_source and placement of `hillinfer` [1].

    Returns:
        The optimum with its certificate, and the loss of the paper's formulas.
    """
    alpha, sigma, hop = knobs["retention"], knobs["sigma"], knobs["hop"]
    precision, source = knobs["score_precision"], knobs["score_source"]
    off_gpu = 1 - place(hw, llm, work, knobs["placement"]).gpu
    off_bytes = off_gpu * llm.layers * llm.kv_bytes(work.batch, work.context)

    def paths(share: Real) -> Span:
        return balanced_paths(
            hw,
            llm,
            Pools(share * off_bytes, (1 - share) * off_bytes, alpha, sigma, hop),
            precision,
            source,
        )

    ends = [
        find_system("hillinfer")(hw, llm, work, {**knobs, "hot_share": share, "chunks": 1.0}).fits
        for share in (0.0, 1.0)
    ]
    low, high = feasible_share(*ends)
    r = rates(hw, llm, precision, source, hop)
    balanced = beta_balanced(r, alpha, sigma, hop)

    def at(beta: Real) -> Split:
        return split(paths, np.clip(share_of(beta), low, high))

    eq4, sec54, best = beta_eq4(r, alpha), beta_sec54(r, alpha), at(balanced)
    return BestBeta(
        best=best,
        bound=minimise(paths(0.0), paths(1.0), low, high).bound,
        bound_by=what_binds(balanced, low, high, off_gpu, best),
        eq4=Rule(eq4, at(eq4)),
        sec54=Rule(sec54, at(sec54)),
    )


def split(paths: Callable[[Real], Span], share: Real) -> Split:
    """Evaluate one hot share [1]."""
    span = paths(share)
    return Split(share, span.parts["cpu"].seconds, span.parts["csd"].seconds, span.seconds)


def what_binds(
    balanced: Real, low: Real, high: Real, off_gpu: Real, best: Split
) -> NDArray[np.str_]:
    """Why no other beta is better: the two paths balance, or a bound stops them before they do.

    Both paths end in the GPU's link, which every retained token crosses at any beta; where they queue
    there, no beta helps.
    """
    share = share_of(balanced)
    queued = np.greater(best.seconds, np.maximum(best.cpu, best.csd) * (1 + _ROUNDING))
    stops = [
        np.less_equal(off_gpu, 0), queued, np.greater(share, high), np.less(share, low), np.less_equal(balanced, 0),
    ]  # fmt: skip
    balance, memory, capacity, skew, link, nothing = BINDS
    return np.select(stops, [nothing, link, memory, capacity, skew], balance)


def share_of(beta: Real) -> Real:
    """M_c / (M_c + M_s) = beta / (1 + beta) [1]."""
    return np.divide(beta, np.add(1, beta))
