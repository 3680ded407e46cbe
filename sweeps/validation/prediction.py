"""Predictions of the models for a claim, in the claim's unit, and the command that prints it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from nearkv.costmodel.algebra.span import Numbers
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError, check_known
from nearkv.hardware.units import unit_of
from nearkv.sweeps.evaluate.catalogue import column_rows
from nearkv.sweeps.evaluate.columns import FOOTPRINT
from nearkv.sweeps.study.sizes import comma_list, pairs
from nearkv.sweeps.tables.table import Columns
from nearkv.sweeps.validation.checks import checks
from nearkv.sweeps.validation.claims import Claim
from nearkv.sweeps.validation.questions import (
    BlockAnswer,
    WordedStudy,
    answers_of,
    arithmetic,
    beside_claims,
    columns_of,
    number_at,
    number_or_size,
    quantity_at,
)

BASELINE = "over."
"""Begins a column of the baseline in a formula."""
_AXES = ("system", "model", "platform", "trace", "batch", "context_tok", "output_tokens")


def question_of(claim: Claim, baseline: bool = False) -> WordedStudy:
    """The question of a claim's column: about its system, or about the baseline that divides it."""
    stated = {field.name: getattr(claim, field.name) for field in fields(WordedStudy)}
    if baseline:
        platform = claim.over_platform or claim.platform
        stated |= {"system": claim.over, "knob": claim.over_knob, "platform": platform}
    return WordedStudy(**stated)


def predict(claim: Claim) -> Numbers:
    """The prediction of the models: the lowest and the highest value over the claim's grid.

    Raises:
        InputError: the question refers to something that does not exist, or no point fits.
    """
    values = values_of(claim)[:, :1]
    values = values[np.isfinite(values[:, 0])]
    if not values.size:
        raise InputError("no point of its grid fits; widen it")
    return reduced_as(claim.take, values)[:, 0]


def reduced_as(take: str, values: Numbers) -> Numbers:
    """Values (points, k) as a claim takes them: lowest and highest (2, k); NaN is left out."""
    if take == "mean":
        known = ~np.isnan(values)
        with np.errstate(invalid="ignore"):
            mean = np.sum(values, axis=0, where=known) / np.sum(known, axis=0)
        return np.stack([mean, mean])
    low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    if take == "max":
        return np.stack([high, high])
    return np.stack([low, low if take == "min" else high])


@cache
def values_of(claim: Claim) -> Numbers:
    """Values that a claim states, at every point of its grid, in its unit (points, 1 or 2).

    Formulas say them with all fitted numbers a tenth larger, too.

    Raises:
        InputError: the question refers to something that does not exist.
    """
    if is_answered_by_formulas(claim):
        own = answers_of(question_of(claim))
        baseline = answers_of(question_of(claim, baseline=True)) if claim.over else ()
        return metric_of(claim, own, baseline)
    return _values(claim)[:, np.newaxis]


def is_answered_by_formulas(claim: Claim) -> bool:
    """True if a claim states columns that any answer has, no trend of them, and no queue."""
    if claim.trend or claim.method == "simulate":
        return False
    names = columns_of_either(claim.metric)
    return bool(names) and all(name in COLUMNS for name in names)


def questions_of(claims: Iterable[Claim]) -> Iterator[WordedStudy]:
    """All questions of claims that formulas answer."""
    for claim in filter(is_answered_by_formulas, claims):
        yield question_of(claim)
        if claim.over:
            yield question_of(claim, baseline=True)


def metric_of(
    claim: Claim,
    system: Sequence[BlockAnswer],
    baseline: Sequence[BlockAnswer] = (),
    infeasible: bool = False,
) -> Numbers:
    """The metric of a claim in its unit at every point (points, k).

    Args:
        claim: its metric is made of `metrics.COLUMNS`.
        system, baseline: answers of its system, and of the baseline that divides it, if any.
        infeasible: whether points that do not fit have their time all the same; else NaN.
    """

    def column(name: str, of_baseline: bool) -> Numbers:
        answers = baseline if of_baseline else system
        values = [answer.column(name, infeasible) for answer in answers]
        most = max(each.shape[-1] for each in values)
        alike = [np.broadcast_to(each, (len(each), most)) for each in values]
        systems = comma_list(claim.over if of_baseline else claim.system)
        return np.concatenate(alike).reshape(len(systems), -1, most)

    values = formula(claim, column) / unit_size(claim)
    return values.reshape(-1, values.shape[-1])


def _values(claim: Claim) -> Numbers:
    """Values that no formula says of many points at once."""
    if claim.metric == "number":
        return np.array([number_at(claim.system) / size_of(claim.unit)])
    if claim.metric in checks():
        answer = checks()[claim.metric](*comma_list(claim.system))
        values = np.ravel(np.asarray(answer, dtype=float))
        if claim.trend:
            places = np.arange(len(values), dtype=float)
            values = np.array([_trend(claim.trend)(places, values)], dtype=float)
        return values
    if " = " in claim.metric:
        column, _, text = claim.metric.partition(" = ")
        return np.array(columns_of(question_of(claim))[column] == text, dtype=float)
    values = formula(claim, partial(_column, claim))
    if claim.trend:
        return _along(claim, columns_of(question_of(claim)), np.ravel(values))
    return np.ravel(values) / unit_size(claim)


