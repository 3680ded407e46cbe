"""The notebooks run from top to bottom, and show what their text says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

mpl.use("agg")

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str) -> dict[str, Any]:
    """Run the code of a notebook; return the names it leaves."""
    notebook = json.loads((EXAMPLES / f"{name}.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), names)
    return names


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_notebook_has_a_test() -> None:
    names = {file.stem for file in EXAMPLES.glob("*.ipynb")}
    assert names == {"reproduce-a-figure", "fit-to-your-runs"}


@pytest.mark.slow
def test_a_figure_is_reproduced_within_a_tenth() -> None:
    """INF2 over FlexGen at 16K: 2.67x for 30B, 2.30x for 175B (sec. 7.3)."""
    names = run("reproduce-a-figure")
    assert set(names["error"]) == {"opt-30b", "opt-175b"}
    assert all(abs(error) < 0.1 for error in names["error"].values())


@pytest.mark.slow
def test_measuring_shrinks_the_band() -> None:
    """The runs were made with a share of 0.3 and 3 % of noise."""
    names = run("fit-to-your-runs")
    (factor,) = names["fit"].factors.to_dict("records")
    assert factor["interval_low"] < 0.3 < factor["interval_high"]
    assert factor["fitted"] == pytest.approx(0.3, rel=0.05)
    width, before, after = names["width"], names["before"], names["after"]
    for column in ("speedup", "step_ms"):
        assert width(after, column) < 0.8 * width(before, column)
    assert width(after, "step_ms") > width(after, "speedup"), "the text says that it is wider"
