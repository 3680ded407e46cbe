"""A short run of the fuzzer: hostile command lines, and options that must be read."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from fuzz.campaign import Report, additions, attack, removals, remove_each
from fuzz.judge import PRINTED, Outcome, run
from fuzz.lines import LINES
from fuzz.words import write_files


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=() if place % 7 == 3 else pytest.mark.deep)
        for place, line in enumerate(LINES)
    ],
)
@pytest.mark.slow
def test_every_option_is_read(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an option, and with a further one, the answer changes or is refused.

    Of the further ones a tenth is tried here, all of them in `make fuzz`.
    """
    monkeypatch.chdir(tmp_path)
    whole = run(line.split(), seconds=60)
    assert whole.code in PRINTED, whole.err
    assert not whole.faults
    assert not [option for option, outcome in removals(whole) if outcome.same_as(whole)]
    first = LINES.index(line) % 10
    further = islice(additions(whole), first, None, 10)
    assert not [option for option, outcome in further if outcome.same_as(whole)]


@pytest.mark.slow
def test_no_attack_ends_in_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 2 with one sentence, or exit 0 with an answer, within limits of time and memory."""
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    monkeypatch.chdir(tmp_path)
    random = Random(0)
    files = write_files(hostile, random)
    for _ in range(30):
        outcome = run(attack(random, files), seconds=60)
        assert not outcome.faults, outcome.words


def test_the_judge_sees_what_it_is_for() -> None:
    """A traceback, a NaN, a negative time, two sentences: each is a fault."""

    def faults(code: int | None, out: str = "", err: str = "", crash: str = "") -> list[str]:
        return Outcome(["x", "--format", "json"], code, out, err, {}, crash, 0.0).faults

    assert faults(0, '[{"step_ms": 3.5}]') == []
    assert faults(2, err="nearkv: warning: odd\nnearkv: bad") == []
    assert faults(None, crash="Traceback\nKeyError: 'x'") == ["KeyError: 'x'"]
    assert faults(0, '[{"step_ms": NaN}]') == ["exit 0, but no JSON: NaN"]
    assert faults(0, '[{"total_s": -1.0}]') == ["exit 0 with total_s = -1.0"]
    assert faults(0, '[{"cost_usd": "(1+2j)"}]') == ["exit 0 with cost_usd = (1+2j)"]
    table = Outcome(["x", "--format", "csv"], 0, "share\nnan\n", "", {}, "", 0.0)
    assert table.faults == ["exit 0 with share = nan"]
    assert faults(2, err="one\ntwo") == ["exit 2 with 2 sentences"]
    assert faults(3, err="nearkv: no machine") == []
    assert faults(3) == ["exit 3 with 0 sentences"]


def test_a_crossover_that_never_happens_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.campaign.additions", lambda whole: iter(()))
    never = Outcome(["x"], 3, '[{"status": "never"}]', "", {}, "", 0.0)
    refused = Outcome(["x"], 2, "", "nearkv: bad", {}, "", 0.0)
    report = Report()
    remove_each(never, report)
    assert not report.faults
    remove_each(refused, report)
    assert report.faults == {"no answer: nearkv: bad": "x"}