def is_formula(metric: str) -> bool:
    """True if a metric is arithmetic on columns instead of one column."""
    return " " in metric


def columns_of_either(metric: str) -> list[str]:
    """Columns that a metric names, of the claim's own system and of the baseline, each once."""
    words = metric.partition(" = ")[0].replace(BASELINE, "").split()
    columns = [word for word in words if word.isidentifier() or word.startswith(FOOTPRINT)]
    return list(dict.fromkeys(columns))


def formula(claim: Claim, column: Callable[[str, bool], Numbers]) -> Numbers:
    """A claim's metric from columns, divided by the baseline's where it does not name these.

    Args:
        claim: its metric is a column, or arithmetic on columns, numbers and `over.COLUMN`.
        column: a column of the claim's system, or of its baseline where the second is true.

    Raises:
        InputError: there is no such column.
    """

    def value_of(word: str, baseline: bool = False) -> Numbers:
        is_address = ":" in word and not word.startswith(FOOTPRINT)
        if is_address or word[0].isdigit():
            return np.array(number_or_size(word))
        name = word.removeprefix(BASELINE)
        return column(name, baseline or name != word)

    values: Numbers = arithmetic(claim.metric, value_of)
    if claim.over and BASELINE not in claim.metric:
        values = values / arithmetic(claim.metric, partial(value_of, baseline=True))
    return values


def _column(claim: Claim, metric: str, baseline: bool) -> Numbers:
    """A column at every point, systems along the first axis; NaN where it has no answer.

    Raises:
        InputError: there is no such column, or it holds no numbers.
    """
    columns = columns_of(question_of(claim, baseline))
    numeric = [name for name, cells in columns.items() if cells.dtype.kind in "ifb"]
    check_known("metric", [metric], numeric)
    values = np.where(columns["status"] == "ok", columns[metric].astype(float), np.nan)
    systems = comma_list(claim.over if baseline else claim.system)
    return values.reshape(len(systems), -1)


# --- trends ---------------------------------------------------------------------------------------


WORTHWHILE = 1.01
"""Gain from one value of an axis to the next from which on the next one pays [1]."""


def _last_that_pays(x: Numbers, y: Numbers) -> float:
    gains = np.append(y[1:] / y[:-1] > WORTHWHILE, False)
    return float(x[np.argmin(gains)])


TRENDS: dict[str, Callable[[Numbers, Numbers], Any]] = {
    "rises": lambda _, y: bool(np.all(np.diff(y) > 0)),
    "falls": lambda _, y: bool(np.all(np.diff(y) < 0)),
    "exceeds 1": lambda _, y: bool(np.all(y > 1)),
    "crosses 1": lambda _, y: bool(y[0] < 1 < y[-1]),
    "exponent": lambda x, y: np.polyfit(np.log(x), np.log(y), 1)[0],
    "linearity": lambda x, y: np.corrcoef(x, y)[0, 1] ** 2,
    "last that pays": _last_that_pays,
    "largest that fits": lambda x, _: np.max(x),
    "least at": lambda x, y: x[np.argmin(y)],
}
"""Trends that a claim may state of a metric along an axis: it rises or falls at each step, exceeds
1 everywhere or from below 1 at last; the exponent of a power law; R^2 of a straight line; the value
of the axis up to which each step gains a hundredth, the largest that fits, and that of the least
metric."""


def _trend(name: str) -> Callable[[Numbers, Numbers], float]:
    check_known("trend", [name], TRENDS)
    return TRENDS[name]


def _along(claim: Claim, columns: Columns, values: Numbers) -> Numbers:
    """The trend of a metric along an axis of its grid, for each case of the other axes.

    With `take` mean the metric is averaged over the other axes first.
    """
    trend = _trend(claim.trend)
    axis = claim.axis or "system"
    knobs = pairs(filter(None, claim.knob.split(";")), "knob")
    names = [name for name in (*_AXES, *knobs) if name in columns]
    check_known("axis", [axis], names)
    rows = len(columns["system"])
    frame = pd.DataFrame({name: columns[name] for name in names})
    frame = frame.take(np.resize(np.arange(rows), len(values)))
    frame = frame.assign(value=values).dropna(subset="value")
    if claim.take == "mean":
        frame = frame.groupby(axis, sort=False, as_index=False).agg({"value": "mean"})
    others = [name for name in names if name != axis and name in frame]
    groups = frame.groupby(others, sort=False) if others else [((), frame)]
    answers = []
    for _, group in groups:
        x = group[axis].to_numpy()
        is_numeric = x.dtype.kind in "ifb"
        places = x.astype(float) if is_numeric else np.arange(len(x), dtype=float)
        answers.append(trend(places, group["value"].to_numpy()))
    holds_everywhere = all(isinstance(answer, bool) for answer in answers)
    return np.array([min(answers)] if holds_everywhere else answers, dtype=float)


