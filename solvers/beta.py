"""The best split of K and V between host DRAM and SmartSSD (HillInfer sec. 4.3, 5.4).

Symbols: beta = M_c / M_s, M = M_c + M_s bytes of K and V off the GPU, M_0 the DRAM they may take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.mechanisms.near_storage.eviction import place_stated
from nearkv.costmodel.mechanisms.near_storage.scoring import (
    Pools,
    balanced_paths,
    beta_balanced,
    beta_eq4,
    beta_sec54,
    rates,
)
from nearkv.costmodel.model.estimate import Fits
from nearkv.costmodel.model.layers import over_layers
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import find_system
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.solvers.shares.minimum import minimise
from nearkv.solvers.shares.solve import feasible_share

BALANCE = "balance"
HOST = "host memory M0"
CAPACITY = "SmartSSD capacity"
SKEW = "skew: all tokens cold"
LINK = "GPU link"
NOT_SPLIT = "none: nothing is off the GPU"

_QUEUED = 1e-9
"""Share of its longer path by which a split must take longer before the link queues [1]."""


@dataclass(frozen=True)
class BetaSplit:
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
        cold_share = np.subtract(1, self.hot_share)
        with np.errstate(divide="ignore"):
            return np.divide(self.hot_share, cold_share)


@dataclass(frozen=True)
class PaperRule:
    """A formula of the paper: the beta it prints, and the split once that is cut to what fits."""

    beta: Real
    at: BetaSplit


@dataclass(frozen=True)
class BestBeta:
    """The exact optimum and the paper's two formulas on the same machine.

    Attributes:
        best: the optimum under eq. 3 and the SmartSSD's capacity.
        bound: no split that fits takes less [s].
        bound_by: what ends the search for a better one, one of the names above.
        eq4, sec54: the paper's formulas.
    """

    best: BetaSplit
    bound: Real
    bound_by: NDArray[np.str_]
    eq4: PaperRule
    sec54: PaperRule


def best_beta(hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]) -> BestBeta:
    """Minimise max(T_CPU, T_SmartSSD) subject to M_c <= M_0 and to what the SmartSSD holds.

    The constraint beta <= M_0 / M_s of eq. 4 has beta on both sides; solved it is
    beta <= M_0 / (M - M_0), with no bound where M <= M_0.

    Args:
        hw: roles gpu, gpu_link, host, csd, csd_link.
        llm, work: what runs; broadcast over design points.
        knobs: retention, sigma, hop, score_precision, score_source and placement of
            `hillinfer` [1].

    Returns:
        The optimum with its bound, and the loss of the paper's formulas. Where layers are of
        several types, their paths balance at different shares; the optimum is that of the sum.
    """
    alpha, sigma, hop = knobs["retention"], knobs["sigma"], knobs["hop"]
    precision, source = knobs["score_precision"], knobs["score_source"]
    off_gpu = 1 - place_stated(hw, llm, work, knobs).gpu

    def paths(layer: LLM, share: Real) -> Span:
        off_bytes = off_gpu * layer.kv_bytes(work.batch, work.context)
        pools = Pools(share * off_bytes, (1 - share) * off_bytes, alpha, sigma, hop)
        return balanced_paths(hw, layer, pools, precision, source)

    def of_all_layers(share: Real) -> Span:
        return over_layers(llm, lambda layer: paths(layer, share))

    low, high = _feasible(hw, llm, work, knobs)

    def split_at(beta: Real) -> BetaSplit:
        return at_share(np.clip(share_of(beta), low, high))

    def at_share(share: Real) -> BetaSplit:
        return BetaSplit(
            share,
            cpu=llm.sum_over_layers(lambda layer: paths(layer, share).parts["cpu"].seconds),
            csd=llm.sum_over_layers(lambda layer: paths(layer, share).parts["csd"].seconds),
            seconds=of_all_layers(share).seconds,
        )

    scoring = rates(hw, llm, precision, source, hop)
    balanced = beta_balanced(scoring, alpha, sigma, hop)
    eq4 = beta_eq4(scoring, alpha)
    sec54 = beta_sec54(scoring, alpha)
    exact = minimise(of_all_layers(0.0), of_all_layers(1.0), low, high)
    best = at_share(exact.value) if llm.layer_types else split_at(balanced)
    return BestBeta(
        best=best,
        bound=exact.bound,
        bound_by=what_binds(balanced, low, high, off_gpu, best),
        eq4=PaperRule(eq4, split_at(eq4)),
        sec54=PaperRule(sec54, split_at(sec54)),
    )


def _feasible(
    hw: Machine, llm: LLM, work: Workload, knobs: Mapping[str, Real]
) -> tuple[Real, Real]:
    """Lowest and highest hot share that eq. 3 and the SmartSSD's capacity allow [1]."""
    hillinfer = find_system("hillinfer")

    def fits_at(share: float) -> Fits:
        return hillinfer(hw, llm, work, {**knobs, "hot_share": share, "chunks": 1.0}).fits

    low, high, _ = feasible_share(fits_at(0.0), fits_at(1.0))
    return low, high


def what_binds(
    balanced: Real, low: Real, high: Real, off_gpu: Real, best: BetaSplit
) -> NDArray[np.str_]:
    """Why no other beta is better: the two paths balance, or a bound stops them before they do.

    Both paths end in the GPU's link, which every retained token crosses at any beta; where they
    queue there, no beta helps.
    """
    share = share_of(balanced)
    longest = np.maximum(best.cpu, best.csd)
    reasons = {
        NOT_SPLIT: off_gpu <= 0,
        LINK: best.seconds > longest * (1 + _QUEUED),
        HOST: share > high,
        CAPACITY: share < low,
        SKEW: balanced <= 0,
    }
    return np.select(list(reasons.values()), list(reasons), BALANCE)


def share_of(beta: Real) -> Real:
    """M_c / (M_c + M_s) = beta / (1 + beta) [1]."""
    return np.divide(beta, np.add(1, beta))
