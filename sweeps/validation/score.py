"""Agreement of predictions with what is stated: numbers apart from all that matches by itself."""

from __future__ import annotations

import numpy as np

from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.catalog import load_platform, names
from nearkv.hardware.platform import Platform
from nearkv.sweeps.tables.table import Row, Rows
from nearkv.sweeps.validation.checks import checks
from nearkv.sweeps.validation.claims import (
    BOUND,
    BY_OTHERS,
    EXCLUDED,
    FITTED_TO,
    NUMBER,
    RESTATED,
    YES_OR_NO,
    Claim,
)
from nearkv.sweeps.validation.prediction import (
    is_answered_by_formulas,
    question_of,
    values_of,
)
from nearkv.sweeps.validation.questions import blocks_of, fitted_of

ALL_PAPERS = "all papers"


def headline(rows: Rows) -> Rows:
    """Score the rows of `validate`: a row per paper, and one of all papers.

    Errors are those of numbers alone. Counted apart are what holds or does not (`yes_no`,
    `bounds`: one-sided ones and brackets), what matches by itself (`restated`: inputs, identities
    and arithmetic) and what a number was fitted to (`fitted_to`). Of the numbers, `blind` were
    predicted before the authors had read them, and `unfitted` do not move with a fitted number.
    """
    papers = list(dict.fromkeys(line["paper"] for line in rows))
    groups = {paper: [line for line in rows if line["paper"] == paper] for paper in papers}
    if len(papers) > 1:
        groups[ALL_PAPERS] = [line for line in rows if line["paper"] not in BY_OTHERS]
    return [{"paper": paper, **_scored(group)} for paper, group in groups.items()]


def _scored(rows: Rows) -> Row:
    def kind(name: str) -> Rows:
        return [line for line in rows if line["counts_as"] == name]

    numbers = kind(NUMBER)
    blind = [line for line in numbers if line["blind"]]
    unfitted = [line for line in numbers if not line["moves_with_fit"]]
    return {
        "claims": len(rows),
        **_errors("", numbers),
        **_errors("blind_", blind),
        **_errors("unfitted_", unfitted),
        "yes_no": _kept(kind(YES_OR_NO)),
        "bounds": _kept(kind(BOUND)),
        "restated": len(kind(RESTATED)),
        "fitted_to": len(kind(FITTED_TO)),
        "excluded": len(kind(EXCLUDED)),
    }


def _errors(prefix: str, rows: Rows) -> Row:
    """Count of claims, of those within 10 and 25 %, median and 90th percentile of their error."""
    errors = np.abs([line["error"] for line in rows])
    known = errors.size > 0
    return {
        f"{prefix}numbers": len(rows),
        f"{prefix}within_10": int(np.sum(errors <= 0.10)),
        f"{prefix}within_25": int(np.sum(errors <= 0.25)),
        f"{prefix}median": float(np.median(errors)) if known else None,
        f"{prefix}p90": float(np.quantile(errors, 0.9)) if known else None,
    }


def _kept(rows: Rows) -> str:
    return f"{sum(line['error'] == 0 for line in rows)} of {len(rows)}"


# --- fitted numbers -------------------------------------------------------------------------------


def moves_with_fit(paper: str, claim: Claim) -> bool:
    """True if a tenth more of every fitted number, and of its copies, moves the prediction.

    Checks and simulated queues take no numbers in place of a platform's: they count as moving
    wherever their platform has a fitted rate or latency. Fitted powers enter energy alone, which no
    check asks for.
    """
    if not is_answered_by_formulas(claim):
        beds = _beds(paper, claim)
        return any(number.unit != "W" for bed in beds for number in fitted_of(bed).values())
    values = values_of(claim)
    return not np.allclose(values[:, 0], values[:, -1], rtol=1e-6, equal_nan=True)


def _beds(paper: str, claim: Claim) -> list[Platform]:
    """Platforms that a check or a queue asks: those it names, or its paper's own."""
    if claim.metric not in checks():
        return [block.platform for block in blocks_of(question_of(claim))]
    named = [word for word in claim.system.split(",") if word in names("platform")]
    own = [] if paper in BY_OTHERS else [find_system(paper).platform]
    return [load_platform(name) for name in named or own]
