"""Statements of papers beside predictions, and fits to measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearkv.hardware.errors import InputError, unknown
from nearkv.sweeps.api.arguments import Value, path_of
from nearkv.sweeps.api.tables import table_of_rows

if TYPE_CHECKING:
    import pandas as pd

    from nearkv.sweeps.validation.calibration import Calibration


def validate(
    paper: str = "",
    *,
    ids: Iterable[str] = (),
    claims: Value = "",
    verdicts: Iterable[str] = (),
    record: bool = False,
) -> pd.DataFrame:
    """Compare every published claim with what the model predicts.

    Args:
        paper: one of `sweeps.validation.claims.papers()`; all by default.
        ids: compare only these claims.
        claims: a CSV of your own claims, in place of the papers'.
        verdicts: keep only rows with these, the largest errors first.
        record: compare later changes with these verdicts.

    Returns:
        A row a claim, with

        - `stated`, `predicted`: the number of the paper and that of the model;
        - `error`: relative, below zero where the prediction is too low;
        - `verdict`: match, near, miss, inconsistent or excluded;
        - `counts_as`: the weight of a row's agreement: a `number`, a `bound`, a `yes or no`, or
          none where it is `restated` or a number was `fitted to` it.

        Of all claims of a paper, `table.attrs["counts"]` holds their score (`score.headline`), and
        `table.attrs["worse"]` a sentence for each verdict that is worse than the recorded one.

    Raises:
        InputError: an unknown paper, claim or verdict, or a file that cannot be used.

    >>> claims = validate("h2m2")
    >>> set(claims["verdict"]) <= {"match", "near", "miss", "inconsistent", "excluded"}
    True
    """
    from nearkv.sweeps.validation import validate
    from nearkv.sweeps.validation.score import headline

    file, chosen = path_of(claims, "claims"), list(ids)
    if file and (paper or record):
        raise InputError(
            "--claims FILE.csv has no paper and records nothing; leave these out"
        )
    kept = list(verdicts) or list(validate.RANK)
    for name in kept:
        if name not in validate.RANK:
            raise unknown("verdict", name, list(validate.RANK), "--verdict")
    rows = validate.judge_claims(paper, chosen, file)
    shown = [row for row in rows if row["verdict"] in kept]
    if kept != list(validate.RANK):
        shown.sort(key=lambda row: -abs(row["error"] or 0.0))
    table = table_of_rows(shown)
    count = validate.by_source if paper == "independent" else headline
    table.attrs["counts"] = [] if chosen or file else count(rows)
    if record:
        validate.record(rows)
    table.attrs["worse"] = [] if file else validate.worse(rows)
    return table


def coverage(record: bool = False) -> pd.DataFrame:
    """Say how many measured runs lie in the bands that are predicted without them.

    Args:
        record: pool the model errors anew, for every later band.

    Returns:
        A row a group of rows: sources, the share inside the 90 % band, its median width (upper over
        lower end), and its interval score.
    """
    from nearkv.sweeps.validation import coverage
    from nearkv.sweeps.validation.evidence import sampled_claims

    rows = list(sampled_claims())
    if record:
        coverage.record(rows)
    return table_of_rows(coverage.measure_coverage(rows))


@dataclass(frozen=True)
class Fit:
    """Numbers of a platform fitted to measurements or claims.

    Attributes:
        factors: a row a fitted number: as stated, fitted, its interval and its range.
        residuals: a row a measurement: stated, predicted before and after, and left out.
        summary: what the fit says and what the rows cannot tell, one sentence each.
    """

    factors: pd.DataFrame
    residuals: pd.DataFrame
    summary: tuple[str, ...]
    _calibration: Calibration

    def save(self, file: Value) -> None:
        """Write the fitted platform as TOML, which then serves as `platform=`.

        Raises:
            InputError: the file cannot be written.
        """
        from nearkv.sweeps.evaluate.provenance import place_of, write_text
        from nearkv.sweeps.validation.calibration import platform_file

        write_text(place_of(Path(path_of(file, "file"))), platform_file(self._calibration))


def calibrate(
    measurements: Value | None = None,
    *,
    claims: str = "",
    platform: Value = "",
    factors: Iterable[str] = (),
) -> Fit:
    """Fit assumed numbers of a platform inside their ranges.

    Args:
        measurements: a CSV with the columns system, model, batch, context, output_tokens and
            step_ms.
        claims: a paper, to fit to its measured claims instead.
        platform: the machine; by default that of the claims or of the first system.
        factors: at most six numbers to fit, as `derate.pcie`; by default the derates that matter.

    Raises:
        InputError: neither or both of measurements and claims, or a bad file or name.

    >>> fit = calibrate(claims="hilos", factors=["derate.pcie"])
    >>> {"stated", "fitted"} <= set(fit.factors.columns)
    True
    """
    from nearkv.sweeps.validation import calibration
    from nearkv.sweeps.validation.evidence import claimed, measured

    file = path_of(measurements, "measurements") if measurements is not None else ""
    if bool(file) == bool(claims):
        options = "--measurements FILE.csv or --claims PAPER"
        raise InputError(f"calibrate needs either measurements or claims, {options}")
    bed = path_of(platform, "platform")
    evidence = measured(file, bed) if file else claimed(claims, bed)
    fitted = calibration.fit_factors(evidence, list(factors))
    return Fit(
        factors=table_of_rows(calibration.factor_rows(fitted)),
        residuals=table_of_rows(calibration.residual_rows(fitted)),
        summary=tuple(calibration.sentences(fitted)),
        _calibration=fitted,
    )
