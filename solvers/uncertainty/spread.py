"""Errors of a model by source: what a new source adds beyond the ranges of the inputs.

Row i of source j errs by y_ij = ln(predicted / measured) = u_j + e_ij + inputs: one u_j for all the
rows of a source, of variance tau^2, a rest e_ij, of variance sigma^2, and the inputs, of the
variance v_ij that their ranges give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit

from nearkv.costmodel.algebra.span import Numbers

LEAST, MOST = 1e-4, 25.0
"""Variances of a model's own errors between which it is found [1]."""
TAILS = 6.0
"""Degrees of freedom of the law of errors were all sources known [1].

Most sources lie near, a few far off: another set-up than was understood, a mechanism that lacks.
A normal law would let one of them widen every band.
"""


@dataclass(frozen=True)
class SourceError:
    """The law of the errors of a source that was not seen: Student's, about none.

    Attributes:
        between: scale of the errors of sources, tau [1].
        within: scale of those of rows in one source, sigma [1].
        freedom: degrees of freedom that tails and the number of sources and rows allow, nu [1].
    """

    between: float
    within: float
    freedom: float

    def quantile(self, rank: Numbers) -> Numbers:
        """Errors of its rows at each rank [1]."""
        score = np.asarray(stdtrit(self.freedom, rank), dtype=float)
        errors: Numbers = np.hypot(self.between, self.within) * score
        return errors


def source_error(errors: Numbers, inputs: Numbers, sources: Sequence[str]) -> SourceError:
    """Estimate the errors of a new source, each known one counting once.

    A standardised error is z = y / sqrt(s^2 + v), and w = (n + 1) / (n + z^2), n = `TAILS`, its
    weight under Student's law (Lange, Little and Taylor, JASA 84, 1989). The scale of a row of a
    new source, s^2 = tau^2 + sigma^2, is that at which the mean over sources of the mean over rows
    of w z^2 is 1: its most likely value about a mean of 0, which the model claims. Of the weighted
    errors, B is the mean square of the sources' means, and W the rows' variance in a source; their
    sum has the degrees of freedom of Satterthwaite (Biometrics Bulletin 2, 1946). The logarithm of
    a variance varies by about 2 / freedom, and those of the law and of the estimate add.

    Args:
        errors: ln(predicted / measured), a row each [1].
        inputs: standard deviation of ln(predicted) over the ranges of the inputs, a row each [1].
        sources: of the rows.
    """
    names, source = np.unique(list(sources), return_inverse=True)
    rows = np.bincount(source)

    def means(values: Numbers) -> Numbers:
        """Mean of the rows of each source: (sources,)."""
        return np.bincount(source, values) / rows

    def weighted(variance: float) -> Numbers:
        """Standardised errors, those far off weighted down."""
        standard = errors / np.sqrt(variance + inputs**2)
        weights = (TAILS + 1) / (TAILS + standard**2)
        return standard * np.sqrt(weights)

    def excess(variance: float) -> float:
        """Mean square of the weighted errors beyond 1."""
        return float(np.mean(means(weighted(variance) ** 2))) - 1

    is_above = excess(LEAST) > 0
    variance = float(brentq(excess, LEAST, MOST)) if is_above else LEAST
    standard = weighted(variance)
    mean = means(standard)
    repeated = max(len(errors) - len(names), 1)
    square = float(np.sum((standard - mean[source]) ** 2)) / repeated
    of_means, alone = float(np.mean(mean**2)), float(np.mean(1 / rows))
    in_source = (1 - alone) * square
    total = of_means + in_source
    estimated = total**2 / (of_means**2 / len(names) + in_source**2 / repeated)
    share = np.clip((of_means - alone * square) / total, 0.0, 1.0)
    between, within = np.sqrt(variance * share), np.sqrt(variance * (1 - share))
    return SourceError(float(between), float(within), 1 / (1 / TAILS + 1 / estimated))
