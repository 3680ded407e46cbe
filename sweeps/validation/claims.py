"""What the papers state, one row a statement, and the question whose answer it is compared with."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.quantity import unit_of
from nearkv.sweeps.evaluation.evaluate import Columns, table
from nearkv.sweeps.space.study import Block, Study, blocks, comma_list, pairs
from nearkv.sweeps.validation.checks import checks, find_check, number_at

FOLDER = Path(__file__).parent.parent / "claims"


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, as stated, and how to predict it.

    Attributes:
        id, where, claim: its name, its address in the paper, its words.
        kind: parameter, analytic, measured or simulated.
        bound: exact, approx, at_most, at_least or range.
        low, high, unit: what is stated.
        metric: a column of a result, `number`, or a check of `nearkv.sweeps.validation.checks`; empty where excluded.
        system, knob, platform: who is asked; of a `number`, its address `NAME:ROLE.KEY`.
        over, over_knob, over_platform: whose answer divides it; empty for none.
        model, batch, context, output, set: the grid.
        trace, method: requests in place of batch, context and output; `simulate` plays their queue.
        take: max, min, mean, ends (of a range) or every (each point must keep the bound).
        exclude: why no closed form can speak to it.
        assume: what the prediction hangs on.
        verdict: the recorded verdict.
        proof: where a row is inconsistent, what proves it.
    """

    id: str
    where: str
    claim: str
    kind: str
    bound: str
    low: str
    high: str
    unit: str
    metric: str = ""
    system: str = ""
    knob: str = ""
    platform: str = ""
    over: str = ""
    over_knob: str = ""
    over_platform: str = ""
    model: str = ""
    batch: str = ""
    context: str = ""
    output: str = ""
    set: str = ""
    trace: str = ""
    method: str = ""
    take: str = ""
    exclude: str = ""
    assume: str = ""
    verdict: str = ""
    proof: str = ""

    @property
    def is_input(self) -> bool:
        """Whether the model takes what is stated, so that nothing is predicted; `assume` then begins with it."""
        return self.assume.startswith("An input")


_PRINTED = {"GFLOPS": 1e9, "PBW": 1e15, "billion params": 1e9}
"""Units as papers print them that no specification is written in, in SI."""

FIELDS = tuple(field.name for field in fields(Claim))


def papers() -> list[str]:
    """Papers with recorded claims."""
    return sorted(file.stem for file in FOLDER.glob("*.csv"))


def load(paper: str) -> list[Claim]:
    """Read the claims of a paper.

    Raises:
        InputError: no claims of that paper, or a row that is not one.
    """
    if paper not in papers():
        raise unknown("paper", paper, papers())
    with (FOLDER / f"{paper}.csv").open(encoding="utf-8", newline="") as file:
        return [Claim(**row) for row in csv.DictReader(file)]


def predict(claim: Claim) -> NDArray[np.float64]:
    """Compute what the model says: the lowest and the highest value of the claim's grid.

    Raises:
        InputError: the question names something that does not exist.
    """
    if claim.metric == "number":
        value = number_at(claim.system) / _size_of(claim.unit)
        return np.array([value, value])
    if claim.metric in checks():
        found = np.ravel(
            np.asarray(find_check(claim.metric)(*comma_list(claim.system)), dtype=float)
        )
    else:
        found = _column(claim)
        if claim.over:
            found = found / _column(claim, over=True)
    found = found[np.isfinite(found)]
    if not found.size:
        raise InputError(f"claim {claim.id}: no point of its grid fits; widen it")
    if claim.take == "mean":
        return np.array([found.mean(), found.mean()])
    if claim.take in ("max", "min"):
        return np.repeat(found.max() if claim.take == "max" else found.min(), 2)
    return np.array([found.min(), found.max()])


def _size_of(unit: str) -> float:
    """What one printed unit is in SI; 1 for words and shares [SI]."""
    if unit in _PRINTED:
        return _PRINTED[unit]
    try:
        dimension, size = unit_of(unit)
    except InputError:
        return 1.0
    return 1.0 if dimension == "1" else size


def laid(claim: Claim, over: bool = False) -> tuple[Block, ...]:
    """The design points a claim's column is asked at: of its system, or of the one that divides it.

    Raises:
        InputError: the question names something that does not exist.
    """
    return _laid(_words(claim, over))


@cache
def _laid(words: tuple[str, ...]) -> tuple[Block, ...]:
    return tuple(blocks(_study(words)))


def _column(claim: Claim, over: bool = False) -> NDArray[np.float64]:
    study = _table(_words(claim, over))
    found = study[claim.metric]
    return np.where(study["status"] == "ok", found.astype(float), np.nan)


@cache
def _table(words: tuple[str, ...]) -> Columns:
    return table(_study(words))


def _words(claim: Claim, over: bool) -> tuple[str, ...]:
    """What a study of the claim is made of: many claims ask the same."""
    asked = (
        claim.model,
        claim.batch,
        claim.context,
        claim.output,
        claim.trace,
        claim.method,
        claim.set,
    )
    if over:
        return (claim.over, claim.over_knob, claim.over_platform or claim.platform, *asked)
    return (claim.system, claim.knob, claim.platform, *asked)


def _study(words: tuple[str, ...]) -> Study:
    system, knobs, platform, model, batch, context, output, trace, method, sets = words
    return Study(
        (system,),
        comma_list(model),
        batch or Study.batch,
        context or Study.context,
        output or Study.output,
        comma_list(platform),
        pairs((item for item in sets.split(";") if item), "set"),
        pairs((item for item in knobs.split(";") if item), "knob"),
        comma_list(trace),
        method or Study.method,
    )
