"""How well each paper is predicted: counts of verdicts, errors, and what was fitted for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from nearkv.hardware.catalog import load_platform, names
from nearkv.sweeps.validation.claims import load
from nearkv.sweeps.validation.validate import RANK, Row

RUNS = ("measured", "simulated")
"""Kinds of claims that state how long something took."""


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
    errors = [line["error"] for line in rows]
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
