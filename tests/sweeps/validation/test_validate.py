"""Claims as questions: one of ours, a user's own, and the command that reproduces each."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearkv.cli import app
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.sweeps.validation import validate as validation
from nearkv.sweeps.validation.checks import check, checks, find_check
from nearkv.sweeps.validation.claims import FOLDER, load
from nearkv.sweeps.validation.own_files import read_claims
from nearkv.sweeps.validation.prediction import command_of, predict
from nearkv.sweeps.validation.questions import Question, arithmetic, columns_of

HEADER = "id,low,unit,metric,system,model,batch,context,knob,over,over_knob,take"
STEP = "id,low,unit,metric,system"
MINE = f'{HEADER}\nmine,3,x,decode_tok_s,hilos,opt-66b,16,"32k,64k",alpha=0.5,hilos,alpha=0,mean\n'


def rows_of(*words: str) -> list[dict[str, str]]:
    done = CliRunner().invoke(app, ["validate", *words, "--format", "json"])
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, str]] = json.loads(done.stdout)
    return rows


def column_of(command: str, metric: str) -> list[float]:
    """What a reproducing command prints; NaN where a point does not fit."""
    words = shlex.split(command)[1:]
    done = CliRunner().invoke(app, [*words, "--format", "csv"])
    assert done.exit_code == 0, done.stderr
    return [float(row[metric] or "nan") for row in csv.DictReader(io.StringIO(done.stdout))]


def test_one_claim_by_its_id() -> None:
    (row,) = rows_of("--id", "hilos-tput-max")
    assert row["stated"] == "7.86"
    assert row["claim"].startswith("Best-case throughput multiple of HILOS")


@pytest.mark.parametrize("name", ["hilos-h16-vs-dram", "inf2-speed-30b", "h2m2-008", "HI-014"])
def test_the_command_of_a_claim_reproduces_its_prediction(name: str) -> None:
    papers = ("hilos", "inf2", "h2m2", "hillinfer")
    (claim,) = [claim for paper in papers for claim in load(paper) if claim.id == name]
    columns = [column_of(part, claim.metric) for part in command_of(claim).split(" && ")]
    values = columns[0]
    if claim.over:
        values = [ours / theirs for ours, theirs in zip(*columns, strict=True)]
    values = [value for value in values if math.isfinite(value)]
    low, high = predict(claim)
    if claim.take == "mean":
        assert sum(values) / len(values) == pytest.approx(low, rel=1e-6)
    else:
        assert min(values) == pytest.approx(low, rel=1e-6)
        assert max(values) == pytest.approx(high, rel=1e-6)


def test_every_claim_with_a_question_has_a_command() -> None:
    for claim in load("hilos"):
        command = command_of(claim)
        assert bool(command) == bool(claim.metric), claim.id
        if claim.metric in COLUMNS:
            assert command.startswith(f"nearkv compare {claim.system} ")


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,low\nx,1\n", "has no column 'unit'"),
        (f"{HEADER},colour\n", "unknown column 'colour'"),
        (f"{HEADER}\n", "holds no claims"),
        (MINE.replace(",mean", ",median"), "line 2: unknown take 'median'; did you mean"),
        (MINE.replace("mine,3", "mine,three"), "line 2, low: 'three' is not a number"),
        (MINE.replace("mine,3", "mine,nan"), "line 2, low: 'nan' must be a finite number"),
        (MINE.replace("mine,3", ",3"), "line 2: id is blank"),
        (MINE.replace(",x,", ",GB,"), "line 2, unit: 'GB' does not measure a ratio"),
        (f"{STEP}\nmine,72,GB,step_ms,hilos\n", "'GB' does not measure step_ms; write ms"),
        (f"{STEP}\nmine,72,GFLOPS,step_ms,hilos\n", "line 2, unit: 'GFLOPS' does not measure"),
        (f"{STEP}\nmine,72,banana,step_ms,hilos\n", "line 2, unit: 'banana' does not measure"),
        (f"{STEP}\nmine,72,ms,decode_tok_s,hilos\n", "'ms' does not measure decode_tok_s"),
        (
            f"{STEP}\nmine,4,GB,number,hilos-a100:gpu.bandwidth\n",
            "measure hilos-a100:gpu.bandwidth; write",
        ),
        (f"{STEP}\nmine,4,GB,number,hilos-a100:gpu.bandwith\n", "did you mean 'bandwidth'"),
        (f"{STEP}\nmine,4,GB,number,hilos-a100:gpx.memory\n", "unknown part 'gpx'"),
        (f"{STEP}\nmine,72,s,batch_run,hilos\n", "'s' does not measure batch_run; write x or"),
        (
            "id,low,high,unit,metric,system\nmine,72,70,ms,step_ms,hilos\n",
            "line 2: low, 72, is above high, 70",
        ),
        (f"{HEADER}\nmine,3,x\n", "line 2: has 3 cells for 12 columns"),
        (MINE + MINE.partition("\n")[2], "the id 'mine' is there twice"),
    ],
)
def test_a_bad_file_of_claims_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (path := tmp_path / "my.csv").write_text(text)
    with pytest.raises(InputError) as problem:
        read_claims(path)
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("metric", "units", "size"),
    [
        ("step_ms", ("ms", "s"), 1000),
        ("total_s", ("s", "h"), 3600),
        ("decode_tok_s", ("1/s", "tok/s"), 1),
        ("decode_tok_s", ("tok/s", "tokens/min"), 1 / 60),
        ("energy_j_tok", ("J", "kJ/token"), 1000),
        ("batch_run", ("1", "sequences"), 1),
    ],
)
def test_a_claim_is_compared_in_its_unit(metric: str, units: tuple[str, str], size: float) -> None:
    """The same statement in two units has one prediction, a number in each."""
    claim = replace(load("hilos")[0], metric=metric, system="hilos", model="opt-66b", exclude="")
    low, _ = predict(replace(claim, unit=units[0], take="min", over=""))
    other, _ = predict(replace(claim, unit=units[1], take="min", over=""))
    assert low == pytest.approx(other * size)


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


def test_a_check_has_one_name() -> None:
    with pytest.raises(InputError, match="unknown check 'nope'"):
        find_check("nope")
    some = next(iter(checks().values()))
    with pytest.raises(ValueError, match="registered twice"):
        check(some)


def test_arithmetic_on_columns_and_numbers() -> None:
    """Decode alone, in ms a token: both columns of one table."""
    claim = replace(
        load("hilos")[0],
        metric="1000 * ( total_s - prefill_s ) / 63",
        system="hilos",
        model="opt-66b",
        context="32k",
        output_tokens="64",
        over="",
        knob="",
    )
    own = columns_of(Question("hilos", "opt-66b", context="32k", output_tokens="64"))
    decode = float(own["total_s"][0]) - float(own["prefill_s"][0])
    assert predict(claim)[0] == pytest.approx(1000 * decode / 63)
    assert arithmetic("( 1 + 3 ) ** 2 / 4 - 16k") == 4 - 16384
    with pytest.raises(InputError, match="is no arithmetic"):
        arithmetic("1 + + * 2")


@pytest.mark.parametrize(
    ("trend", "stated"),
    [("rises", 0), ("falls", 1), ("exceeds 1", 0), ("largest that fits", 65536)],
)
def test_a_trend_along_an_axis(trend: str, stated: float) -> None:
    """Tokens per second while decoding fall with the context, below 1; 64k is the longest asked."""
    claim = replace(
        load("hilos")[0], metric="decode_tok_s", over="", knob="", take="", unit="1/s", batch="64"
    )
    asked = replace(claim, model="opt-30b,opt-66b", context="4k:64k:x2", axis="context_tok")
    low, high = predict(replace(asked, trend=trend, platform="hilos-a100"))
    assert low == high == stated
    with pytest.raises(InputError, match="unknown trend"):
        predict(replace(asked, trend="raises"))
