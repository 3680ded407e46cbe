"""What share of the requests that arrive keeps a level of service, by laws of their latencies."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.estimate import Estimate, Latency, Laws

_DEVIATIONS, _SUMS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _SUMS / _SUMS.sum()
"""Points and weights of an average over a normal law."""
_HALVINGS = 28


def load_columns(estimate: Estimate) -> dict[str, Real]:
    """Goodput and what belongs to it; of a static batch, all requests are alike.

    Args:
        estimate: of requests that arrive, or of users of a static batch.
    """
    arrivals, latency, laws = estimate.work.arrivals, estimate.latency, estimate.laws
    if arrivals is None:
        return {}
    present = estimate.work.batch
    kept: Real
    columns: dict[str, Real] = {}
    if laws is None:
        kept = _keeps(latency, arrivals.ttft_slo, arrivals.tpot_slo)
    else:
        kept = first_within(laws, arrivals.ttft_slo) * within(laws, arrivals.tpot_slo)
        columns["tpot_p90_ms"] = 1e3 * quantile(laws, 0.9)
    rate = present / np.maximum(estimate.total.seconds, 1e-9)
    return {**columns, "goodput_req_s": rate * kept, "users_served": present * kept}


def _keeps(latency: Latency, ttft: Real, tpot: Real) -> Real:
    """1 where both limits are kept, else 0 [1]."""
    both = np.less_equal(latency.ttft, ttft) & np.less_equal(latency.tpot, tpot)
    return np.where(both, 1.0, 0.0)


def within(laws: Laws, tpot: Real) -> Real:
    """Share of the requests whose time per output token is at most this [1]."""
    share: Real = 0.0
    for place, weight in zip(_DEVIATIONS, _WEIGHTS, strict=True):
        plain = laws.plain + place * laws.scatter
        reached = np.clip((tpot - plain) / laws.longest, 0.0, 1.0)
        law = betainc(laws.mixed * laws.size, (1 - laws.mixed) * laws.size, reached)
        share = share + weight * np.mean(law, axis=0)
    return share


def first_within(laws: Laws, ttft: Real) -> Real:
    """Share of the requests whose time to first token is at most this [1]."""
    line = laws.line
    spare = ttft - line.computing
    begun = np.clip(spare / np.maximum(2 * line.residual, 1e-12), 0.0, 1.0)
    left = np.maximum(spare - line.residual, 0.0)
    waiting = line.waits * np.exp(-line.waits * left / np.maximum(line.wait, 1e-12))
    share: Real = np.mean(line.weights * begun * (1 - waiting), axis=0)
    return share


def quantile(laws: Laws, share: float) -> Real:
    """Time per output token that a share of the requests keeps, by bisection [s]."""
    low: Real = 0.0 * laws.plain
    high: Real = 2 * laws.plain + laws.longest + 8 * np.max(laws.scatter, axis=0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fewer = np.less(within(laws, middle), share)
        low, high = np.where(fewer, middle, low), np.where(fewer, high, middle)
    return high
