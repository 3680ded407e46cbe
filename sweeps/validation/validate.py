"""Every claim of the papers beside its prediction, with the error, the verdict and the reason."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.errors import InputError, check_known
from nearkv.sweeps.tables.table import Row, Rows
from nearkv.sweeps.validation.claims import (
    CLAIM_FIELDS,
    FOLDER,
    NUMBER,
    Claim,
    load,
    papers,
)
from nearkv.sweeps.validation.own_files import read_claims
from nearkv.sweeps.validation.prediction import command_of, predict, questions_of
from nearkv.sweeps.validation.questions import ask_together
from nearkv.sweeps.validation.score import moves_with_fit

MATCH, NEAR = 0.10, 0.25
"""Relative errors up to which a prediction matches, or comes near."""
RANK = {"match": 0, "inconsistent": 1, "near": 2, "miss": 3, "excluded": 4}
"""Verdicts from best to worst."""


def judge_claims(paper: str = "", ids: Sequence[str] = (), file: str = "") -> Rows:
    """Evaluate the claims of one paper, of all, or of a user's file.

    Args:
        paper: whose claims; all papers' where it is empty.
        ids: of the claims to evaluate; all where none is given.
        file: a CSV of claims in place of the papers'; see `own_files.read_claims`.

    Raises:
        InputError: no such paper or claim, a bad file, or a question about something that does not
            exist.
    """
    if file:
        claims = [(Path(file).stem, claim) for claim in read_claims(Path(file))]
    else:
        names = [paper] if paper else papers()
        claims = [(name, claim) for name in names for claim in load(name)]
    known = [claim.id for _, claim in claims]
    check_known("claim", ids, known, "--id")
    chosen = [(name, claim) for name, claim in claims if not ids or claim.id in ids]
    with suppress(InputError):  # the row of the claim says it
        ask_together(questions_of([claim for _, claim in chosen]))
    return [row(name, claim) for name, claim in chosen]


def row(paper: str, claim: Claim) -> Row:
    """One line of the table.

    Raises:
        InputError: the claim's question refers to something that does not exist.
    """
    line: Row = {
        "paper": paper,
        "id": claim.id,
        "where": claim.where,
        "claim": claim.claim,
        "kind": claim.kind,
        "bound": claim.bound,
        "stated": _span(claim.low, claim.high),
        "unit": claim.unit,
        "predicted": "",
        "error": None,
        "verdict": "excluded",
        "counts_as": claim.counts_as,
        "blind": claim.is_blind,
        "moves_with_fit": False,
        "explanation": claim.exclude,
        "command": command_of(claim),
    }
    if not claim.metric:
        return line
    try:
        values = predict(claim)
    except InputError as problem:
        raise InputError(f"claim {claim.id}: {problem}") from None
    relative = round(error(claim, values), 9)
    line["predicted"] = _span(*values)
    line["error"] = relative
    line["verdict"] = verdict(claim, relative)
    if claim.counts_as == NUMBER:
        line["moves_with_fit"] = moves_with_fit(paper, claim)
    inconsistent = line["verdict"] == "inconsistent"
    line["explanation"] = claim.proof if inconsistent else claim.assume
    return line


def verdict(claim: Claim, relative: float) -> str:
    """Verdict of a relative error's size; a claim that is proven inconsistent is never a miss."""
    if abs(relative) <= MATCH:
        return "match"
    if claim.proof:
        return "inconsistent"
    return "near" if abs(relative) <= NEAR else "miss"


def error(claim: Claim, predicted: Numbers) -> float:
    """Relative distance of a prediction from a statement, below zero where it is too low [1].

    Both ends of the prediction are compared with both of the statement, and the worse counts; a
    bound or a bracket is missed by as much as the worst point lies beyond it, and 0 where it is
    kept. A bound of zero states a sign: a wrong one misses it by all of it.
    """
    stated = np.array([float(claim.low), float(claim.high)])
    low, high = stated
    if not claim.is_bound:
        relative = (predicted - stated) / np.where(stated == 0, 1.0, np.abs(stated))
        return float(relative[np.argmax(np.abs(relative))])
    above = max(predicted[1] - high, 0.0)
    below = min(predicted[0] - low, 0.0)
    if claim.bound in ("range", "bracket"):
        beyond = above if above > -below else below
    else:
        beyond = above if claim.bound == "at_most" else below
    largest = max(abs(low), abs(high))
    return float(beyond / largest if largest else np.sign(beyond))


def _span(low: object, high: object) -> str:
    """One number, or `low .. high`; blank where neither is stated."""
    numbers = []
    for end in (low, high):
        text = str(end)
        if text not in ("", "nan"):
            numbers.append(f"{float(text):.4g}")
    return " .. ".join(dict.fromkeys(numbers))


def worse(rows: Rows) -> list[str]:
    """Claims whose verdict is worse than the recorded one, one sentence each."""
    claims = [(paper, claim) for paper in papers() for claim in load(paper)]
    recorded = {(paper, claim.id): claim.verdict for paper, claim in claims}
    messages = []
    for line in rows:
        before = recorded[line["paper"], line["id"]]
        if not before or RANK[line["verdict"]] > RANK[before]:
            messages.append(
                f"{line['id']}: {line['verdict']}, recorded as {before or 'nothing'}"
            )
    return messages


def record(rows: Rows) -> None:
    """Write the verdicts of these rows into the claims; later changes are compared with them."""
    from nearkv.sweeps.evaluate.provenance import replacing

    verdicts = {(line["paper"], line["id"]): line["verdict"] for line in rows}
    for paper in sorted({line["paper"] for line in rows}):
        claims = []
        for claim in load(paper):
            verdict_now = verdicts.get((paper, claim.id), claim.verdict)
            claims.append(replace(claim, verdict=verdict_now))
        with replacing(FOLDER / f"{paper}.csv") as file:
            writer = csv.DictWriter(file, CLAIM_FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(claim) for claim in claims)


# --- sources -------------------------------------------------------------------------------------


def by_source(rows: Rows) -> Rows:
    """Median and largest error of each source, and at the end the median of the medians.

    The source of a row is the part of its address before the semicolon.
    """
    frame = pd.DataFrame(rows)
    source = frame["where"].str.partition(";")[0].rename("source")
    errors = frame["error"].astype(float).abs().groupby(source)
    table = pd.DataFrame(
        {
            "rows": errors.count(),
            "not_modelled": errors.size() - errors.count(),
            "median_error": errors.median(),
            "largest_error": errors.max(),
        }
    )
    table.loc["median of the medians", "median_error"] = table["median_error"].median()
    blank = table.astype(object).where(table.notna(), None)
    lines = blank.reset_index().to_dict("records")
    return [{str(name): value for name, value in line.items()} for line in lines]
