"""Figures of the papers: bars from a study, marks from what the paper states."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from support.command_line import refusal, succeed

mpl.use("agg")

from nearkv.hardware.errors import InputError
from nearkv.sweeps.figures.papers import (
    PaperFigure,
    draw,
    drawing_of,
    figure_titles,
    is_about,
    paper_figure,
)
from nearkv.sweeps.figures.style import load_pyplot, spelled
from nearkv.sweeps.validation.checks.hilos import best_alpha
from nearkv.sweeps.validation.claims import Claim

STUDIES = sorted((Path(__file__).parents[3] / "sweeps" / "studies").glob("*.toml"))


@pytest.fixture(scope="module")
def inf2() -> PaperFigure:
    return paper_figure("inf2-fig10")


@pytest.fixture(scope="module")
def drawn(inf2: PaperFigure) -> Figure:
    figure = draw(inf2)
    figure.draw_without_rendering()
    load_pyplot().close("all")
    return figure


def panels_and_statements(drawn: Figure) -> tuple[list[Axes], list[Axes]]:
    """The axes of both parts of a figure."""
    above, below = drawn.subfigs
    return above.axes, below.axes


def test_every_study_of_a_paper_says_how_it_is_drawn() -> None:
    names = [file.stem for file in STUDIES if "-fig" in file.stem]
    assert set(names) <= set(figure_titles())
    assert {name.partition("-")[0] for name in names} == {
        "hilos",
        "inf2",
        "hillinfer",
        "l3",
        "h2m2",
    }


@pytest.mark.parametrize("name", figure_titles())
def test_a_drawing_has_only_keys_and_kinds_that_exist(name: str) -> None:
    content = tomllib.loads(next(f for f in STUDIES if f.stem == name).read_text())
    drawing = drawing_of(content, name)
    assert drawing.kind in ("bars", "lines", "breakdown", "stack")
    assert drawing.kind == "breakdown" or (drawing.value and drawing.over)


@pytest.mark.slow
def test_bars_are_ratios_of_the_table(inf2: PaperFigure, drawn: Figure) -> None:
    """Three models, three systems; the baseline's bars are 1."""
    (axes,), _ = panels_and_statements(drawn)
    table = inf2.table.assign(series=inf2.table["series"].map(spelled))
    rows = table.assign(model=table["model"].map(spelled)).set_index(["series", "model"])
    spelled_rows = rows["throughput_tok_s"]
    for container in axes.containers:
        name = str(container.get_label())
        heights = [bar.get_height() for bar in container]
        expected = spelled_rows[name] / spelled_rows["FlexGen RAID-0"]
        assert heights == pytest.approx(expected.tolist())
    assert "relative to FlexGen RAID-0" in axes.get_ylabel()


@pytest.mark.slow
def test_marks_stand_where_the_paper_states_them(inf2: PaperFigure, drawn: Figure) -> None:
    """Sec. 7.3: at least 2x everywhere, 2.67x for 30B, 2.30x for 175B, DS+UVM 5x slower."""
    _, (axes,) = panels_and_statements(drawn)
    marks = sorted({float(np.asarray(line.get_xdata())[0]) for line in axes.lines})
    assert marks == [2.0, 2.3, 2.67, 5.0]
    assert axes.get_xlabel() == "Stated and predicted (x)"
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    exact = [ends[0] for claim, ends in inf2.statements.items() if claim.bound == "exact"]
    assert set(exact) <= set(widths)


@pytest.mark.slow
def test_a_prediction_that_varies_is_drawn_from_its_lowest_to_its_highest(
    inf2: PaperFigure, drawn: Figure
) -> None:
    _, (axes,) = panels_and_statements(drawn)
    ends = {bar.get_x() + bar.get_width() for bar in axes.patches}  # type: ignore[attr-defined]
    ranges = [(low, high) for low, high in inf2.statements.values() if low < high]
    assert ranges
    assert {high for _, high in ranges} <= ends


def test_a_knob_names_its_bar_and_is_left_out_where_a_system_has_none() -> None:
    names = paper_figure("inf2-fig17").table["series"].drop_duplicates().tolist()
    assert names[:2] == ["flexgen-raid, inf2-a100", "flexgen-raid, inf2-h100"]
    assert "inf2, devices 8, inf2-h100" in names


def test_a_system_that_a_number_does_not_touch_is_drawn_once() -> None:
    """HBM of 48, 96 and 192 GB are three lines of H2M2 and one of LPDDR alone."""
    figure = paper_figure("h2m2-fig17a")
    lines = figure.table.groupby("series").size().to_dict()
    sizes = {f"h2m2, hbm.memory {size} GB": 8 for size in (48, 96, 192)}
    assert lines == {"lpddr-only": 8, **sizes}


