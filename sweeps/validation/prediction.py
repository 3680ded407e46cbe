"""The values that the models predict for a claim, and the studies that compute them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import InputError, unknown
from nearkv.hardware.units import unit_of
from nearkv.sweeps.evaluate.evaluate import Columns, table
from nearkv.sweeps.study.study import Block, Study, blocks, comma_list, pairs
from nearkv.sweeps.validation.checks import checks, find_check
from nearkv.sweeps.validation.checks.asking import number_at
from nearkv.sweeps.validation.claims import Claim
from nearkv.sweeps.validation.units import PRINTED_UNITS, unit_size

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """The study of a claim in words, hashable: many claims ask for the same table.

    Attributes:
        system, knob, platform: whose column.
        model, batch, context, output_tokens, trace, method, set: as in the claim.
    """

    system: str
    knob: str
    platform: str
    model: str
    batch: str
    context: str
    output_tokens: str
    trace: str
    method: str
    set: str

    def study(self) -> Study:
        """The study to evaluate; axes that the claim leaves blank have their defaults.

        Raises:
            InputError: a list that cannot be read.
        """
        return Study(
            systems=(self.system,),
            models=comma_list(self.model),
            batch=self.batch or Study.batch,
            context=self.context or Study.context,
            output_tokens=self.output_tokens or Study.output_tokens,
            platforms=comma_list(self.platform),
            sets=pairs(filter(None, self.set.split(";")), "set"),
            knobs=pairs(filter(None, self.knob.split(";")), "knob"),
            traces=comma_list(self.trace),
            method=self.method or Study.method,
        )


def question_of(claim: Claim, baseline: bool = False) -> Question:
    """The question of a claim's column: about its system, or about the baseline that divides it."""
    if baseline:
        system, knob = claim.over, claim.over_knob
        platform = claim.over_platform or claim.platform
    else:
        system, knob, platform = claim.system, claim.knob, claim.platform
    return Question(
        system=system,
        knob=knob,
        platform=platform,
        model=claim.model,
        batch=claim.batch,
        context=claim.context,
        output_tokens=claim.output_tokens,
        trace=claim.trace,
        method=claim.method,
        set=claim.set,
    )


@cache
def claim_blocks(question: Question) -> tuple[Block, ...]:
    """The design points at which a claim's column is computed.

    Raises:
        InputError: the question refers to something that does not exist.
    """
    return tuple(blocks(question.study()))


@cache
def _table(question: Question) -> Columns:
    return table(question.study())


def predict(claim: Claim) -> Values:
    """The prediction of the models: the lowest and the highest value over the claim's grid.

    Raises:
        InputError: the question refers to something that does not exist, or no point fits.
    """
    values = _values(claim)
    values = values[np.isfinite(values)]
    if not values.size:
        raise InputError("no point of its grid fits; widen it")
    if claim.take == "mean":
        return np.repeat(values.mean(), 2)
    if claim.take == "max":
        return np.repeat(values.max(), 2)
    if claim.take == "min":
        return np.repeat(values.min(), 2)
    return np.array([values.min(), values.max()])


def _values(claim: Claim) -> Values:
    """What the claim states, at every point of its grid, in its unit."""
    if claim.metric == "number":
        return np.array([number_at(claim.system) / size_of(claim.unit)])
    if claim.metric in checks():
        words = comma_list(claim.system)
        answer = find_check(claim.metric)(*words)
        return np.ravel(np.asarray(answer, dtype=float))
    column = _column(claim.metric, question_of(claim))
    if claim.over:
        column = column / _column(claim.metric, question_of(claim, baseline=True))
    return column / unit_size(claim)


def _column(metric: str, question: Question) -> Values:
    """A column at every point of a question's grid, NaN where it has no answer.

    Raises:
        InputError: there is no such column, or it holds no numbers.
    """
    columns = _table(question)
    numeric = [name for name, cells in columns.items() if cells.dtype.kind in "ifb"]
    if metric not in numeric:
        raise unknown("metric", metric, numeric)
    values = columns[metric].astype(float)
    return np.where(columns["status"] == "ok", values, np.nan)


def size_of(unit: str) -> float:
    """One printed unit in SI; 1 for words and shares [SI]."""
    if unit in PRINTED_UNITS:
        return PRINTED_UNITS[unit][1]
    try:
        dimension, size = unit_of(unit)
    except InputError:
        return 1.0
    return 1.0 if dimension == "1" else size
