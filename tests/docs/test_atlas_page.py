"""The page of the atlas says what the CSVs beside it say, and these what `design` says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import nearkv
from nearkv.sweeps.study.study_files import load_study

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def atlas() -> ModuleType:
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("atlas", DOCS / "atlas.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_paragraph_is_that_of_the_cells(atlas: ModuleType) -> None:
    cells, turns = pd.read_csv(atlas.CELLS), pd.read_csv(atlas.TURNS)
    _, _, picture, first, table, _ = (DOCS / "atlas.md").read_text().split("\n\n", 5)
    assert picture.startswith("![")
    assert first == atlas.paragraph(cells)
    assert table == atlas.table(cells, turns)
    study = load_study(atlas.STUDY)
    asked = {*study.context}, {*study.batch}
    for _, within in cells.groupby("budget_usd"):
        assert ({*within["context_tok"]}, {*within["batch"]}) == asked
        assert len(within.drop_duplicates(["context_tok", "batch"])) == 40
    served = cells[cells["status"] == "ok"]
    shares = served.groupby(atlas.KEYS)["best_share"].sum()
    assert np.allclose(shares, 1)
    rates = served.groupby(atlas.KEYS)["throughput_tok_s"]
    assert (served["throughput_tok_s"] <= rates.transform("first")).all()


def test_the_cell_of_an_idea_is_won_most_narrowly_or_lost_so(atlas: ModuleType) -> None:
    """Of cells that are sorted, the best first: drives win the second, a GPU the others."""
    rows = [
        (8, "GPU memory", 8), (8, "drives", 2), (16, "drives", 4), (16, "GPU memory", 3),
        (32, "drives", 9), (32, "GPU memory", 3), (64, "GPU memory", 6), (64, "host memory", 2),
        (128, "GPU memory", 6), (128, "host memory", 5),
    ]  # fmt: skip
    cells = pd.DataFrame(rows, columns=["context_tok", "technology", "throughput_tok_s"])
    cells = cells.assign(batch=1, budget_usd=atlas.BUDGET)
    narrow = atlas.closest(cells, "drives")
    assert (narrow["context_tok"], narrow["ratio"]) == (16, pytest.approx(4 / 3))
    lost = atlas.closest(cells, "host memory")
    assert (lost["context_tok"], lost["ratio"]) == (128, pytest.approx(5 / 6))
    assert atlas.closest(cells, "near drives").empty


def test_what_the_page_says_of_smartssds_is_in_the_cells(atlas: ModuleType) -> None:
    rates = pd.read_csv(atlas.RATES)
    assert {*rates["number"]} == {"csd.p2p_read"}
    rows = rates[rates["context_tok"] == 65_536].set_index("batch")
    at, low, high = (rows[name] for name in ("at", "at_p05", "at_p95"))
    page = (DOCS / "atlas.md").read_text()
    band = f"({low[64]:.2f} to {high[64]:.2f} in 90 % of the"
    assert f"from {at[64]:.2f} GB/s on {band}" in page.replace("\n", " ")
    assert f"at a batch of 1 from {at[1]:.2f} GB/s on" in page


def test_in_no_cell_a_smaller_batch_of_its_row_is_faster(atlas: ModuleType) -> None:
    """Whoever serves a smaller batch faster may run the larger one in rounds of it."""
    cells = pd.read_csv(atlas.CELLS).query("status == 'ok'")
    best = cells.drop_duplicates(atlas.KEYS)
    rates = best.pivot_table(
        index=["budget_usd", "context_tok"], columns="batch", values="throughput_tok_s"
    )
    assert rates.shape == (24, 5)
    assert (rates.diff(axis=1).iloc[:, 1:] >= -1e-9 * rates.iloc[:, 1:]).all(axis=None)
    page = " ".join((DOCS / "atlas.md").read_text().split())
    assert "in no cell does a smaller batch of its row generate more tokens" in page
    assert (cells["batch_run"] <= cells["batch"]).all()
    assert (cells["batch_run"] < cells["batch"]).any()


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
def test_three_cells_are_what_design_says_of_them_alone(atlas: ModuleType, seed: int) -> None:
    cells = pd.read_csv(atlas.CELLS)
    rows = cells[cells["status"] == "ok"].drop_duplicates(atlas.KEYS)
    row = rows.iloc[int(np.random.default_rng(seed).integers(len(rows)))]
    study = load_study(atlas.STUDY).but(context=row["context_tok"], batch=row["batch"])
    alone = nearkv.design(study, budget=f"{row['budget_usd']}USD", maximize="throughput_tok_s")
    assert alone["system"][0] == row["system"]
    assert alone["server"][0] == row["server"]
    assert alone["throughput_tok_s"][0] == pytest.approx(row["throughput_tok_s"], rel=1e-9)
