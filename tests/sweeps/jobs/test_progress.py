"""Sentences of long work on itself: the time it will take, and how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helpers import AXES

from nearkv.cli import app
from nearkv.sweeps.jobs.plan import Piece, plan
from nearkv.sweeps.jobs.progress import duration, forecast, progress
from nearkv.sweeps.study.study import Study


def test_times_and_sizes_as_people_say_them() -> None:
    for seconds, text in (
        (0.2, "under a second"),
        (5, "about 5 s"),
        (300, "about 5 min"),
        (7200, "about 2 h"),
        (1e6, "about 12 days"),
    ):
        assert duration(seconds) == text


def test_a_forecast_leaves_out_what_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call of 3 s, 20 ms a call and 1 us a point: a million points take a second."""
    clock = [0.0]
    calls: list[int] = []

    def task(piece: Piece) -> bytes:
        clock[0] += 0.02 + 1e-6 * piece.rows + (0 if calls else 3.0)
        calls.append(piece.rows)
        return bytes(1000 + 20 * piece.rows)

    monkeypatch.setattr("nearkv.sweeps.jobs.progress.time.perf_counter", lambda: clock[0])
    many = Study(("hilos",), ("opt-66b",), batch="1:1000:+1", context="1k:64k:+1k")
    seconds, size = forecast(task, plan(many), 1_000_000)
    assert seconds == pytest.approx(1.02, rel=0.01)
    assert size == pytest.approx(20_001_000, rel=0.01)


def test_too_little_memory_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_large(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nearkv.sweeps.jobs.parts.plan", too_large)
    with pytest.raises(SystemExit) as done:
        app(["sweep", *AXES, "-o", str(tmp_path / "out.csv")])
    assert done.value.code == 2
    assert capsys.readouterr().err.startswith("nearkv: not enough memory; ask for fewer")


def test_a_terminal_shows_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress(10_000_000) as advance:
        advance(10_000_000)
    assert "10000000/10000000" in capsys.readouterr().err
    with progress(10_000_000, quiet=True) as advance:
        advance(1)
    assert not capsys.readouterr().err
