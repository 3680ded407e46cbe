"""Claims of a paper as evidence for a fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.catalog import Platform, load_platform
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.probe import Probe
from nearkv.sweeps.study.study import NONE, Numbers
from nearkv.sweeps.validation.claims import INDEPENDENT, Claim, load
from nearkv.sweeps.validation.evidence import Evidence, predictions
from nearkv.sweeps.validation.prediction import question_of
from nearkv.sweeps.validation.questions import blocks_of

Probes = tuple[Probe, ...]


@dataclass(frozen=True)
class ClaimProbes:
    """A claim and the blocks that answer it.

    Attributes:
        claim: what is stated.
        system, baseline: blocks of its system, and of the baseline that divides it; none where
            nothing does.
        fits: mask of design points where both fit at the platform's own numbers.
    """

    claim: Claim
    system: Probes
    baseline: Probes
    fits: Numbers

    @property
    def stated(self) -> dict[str, float]:
        """What each row states: one value, or both ends where a grid is compared with them."""
        low, high, name = float(self.claim.low), float(self.claim.high), self.claim.id
        if self._single:
            return {name: low}
        return {f"{name} low": low, f"{name} high": high}

    def reduce(self, values: Numbers) -> Numbers:
        """Predictions (k, points) as rows (k, 1 or 2)."""
        fitting = values[:, self.fits.astype(bool)]
        if self.claim.take == "mean":
            mean: Numbers = np.mean(fitting, axis=1, keepdims=True)
            return mean
        low: Numbers = fitting.min(axis=1, keepdims=True)
        high: Numbers = fitting.max(axis=1, keepdims=True)
        if self.claim.take == "max":
            return high
        if self._single:
            return low
        return np.concatenate([low, high], axis=1)

    @property
    def _single(self) -> bool:
        reduced = self.claim.take in ("max", "min", "mean")
        return bool(reduced or np.sum(self.fits) == 1)


def claimed(paper: str, platform: str = "") -> Evidence:
    """Collect the measured and simulated claims of a paper whose metric is a column.

    Left out are bounds (`take` every: one that is kept says nothing), rows with a proof that they
    are inconsistent, rows that were blind when predicted (nothing is fitted to them), simulated
    queues, and questions on machines with other derates: a test bed that differs in its GPU alone
    is fitted together with the rest.

    Args:
        paper: whose claims.
        platform: the machine; by default the one most of these claims are on.

    Raises:
        InputError: no such paper, or no such claim of it on that machine.
    """
    if paper == INDEPENDENT:
        raise InputError("nothing is fitted to the independent measurements; name a paper")
    usable = [claim for claim in load(paper) if _is_usable(claim)]
    test_bed = _test_bed(paper, usable, platform)
    rows = [probes for claim in usable if (probes := _probes(claim, test_bed)) is not None]
    stated: dict[str, float] = {}
    for row in rows:
        stated |= row.stated

    def predict(numbers: Mapping[str, Numbers]) -> Numbers:
        answers = _Answers(numbers)
        return np.concatenate([answers.of(row) for row in rows], axis=1)

    return Evidence(
        what=f"claims of {paper}",
        source=paper,
        platform=test_bed,
        names=tuple(stated),
        stated=np.array(list(stated.values())),
        predict=predict,
    )


class _Answers:
    """Predictions for some hardware numbers, each column of a block computed once.

    Many claims have the same blocks.
    """

    def __init__(self, numbers: Mapping[str, Numbers]) -> None:
        self._numbers = numbers
        self._known: dict[tuple[str, tuple[int, ...]], Numbers] = {}

    def of(self, row: ClaimProbes) -> Numbers:
        """Predictions of a claim (k, 1 or 2)."""
        values = self._column(row.system, row.claim.metric)
        if row.baseline:
            values = values / self._column(row.baseline, row.claim.metric)
        return row.reduce(values)

    def _column(self, probes: Probes, metric: str) -> Numbers:
        key = metric, tuple(id(probe.block) for probe in probes)
        if key not in self._known:
            self._known[key] = _all_predictions(probes, metric, self._numbers)
        return self._known[key]


def _is_usable(claim: Claim) -> bool:
    if (
        claim.metric not in COLUMNS
        or claim.trend
        or claim.kind not in ("measured", "simulated")
    ):
        return False
    if claim.is_blind or claim.proof or claim.take == "every" or claim.method == "simulate":
        return False
    return float(claim.low) > 0


def _test_bed(paper: str, usable: Sequence[Claim], platform: str) -> Platform:
    beds = Counter(blocks_of(question_of(claim))[0].platform.name for claim in usable)
    if not beds:
        raise InputError(f"no measured claim of {paper!r} is a column of a table")
    if platform and platform not in beds:
        known = ", ".join(sorted(beds))
        raise InputError(
            f"no measured claim of {paper!r} is a column of a table on {platform}; "
            f"they are on {known}"
        )
    return load_platform(platform or beds.most_common(1)[0][0])


def _probes(claim: Claim, test_bed: Platform) -> ClaimProbes | None:
    """The blocks of a claim; none where a machine has other derates, or no point fits."""
    system = tuple(map(Probe, blocks_of(question_of(claim))))
    baseline: Probes = ()
    if claim.over:
        baseline = tuple(map(Probe, blocks_of(question_of(claim, baseline=True))))
    derates = test_bed.roles["derate"]
    for probe in (*system, *baseline):
        if probe.block.platform.roles["derate"] != derates:
            return None
    finite = []
    for side in (system, baseline):
        if side:
            values = _all_predictions(side, claim.metric, NONE, infeasible=False)
            finite.append(np.isfinite(values))
    fits = np.ravel(np.all(np.broadcast_arrays(*finite), axis=0))
    if not np.any(fits):
        return None
    return ClaimProbes(claim, system, baseline, fits)


def _all_predictions(
    probes: Probes, metric: str, numbers: Mapping[str, Numbers], infeasible: bool = True
) -> Numbers:
    """A column at all design points of all blocks (k, points)."""
    columns = [
        predictions(probe, metric, numbers, infeasible=infeasible) for probe in probes
    ]
    return np.concatenate(columns, axis=1)
