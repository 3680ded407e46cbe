"""Every claim of the papers beside its prediction, with the error, the verdict and the reason."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.validation.claims import FIELDS, FOLDER, Claim, load, papers
from nearkv.sweeps.validation.own_files import read_claims
from nearkv.sweeps.validation.prediction import Values, command_of, predict

Row = dict[str, Any]

MATCH, NEAR = 0.10, 0.25
"""Relative errors up to which a prediction matches, or comes near."""
RANK = {"match": 0, "inconsistent": 1, "near": 2, "miss": 3, "excluded": 4}
"""Verdicts from best to worst."""


def validate(paper: str = "", ids: Sequence[str] = ()) -> list[Row]:
    """Evaluate the claims of one paper, or of all.

    Args:
        paper: whose claims; all papers' where it is empty.
        ids: of the claims to evaluate; all where none is given.

    Raises:
        InputError: no such paper, or no such claim.
    """
    claims = [
        (name, claim) for name in ([paper] if paper else papers()) for claim in load(name)
    ]
    known = [claim.id for _, claim in claims]
    for name in ids:
        if name not in known:
            raise unknown("claim", name, known, "--id")
    return [row(name, claim) for name, claim in claims if not ids or claim.id in ids]


def validate_file(file: str, ids: Sequence[str] = ()) -> list[Row]:
    """Evaluate a user's claims; see `nearkv.sweeps.validation.own_files`.

    Raises:
        InputError: a bad file, no such claim, or a question about something that does not exist.
    """
    claims = read_claims(Path(file))
    known = [claim.id for claim in claims]
    for name in ids:
        if name not in known:
            raise unknown("claim", name, known, "--id")
    name = Path(file).stem
    return [row(name, claim) for claim in claims if not ids or claim.id in ids]


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
    inconsistent = line["verdict"] == "inconsistent"
    line["explanation"] = claim.proof if inconsistent else claim.assume
    return line


def verdict(claim: Claim, relative: float) -> str:
    """Verdict of a relative error; a claim that is proven inconsistent is never a miss."""
    if relative <= MATCH:
        return "match"
    if claim.proof:
        return "inconsistent"
    return "near" if relative <= NEAR else "miss"


def error(claim: Claim, predicted: Values) -> float:
    """Relative distance of a prediction from a statement; 0 where a bound is kept [1].

    Both ends of the prediction are compared with both of the statement, and the worse counts; a
    bound is missed by as much as the worst point lies beyond it. A bound of zero states a sign: a
    wrong one misses it by the whole.
    """
    low, high = float(claim.low), float(claim.high)
    if claim.take != "every":
        stated = np.array([low, high])
        scale = np.where(stated == 0, 1.0, np.abs(stated))
        return float(np.max(np.abs(predicted - stated) / scale))
    above = max(predicted[1] - high, 0.0)
    below = max(low - predicted[0], 0.0)
    if claim.bound == "range":
        beyond = max(above, below)
    else:
        beyond = above if claim.bound == "at_most" else below
    largest = max(abs(low), abs(high))
    return float(beyond / largest if largest else beyond > 0)


def _span(low: object, high: object) -> str:
    """One number, or `low .. high`; blank where neither is stated."""
    numbers = []
    for end in (low, high):
        text = str(end)
        if text not in ("", "nan"):
            numbers.append(f"{float(text):.4g}")
    return " .. ".join(dict.fromkeys(numbers))


def worse(rows: Sequence[Row]) -> list[str]:
    """Claims whose verdict is worse than the recorded one, one sentence each."""
    recorded = {}
    for paper in papers():
        for claim in load(paper):
            recorded[paper, claim.id] = claim.verdict
    messages = []
    for line in rows:
        before = recorded[line["paper"], line["id"]]
        if not before or RANK[line["verdict"]] > RANK[before]:
            messages.append(
                f"{line['id']}: {line['verdict']}, recorded as {before or 'nothing'}"
            )
    return messages


def record(rows: Sequence[Row]) -> None:
    """Write the verdicts of these rows into the claims; later changes are compared with them."""
    from nearkv.sweeps.evaluate.provenance import replacing

    verdicts = {(line["paper"], line["id"]): line["verdict"] for line in rows}
    for paper in sorted({line["paper"] for line in rows}):
        claims = []
        for claim in load(paper):
            verdict_now = verdicts.get((paper, claim.id), claim.verdict)
            claims.append(replace(claim, verdict=verdict_now))
        with replacing(FOLDER / f"{paper}.csv") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(claim) for claim in claims)


def check_verdicts(names: Sequence[str]) -> Sequence[str]:
    """Refuse a verdict that no claim can have.

    Raises:
        InputError: no such verdict.
    """
    for name in names:
        if name not in RANK:
            raise unknown("verdict", name, list(RANK), "--verdict")
    return names


def with_verdicts(rows: Sequence[Row], verdicts: Sequence[str]) -> list[Row]:
    """Rows that have one of these verdicts; all where none is named."""
    return [line for line in rows if not verdicts or line["verdict"] in verdicts]


def check_paper(paper: str) -> str:
    """Refuse a paper without claims.

    Raises:
        InputError: no such paper.
    """
    if paper and paper not in papers():
        raise InputError(
            f"no claims of {paper!r}; there are those of {', '.join(papers())}"
        )
    return paper
