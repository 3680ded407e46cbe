"""Runs that claims and measurements state, and their predictions at any hardware numbers.

Fits (`calibration`) and bands (`coverage`) ask the same rows: what was measured or simulated, and
the design points whose answers are compared with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nearkv.costmodel.algebra.span import Indices, Numbers
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.errors import InputError, a_few
from nearkv.hardware.platform import Platform
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.study.bands import MODEL_ERROR, RATIO_ERROR, Band
from nearkv.sweeps.study.grid import NO_NUMBERS, Block, Mesh
from nearkv.sweeps.study.sizes import size_or_none
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
from nearkv.sweeps.validation.questions import ask, ask_together, blocks_of

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


# --- design points --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AskedPoints:
    """The design points that answer some runs; many runs share them.

    Attributes:
        claim: one of these runs, whose metric is asked.
        system, baseline: the points of its system, and of the baseline that divides it, if any.
        axes: values of axes in place of the blocks' own points, one each point.
    """

    claim: Claim
    system: tuple[Block, ...]
    baseline: tuple[Block, ...] = ()
    axes: Mesh = field(default_factory=dict)

    def values(
        self, numbers: NumbersOf = lambda _: NO_NUMBERS, infeasible: bool = False
    ) -> Numbers:
        """The metric at every point for k values of hardware numbers (points, k), in its unit.

        Args:
            numbers: hardware numbers of a block; those that it sets itself stay as set.
            infeasible: whether points that do not fit have their time all the same; else NaN.
        """
        own, baseline = (
            [ask(block, numbers(block), self.mesh(block)) for block in blocks]
            for blocks in (self.system, self.baseline)
        )
        return metric_of(self.claim, own, baseline, infeasible)

    def mesh(self, block: Block) -> Mesh | None:
        """Values of the axes of a block of one point, where some are replaced."""
        if not self.axes:
            return None
        own = block.grid.mesh(block.grid.whole)
        return {axis: self.axes.get(axis, np.ravel(values)) for axis, values in own.items()}


def asked_of(claim: Claim) -> AskedPoints:
    """The design points of a claim."""
    system = blocks_of(question_of(claim))
    baseline = blocks_of(question_of(claim, baseline=True)) if claim.over else ()
    return AskedPoints(claim, system, baseline)


@dataclass(frozen=True)
class Run:
    """Statement of a claim or a measurement, and the points whose answers are compared with it.

    Attributes:
        claim: the statement.
        asked: the design points.
        points: which of them fit.
    """

    claim: Claim
    asked: AskedPoints
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
        answers: dict[AskedPoints, Numbers] = {}
        rows = []
        for run in runs:
            if run.asked not in answers:
                answers[run.asked] = run.asked.values(lambda _: numbers, infeasible=True)
            rows.append(run.predicted(answers[run.asked]))
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
    shared: dict[object, AskedPoints] = {}
    runs = []
    for claim in usable:
        key = (claim.metric, claim.unit, question_of(claim), question_of(claim, True))
        asked = shared.setdefault(key, asked_of(claim))
        both = (*asked.system, *asked.baseline)
        if any(block.platform.roles["derate"] != derates for block in both):
            continue
        fits = np.flatnonzero(np.isfinite(values_of(claim)[:, 0]))
        if fits.size:
            runs.append(Run(claim, asked, fits))
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
    groups: dict[object, list[Claim]] = {}
    for claim in claims:
        key = (claim.metric, claim.system, claim.model, claim.knob, claim.set)
        groups.setdefault(key, []).append(claim)
    of_claim = {}
    for group in groups.values():
        asked = _asked_together(group, test_bed.name)
        for place, claim in enumerate(group):
            of_claim[claim.id] = Run(claim, asked, np.array([place]))
    runs = [of_claim[claim.id] for claim in claims]
    metrics = " and ".join(dict.fromkeys(claim.metric for claim in claims))
    return _evidence(f"{metrics} of {file}", "user", test_bed, runs)


def _asked_together(group: Sequence[Claim], platform: str) -> AskedPoints:
    """One block for runs that differ in batch, context and output alone.

    Raises:
        InputError: a list of knobs, a run that does not fit, or a column without a value.
    """
    first = group[0]
    lone = replace(first, batch="", context="", output_tokens="", platform=platform)
    axes = {
        "batch": [claim.batch for claim in group],
        "context_tok": [claim.context for claim in group],
        "output_tokens": [claim.output_tokens for claim in group],
    }
    values = {
        axis: np.array([size_or_none(t, axis) for t in texts])
        for axis, texts in axes.items()
    }
    try:
        asked = replace(asked_of(lone), axes=values)
        (block,) = asked.system
        if block.grid.size != 1:
            raise ValueError
        inputs = block.at(asked.mesh(block) or {})
        fits = resolve_knobs(block.system, *inputs).estimate.fits
    except InputError as problem:
        raise InputError(f"{first.where}: {problem}") from None
    except ValueError:
        raise InputError(
            f"{first.where}: a run has one value of each knob and set, not a list"
        ) from None
    ok = np.broadcast_to(fits.ok, (len(group),))
    short = np.broadcast_to(fits.short_of, (len(group),))
    for claim, runs_there, memory in zip(group, ok, short, strict=True):
        if not runs_there:
            raise InputError(
                f"{claim.where}: {claim.system} does not fit there, {memory} is short of memory; "
                "correct the row, or the platform"
            )
    for claim, value in zip(group, np.ravel(asked.values(infeasible=True)), strict=True):
        if not (np.isfinite(value) and value > 0):
            raise InputError(
                f"{claim.where}: {claim.system} has no {claim.metric} there; "
                "measure another column"
            )
    return asked


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
    asked = asked_of(claim)
    names = {MODEL_ERROR, RATIO_ERROR}
    for block in (*asked.system, *asked.baseline):
        names |= set(block.draws.values())
    band = Band(90.0, EVIDENCE_SAMPLES, 0, tuple(sorted(names)))
    values = asked.values(lambda block: drawn_numbers(block, band))
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
        mechanism=_mechanism(asked.system),
        of=RATIO if asked.baseline else VALUE,
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
