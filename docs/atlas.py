"""Write the cells, the picture and the first paragraph of `docs/atlas.md`: `make atlas`.

The cells lie beside the page: `atlas.csv`, with a row for each technology that serves a cell,
`atlas-borders.csv`, and `atlas-break-even.csv`, of the cell that is closest for each idea.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import pandas as pd

import nearkv
from nearkv.sweeps.study.study_files import load_study
from nearkv.sweeps.tables.table import cell_text

DOCS = Path(__file__).parent
CELLS, BORDERS, TURNS = (
    DOCS / f"atlas{name}.csv" for name in ("", "-borders", "-break-even")
)
PAGE, PICTURE = DOCS / "atlas.md", DOCS / "pictures" / "atlas.svg"
STUDY = str(DOCS / "atlas.toml")
BUDGETS = "20kUSD,60kUSD,200kUSD"
BUDGET = 60_000
"""Price at which the paragraph counts [USD]."""
IDEAS = {
    "near drives": ("HILOS and INF²", ("csd.price", "csd.p2p_read")),
    "SmartSSD with eviction": ("HillInfer", ("csd.price", "csd.read")),
    "DIMMs with units": ("L3", ("dimm.price", "dimm.transfers")),
    "LPDDR beside HBM": ("H2M2", ("lpddr.price", "lpddr.bandwidth")),
    "flash beside HBM": ("H3", ("hbf.price", "hbf.bandwidth")),
}
"""Technology -> the papers whose idea it is, and numbers of its part that may change who wins."""
KEPT = [
    *(
        "budget_usd",
        "context_tok",
        "batch",
        "technology",
        "system",
        "server",
        "gpus",
        "hosts",
    ),
    *(
        "dram_gib",
        "ssds",
        "csds",
        "dimms",
        "hbms",
        "lpddrs",
        "cost_usd",
        "throughput_tok_s",
    ),
    *("tpot_ms", "ttft_s", "best_share", "status", "reason"),
]
"""Columns of the cells."""
KEYS = ["budget_usd", "context_tok", "batch"]
"""Columns that tell cells apart."""


def search() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The cells and their borders."""
    table = nearkv.design(
        load_study(STUDY), budget=BUDGETS, best_per="technology", borders=True, band=90
    )
    return table[KEPT], pd.DataFrame(table.attrs["borders"])


def turning(cells: pd.DataFrame) -> pd.DataFrame:
    """What would change who wins the cell that is closest for each idea."""
    rows = []
    for technology, (_, numbers) in IDEAS.items():
        close = closest(cells, technology)
        if close.empty:
            continue
        study = load_study(STUDY).but(context=close["context_tok"], batch=close["batch"])
        for number in numbers:
            (turn,) = nearkv.design(
                study, budget=f"{BUDGET}USD", break_even=number
            ).to_dict("records")
            rows.append({"technology": technology, **turn})
    return pd.DataFrame(rows)


def closest(cells: pd.DataFrame, technology: str) -> pd.Series:
    """The cell within `BUDGET` that a technology wins most narrowly, or is closest to winning.

    Returns:
        Its row, and the `ratio` of its rate over that of the best other; empty where it serves no
        cell.
    """
    within = cells[cells["budget_usd"] == BUDGET].dropna(subset=["throughput_tok_s"])
    is_own = within["technology"] == technology
    best = within[~is_own].groupby(KEYS)["throughput_tok_s"].max().rename("rival")
    own = within[is_own].join(best, on=KEYS)
    own["ratio"] = own["throughput_tok_s"] / own["rival"]
    won = own[own.index.isin(within.drop_duplicates(KEYS).index)]
    if own.empty:
        return pd.Series(dtype=float)
    return own.loc[own["ratio"].idxmax() if won.empty else won["ratio"].idxmin()]


def paragraph(cells: pd.DataFrame, turns: pd.DataFrame) -> str:
    """The first paragraph of the page and its list, a line an idea, from the CSVs beside it."""
    within = cells[cells["budget_usd"] == BUDGET]
    first = within.drop_duplicates(KEYS)
    wins = first["technology"].value_counts()
    won = ", ".join(f"{name} in {count}" for name, count in wins.items())
    said = [
        f"For those who ask which memory wins where. Each of {len(first)} cells is a context of 8k "
        "to 1M tokens and a batch of 1 to 256 of Llama-3.1-70B; within "
        f"{BUDGET:,} USD most tokens per second come from {won}. The ideas of the papers:"
    ]
    for technology, (papers, _) in IDEAS.items():
        wins_of = int(wins.get(technology, 0))
        said.append(f"- {_idea(cells, turns, technology, papers, wins_of)}")
    return "\n".join(said)


def _idea(
    cells: pd.DataFrame, turns: pd.DataFrame, technology: str, papers: str, wins: int
) -> str:
    """How often the idea of some papers wins, how surely, and what would change it most."""
    name = f"{technology[0].upper()}{technology[1:]} ({papers})"
    close = closest(cells, technology)
    if close.empty:
        return f"{name} serves no cell."
    where = f"at {close['context_tok'] / 1024:,.0f}k tokens and batch {close['batch']:.0f}"
    share = f"in {close['best_share']:.0%} of 256 draws"
    verb = f"wins {wins}, most narrowly" if wins else "wins none, and is closest"
    said = (
        f"{name} {verb} {where}: {close['ratio']:.3g} times the best other, first {share}"
    )
    own = turns[turns["technology"] == technology]
    changes = own.dropna(subset=["factor"])
    if changes.empty:
        numbers = " nor ".join(own["number"])
        return f"{said}; neither {numbers}, up to 64 times higher or lower, changes that."
    nearest = changes.loc[
        changes["factor"].map(lambda factor: abs(math.log(factor))).idxmin()
    ]
    price = nearest["usd_per_gb"]
    per_gb = f", {cell_text(price)} USD/GB" if pd.notna(price) else ""
    value = f"{cell_text(nearest['at'])} {nearest['unit']}{per_gb}"
    return f"{said}; {nearest['number']} at {value} ({nearest['factor']:.2g} times) changes that."


def draw(cells: pd.DataFrame, borders: pd.DataFrame) -> None:
    """Draw the map of each budget; the same numbers give the same bytes."""
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "nearkv"
    axes = nearkv.plot.region_map(cells, boundaries=borders)
    nearkv.plot.save(axes.figure, PICTURE)


def main() -> None:
    """Search the cells, and write all that the page shows of them."""
    cells, borders = search()
    cells.to_csv(CELLS, index=False)
    borders.to_csv(BORDERS, index=False)
    turning(pd.read_csv(CELLS)).to_csv(TURNS, index=False)
    write()


def write() -> None:
    """Write the picture and the first paragraph from the CSVs that are there."""
    cells, borders, turns = map(pd.read_csv, (CELLS, BORDERS, TURNS))
    draw(cells, borders)
    title, _, rest = PAGE.read_text(encoding="utf-8").split("\n\n", 2)
    page = "\n\n".join([title, paragraph(cells, turns), rest])
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
