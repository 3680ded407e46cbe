"""Predictions of claims: their units, arithmetic and trends, and the commands that print them."""

from __future__ import annotations

import csv
import io
import math
import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from nearkv.cli import app
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.costmodel.model.registry import find_system
from nearkv.hardware.errors import InputError
from nearkv.sweeps.simulate import play
from nearkv.sweeps.study.traces import Trace
from nearkv.sweeps.validation.checks import check, checks
from nearkv.sweeps.validation.claims import load
from nearkv.sweeps.validation.prediction import TRENDS, command_of, predict
from nearkv.sweeps.validation.questions import WordedStudy, arithmetic, columns_of


def column_of(command: str, metric: str) -> list[float]:
    """Numbers that a reproducing command prints; NaN where a point does not fit."""
    words = shlex.split(command)[1:]
    done = CliRunner().invoke(app, [*words, "--format", "csv"])
    assert done.exit_code == 0, done.stderr
    return [float(row[metric] or "nan") for row in csv.DictReader(io.StringIO(done.stdout))]


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
    """A statement in two units has one prediction, a number in each."""
    claim = replace(load("hilos")[0], metric=metric, system="hilos", model="opt-66b", exclude="")
    low, _ = predict(replace(claim, unit=units[0], take="min", over=""))
    other, _ = predict(replace(claim, unit=units[1], take="min", over=""))
    assert low == pytest.approx(other * size)


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
    own = columns_of(WordedStudy("hilos", "opt-66b", context="32k", output_tokens="64"))
    decode = float(own["total_s"][0]) - float(own["prefill_s"][0])
    assert predict(claim)[0] == pytest.approx(1000 * decode / 63)
    assert arithmetic("( 1 + 3 ) ** 2 / 4 - 16k") == 4 - 16384
    with pytest.raises(InputError, match="is no arithmetic"):
        arithmetic("1 + + * 2")


@pytest.mark.parametrize(
    ("trend", "stated"),
    [
        ("rises", 0),
        ("falls", 1),
        ("exceeds 1", 0),
        ("crosses 1", 0),
        ("largest that fits", 65536),
        ("least at", 65536),
    ],
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


def test_a_ratio_crosses_1_where_it_begins_below_and_ends_above() -> None:
    x = np.arange(3.0)
    held = [TRENDS["crosses 1"](x, np.array(y)) for y in ([0.9, 0.8, 1.1], [1.1, 1.2, 0.9])]
    assert held == [True, False]


def test_a_check_has_one_name() -> None:
    some = next(iter(checks().values()))
    with pytest.raises(ValueError, match="registered twice"):
        check(some)


def test_a_queue_is_simulated_once_however_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone on the platform of its paper, or among models on a platform that is named."""
    played: list[str] = []

    def counted(trace: Trace, *rest: Any) -> play.SimulatedQueue:
        played.append(trace.name)
        return simulate(trace, *rest)

    simulate = play.simulate
    monkeypatch.setattr(play, "simulate", counted)
    columns_of.cache_clear()
    alone = WordedStudy("hbm-pim", "opt-66b", trace="longbench", method="simulate")
    (own,) = columns_of(alone)["throughput_tok_s"]
    among = replace(alone, platform=find_system("hbm-pim").platform, trace="longbench,dolphin")
    assert columns_of(among)["throughput_tok_s"][0] == own
    assert played == ["longbench", "dolphin"]
