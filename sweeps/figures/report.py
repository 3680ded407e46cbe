"""One self-contained page of a study: the answer, figures, the table, time trees and sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.evaluate import columns, stack
from nearkv.sweeps.evaluate.no_effect import checked_blocks
from nearkv.sweeps.evaluate.provenance import platform_numbers
from nearkv.sweeps.figures import plot
from nearkv.sweeps.figures.bars import tick_of
from nearkv.sweeps.figures.hover import svg_of
from nearkv.sweeps.figures.optima import KNOB, optima
from nearkv.sweeps.figures.page_rows import SPEED, WORKLOAD, rows_as_json
from nearkv.sweeps.figures.series import everywhere, independent, levels, varies_within
from nearkv.sweeps.figures.stacked import PREFIX
from nearkv.sweeps.figures.style import load_pyplot
from nearkv.sweeps.figures.time_trees import as_json, time_tree
from nearkv.sweeps.study.study import Block, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_ROWS = 2000
"""Rows a page holds; of a larger study the fastest are kept."""

MOST_STACKS = 24
"""Rows whose breakdown is drawn."""

MOST_PANELS = 4
"""Values of a second axis that have bars of their own."""


@dataclass(frozen=True)
class Results:
    """What a page shows.

    Attributes:
        table: all rows that are kept, with the columns of `compare`.
        places: of each row, which block it belongs to and which row of the block it is.
        dropped: rows of the study that are not on the page.
        blocks: the study's blocks.
        answer: which system is fastest, of all rows.
    """

    table: pd.DataFrame
    places: list[tuple[int, int]]
    dropped: int
    blocks: Sequence[Block]
    answer: str


def report(study: Study, command: str) -> str:
    """Return the page of a study as HTML that needs no other file and no network.

    Args:
        study: what to evaluate.
        command: the command line that made it, for the page's foot.

    Raises:
        InputError: the study cannot be evaluated, or the drawing library is missing.
    """
    load_pyplot().switch_backend("agg")
    results = evaluated(study)
    trees = [as_json(time_tree(block)) for block in results.blocks]
    parts = {
        "title": escape(
            f"nearkv: {_names(results, 'system')} on {_names(results, 'model')}"
        ),
        "answer": escape(results.answer),
        "figures": "\n".join(figures(results)),
        "kept": escape(_kept(results)),
        "optima": _optima(study),
        "sources": "\n".join(_sources(results.blocks)),
        "command": escape(command),
        "version": version("nearkv"),
        "report": rows_as_json(results.table, results.places, trees),
    }
    folder = files("nearkv.sweeps.figures") / "page"
    style, script = ((folder / f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
    page = Template((folder / "page.html").read_text("utf-8"))
    return page.substitute(parts, style=style, script=script)


def _names(results: Results, column: str) -> str:
    return ", ".join(str(name) for name in results.table[column].drop_duplicates())


def evaluated(study: Study) -> Results:
    """Evaluate a study; keep the fastest rows where there are more than a page holds."""
    import pandas as pd

    in_order = checked_blocks(study)
    tables = [columns(block, block.grid.whole) for block in in_order]
    table = pd.DataFrame(stack(tables))
    places = []
    for index, block in enumerate(in_order):
        places += [(index, row) for row in range(block.grid.size)]
    if len(table) <= MOST_ROWS:
        return Results(table, places, 0, in_order, answer(table))
    speed = table[SPEED].astype(float).fillna(-1.0)
    fastest = speed.nlargest(MOST_ROWS).index.sort_values()
    kept = table.loc[fastest].reset_index(drop=True)
    kept_places = [places[row] for row in fastest]
    return Results(kept, kept_places, len(table) - MOST_ROWS, in_order, answer(table))


def _kept(results: Results) -> str:
    count = f"{len(results.table):,} rows"
    if not results.dropped:
        return count
    return f"The {count} of highest {SPEED}; {results.dropped:,} more are not on this page."


def answer(table: pd.DataFrame) -> str:
    """Return in a sentence which system is fastest, how often and by how much."""
    fits = table[table["status"] == "ok"]
    if fits.empty:
        reasons = ", ".join(sorted({str(reason) for reason in table["reason"] if reason}))
        return f"Nothing fits: {reasons or 'see the reasons in the table'}."
    names = list(table["system"].drop_duplicates())
    own = not varies_within(table, "platform", "system")
    where = [name for name in WORKLOAD if name in table.columns]
    if own:
        where.remove("platform")
    groups = fits.groupby(where, sort=False, observed=True)
    best = fits.loc[groups[SPEED].idxmax()]
    wins = best["system"].value_counts()
    leader = str(wins.index[0])
    if len(names) == 1:
        low, high = fits[SPEED].min(), fits[SPEED].max()
        return f"{leader} generates from {low:.4g} to {high:.4g} tokens per second."
    sentence = (
        f"{leader} has the highest throughput in {wins.iloc[0]} of {len(best)} workloads"
    )
    first = fits[fits["system"] == names[0]].set_index(where)[SPEED]
    reference = first.groupby(level=where).max()
    ratio = (best.set_index(where)[SPEED] / reference).dropna()
    machines = _machines(table) if own else ""
    if names[0] == leader or ratio.empty:
        return f"{sentence}.{machines}"
    ends = dict.fromkeys(
        (f"{ratio.min():.3g}", f"{ratio.max():.3g}")
    )  # one if they are equal
    return f"{sentence}; the best is {' to '.join(ends)} times {names[0]}.{machines}"


def _machines(table: pd.DataFrame) -> str:
    """Return which system runs on which machine, where they differ."""
    platforms = table.drop_duplicates("system")[["system", "platform"]]
    if platforms["platform"].nunique() == 1:
        return ""
    pairs = [f"{row.system} on {row.platform}" for row in platforms.itertuples()]
    return f" Machines differ: {', '.join(pairs)}."


def figures(results: Results) -> list[str]:
    """Return the figures that suit the axes of a study, each as `<figure>`."""
    table = results.table
    axes = independent(table, "system")
    numeric = [name for name in axes if table[name].dtype.kind in "if"]
    baseline = str(table["system"].iloc[0]) if table["system"].nunique() > 1 else ""
    drawings: dict[str, Callable[[], Axes]] = {}
    if len(axes) <= 1:
        drawings["Throughput"] = lambda: plot.bars(table, SPEED, baseline=baseline)
    if len(axes) == 2:
        drawings |= _panels(table, axes, baseline)
    if len(numeric) == 1 and len(axes) == 1:
        drawings["Time of a decode step"] = lambda: plot.lines(table, "step_ms")
    if {"context_tok", "batch"} <= set(numeric) and len(axes) == 2:
        drawings["The fastest system, darker where its margin is larger"] = lambda: (
            plot.policy_map(table)
        )
    if len(table) <= MOST_STACKS and not results.dropped:
        drawings["Where the time goes"] = lambda: plot.breakdown(_by_resource(results))
    drawn = []
    for number, (caption, draw) in enumerate(drawings.items()):
        try:
            svg = svg_of(draw(), f"figure-{number}")
        except InputError:
            continue  # several rows share a mark (values of a knob): the table shows them
        drawn.append(_figure(svg, caption))
    return drawn


def _panels(
    table: pd.DataFrame, axes: Sequence[str], baseline: str
) -> dict[str, Callable[[], Axes]]:
    """Return bars for each value of the axis that has fewer, as far as these are few."""
    sizes = {axis: (table[axis].nunique(), table[axis].dtype.kind in "if") for axis in axes}
    name = min(sizes, key=lambda axis: sizes[axis])
    whole = everywhere(table, name)
    values = levels(whole, name)
    if len(values) > MOST_PANELS:
        return {}
    drawings: dict[str, Callable[[], Axes]] = {}
    for value in values:
        rows = whole[whole[name] == value]
        caption = f"Throughput, {name} {tick_of(value)}"
        drawings[caption] = partial(plot.bars, rows, SPEED, baseline=baseline)
    return drawings


def _figure(svg: str, caption: str) -> str:
    """Return a drawing, which scrolls where the screen is narrow, above its caption."""
    label = escape(caption)
    room = f'<div class="drawing" tabindex="0" role="region" aria-label="{label}">'
    return f"<figure>{room}{svg}</div><figcaption>{label}</figcaption></figure>"


def _by_resource(results: Results) -> pd.DataFrame:
    """Return the table with seconds by resource."""
    from nearkv.solvers.knobs import resolve_knobs

    table = results.table.copy()
    start = 0
    for block in results.blocks:
        hw, llm, work, requested = block.inputs(block.grid.whole)
        resolved = resolve_knobs(block.system, hw, llm, work, requested)
        total = resolved.estimate.total
        rows = slice(start, start + block.grid.size)
        for resource, seconds in total.attribution().items():
            spread = np.broadcast_to(seconds, block.grid.shape).ravel()
            table.loc[table.index[rows], f"{PREFIX}{resource}"] = spread
        start += block.grid.size
    return table


def _sources(in_order: Sequence[Block]) -> list[str]:
    """Return a table of the numbers of every platform, folded."""
    tables = []
    for name, platform in {
        block.platform.label: block.platform for block in in_order
    }.items():
        rows = platform_numbers(platform)
        tables.append(_folded(f"{name}: {len(rows)} numbers", rows))
    return tables


def _folded(summary: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return a table under a line that opens it."""
    names = list(rows[0])
    head = "".join(f'<th scope="col">{escape(key)}</th>' for key in names)
    body = "".join(f"<tr>{_cells(row, names)}</tr>" for row in rows)
    label = escape(summary)
    room = f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<details><summary>{label}</summary>{room}{table}</div></details>"


def _optima(study: Study) -> str:
    """Return the optima of a study with the bounds that prove them."""
    rows = optima(study)
    if not rows:
        return "<p>No knob of this study was solved for.</p>"
    return _folded(f"{KNOB}: {len(rows)} optima, each beside its bound and its rule", rows)


def _cells(row: dict[str, Any], names: Sequence[str]) -> str:
    texts = ["" if row.get(name) is None else str(row[name]) for name in names]
    return "".join(f"<td>{escape(text)}</td>" for text in texts)
