"""What the papers state, one row a statement, and the question whose answer it is compared with."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hardware.catalog import load_llm, load_part, load_platform, names
from hardware.errors import InputError, unknown
from hardware.quantity import unit_of
from sweeps.checks import checks, find_check
from sweeps.run import Columns, evaluate
from sweeps.study import Block, Study, blocks, pairs, split

FOLDER = Path(__file__).parent / "claims"


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, as stated, and how to predict it.

    Attributes:
        id, where, claim: its name, its address in the paper, its words.
        kind: parameter, analytic, measured or simulated.
        bound: exact, approx, at_most, at_least or range.
        low, high, unit: what is stated.
        metric: a column of a result, `number`, or a check of `sweeps.checks`; empty where excluded.
        system, knob, platform: who is asked; of a `number`, its address `NAME:ROLE.KEY`.
        over, over_knob, over_platform: whose answer divides it; empty for none.
        model, batch, context, output, set: the grid.
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
    take: str = ""
    exclude: str = ""
    assume: str = ""
    verdict: str = ""
    proof: str = ""


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
        value = _number(claim.system) / unit_of(claim.unit)[1] if _has_unit(claim) else _number(claim.system)
        return np.array([value, value])
    if claim.metric in checks():
        found = np.ravel(np.asarray(find_check(claim.metric)(*split(claim.system)), dtype=float))
    else:
        found = _column(claim, claim.system, claim.knob, claim.platform)
        if claim.over:
            found = found / _column(claim, claim.over, claim.over_knob, claim.over_platform or claim.platform)
    found = found[np.isfinite(found)]
    if not found.size:
        raise InputError(f"claim {claim.id}: no point of its grid fits; widen it")
    if claim.take == "mean":
        return np.array([found.mean(), found.mean()])
    if claim.take in ("max", "min"):
        return np.repeat(found.max() if claim.take == "max" else found.min(), 2)
    return np.array([found.min(), found.max()])


def _has_unit(claim: Claim) -> bool:
    try:
        return unit_of(claim.unit)[0] != "1"
    except InputError:
        return False


def _number(address: str) -> float:
    """A number of a platform, a part or a model, named `NAME:ROLE.KEY` or `NAME:KEY` [SI]."""
    name, _, key = address.partition(":")
    if name in names("platform"):
        role, _, number = key.partition(".")
        return load_platform(name).roles[role].numbers[number].si
    part = load_part(name) if name in names("part") else load_llm(name)
    return part.numbers[key].si


def _column(claim: Claim, system: str, knobs: str, platform: str) -> NDArray[np.float64]:
    study = _study(system, claim.model, claim.batch, claim.context, claim.output, platform, claim.set, knobs)
    found = study[claim.metric]
    return np.where(study["ok"], found.astype(float), np.nan)


def block_of(claim: Claim, over: bool = False) -> Block:
    """The design points a claim's column is asked at: of its system, or of the one that divides it.

    Raises:
        InputError: the question names something that does not exist.
    """
    who = (claim.over, claim.over_knob, claim.over_platform or claim.platform)
    system, knobs, platform = who if over else (claim.system, claim.knob, claim.platform)
    return _block(system, claim.model, claim.batch, claim.context, claim.output, platform, claim.set, knobs)


@cache
def _block(
    system: str, model: str, batch: str, context: str, output: str, platform: str, sets: str, knobs: str
) -> Block:
    (block,) = blocks(
        Study(
            (system,),
            split(model),
            batch or "16",
            context or "32k",
            output or "64",
            split(platform),
            pairs((item for item in sets.split(";") if item), "set"),
            pairs((item for item in knobs.split(";") if item), "knob"),
        )
    )
    return block


@cache
def _study(
    system: str, model: str, batch: str, context: str, output: str, platform: str, sets: str, knobs: str
) -> Columns:
    (found,) = evaluate([_block(system, model, batch, context, output, platform, sets, knobs)])
    return found
