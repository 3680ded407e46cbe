"""Runs that claims and measurements state, and their predictions at any hardware numbers.

Fits (`calibration`) and bands (`coverage`) ask the same rows: what was measured or simulated, and
the design points whose answers are compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.costmodel.model.estimate import Fits
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError, a_few
from nearkv.hardware.platform import Platform
from nearkv.sweeps.study.bands import MODEL_ERROR, RATIO_ERROR, Band
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Mesh
from nearkv.sweeps.uncertainty.model_error import RATIO, VALUE, slowest
from nearkv.sweeps.uncertainty.sampled import drawn_numbers
from nearkv.sweeps.validation.claims import (
    BY_OTHERS,
    FITTED_TO,
    RESTATED,
    RUNS,
    Claim,
    load,
    papers,
)
from nearkv.sweeps.validation.own_files import read_runs
from nearkv.sweeps.validation.prediction import (
    BASELINE,
    is_answered_by_formulas,
    metric_of,
    predict,
    question_of,
    questions_of,
    reduced_as,
    values_of,
)
from nearkv.sweeps.validation.questions import answers_at, ask_together, blocks_of

EVIDENCE_SAMPLES = 1024
"""Draws of the uncertain numbers at which a claim is predicted."""

Predict = Callable[[Mesh], Numbers]
"""Hardware numbers by `role.key`, k values each in SI -> predictions (k, rows)."""
NumbersOf = Callable[[Block], Mesh]
"""Hardware numbers of a block by `role.key`, k values each in SI."""


def is_run(claim: Claim) -> bool:
    """True if a claim states a time, a rate or a ratio as a column, or arithmetic on columns.

    One-sided bounds say nothing where they are kept; claims that are proven inconsistent are right
    nowhere; a simulated queue takes too long to ask at many numbers.
    """
    if BASELINE in claim.metric or not is_answered_by_formulas(claim):
        return False
    if claim.kind not in RUNS or claim.is_bound or claim.proof:
        return False
    return float(claim.low) > 0


def source_of(paper: str, claim: Claim) -> str:
    """The paper of a claim, or the source of an independent measurement."""
    return claim.where.partition(";")[0] if paper in BY_OTHERS else paper


# --- answers at any hardware numbers --------------------------------------------------------------


def sides_of(claim: Claim) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """The design points of a claim's system, and of the baseline that divides it, if any."""
    baseline = blocks_of(question_of(claim, baseline=True)) if claim.over else ()
    return blocks_of(question_of(claim)), baseline


def values_at(
    claims: Sequence[Claim],
    numbers: NumbersOf = lambda _: NO_NUMBERS,
    infeasible: bool = False,
) -> list[Numbers]:
    """Metric of each claim at every point for k values of hardware numbers (points, k).

    Args:
        claims: whose design points are asked, in the unit of each.
        numbers: hardware numbers of a block; those that it sets itself stay as set.
        infeasible: whether points that do not fit have their time all the same; else NaN.
    """
    sides = [sides_of(claim) for claim in claims]
    answers = answers_at(
        (block for pair in sides for side in pair for block in side), numbers
    )
    values = []
    for claim, pair in zip(claims, sides, strict=True):
        own, baseline = ([answers[id(block)] for block in side] for side in pair)
        values.append(metric_of(claim, own, baseline, infeasible))
    return values


@dataclass(frozen=True)
class Run:
    """Statement of a claim or a measurement, and the points whose answers are compared with it.

    Attributes:
        claim: the statement.
        points: of its design points those that fit.
    """

    claim: Claim
    points: Indices

    @property
    def ends(self) -> dict[str, float]:
        """Stated values of each row by name: one value, or both ends where a grid is compared."""
        low, high, name = float(self.claim.low), float(self.claim.high), self.claim.id
        if self.claim.take in ("max", "min", "mean") or len(self.points) == 1:
            return {name: low}
        return {f"{name} low": low, f"{name} high": high}

    def predicted(self, values: Numbers) -> Numbers:
        """Answers at all points (points, k) as the run takes them (rows, k)."""
        reduced = reduced_as(self.claim.take, values[self.points])
        return reduced[: len(self.ends)]


