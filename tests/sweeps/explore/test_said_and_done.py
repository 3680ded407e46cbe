"""What a user says has an effect, or a sentence that it has none."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from support.command_line import refusal, succeed

import nearkv
from nearkv.hardware.errors import InputError, NearkvWarning
from nearkv.sweeps.explore.hardware import least_hardware
from nearkv.sweeps.study.study import Study

HILOS = Study(("hilos",), ("opt-66b",))


def test_a_chart_shows_no_breakdown() -> None:
    sentence = refusal("compare", "hilos", "--model", "opt-66b", "--chart", "--breakdown")
    assert "leave out --breakdown" in sentence


def test_a_chart_has_no_pivot() -> None:
    words = ("compare", "hilos", "--model", "opt-66b", "--context", "1k,2k", "--chart")
    assert "leave out --pivot" in refusal(*words, "--pivot", "context_tok")


def test_a_ratio_of_what_has_no_band_is_refused() -> None:
    words = ("compare", "hilos", "flexgen-dram", "--model", "opt-66b", "--band", "90")
    assert "alpha has no band" in refusal(*words, "--ratio", "alpha")


def test_a_knob_without_a_value_is_refused() -> None:
    with pytest.raises(InputError, match="has no value; give one"):
        nearkv.compare("hilos", "opt-66b", knobs={"alpha": []})


def test_a_system_without_the_column_compared_by_is_told() -> None:
    with pytest.warns(NearkvWarning, match="flexgen-dram run at design points without alpha"):
        nearkv.pareto(systems=["hilos", "flexgen-dram"], model="opt-66b", by="alpha,step_ms")


@pytest.mark.parametrize("name", ["class", "json"])
def test_a_system_is_not_named_by_a_word_of_python(name: str) -> None:
    assert "is a word of Python" in refusal("systems", "new", name)


def test_rows_of_a_figure_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    """All but the first model were left out of it."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'title = "t"\nsystems = ["hilos"]\nmodel = ["opt-30b", "opt-66b"]\n'
        'context = "16k,64k"\n[figure]\nkind = "bars"\nvalue = "step_ms"\n'
        'over = "context_tok"\nby = ["system"]\n'
    )
    picture = str(tmp_path / "x.png")
    assert "keep one value of model" in refusal("figure", str(file), "-o", picture)
    lines = file.read_text().replace('"bars"', '"lines"')
    file.write_text(f'{lines}baseline = "hilos"\n')
    assert "baseline is of bars, not of lines" in refusal("figure", str(file), "-o", picture)


def test_a_file_of_rows_has_no_pivot(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    words = ("sweep", "--system", "hilos", "--model", "opt-66b", "--context", "1k,2k")
    assert "--pivot" in refusal(*words, "--pivot", "context_tok", "-o", str(file))
    assert not file.exists()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("8k:4k:x2", "ends below its start"),
        ("8k:4k:+1k", "ends below its start"),
        ("1k:4k:x1", "use a factor above 1"),
        ("1k:4k:+0", "use a step above 0"),
    ],
)
def test_a_range_that_never_ends_says_why(values: str, why: str) -> None:
    assert why in refusal("compare", "hilos", "--model", "opt-66b", "--context", values)


def test_designs_are_limited_by_a_number_that_is_set() -> None:
    words = ("pareto", "--system", "hilos", "--model", "opt-66b", "--set", "csd.count=1:16:+1")
    front = succeed(*words, "--where", "csd.count<=4", "--format", "csv")
    counts = [line.split(",")[6] for line in front.splitlines()[1:]]
    assert set(counts) <= {"1", "2", "3", "4"}
    assert counts


@pytest.mark.parametrize(
    ("varied", "ends"), [("csd.count=1:4", True), ("host.memory=800GB:900GB", False)]
)
def test_a_range_that_ends_too_soon_is_named(varied: str, ends: bool) -> None:
    (row,) = least_hardware(HILOS, varied, ["throughput_tok_s=50"])
    assert row["limit"] == "never"
    assert ("where the range ends" in row["reason"]) is ends


def test_a_baseline_may_be_a_number() -> None:
    table = pd.DataFrame({"system": "hilos", "context_tok": [1, 1], "devices": [4, 8]})
    axes = nearkv.plot.bars(table.assign(step_ms=[2.0, 1.0]), "step_ms", by="devices", baseline="4")
    heights = [bar.get_bbox().height for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights == [1.0, 0.5]