def test_a_stack_stands_on_what_lies_below_it() -> None:
    """GPT3-175B of 8 bits at batch 32: 175 GB of weights, 12288 x 96 x 2 B of K and V per token."""
    figure = draw(paper_figure("h2m2-fig3"))
    (axes,) = figure.axes
    weights, cache = axes.containers[:2]
    lowest, longest = (list(cache)[place] for place in (0, -1))
    assert [round(bar.get_height()) for bar in weights] == [175] * 8
    assert lowest.get_y() == next(iter(weights)).get_height()
    assert longest.get_height() == pytest.approx(32 * 2049 * 2 * 96 * 12288 / 1e9)
    assert axes.get_ylabel() == "GB"
    load_pyplot().close("all")


def test_every_figure_that_is_not_drawn_has_its_reason() -> None:
    """No figure stands in both lists of the gallery."""
    page = (Path(__file__).parents[3] / "docs" / "gallery.md").read_text()
    listed = re.findall(r"^\| (\S+) (\d+[a-z]?)", page, re.M)
    assert len(listed) > 9
    drawn = set(figure_titles())
    for paper, number in listed:
        name = f"{paper.lower().replace('²', '2')}-fig{number}"
        assert name not in drawn or name == "l3-fig11"


@pytest.mark.slow
def test_a_solved_knob_is_called_auto() -> None:
    names = paper_figure("inf2-fig11").table["series"].unique().tolist()
    assert names == [
        "alpha 0, writeback naive",
        "alpha 0, writeback delayed",
        "alpha auto, writeback naive",
        "alpha auto, writeback delayed",
    ]


@pytest.mark.parametrize(
    ("where", "label", "about"),
    [
        ("s6.3; Fig10", "10", True),
        ("s3.1; Fig2b", "2", True),
        ("Sec5.4 Fig16a", "16b", False),
        ("5.2.1 Fig 12", "12", True),
        ("s6.6; Fig17a", "1", False),
        ("Table1; s6.1", "1", False),
    ],
)
def test_an_address_names_a_figure(where: str, label: str, about: bool) -> None:
    assert is_about(Claim("", where, "", "", "", "", "", ""), label) is about


@pytest.mark.slow
def test_the_command_draws_and_counts_what_is_stated(tmp_path: Path) -> None:
    file = tmp_path / "figure.svg"
    succeed("figure", "inf2-fig10", "-o", str(file))
    assert "INF2 over FlexGen, 30B at 16K" in file.read_text()
    assert "inf2-fig10" in succeed("figure")


@pytest.mark.slow
def test_figure_13_of_hilos_is_drawn_for_the_devices_of_its_claim() -> None:
    """The shares are those of docs/hilos.md: 16 devices would be fastest at 50, 50 and 25 %."""
    rows = paper_figure("hilos-fig13").table.query("interval == 16")
    fastest = rows.loc[rows.groupby("model", sort=False)["decode_tok_s"].idxmax()]
    claimed = best_alpha("opt-30b", "opt-66b", "opt-175b")
    assert list(100 * fastest["alpha"]) == list(claimed) == [75, 75, 50]


@pytest.mark.slow
def test_an_own_study_is_drawn_and_bad_keys_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    axes = 'systems = ["hilos"]\nmodel = "opt-30b"\ncontext = "1k,2k"\n'
    drawing = '[figure]\nkind = "bars"\nvalue = "step_ms"\nover = "context_tok"\n'
    Path("own.toml").write_text(axes + drawing)
    succeed("figure", "own.toml")
    assert Path("own.pdf").read_bytes().startswith(b"%PDF")
    Path("own.toml").write_text(axes + drawing + 'colour = "red"\n')
    assert "unknown key 'colour'" in refusal("figure", "own.toml")
    Path("own.toml").write_text(axes)
    assert "has no [figure] table" in refusal("figure", "own.toml")


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown study .*did you mean"):
        paper_figure("hilos-fig1O")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"kind": "bars"}, "figure: value is missing"),
        ({"kind": "bars", "value": "step_ms", "over": "nope"}, "figure: over: unknown column"),
        ({"kind": "lines", "value": 3, "over": "batch"}, "figure: value must be text, not 3"),
        ({"kind": "bars", "value": "step_ms", "over": "batch", "by": ["nope"]}, "by: unknown"),
        ({"kind": "bars", "value": "step_ms", "over": "batch", "by": "batch"}, "by must be a list"),
    ],
)
def test_an_own_drawing_is_refused_by_key(
    tmp_path: Path, keys: dict[str, object], sentence: str
) -> None:
    file = tmp_path / "own.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    study = 'systems = ["hilos"]\nmodel = ["opt-66b"]\n'
    file.write_text(study + "[figure]\n" + "\n".join(lines))
    with pytest.raises(InputError, match=sentence):
        paper_figure(str(file))


def test_a_file_that_is_no_study_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(b"\xc0\xff")
    with pytest.raises(InputError, match="not a valid TOML file"):
        paper_figure(str(file))
