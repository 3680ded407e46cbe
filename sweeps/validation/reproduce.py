"""The command line that reproduces the prediction of a claim."""

from __future__ import annotations

import shlex

from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.sweeps.validation.claims import Claim
from nearkv.sweeps.validation.prediction import Question, question_of

AXES = ("model", "batch", "context_tok", "output_tokens")
"""Columns that tell the points of a claim's grid apart."""


def command_of(claim: Claim) -> str:
    """The command that prints what a claim is compared with, at every point of its grid.

    Where a baseline divides it, a second command prints the baseline's column. A check is
    reproduced by `nearkv validate --id`. Empty where the claim is excluded.
    """
    if not claim.metric:
        return ""
    if claim.metric not in COLUMNS:
        return f"nearkv validate --id {shlex.quote(claim.id)}"
    own = _compare(question_of(claim), claim.metric)
    if not claim.over:
        return own
    baseline = _compare(question_of(claim, baseline=True), claim.metric)
    return f"{own} && {baseline}"


def _compare(question: Question, metric: str) -> str:
    words = ["nearkv", "compare", question.system]
    options = {
        "--model": question.model,
        "--batch": question.batch,
        "--context": question.context,
        "--output-tokens": question.output_tokens,
        "--platform": question.platform,
        "--trace": question.trace,
        "--method": question.method,
    }
    for option, value in options.items():
        if value:
            words += [option, value]
    for item in filter(None, question.set.split(";")):
        words += ["--set", item]
    for item in filter(None, question.knob.split(";")):
        words += ["--knob", item]
    shown = (*AXES, metric)
    words += ["--columns", ",".join(shown)]
    return shlex.join(words)
