"""Write the cells, the pictures and the first paragraph of `docs/atlas.md`: `make atlas`.

The cells lie beside the page: `atlas.csv`, with a row for each technology that serves a cell,
`atlas-borders.csv`, `atlas-break-even.csv`, of the cell that is closest for each idea, and
`atlas-smartssd.csv`, the rate of a SmartSSD over a grid.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import pandas as pd

import nearkv
from nearkv.sweeps.study.sizes import comma_list
from nearkv.sweeps.study.study_files import load_study
from nearkv.sweeps.tables.table import cell_text

DOCS = Path(__file__).parent
CELLS, BORDERS, TURNS, RATES = (
    DOCS / f"atlas{name}.csv" for name in ("", "-borders", "-break-even", "-smartssd")
)
PAGE = DOCS / "atlas.md"
MAP, CONTOURS = (DOCS / "pictures" / f"atlas{name}.svg" for name in ("", "-smartssd"))
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
KEPT = comma_list(
    "budget_usd,context_tok,batch,technology,system,server,gpus,hosts,dram_gib,ssds,csds,dimms,"
    "hbms,lpddrs,cost_usd,throughput_tok_s,batch_run,tpot_ms,ttft_s,best_share,status,reason"
)
"""Columns of the cells."""
KEYS = ["budget_usd", "context_tok", "batch"]
"""Columns that tell cells apart."""


def search() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The cells and their borders."""
    table = nearkv.design(
        load_study(STUDY), budget=BUDGETS, best_per="technology", borders=True, band=90
    )
    return table[[*KEPT]], pd.DataFrame(table.attrs["borders"])


def turning(cells: pd.DataFrame) -> pd.DataFrame:
    """Changes that would turn the cell that is closest for each idea."""
    rows = []
    for technology, (_, numbers) in IDEAS.items():
        close = closest(cells, technology)
        if close.empty:
            continue
        study = load_study(STUDY).but(context=close["context_tok"], batch=close["batch"])
        for number in numbers:
            (turn,) = nearkv.design(
                study, budget=f"{BUDGET}USD", break_even=number, band=90
            ).to_dict("records")
            rows.append({"technology": technology, **turn})
    return pd.DataFrame(rows)


def rates() -> pd.DataFrame:
    """The rate of a SmartSSD at which HILOS and a GPU change places, over a grid."""
    return nearkv.design(
        "hilos,gpu",
        "llama3.1-70b",
        servers="hillinfer-server,mac-studio-desktop",
        context="16k:512k:x2",
        batch="1:256:x4",
        sets=load_study(STUDY).sets,
        budget="20kUSD",
        break_even="csd.p2p_read",
        band=90,
    )


def closest(cells: pd.DataFrame, technology: str) -> pd.Series:
    """The cell within `BUDGET` that a technology wins most narrowly, or is closest to winning.

    Returns:
        Its row, and the `ratio` of its rate over that of the best other; empty where it serves no
        cell.
    """
    served = cells[cells["budget_usd"] == BUDGET].dropna(subset=["throughput_tok_s"])
    is_own = served["technology"] == technology
    best_other = served[~is_own].groupby(KEYS)["throughput_tok_s"].max().rename("other")
    rows = served[is_own].join(best_other, on=KEYS)
    if rows.empty:
        return pd.Series(dtype=float)
    rows["ratio"] = rows["throughput_tok_s"] / rows["other"]
    won = rows[rows.index.isin(served.drop_duplicates(KEYS).index)]
    return rows.loc[rows["ratio"].idxmax() if won.empty else won["ratio"].idxmin()]


def wins(cells: pd.DataFrame) -> pd.Series:
    """Number of cells within `BUDGET` that each technology wins, or no machine, the most first."""
    first = cells[cells["budget_usd"] == BUDGET].drop_duplicates(KEYS)
    return first["technology"].fillna("no machine").value_counts()


def paragraph(cells: pd.DataFrame) -> str:
    """The first paragraph of the page, from the cells beside it."""
    counts = wins(cells)
    (first, most), *others = counts.items()
    won = f"{first} wins {most} of {counts.sum()} cells"
    rest = ", ".join(f"{name} {count}" for name, count in others)
    return f"Within {BUDGET:,} USD {won}, {rest}. Of the papers' ideas:"


def table(cells: pd.DataFrame, turns: pd.DataFrame) -> str:
    """A row for the idea of each paper: where it wins, how surely, and what would change that."""
    rows = [
        "| idea | wins | closest cell | times the best other | first in draws | turns at |",
        "|---|---|---|---|---|---|",
    ]
    counts = wins(cells)
    for technology, (papers, _) in IDEAS.items():
        close = closest(cells, technology)
        columns = [f"{technology} ({papers})", str(counts.get(technology, 0))]
        if close.empty:
            columns += ["serves no cell", "", "", ""]
        else:
            columns += [
                f"{close['context_tok'] / 1024:,.0f}k, batch {close['batch']:.0f}",
                f"{close['ratio']:.3g}",
                f"{close['best_share']:.0%}",
                _turn(turns[turns["technology"] == technology]),
            ]
        rows.append(f"| {' | '.join(columns)} |")
    return "\n".join(rows)


def _turn(turns: pd.DataFrame) -> str:
    """The number that changes least where a cell changes hands, its value and its band."""
    changes = turns.dropna(subset=["factor"])
    if changes.empty:
        return f"neither {' nor '.join(turns['number'])}"
    distance = changes["factor"].map(lambda factor: abs(math.log(factor)))
    nearest = changes.loc[distance.idxmin()]
    is_price = pd.notna(nearest["usd_per_gb"])
    column, unit = ("usd_per_gb", "USD/GB") if is_price else ("at", nearest["unit"])
    low, high = (nearest[f"{column}_{end}"] for end in ("p05", "p95"))
    ends = (cell_text(end) if pd.notna(end) else "open" for end in (low, high))
    value = f"{nearest['number']} {cell_text(nearest[column])} {unit}"
    return f"{value} ({' to '.join(ends)}), {nearest['factor']:.2g} times now's"


def draw(cells: pd.DataFrame, borders: pd.DataFrame, turns: pd.DataFrame) -> None:
    """Draw the map of each budget, and contours; the same numbers give the same bytes."""
    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "nearkv"
    regions = nearkv.plot.region_map(cells, boundaries=borders)
    nearkv.plot.save(regions.figure, MAP)
    contours = nearkv.plot.break_even_map(turns)
    nearkv.plot.save(contours.figure, CONTOURS)


def main() -> None:
    """Search the cells, and write all that the page shows of them."""
    cells, borders = search()
    cells.to_csv(CELLS, index=False)
    borders.to_csv(BORDERS, index=False)
    turning(pd.read_csv(CELLS)).to_csv(TURNS, index=False)
    rates().to_csv(RATES, index=False)
    write()


def write() -> None:
    """Write the pictures, the first paragraph and its table from the CSVs that are there."""
    cells, borders, turns = map(pd.read_csv, (CELLS, BORDERS, TURNS))
    draw(cells, borders, pd.read_csv(RATES))
    title, question, picture, _, _, rest = PAGE.read_text(encoding="utf-8").split("\n\n", 5)
    written = [paragraph(cells), table(cells, turns)]
    page = "\n\n".join([title, question, picture, *written, rest])
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
