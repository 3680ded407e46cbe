"""The table a reviewer asks for: what every paper states, what we predict, how far apart, and why."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.catalog import load_platform, names
from nearkv.hardware.errors import InputError
from nearkv.sweeps.validation.claims import FIELDS, FOLDER, Claim, load, papers, predict

MATCH, NEAR = 0.10, 0.25
"""Relative errors up to which a prediction matches, or comes near."""
RANK = {"match": 0, "inconsistent": 1, "near": 2, "miss": 3, "excluded": 4}


def error(claim: Claim, found: NDArray[np.float64]) -> float:
    """Relative distance of a prediction from a statement; 0 where a bound is kept [1].

    Both ends of what is predicted are compared with what is stated, and the worse counts; a bound is
    missed by as much as the worst point lies beyond it. A bound of zero states a sign: a wrong one
    misses it by the whole.
    """
    low, high = float(claim.low), float(claim.high)
    if claim.take == "every":
        beyond = max(found[1] - high, 0.0) if claim.bound == "at_most" else max(low - found[0], 0.0)
        if claim.bound == "range":
            beyond = max(found[1] - high, low - found[0], 0.0)
        scale = max(abs(low), abs(high))
        return float(beyond / scale if scale else beyond > 0)
    ends = np.abs(found - (low, high)) / np.where(
        (np.array((low, high))) == 0, 1.0, np.abs((low, high))
    )
    return float(np.max(ends))


def row(paper: str, claim: Claim) -> dict[str, Any]:
    """One line of the table.

    Raises:
        InputError: the claim's question names something that does not exist.
    """
    line: dict[str, Any] = {
        "paper": paper,
        "id": claim.id,
        "where": claim.where,
        "claim": claim.claim,
        "kind": claim.kind,
        "bound": claim.bound,
        "stated": _span(claim.low, claim.high),
        "unit": claim.unit,
    }
    if not claim.metric:
        return {
            **line,
            "predicted": "",
            "error": None,
            "verdict": "excluded",
            "hangs_on": claim.exclude,
        }
    found = predict(claim)
    off = round(error(claim, found), 9)
    verdict = (
        "match"
        if off <= MATCH
        else "inconsistent"
        if claim.proof
        else "near"
        if off <= NEAR
        else "miss"
    )
    why = claim.proof if verdict == "inconsistent" else claim.assume
    return {**line, "predicted": _span(*found), "error": off, "verdict": verdict, "hangs_on": why}


def _span(low: object, high: object) -> str:
    ends = [f"{float(str(end)):.4g}" for end in (low, high) if str(end) not in ("", "nan")]
    return " .. ".join(dict.fromkeys(ends))


def validate(paper: str = "") -> list[dict[str, Any]]:
    """Evaluate every claim of one paper, or of all.

    Raises:
        InputError: no such paper.
    """
    return [row(name, claim) for name in ([paper] if paper else papers()) for claim in load(name)]


def worse(rows: list[dict[str, Any]]) -> list[str]:
    """Claims whose verdict is worse than the recorded one, one sentence each."""
    recorded = {(paper, claim.id): claim.verdict for paper in papers() for claim in load(paper)}
    found = []
    for line in rows:
        before = recorded[line["paper"], line["id"]]
        if not before or RANK[line["verdict"]] > RANK[before]:
            found.append(f"{line['id']}: {line['verdict']}, recorded as {before or 'nothing'}")
    return found


def record(rows: list[dict[str, Any]]) -> None:
    """Write the verdicts of these rows into the claims, as what a later change is held to."""
    from nearkv.sweeps.evaluation.provenance import replacing

    verdicts = {(line["paper"], line["id"]): line["verdict"] for line in rows}
    for paper in sorted({line["paper"] for line in rows}):
        claims = [replace(claim, verdict=verdicts[paper, claim.id]) for claim in load(paper)]
        with replacing(FOLDER / f"{paper}.csv") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(claim) for claim in claims)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts of verdicts, errors and fitted factors, a row a paper.

    Runs are measured or simulated. Some of them (`runs_input`) state a number that the model takes, and so
    match by themselves: the second median leaves them out.
    """
    found = []
    for paper in sorted({line["paper"] for line in rows}):
        inputs = {claim.id for claim in load(paper) if claim.is_input}
        mine = [line for line in rows if line["paper"] == paper]
        counts = Counter(line["verdict"] for line in mine)
        runs = [
            line
            for line in mine
            if line["kind"] in ("measured", "simulated") and line["error"] is not None
        ]
        errors = [line["error"] for line in runs]
        predicted = [line["error"] for line in runs if line["id"] not in inputs]
        found.append(
            {
                "paper": paper,
                "claims": len(mine),
                **{verdict: counts[verdict] for verdict in RANK},
                "runs": len(runs),
                "runs_close": sum(line["verdict"] in ("match", "near") for line in runs),
                "runs_input": len(runs) - len(predicted),
                "median_error": float(np.median(errors)) if errors else None,
                "median_not_input": float(np.median(predicted)) if predicted else None,
                "p90_error": float(np.quantile(errors, 0.9)) if errors else None,
                "fitted": "; ".join(fitted(paper)),
            }
        )
    return found


def fitted(paper: str) -> list[str]:
    """Factors fitted for a paper's platforms, each with its value and range."""
    factors: dict[str, None] = {}
    for name in names("platform"):
        platform = load_platform(name)
        if platform.cite == paper:
            for role, part in platform.roles.items():
                for key, number in part.numbers.items():
                    if number.kind == "fitted":
                        factors[
                            f"{role}.{key} = {number.value:g} [{number.low:g}, {number.high:g}]"
                        ] = None
    return list(factors)


def check_paper(paper: str) -> str:
    """Refuse a paper without claims, naming those that have some.

    Raises:
        InputError: no such paper.
    """
    if paper and paper not in papers():
        raise InputError(f"no claims of {paper!r}; there are those of {', '.join(papers())}")
    return paper
