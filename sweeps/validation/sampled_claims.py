"""Measured and simulated claims, predicted at every draw of the uncertain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.sweeps.study.bands import MODEL_ERROR, RATIO_ERROR, Band
from nearkv.sweeps.study.study import Block, Numbers
from nearkv.sweeps.uncertainty.model_error import RATIO, VALUE, slowest
from nearkv.sweeps.uncertainty.sampled import sampled, tiles
from nearkv.sweeps.validation.claims import INDEPENDENT, Claim, load, papers
from nearkv.sweeps.validation.prediction import (
    columns_in,
    formula,
    predict,
    question_of,
)
from nearkv.sweeps.validation.questions import blocks_of

SAMPLES = 1024
RUNS = ("measured", "simulated")


@dataclass(frozen=True)
class SampledClaim:
    """A claim that states how long something took, or how much faster it was.

    Attributes:
        paper: the file that it stands in.
        source: the paper, or of independent measurements the source, that states it.
        claim: the statement.
        mechanism: kind of the resource that takes most of the time of its system.
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
    """All measured and simulated claims whose metric is a column, or a formula of columns.

    Left out are inputs of the models, one-sided bounds, rows with a proof that they are
    inconsistent, signs, and answers of other checks: most of these state a trend or a choice.
    """
    for paper in papers():
        for claim in load(paper):
            if is_run(claim):
                yield _sampled_claim(paper, claim)


def is_run(claim: Claim) -> bool:
    """Whether a claim states a time, a rate or a ratio that was measured or simulated."""
    if (
        claim.kind not in RUNS
        or claim.is_input
        or claim.is_bound
        or claim.proof
        or claim.trend
    ):
        return False
    names = columns_in(claim.metric)
    if not names or any(name not in COLUMNS for name in names):
        return False
    return claim.method != "simulate" and float(claim.low) > 0


def source_of(paper: str, claim: Claim) -> str:
    """The paper of a claim, or the source of an independent measurement."""
    return claim.where.partition(";")[0] if paper == INDEPENDENT else paper


def _sampled_claim(paper: str, claim: Claim) -> SampledClaim:
    system = question_of(claim)
    baseline = question_of(claim, baseline=True) if claim.over else None
    both = [*blocks_of(system), *(blocks_of(baseline) if baseline else ())]
    band = _band(both)

    def column(name: str, of_baseline: bool) -> Numbers:
        question = question_of(claim, of_baseline)
        return _column(name, [replace(block, band=band) for block in blocks_of(question)])

    values = formula(claim, column)
    stated, predicted = _stated(claim), predict(claim)
    if len(set(stated)) == 1 and predicted[0] == predicted[1]:
        stated, predicted = stated[:1], predicted[:1]
    samples = _reduced(claim, values)
    return SampledClaim(
        paper=paper,
        source=source_of(paper, claim),
        claim=claim,
        mechanism=_mechanism(blocks_of(system)),
        of=RATIO if baseline else VALUE,
        stated=stated,
        predicted=predicted,
        samples=samples[: len(stated)],
    )


def _band(blocks: Sequence[Block]) -> Band:
    names = {MODEL_ERROR, RATIO_ERROR}
    for block in blocks:
        names |= set(block.draws.values())
    return Band(90.0, SAMPLES, 0, tuple(sorted(names)))


def _column(metric: str, blocks: Sequence[Block]) -> Numbers:
    """A metric at all points of all blocks (points, draws)."""
    pieces = []
    for block in blocks:
        for outer, _ in tiles(block, block.grid.whole):
            values = sampled(block, outer).column(metric)
            pieces.append(values.reshape(-1, SAMPLES))
    return np.concatenate(pieces)


def _stated(claim: Claim) -> Numbers:
    return np.array([float(claim.low), float(claim.high)])


def _reduced(claim: Claim, values: Numbers) -> Numbers:
    """Samples (points, draws) as the claim takes them (2, draws), of points that fit somewhere."""
    fitting = values[~np.all(np.isnan(values), axis=1)]
    if not fitting.size:
        raise InputError(f"claim {claim.id}: no point of its grid fits in any draw")
    if claim.take == "mean":
        mean = _mean(fitting)
        return np.stack([mean, mean])
    low = np.fmin.reduce(fitting, axis=0)
    high = np.fmax.reduce(fitting, axis=0)
    if claim.take == "max":
        return np.stack([high, high])
    if claim.take == "min":
        return np.stack([low, low])
    return np.stack([low, high])


def _mean(values: Numbers) -> Numbers:
    """Mean over the points that fit in each draw; NaN where none does."""
    known = ~np.isnan(values)
    total = np.sum(values, axis=0, where=known)
    with np.errstate(invalid="ignore"):
        mean: Numbers = total / np.sum(known, axis=0)
    return mean


def _mechanism(blocks: Sequence[Block]) -> str:
    """The kind of resource that takes most of the time at most points of a claim's system."""
    counts: dict[str, int] = {}
    for block in blocks:
        estimate = block.resolved(block.grid.whole).estimate
        places, names = slowest(block, estimate, block.grid.shape)
        for place, name in enumerate(names):
            counts[name] = counts.get(name, 0) + int(np.sum(places == place))
    return max(counts, key=lambda name: counts[name])
