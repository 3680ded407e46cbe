"""Errors of a model by source: what a new source adds beyond the ranges of the inputs.

Row i of source j errs by y_ij = ln(predicted / measured) = u_j + e_ij + inputs: one u_j for all the
rows of a source, of variance tau^2, a rest e_ij, of variance sigma^2, and the inputs, of the
variance v_ij that their ranges give. docs/bands.md has the equations.
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


@dataclass(frozen=True)
class SourceError:
    """The law of the errors of a source that was not seen: Student's, about none.

    Attributes:
        between: standard deviation over sources, tau [1].
        within: standard deviation in one source, sigma [1].
        freedom: degrees of freedom that the number of sources and rows allows, nu [1].
    """

    between: float
    within: float
    freedom: float

    def at(self, rank: Numbers) -> Numbers:
        """Errors of its rows at each rank [1]."""
        score = np.asarray(stdtrit(self.freedom, rank), dtype=float)
        errors: Numbers = np.hypot(self.between, self.within) * score
        return errors


def source_error(errors: Numbers, inputs: Numbers, sources: Sequence[str]) -> SourceError:
    """Estimate the errors of a new source by moments, each source counting once.

    The variance s^2 = tau^2 + sigma^2 of a row of a new source is that at which the mean over
    sources of the mean over rows of y^2 / (s^2 + v) is 1 (Paule and Mandel, J. Res. NBS 87, 1982;
    the model claims a mean of 0). Of these standardised squares, B is that of the sources' means,
    and W the rows' variance in a source; their sum has the degrees of freedom of Satterthwaite
    (Biometrics Bulletin 2, 1946).

    Args:
        errors: ln(predicted / measured), a row each [1].
        inputs: standard deviation of ln(predicted) over the ranges of the inputs, a row each [1].
        sources: of the rows.
    """
    names, source = np.unique(list(sources), return_inverse=True)
    rows = np.bincount(source)

    def means(values: Numbers) -> Numbers:
        """Of each source: (sources,)."""
        return np.bincount(source, values) / rows

    def excess(variance: float) -> float:
        """Mean square of the standardised errors beyond 1."""
        return float(np.mean(means(errors**2 / (variance + inputs**2)))) - 1

    is_above = excess(LEAST) > 0
    variance = float(brentq(excess, LEAST, MOST)) if is_above else LEAST
    standard = errors / np.sqrt(variance + inputs**2)
    mean = means(standard)
    repeated = max(len(errors) - len(names), 1)
    square = float(np.sum((standard - mean[source]) ** 2)) / repeated
    of_means, alone = float(np.mean(mean**2)), float(np.mean(1 / rows))
    in_source = (1 - alone) * square
    total = of_means + in_source
    freedom = total**2 / (of_means**2 / len(names) + in_source**2 / repeated)
    share = np.clip((of_means - alone * square) / total, 0.0, 1.0)
    between, within = np.sqrt(variance * share), np.sqrt(variance * (1 - share))
    return SourceError(float(between), float(within), freedom)
