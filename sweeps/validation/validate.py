"""Every claim of the papers beside its prediction, with the error, the verdict and the reason."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nearkv.costmodel.algebra.span import Numbers
from nearkv.hardware.catalog import load_platform, names
from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.validation.claims import FIELDS, FOLDER, Claim, load, papers
from nearkv.sweeps.validation.own_files import read_claims
from nearkv.sweeps.validation.prediction import command_of, predict

Row = dict[str, Any]

MATCH, NEAR = 0.10, 0.25
"""Relative errors up to which a prediction matches, or comes near."""
RANK = {"match": 0, "inconsistent": 1, "near": 2, "miss": 3, "excluded": 4}
"""Verdicts from best to worst."""
RUNS = ("measured", "simulated")
"""Kinds of claims that state how long something took."""


def validate(paper: str = "", ids: Sequence[str] = (), file: str = "") -> list[Row]:
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
    for name in ids:
        if name not in known:
            raise unknown("claim", name, known, "--id")
    return [row(name, claim) for name, claim in claims if not ids or claim.id in ids]


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
    """Verdict of a relative error's size; a claim that is proven inconsistent is never a miss."""
    if abs(relative) <= MATCH:
        return "match"
    if claim.proof:
        return "inconsistent"
    return "near" if abs(relative) <= NEAR else "miss"


def error(claim: Claim, predicted: Numbers) -> float:
    """Relative distance of a prediction from a statement, below zero where it is too low [1].

    Both ends of the prediction are compared with both of the statement, and the worse counts; a
    bound is missed by as much as the worst point lies beyond it, and 0 where it is kept. A bound of
    zero states a sign: a wrong one misses it by all of it.
    """
    low, high = float(claim.low), float(claim.high)
    if claim.take != "every":
        stated = np.array([low, high])
        scale = np.where(stated == 0, 1.0, np.abs(stated))
        relative = (predicted - stated) / scale
        return float(relative[np.argmax(np.abs(relative))])
    above = max(predicted[1] - high, 0.0)
    below = min(predicted[0] - low, 0.0)
    if claim.bound == "range":
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


# --- counts ---------------------------------------------------------------------------------------


def summary(rows: Sequence[Row]) -> list[Row]:
    """Counts of verdicts, errors and fitted factors, a row per paper.

    Runs are measured or simulated. The errors leave out those that state an input of the model
    (`runs_input`), which match by themselves, and one-sided bounds, which say little where they are
    kept: `bounds_kept` counts them. `blind` are runs that were predicted before they were read.
    """
    lines = []
    for paper in sorted({line["paper"] for line in rows}):
        of_paper = [line for line in rows if line["paper"] == paper]
        lines.append(_of_paper(paper, of_paper))
    return lines


def _of_paper(paper: str, rows: Sequence[Row]) -> Row:
    claims = {claim.id: claim for claim in load(paper)}
    verdicts = Counter(line["verdict"] for line in rows)
    runs = [line for line in rows if line["kind"] in RUNS and line["error"] is not None]
    inputs = [line for line in runs if claims[line["id"]].is_input]
    bounds = [line for line in runs if claims[line["id"]].is_bound]
    predicted = [line for line in runs if line not in inputs and line not in bounds]
    blind = [line for line in predicted if claims[line["id"]].is_blind]
    kept = [line for line in bounds if line["error"] == 0]
    line: Row = {"paper": paper, "claims": len(rows)}
    line |= {verdict: verdicts[verdict] for verdict in RANK}
    return line | {
        "runs": len(runs),
        "runs_input": len(inputs),
        "bounds_kept": f"{len(kept)} of {len(bounds)}",
        "predicted": len(predicted),
        "close": _close(predicted),
        "median_error": _quantile(predicted, 0.5),
        "p90_error": _quantile(predicted, 0.9),
        "blind": len(blind),
        "blind_close": _close(blind),
        "blind_median_error": _quantile(blind, 0.5),
        "fitted": "; ".join(fitted(paper)),
    }


def _close(rows: Iterable[Row]) -> int:
    """Rows within 25 %."""
    return sum(line["verdict"] in ("match", "near") for line in rows)


def _quantile(rows: Iterable[Row], share: float) -> float | None:
    errors = [abs(line["error"]) for line in rows]
    return float(np.quantile(errors, share)) if errors else None


def fitted(paper: str) -> list[str]:
    """Factors fitted for a paper's platforms, each with its value and range."""
    factors: dict[str, None] = {}
    for name in names("platform"):
        platform = load_platform(name)
        if platform.cite != paper:
            continue
        for role, part in platform.roles.items():
            for key, number in part.numbers.items():
                if number.kind == "fitted":
                    span = f"[{number.low:g}, {number.high:g}]"
                    factors[f"{role}.{key} = {number.value:g} {span}"] = None
    return list(factors)


def by_source(rows: Sequence[Row]) -> list[Row]:
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