# --- evidence for a fit ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """The rows that a fit is compared with.

    Attributes:
        what: where they come from, for readers.
        source: key into sources.toml.
        platform: whose numbers are fitted.
        names: of the rows.
        stated: what each row states or measured.
        predict: the models' predictions of all rows.
    """

    what: str
    source: str
    platform: Platform
    names: tuple[str, ...]
    stated: Numbers
    predict: Predict


def _evidence(what: str, source: str, platform: Platform, runs: Sequence[Run]) -> Evidence:
    stated: dict[str, float] = {}
    for run in runs:
        stated |= run.ends

    def predict_all(numbers: Mesh) -> Numbers:
        def known(block: Block) -> Mesh:
            """The numbers that a machine has."""
            has = block.platform.numbers
            return {
                address: values for address, values in numbers.items() if address in has
            }

        draws = len(next(iter(numbers.values()), (0,)))
        rows = []
        values = values_at([run.claim for run in runs], known, infeasible=True)
        for run, of_run in zip(runs, values, strict=True):
            rows.append(np.broadcast_to(run.predicted(of_run), (len(run.ends), draws)))
        return np.concatenate(rows).T

    values = np.array(list(stated.values()))
    return Evidence(what, source, platform, tuple(stated), values, predict_all)


def claimed(paper: str, platform: str = "") -> Evidence:
    """Collect the runs that a paper states as evidence.

    Left out are rows that were blind when predicted (nothing is fitted to them) and questions on
    machines with other derates: a test bed that differs in its GPU alone is fitted together with
    the rest.

    Args:
        paper: whose claims.
        platform: the machine; by default the one most of these claims are on.

    Raises:
        InputError: no such paper, or no such claim of it on that machine.
    """
    if paper in BY_OTHERS:
        raise InputError("nothing is fitted to the independent measurements; name a paper")
    usable = [claim for claim in load(paper) if is_run(claim) and not claim.is_blind]
    test_bed = _test_bed(paper, usable, platform)
    derates = test_bed.roles["derate"]
    ask_together(questions_of(usable))
    runs = []
    for claim in usable:
        own, baseline = sides_of(claim)
        if any(block.platform.roles["derate"] != derates for block in (*own, *baseline)):
            continue
        fits = np.flatnonzero(np.isfinite(values_of(claim)[:, 0]))
        if fits.size:
            runs.append(Run(claim, fits))
    return _evidence(f"claims of {paper}", paper, test_bed, runs)


def _test_bed(paper: str, usable: Sequence[Claim], platform: str) -> Platform:
    beds = Counter(blocks_of(question_of(claim))[0].platform.name for claim in usable)
    if not beds:
        raise InputError(f"no measured claim of {paper!r} is a column of a table")
    if platform and platform not in beds:
        known = a_few(sorted(beds))
        raise InputError(
            f"no measured claim of {paper!r} is a column of a table on {platform}; "
            f"they are on {known}"
        )
    return load_platform(platform or beds.most_common(1)[0][0])


def measured(file: str, platform: str = "") -> Evidence:
    """Read a user's measurements as evidence.

    Args:
        file: a CSV; see `own_files.read_runs`.
        platform: the machine; by default the test bed of the first row's system.

    Raises:
        InputError: a bad file, or a run that does not fit the machine.
    """
    claims = read_runs(Path(file))
    test_bed = load_platform(platform or find_system(claims[0].system).platform)
    runs = [replace(claim, platform=test_bed.name) for claim in claims]
    kinds: dict[object, Claim] = {}
    for run in runs:
        kinds.setdefault((run.system, run.model, run.knob, run.set), run)
    for run in kinds.values():
        _fits_of(run)
    for run, values in zip(runs, values_at(runs), strict=True):
        if not (np.isfinite(values[0, 0]) and values[0, 0] > 0):
            raise InputError(f"{run.where}: {run.system} {_why_blank(run)}")
    metrics = " and ".join(dict.fromkeys(claim.metric for claim in claims))
    rows = [Run(run, np.zeros(1, np.intp)) for run in runs]
    return _evidence(f"{metrics} of {file}", "user", test_bed, rows)


def _fits_of(run: Claim) -> Fits:
    """Fit of one run to its machine.

    Raises:
        InputError: a list of knobs or numbers, or a run that the machine or the system refuses.
    """
    try:
        (block,) = blocks_of(question_of(run))
        if block.grid.size != 1:
            raise InputError("a run has one value of each knob and set, not a list")
        return block.resolved(block.grid.whole).estimate.fits
    except InputError as problem:
        raise InputError(f"{run.where}: {problem}") from None


def _why_blank(run: Claim) -> str:
    """Reason why a run has no value to compare with, behind the name of its system."""
    fits = _fits_of(run)
    if np.all(fits.ok):
        return f"has no {run.metric} there; measure another column"
    reason = fits.reasons[int(np.ravel(fits.reason)[0])]
    return f"has no answer there: {reason}; correct the row, or the platform"


# --- claims at every draw of the uncertain numbers ------------------------------------------------


@dataclass(frozen=True)
class SampledClaim:
    """A claim that states how long something took, or how much faster it was.

    Attributes:
        paper: the file that it stands in.
        source: the paper, or of independent measurements the source, that states it.
        claim: the statement.
        mechanism: type of the resource that takes most of the time of its system.
        of: `value`, or `ratio` of two systems.
        stated: one value, or both ends of a range, in the claim's unit.
        predicted: the same at the stated hardware numbers.
        samples: the same at every draw (values, draws); the model error is not in them.
    """

    paper: str
    source: str
    claim: Claim
    mechanism: str
    of: str
    stated: Numbers
    predicted: Numbers
    samples: Numbers


def sampled_claims() -> Iterator[SampledClaim]:
    """All runs that papers and others state, but inputs of the models, at every draw."""
    for paper in papers():
        runs = [
            claim
            for claim in load(paper)
            if is_run(claim) and claim.counts_as not in (RESTATED, FITTED_TO)
        ]
        ask_together(questions_of(runs))
        for claim in runs:
            yield _sampled_claim(paper, claim)


def _sampled_claim(paper: str, claim: Claim) -> SampledClaim:
    own, baseline = sides_of(claim)
    names = {MODEL_ERROR, RATIO_ERROR}
    for block in (*own, *baseline):
        names |= set(block.draws.values())
    band = Band(90.0, EVIDENCE_SAMPLES, 0, tuple(sorted(names)))
    (values,) = values_at([claim], lambda block: drawn_numbers(block, band))
    fitting = values[~np.all(np.isnan(values), axis=1)]
    if not fitting.size:
        raise InputError(f"claim {claim.id}: no point of its grid fits in any draw")
    stated, predicted = np.array([float(claim.low), float(claim.high)]), predict(claim)
    if len(set(stated)) == 1 and predicted[0] == predicted[1]:
        stated, predicted = stated[:1], predicted[:1]
    return SampledClaim(
        paper=paper,
        source=source_of(paper, claim),
        claim=claim,
        mechanism=_mechanism(own),
        of=RATIO if baseline else VALUE,
        stated=stated,
        predicted=predicted,
        samples=reduced_as(claim.take, fitting)[: len(stated)],
    )


def _mechanism(blocks: Sequence[Block]) -> str:
    """The type of resource that takes most of the time at most points of a claim's system."""
    counts: Counter[str] = Counter()
    for block in blocks:
        estimate = block.resolved(block.grid.whole).estimate
        places, names = slowest(block, estimate, block.grid.shape)
        for place, name in enumerate(names):
            counts[name] += int(np.sum(places == place))
    return counts.most_common(1)[0][0]
