"""Statements of the papers, one row each, and the question whose answer it is compared with."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path

from nearkv.hardware.errors import check_known

FOLDER = Path(__file__).parent.parent / "claims"


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, as stated, and how to predict it.

    Attributes:
        id, where, claim: its name, its address in the paper, its words.
        kind: parameter, analytic, measured or simulated.
        bound: exact, approx, at_most, at_least, range, or bracket: a tick of an axis, "about".
        low, high, unit: what is stated.
        metric: a column of a table, arithmetic on columns, `COLUMN = TEXT`, `number`, or a check of
            `nearkv.sweeps.validation.checks`; empty where excluded.
        system, knob, platform: whose column; of a `number`, its address `NAME:ROLE.KEY`.
        over, over_knob, over_platform: the baseline whose column divides it, or is `over.COLUMN` in
            its arithmetic; empty for none.
        model, batch, context, output_tokens, set: the grid.
        trace, method: requests in place of batch, context and output_tokens; `simulate`
            simulates them.
        part: parts in place of the platform's own.
        users: who each send the next request when the last is answered, in place of a batch.
        axis, trend: a column along which the metric `rises` or `falls`, or another of
            `prediction.TRENDS`.
        take: max, min, mean, ends (of a range) or every (each point must keep the bound).
        exclude: why no closed form can predict it.
        assume: what the prediction depends on.
        verdict: the recorded verdict.
        proof: where a row is inconsistent, what proves it.
    """

    id: str
    where: str
    claim: str
    kind: str
    bound: str
    low: str
    high: str
    unit: str
    metric: str = ""
    system: str = ""
    knob: str = ""
    platform: str = ""
    over: str = ""
    over_knob: str = ""
    over_platform: str = ""
    model: str = ""
    batch: str = ""
    context: str = ""
    output_tokens: str = ""
    set: str = ""
    trace: str = ""
    method: str = ""
    axis: str = ""
    trend: str = ""
    take: str = ""
    exclude: str = ""
    assume: str = ""
    verdict: str = ""
    proof: str = ""
    part: str = ""
    users: str = ""

    @property
    def is_bound(self) -> bool:
        """True if it only bounds the prediction: each point must keep the bound."""
        return self.take == "every" or self.bound == "bracket"

    @property
    def is_yes_or_no(self) -> bool:
        """True if it states that something holds or not."""
        return self.unit in ("bool", "boolean")

    @property
    def is_blind(self) -> bool:
        """True if it was predicted before the authors had read it (`assume` begins with it)."""
        return self.assume.startswith("Blind when predicted")

    @property
    def counts_as(self) -> str:
        """Meaning of its agreement (see `score.headline`); inputs and fits begin their `assume`."""
        if not self.metric:
            return EXCLUDED
        if self.kind not in RUNS or self.assume.startswith("An input"):
            return RESTATED
        if self.assume.startswith("Fitted to"):
            return FITTED_TO
        if self.is_yes_or_no:
            return YES_OR_NO
        return BOUND if self.is_bound else NUMBER


RUNS = ("measured", "simulated")
"""Kinds of claims that state how long something took."""
NUMBER, BOUND, YES_OR_NO = "number", "bound", "yes or no"
RESTATED, FITTED_TO, EXCLUDED = "restated", "fitted to", "excluded"
INDEPENDENT = "independent"
"""Measurements by others, in the form of a paper; nothing is fitted to them."""
HELD_OUT = ("capacity", "independent3", "independent4")
"""Measurements by others that no fit has seen."""
BY_OTHERS = (INDEPENDENT, *HELD_OUT, "reuse")
"""Claims of no paper that is modelled: measurements by others, and KV caches between requests."""

CLAIM_FIELDS = tuple(field.name for field in fields(Claim))


def papers() -> list[str]:
    """Papers with recorded claims."""
    return sorted(file.stem for file in FOLDER.glob("*.csv"))


def claim_of(paper: str, name: str) -> Claim:
    """The claim of a paper that has an id.

    Raises:
        StopIteration: there is none.
    """
    return next(claim for claim in load(paper) if claim.id == name)


def load(paper: str) -> list[Claim]:
    """Read the claims of a paper.

    Raises:
        InputError: no claims of that paper.
    """
    check_known("paper", [paper], papers())
    with (FOLDER / f"{paper}.csv").open(encoding="utf-8", newline="") as file:
        return [Claim(**row) for row in csv.DictReader(file)]
