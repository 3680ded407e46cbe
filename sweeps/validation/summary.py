"""How well each paper is predicted: counts of verdicts, errors, and what was fitted for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nearkv.hardware.catalog import load_platform, names
from nearkv.sweeps.validation.claims import load
from nearkv.sweeps.validation.validate import RANK, Row

RUNS = ("measured", "simulated")
"""Kinds of claims that state how long something took."""


def summary(rows: Sequence[Row]) -> list[Row]:
    """Counts of verdicts, errors and fitted factors, a row a paper.

    Runs are measured or simulated. Some of them (`runs_input`) state a number that the model takes
    as an input, and so match by themselves: the second median leaves them out.
    """
    lines = []
    for paper in sorted({line["paper"] for line in rows}):
        of_paper = [line for line in rows if line["paper"] == paper]
        lines.append(_of_paper(paper, of_paper))
    return lines


def _of_paper(paper: str, rows: Sequence[Row]) -> Row:
    inputs = {claim.id for claim in load(paper) if claim.is_input}
    counts = Counter(line["verdict"] for line in rows)
    runs = [line for line in rows if line["kind"] in RUNS and line["error"] is not None]
    close = [line for line in runs if line["verdict"] in ("match", "near")]
    errors = [line["error"] for line in runs]
    predicted = [line["error"] for line in runs if line["id"] not in inputs]
    line: Row = {"paper": paper, "claims": len(rows)}
    line |= {verdict: counts[verdict] for verdict in RANK}
    return line | {
        "runs": len(runs),
        "runs_close": len(close),
        "runs_input": len(runs) - len(predicted),
        "median_error": _quantile(errors, 0.5),
        "median_not_input": _quantile(predicted, 0.5),
        "p90_error": _quantile(errors, 0.9),
        "fitted": "; ".join(fitted(paper)),
    }


def _quantile(errors: Sequence[float], share: float) -> float | None:
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
