"""Verdicts of claims: of one by its id, of a user's own, and of all as they were recorded."""

from __future__ import annotations

import csv
import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from nearkv.cli import app
from nearkv.sweeps.validation import validate as validation
from nearkv.sweeps.validation.claims import FOLDER, load
from nearkv.sweeps.validation.validate import error

HEADER = "id,low,unit,metric,system,model,batch,context,knob,over,over_knob,take"


STEP = "id,low,unit,metric,system"


MINE = f'{HEADER}\nmine,3,x,decode_tok_s,hilos,opt-66b,16,"32k,64k",alpha=0.5,hilos,alpha=0,mean\n'


def rows_of(*words: str) -> list[dict[str, str]]:
    done = CliRunner().invoke(app, ["validate", *words, "--format", "json"])
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, str]] = json.loads(done.stdout)
    return rows


def column_of(command: str, metric: str) -> list[float]:
    """Numbers that a reproducing command prints; NaN where a point does not fit."""
    words = shlex.split(command)[1:]
    done = CliRunner().invoke(app, [*words, "--format", "csv"])
    assert done.exit_code == 0, done.stderr
    return [float(row[metric] or "nan") for row in csv.DictReader(io.StringIO(done.stdout))]


def test_one_claim_by_its_id() -> None:
    (row,) = rows_of("--id", "hilos-tput-max")
    assert row["stated"] == "7.86"
    assert row["claim"].startswith("Best-case throughput multiple of HILOS")


def test_a_users_own_claim_is_predicted(tmp_path: Path) -> None:
    (path := tmp_path / "my.csv").write_text(MINE)
    (row,) = rows_of("--claims", str(path))
    ours, theirs = row["command"].split(" && ")
    ratios = [
        with_x / without
        for with_x, without in zip(
            column_of(ours, "decode_tok_s"), column_of(theirs, "decode_tok_s"), strict=True
        )
    ]
    assert float(row["predicted"]) == pytest.approx(sum(ratios) / 2, rel=1e-3)
    assert row["paper"] == "my"


@pytest.mark.parametrize("metric", ["decode_tok", "note"])
def test_a_metric_that_is_no_column_of_numbers_is_one_sentence(tmp_path: Path, metric: str) -> None:
    (path := tmp_path / "my.csv").write_text(MINE.replace("decode_tok_s", metric))
    done = CliRunner().invoke(app, ["validate", "--claims", str(path)])
    assert done.exit_code == 2
    assert f"claim mine: unknown metric '{metric}'" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--verdict", "typo"], "--verdict: unknown verdict 'typo'"),
        (["--id", "hilos-tput-mx"], "unknown claim 'hilos-tput-mx'; did you mean 'hilos-tput-max'"),
        (["hilos", "--claims", "my.csv"], "--claims FILE.csv has no paper"),
        (["--claims", "nowhere.csv"], "nowhere.csv: cannot be read"),
        (["--claims", "/dev/zero"], "is not a regular file"),
    ],
)
def test_a_bad_question_is_one_sentence(words: list[str], problem: str) -> None:
    done = CliRunner().invoke(app, ["validate", *words])
    assert done.exit_code == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_recorded_verdicts_are_what_later_ones_are_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = "hillinfer"
    claims = Path(FOLDER, f"{paper}.csv").read_text()
    (tmp_path / f"{paper}.csv").write_text(claims)
    for module in ("validate", "claims"):
        monkeypatch.setattr(f"nearkv.sweeps.validation.{module}.FOLDER", tmp_path)
    monkeypatch.setattr(validation, "papers", lambda: [paper])
    first = load(paper)[0]
    rows = [{"paper": paper, "id": first.id, "verdict": "miss"}]
    validation.record(rows)
    assert load(paper)[0].verdict == "miss"
    assert validation.worse(rows) == []
    better = [{**rows[0], "verdict": "match"}]
    validation.record(better)
    (sentence,) = validation.worse(rows)
    assert sentence == f"{first.id}: miss, recorded as match"


def test_an_error_has_a_sign_and_the_largest_come_first() -> None:
    """Below a stated number an error is below zero; misses are sorted by size."""
    stated = load("hilos")[0]
    exact = replace(stated, low="10", high="10", bound="exact", take="")
    assert error(exact, np.array([9.0, 9.0])) == pytest.approx(-0.1)
    assert error(exact, np.array([12.0, 12.0])) == pytest.approx(0.2)
    least = replace(exact, bound="at_least", take="every")
    assert error(least, np.array([8.0, 30.0])) == pytest.approx(-0.2)
    rows = rows_of("inf2", "--verdict", "miss,near")
    sizes = [abs(float(row["error"])) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert min(float(row["error"]) for row in rows) < 0
