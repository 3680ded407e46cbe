"""Coverage: bands hold what was measured, and the pooled model errors are those of the claims."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import succeed

from nearkv.solvers.uncertainty.quantiles import interval_score
from nearkv.sweeps.uncertainty.model_error import ERROR_TABLE, error_power, find_error
from nearkv.sweeps.validation.coverage import check_band, error_table, measure_coverage
from nearkv.sweeps.validation.evidence import SampledClaim, sampled_claims

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def rows() -> list[SampledClaim]:
    """All claims at every draw; takes some seconds."""
    return list(sampled_claims())


def by_group(rows: list[SampledClaim]) -> Mapping[str, Mapping[str, Any]]:
    return {row["rows_of"]: row for row in measure_coverage(rows)}


@pytest.mark.deep
def test_bands_hold_what_was_measured(rows: list[SampledClaim]) -> None:
    """Each source left out, 85 to 95 % lie inside the 90 % bands, strangers less often."""
    groups = by_group(rows)
    for name in ("all", "papers", "ratios", "most time: GPU", "most time: CPU", "most time: links"):
        assert 0.85 <= groups[name]["inside"] <= 0.95, name
    assert groups["strangers"]["inside"] >= 0.78
    assert groups["ratios"]["width"] <= 2.4  # six sources, and two are far off
    assert groups["most time: GPU"]["width"] <= 2.8
    assert groups["most time: links"]["width"] <= 2.0


@pytest.mark.deep
def test_what_is_told_of_coverage_is_measured(rows: list[SampledClaim]) -> None:
    """Below every band and in README: shares of rows without their own source, in percent."""
    groups = by_group(rows)
    for kind in ("GPU", "CPU", "links", "flash"):
        told = find_error(kind, "value", "").inside
        assert told == pytest.approx(groups[f"most time: {kind}"]["inside"], abs=0.03)
    told = find_error("CPU", "ratio", "").inside
    assert told == pytest.approx(groups["ratios"]["inside"], abs=0.03)
    stated = re.search(r"of sources left out, (\d+) % of rows", (ROOT / "README.md").read_text())
    assert stated
    assert float(stated[1]) == pytest.approx(100 * groups["all"]["inside"], abs=2)


@pytest.mark.deep
def test_the_recorded_model_errors_are_those_of_the_claims(rows: list[SampledClaim]) -> None:
    """`make bands` writes them; a change of the physics must run it."""
    with ERROR_TABLE.open(encoding="utf-8", newline="") as file:
        recorded = list(csv.DictReader(file))
    computed = error_table(rows)
    assert len(recorded) == len(computed)
    for before, now in zip(recorded, computed, strict=True):
        names = ("mechanism", "of", "without", "pool")
        assert [before[name] for name in names] == [now[name] for name in names]
        for name in ("between", "within", "freedom"):
            assert float(before[name]) == pytest.approx(now[name], rel=0.05, abs=0.005)


@pytest.mark.deep
def test_draws_of_a_claim_are_in_its_unit(rows: list[SampledClaim]) -> None:
    """`acc-neox-32` states seconds of a step, whose column has milliseconds."""
    for row in rows:
        middle = np.nanmedian(row.samples, axis=1)
        assert np.abs(np.log(middle / row.predicted)).max() < 1, row.claim.id


@pytest.mark.deep
def test_every_prediction_lies_in_its_own_band(rows: list[SampledClaim]) -> None:
    for row in rows:
        prediction = replace(row, stated=row.predicted)
        assert check_band(prediction).inside, row.claim.id


def test_the_interval_score_is_least_at_the_true_quantiles() -> None:
    """A normal law: its own 5 % and 95 % quantiles beat narrower and wider ends."""
    drawn = np.random.default_rng(0).normal(size=20_000)
    means = []
    for end in (1.0, 1.3, 1.645, 2.0, 2.5):
        score = interval_score(np.array(-end), np.array(end), drawn, 0.9)
        means.append(score.mean())
    assert int(np.argmin(means)) == 2


@pytest.mark.parametrize(
    ("column", "power"),
    [
        ("step_ms", 1),
        ("prefill_s", 1),
        ("memory_energy_j_tok", 1),
        ("decode_tok_s", -1),
        ("tok_s_per_kusd", -1),
        ("cost_usd", 0),
        ("batch_run", 0),
    ],
)
def test_times_and_rates_answer_to_a_longer_time(column: str, power: int) -> None:
    assert error_power(column) == power


def test_the_command_prints_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the claims of one paper; the deep tests ask those of all."""
    monkeypatch.setattr("nearkv.sweeps.validation.evidence.papers", lambda: ["hbf"])
    page = succeed("coverage", "--format", "markdown")
    assert page.startswith("# ")
    assert "| rows_of " in page
    assert "| papers " in page
    assert "strangers: rows of sources that no fit has seen" in " ".join(
        succeed("coverage").split()
    )