# --- units ----------------------------------------------------------------------------------------

PRINTED_UNITS = {
    "GFLOPS": ("FLOP/s", 1e9),
    "PBW": ("B", 1e15),
    "billion params": ("1", 1e9),
}
"""Units as papers print them that no specification is written in: dimension, size in SI."""
TOKENS = re.compile(r"\btok(ens?)?\b", re.IGNORECASE)
"""Words for what tables count, which are no units: `tok/s` is `1/s`."""


def unit_size(claim: Claim) -> float:
    """Size of a claim's unit in that of its column [1].

    Words such as `x` or `sequences` count things: they are units of ratios and of columns of
    counts. What checks and formulas answer and what a system's own columns hold is taken as it is,
    unless the name of the column ends in its unit.

    Raises:
        InputError: the claim's unit measures something else.

    >>> unit_size(Claim("a", "", "", "", "", "72", "72", "s", metric="step_ms"))
    1000.0
    """
    if claim.metric == "number":
        column: str | None = quantity_at(claim.system).unit
    elif is_formula(claim.metric):
        column = None
    else:
        column = "1" if claim.over else column_unit(claim.metric)
    if column is None:
        return 1.0
    stated, needed = _plain(claim.unit), _plain(column)
    if stated == needed:
        return 1.0
    dimension, size = _measure(stated)
    if needed in ("", "1"):
        required, column_size = "1", 1.0
        dimension = dimension or "1"
    else:
        required, column_size = _measure(needed)
    if dimension != required:
        subject = "a ratio" if claim.over else claim.metric
        if claim.metric == "number":
            subject = claim.system
        written = column if needed not in ("", "1") else "x or a word for what is counted"
        raise InputError(f"{claim.unit!r} does not measure {subject}; write {written}")
    return size / column_size


def column_unit(metric: str) -> str | None:
    """The unit of a column, empty of a count; None where it is not known."""
    if metric in checks():
        return None
    units = {str(row["column"]): str(row["unit"]) for row in column_rows()}
    if metric in units:
        return units[metric]
    _, underscore, ending = metric.rpartition("_")
    dimension, _ = _measure(ending)
    is_rate = metric.endswith("_tok_s")
    return ending if underscore and dimension and not is_rate else None


def size_of(unit: str) -> float:
    """One printed unit in SI; 1 for words and shares [SI]."""
    dimension, size = _measure(unit)
    return 1.0 if unit not in PRINTED_UNITS and dimension == "1" else size


def _plain(unit: str) -> str:
    """A unit without the tokens that it counts."""
    counted = TOKENS.sub("1", unit.strip())
    return counted.removesuffix("/1")


def _measure(unit: str) -> tuple[str, float]:
    """Dimension and size in SI; no dimension where it is a word and no unit."""
    if unit in PRINTED_UNITS:
        return PRINTED_UNITS[unit]
    try:
        return unit_of(unit)
    except InputError:
        return "", 1.0


# --- commands -------------------------------------------------------------------------------------

CLAIM_AXES = ("model", "batch", "context_tok", "output_tokens")
"""Columns that tell the points of a claim's grid apart."""


def command_of(claim: Claim) -> str:
    """The command that prints what a claim is compared with, at every point of its grid.

    Where a baseline divides it, a second command prints the baseline's columns. A check is
    reproduced by `nearkv validate --id`. Empty where the claim is excluded.
    """
    if not claim.metric:
        return ""
    if claim.metric == "number" or claim.metric in checks():
        return f"nearkv validate --id {shlex.quote(claim.id)}"
    shown = columns_of_either(claim.metric)
    own = _compare(question_of(claim), shown)
    if not claim.over:
        return own
    baseline = _compare(question_of(claim, baseline=True), shown)
    return f"{own} && {baseline}"


def _compare(question: WordedStudy, shown: list[str]) -> str:
    words = ["nearkv", "compare"]
    for field in fields(WordedStudy):
        option = f"--{field.name.replace('_', '-')}"
        value: str = getattr(question, field.name)
        if field.name == "system":
            words += comma_list(value)
        elif field.name in ("model", "platform"):
            named = map(beside_claims, comma_list(value))
            words += [option, ",".join(named)] if value else []
        elif field.name == "part":
            for role, name in question.parts.items():
                words += [option, f"{role}={name}"]
        elif field.name in ("set", "knob"):
            for item in filter(None, value.split(";")):
                words += [option, item]
        elif value:
            words += [option, value]
    words += ["--columns", ",".join((*CLAIM_AXES, *shown))]
    return shlex.join(words)
