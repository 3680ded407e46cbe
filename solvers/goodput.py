"""Share of the requests that arrive that keeps a level of service, by laws of their latencies."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc

from nearkv.costmodel.algebra.span import Booleans, Real, choose, total
from nearkv.costmodel.mechanisms.serving.residents import bisect
from nearkv.costmodel.model.estimate import Estimate, LatencyLaws

_DEVIATIONS, _SUMS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _SUMS / _SUMS.sum()
"""Points and weights of an average over a normal law."""
_HALVINGS = 28
_LEAST_LOAD = 1e-12


_PER_REQUEST = 1e4
"""Times that a share more of the requests per second is worth one less of the time per token."""
_PER_MISS = 1e12
"""Cost of missing a limit by nothing: more than of any request per second."""


def load_cost(estimate: Estimate) -> Real:
    """Objective: least where most requests per second keep the limits; of equal ones, the TPOT.

    Shares that differ by less than a hundredth are equal: the laws of latencies are no better.
    Logarithms make it the same of any speed of a machine. Where none keeps the limits, least is
    the largest ratio of a mean latency to its limit.

    Args:
        estimate: of requests that arrive.
    """
    kept, latency = _kept_of_100(estimate), estimate.latency
    arrivals = estimate.work.arrivals
    assert arrivals is not None, "limits are of requests that arrive"
    ratios = latency.ttft / arrivals.ttft_slo, latency.tpot / arrivals.tpot_slo
    served = np.log(np.maximum(_answered(estimate) * kept, _LEAST_LOAD))
    pace = np.log(np.maximum(latency.tpot, _LEAST_LOAD))
    missed = _PER_MISS * np.maximum(*ratios)
    return np.where(kept == 0, missed, pace - _PER_REQUEST * served)


def none_kept(estimate: Estimate) -> Booleans:
    """True if not one request in a hundred keeps the limits."""
    return np.equal(_kept_of_100(estimate), 0)


def _kept_of_100(estimate: Estimate) -> Real:
    return np.round(_kept(estimate), 2)


def goodput(estimate: Estimate) -> Real:
    """Requests per second that keep both limits; of a static batch, all requests are alike."""
    return _answered(estimate) * _kept(estimate)


def _answered(estimate: Estimate) -> Real:
    """Requests that are answered per second [1/s]."""
    return estimate.work.batch / np.maximum(estimate.total.seconds, 1e-9)


def load_columns(estimate: Estimate) -> dict[str, Real]:
    """Goodput and what belongs to it; of a static batch, all requests are alike.

    Args:
        estimate: of requests that arrive, or of users of a static batch.
    """
    columns: dict[str, Real] = {}
    if estimate.laws is not None:
        slow = 1e3 * quantile(estimate.laws, 0.9)
        columns["tpot_p90_ms"] = choose(estimate.work.output > 1, slow, np.nan)
    served = estimate.work.batch * _kept(estimate)
    return {**columns, "goodput_req_s": goodput(estimate), "users_served": served}


def _kept(estimate: Estimate) -> Real:
    """Share of the requests that keep both limits [1]."""
    arrivals, latency, laws = estimate.work.arrivals, estimate.latency, estimate.laws
    assert arrivals is not None, "limits are of requests that arrive"
    ttft, tpot = arrivals.ttft_slo, arrivals.tpot_slo
    if laws is not None:
        return first_within(laws, ttft) * within(laws, tpot)
    both = (latency.ttft <= ttft) & (latency.tpot <= tpot)
    return np.where(both, 1.0, 0.0)


def within(laws: LatencyLaws, tpot: Real) -> Real:
    """Share of the requests whose time per output token is at most this [1]."""
    share: Real = 0.0
    for place, weight in zip(_DEVIATIONS, _WEIGHTS, strict=True):
        plain = np.maximum(laws.plain + place * laws.scatter, laws.least)
        reached = np.clip((tpot - plain) / laws.longest, 0.0, 1.0)
        law = betainc(laws.mixed * laws.size, (1 - laws.mixed) * laws.size, reached)
        share = share + weight * np.mean(law, axis=0)
    return share


def first_within(laws: LatencyLaws, ttft: Real) -> Real:
    """Share of the requests whose time to first token is at most this [1].

    The iteration that runs ends at any time of it. A prompt that is met takes an exponential time.
    """
    line = laws.line
    spare = ttft - line.computing
    begun = np.clip(spare / np.maximum(2 * line.residual, _LEAST_LOAD), 0.0, 1.0)
    left = np.maximum(spare - line.residual, 0.0)
    waiting = line.waits * left / np.maximum(line.wait, _LEAST_LOAD)
    later = [np.exp(-waiting / met) for met in np.asarray(line.met)]
    kept = begun * (1 - line.waits * total(later) / len(later))
    share: Real = np.mean(line.weights * kept, axis=0)
    return share


def quantile(laws: LatencyLaws, share: float) -> Real:
    """Time per output token that a share of the requests keeps, by bisection [s]."""
    low: Real = 0.0 * laws.plain
    high: Real = 2 * laws.plain + laws.longest + 8 * laws.scatter
    return bisect(lambda tpot: np.less(within(laws, tpot), share), low, high, _HALVINGS)
