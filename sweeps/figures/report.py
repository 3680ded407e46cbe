"""One self-contained page of a study: the answer, figures, the table, time trees and sources."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from nearkv.costmodel.algebra.span import Leaf
from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.columns import TIME_PREFIX, columns, stack
from nearkv.sweeps.evaluate.compare import compare_systems, conclusion
from nearkv.sweeps.evaluate.provenance import platform_numbers
from nearkv.sweeps.figures import plot
from nearkv.sweeps.figures.bars import tick_of
from nearkv.sweeps.figures.series import (
    SPEED,
    columns_of,
    distinct_values,
    independent,
    repeated_where_blank,
)
from nearkv.sweeps.figures.style import SETTINGS, load_pyplot
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.labels import label_of
from nearkv.sweeps.tables.table import plain, reach

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_REPORT_ROWS = 2000
"""Rows that a page holds; of a larger study the fastest are kept."""

MOST_STACKS = 24
"""Rows whose breakdown is drawn."""

MOST_PANELS = 4
"""Values of a second axis that have bars of their own."""

MOST_MARKS = 500
"""A figure with more points than this has no texts to hover over."""

MOST_REPORT_COLUMNS = 14
"""Columns that vary and that a page begins with."""

REPORT_AXES = ("model", "platform", "batch", "context_tok", "output_tokens", "trace")
"""Columns that say where systems are compared: what differs beside them is a choice."""

REPORT_COLUMNS = (
    "system",
    "status",
    SPEED,
    f"{SPEED}_p05",
    f"{SPEED}_p95",
    "step_ms",
    "decode_tok_s",
    "prefill_s",
    "total_s",
)
"""Columns that a page begins with, where the table has them."""

LEADING = ("system", *REPORT_AXES, "status", "short_of", *REPORT_COLUMNS[2:], "alpha")
"""Columns in the order of a page; all others follow."""

PERCENTILE = re.compile(r"_p[\d.]+$")
"""The end of a column of a band."""


@dataclass(frozen=True)
class Results:
    """Contents of a page.

    Attributes:
        table: all rows that are kept, with the columns of `compare_systems`.
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


def report_page(study: Study, command: str) -> str:
    """Return the page of a study as HTML that needs no other file and no network.

    Args:
        study: what to evaluate.
        command: the command line that made it, for the page's foot.

    Raises:
        InputError: the study cannot be evaluated, or the drawing library is missing.
    """
    load_pyplot().switch_backend("agg")
    results = evaluated(study)
    kept = f"{len(results.table):,} rows"
    if results.dropped:
        kept = (
            f"The {kept} of highest {SPEED}; {results.dropped:,} more are not on this page."
        )
    names = (
        ", ".join(map(str, distinct_values(results.table, name)))
        for name in ("system", "model")
    )
    folder = files("nearkv.sweeps.figures") / "page"
    page, style, script = (
        (folder / f"page.{ending}").read_text("utf-8") for ending in ("html", "css", "js")
    )
    return Template(page).substitute(
        title=escape(f"nearkv: {' on '.join(names)}"),
        answer=escape(results.answer),
        facts=_facts(results),
        figures="\n".join(figures(results)),
        kept=escape(kept),
        sources="\n".join(_sources(results.blocks)),
        command=escape(command),
        version=version("nearkv"),
        report=_as_json(results),
        style=style,
        script=script,
    )


def evaluated(study: Study) -> Results:
    """Evaluate a study; keep the fastest rows where there are more than a page holds.

    Raises:
        InputError: the study cannot be evaluated, or has too many rows for one table.
    """
    import pandas as pd

    rows = compare_systems(study)
    table = pd.DataFrame(rows)
    parts = blocks(study)
    places = []
    for index, block in enumerate(parts):
        places += [(index, row) for row in range(block.grid.size)]
    dropped = max(len(table) - MOST_REPORT_ROWS, 0)
    sentence = answer(table, conclusion(study, rows))
    if dropped:
        speed = table[SPEED].astype(float).fillna(-1.0)
        fastest = speed.nlargest(MOST_REPORT_ROWS).index.sort_values()
        table = table.loc[fastest].reset_index(drop=True)
        places = [places[row] for row in fastest]
    return Results(table, places, dropped, parts, sentence)


def answer(table: pd.DataFrame, conclusions: Sequence[str]) -> str:
    """Return what a comparison concludes, or in a sentence what there is to say beside it."""
    fits = table[table["status"] == "ok"]
    if fits.empty:
        reasons = ", ".join(sorted({str(reason) for reason in table["reason"] if reason}))
        return f"Nothing fits: {reasons or 'see the reasons in the table'}."
    speeds = reach(fits[SPEED].to_numpy())
    alone = f"{fits['system'].iloc[0]} generates {speeds} tokens per second."
    return " ".join(conclusions) or alone


def _facts(results: Results) -> str:
    """Return what a reader must know before the figures: machines, workloads, cost and notes."""
    table = results.table
    machines = {block.platform.label: block.platform.title for block in results.blocks}
    workload = [
        name for name in REPORT_AXES if name in table.columns and name != "platform"
    ]
    facts = {"Machine": [f"{name}: {title}" for name, title in machines.items()]}
    facts["Workload"] = [
        f"{label_of(name)}: {', '.join(map(tick_of, distinct_values(table, name)))}"
        for name in workload
        if not {"", None} & {*map(plain, distinct_values(table, name))}
    ]
    facts["Cost"] = [
        f"{system}: {reach(rows['cost_usd'].to_numpy())} USD"
        for system, rows in table.groupby("system", sort=False)
        if rows["cost_usd"].notna().any()
    ]
    sentences = table["note"].astype(str).str.split("; ").explode()
    facts["Notes"] = [text for text in sentences.unique() if text]
    return "".join(
        f"<dt>{name}</dt>" + "".join(f"<dd>{escape(text)}</dd>" for text in texts)
        for name, texts in facts.items()
        if texts
    )


def figures(results: Results) -> list[str]:
    """Return the figures that suit the axes of a study, each as `<figure>`."""
    table = results.table
    axes = independent(table, "system")
    numeric = [name for name in axes if table[name].dtype.kind in "if"]
    baseline = str(table["system"].iloc[0]) if table["system"].nunique() > 1 else ""
    drawings: dict[str, Callable[[], Axes]] = {}
    if len(axes) <= 1:
        drawings["Whole requests"] = partial(plot.bars, table, SPEED, baseline=baseline)
        drawings["Decoding alone"] = partial(plot.bars, table, "decode_tok_s")
        drawings["Prefill alone"] = partial(plot.bars, table, "prefill_s")
    if len(axes) == 2:
        drawings |= _panels(table, axes, baseline)
    if len(numeric) == 1 and len(axes) == 1:
        drawings["Time of a decode step"] = partial(plot.lines, table, "step_ms")
    if {"context_tok", "batch"} <= set(numeric) and len(axes) == 2:
        caption = "The fastest system, darker where its margin is larger"
        drawings[caption] = partial(plot.policy_map, table)
    if len(table) <= MOST_STACKS and not results.dropped:
        drawings["Where the time goes"] = partial(_breakdown, results.blocks)
    drawn = []
    for number, (caption, draw) in enumerate(drawings.items()):
        try:
            svg = _svg_of(draw(), f"figure-{number}")
        except InputError:
            continue  # several rows share a mark (values of a knob): the table shows them
        label = escape(caption)  # a drawing scrolls where the screen is narrow
        region = f'<div class="drawing" tabindex="0" role="region" aria-label="{label}">'
        drawn.append(
            f"<figure>{region}{svg}</div><figcaption>{label}</figcaption></figure>"
        )
    return drawn


def _panels(
    table: pd.DataFrame, axes: Sequence[str], baseline: str
) -> dict[str, Callable[[], Axes]]:
    """Return bars for each value of the axis that has fewer, as far as these are few."""
    sizes = {axis: (table[axis].nunique(), table[axis].dtype.kind in "if") for axis in axes}
    name = min(sizes, key=lambda axis: sizes[axis])
    complete = repeated_where_blank(table, name)
    values = distinct_values(complete, name)
    if len(values) > MOST_PANELS:
        return {}
    drawings: dict[str, Callable[[], Axes]] = {}
    for value in values:
        rows = complete[complete[name] == value]
        caption = f"Throughput, {name} {tick_of(value)}"
        drawings[caption] = partial(plot.bars, rows, SPEED, baseline=baseline)
    return drawings


def _breakdown(blocks: Sequence[Block]) -> Axes:
    """Draw the seconds of every row of a study by resource."""
    import pandas as pd

    tables = [columns(block, block.grid.whole, extra=[TIME_PREFIX]) for block in blocks]
    return plot.breakdown(pd.DataFrame(stack(tables)))


def _svg_of(axes: Axes, name: str) -> str:
    """Return a figure, then closed, as an inline `<svg>` whose marks say their values on hover.

    Args:
        axes: what `nearkv.plot` drew.
        name: unique on the page; ids within the SVG begin with it.
    """
    import matplotlib as mpl

    texts = {}
    for number, (mark, text) in enumerate(_marks(axes)):
        mark.set_gid(f"{name}-mark-{number}")
        texts[mark.get_gid()] = text
    stream = io.StringIO()
    figure: Any = axes.figure
    with mpl.rc_context(SETTINGS | {"svg.hashsalt": name}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    load_pyplot().close(figure)
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    for identifier, text in texts.items():
        opening = f'<g id="{identifier}">'
        svg = svg.replace(opening, f"{opening}<title>{escape(text)}</title>", 1)
    # Ids of shared definitions get the figure's name too: two figures of a page have the same.
    foreign = rf"(?!{re.escape(name)}-)"
    svg = re.sub(f'id="{foreign}', f'id="{name}-', svg)
    return re.sub(rf'((?:href="|url\()#){foreign}', rf"\g<1>{name}-", svg)


def _marks(axes: Axes) -> Iterator[tuple[Any, str]]:
    """Return every bar, and an invisible mark over every point of a line, with its text."""
    containers: list[Any] = axes.containers
    for group in (bars for bars in containers if hasattr(bars, "orientation")):
        for bar in group:
            lies = group.orientation == "horizontal"
            length = bar.get_width() if lies else bar.get_height()
            if math.isfinite(length):
                yield (bar, f"{group.get_label()}: {length:.4g}")
    points = [
        (str(line.get_label()), float(x), float(y))
        for line in axes.lines
        if line.get_marker() not in ("None", "x")
        for x, y in np.asarray(line.get_xydata())
        if math.isfinite(x) and math.isfinite(y)
    ]
    for label, x, y in points if len(points) <= MOST_MARKS else ():
        yield (axes.scatter(x, y, s=40, alpha=0.0), f"{label}: {y:.4g}")


def _as_json(results: Results) -> str:
    """Return the rows, time trees and column choices as JSON that is safe inside a page."""
    table = results.table
    present = columns_of(table)
    leading = [name for name in LEADING if name in present]
    names = list(dict.fromkeys([*leading, *present]))
    table = table[names]
    many = [name for name in names if table[name].nunique(dropna=False) > 1]
    telling = [name for name in many if not PERCENTILE.search(name)]
    first = {*telling[:MOST_REPORT_COLUMNS], *REPORT_COLUMNS}
    shown = [place for place, name in enumerate(names) if name in first]
    rows = [[_value(value) for value in row] for row in table.to_numpy(dtype=object)]
    page = {
        "columns": names,
        "shown": shown,
        "rows": rows,
        "places": results.places,
        "trees": [time_tree(block) for block in results.blocks],
    }
    text = json.dumps(page, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c")


def _value(value: object) -> object:
    """Return a cell as JSON takes it: blank numbers as null, infinity in words."""
    cell = plain(value)
    return str(cell) if isinstance(cell, float) and math.isinf(cell) else cell


def time_tree(block: Block) -> dict[str, list[list[Any]]]:
    """Return the spans of a block's whole requests, parents before their parts.

    Spans that take no time at any row are left out; what does not fit takes none.

    Returns:
        `spans`: of each its path (names joined by slashes, blank for the total), how its parts are
        composed (`serial`, `overlap`, ... or `leaf`), and of a leaf its resource and equation;
        `seconds`: of each span, one number a row, in four digits [s].
    """
    estimate = block.resolved(block.grid.whole).estimate
    fits = np.where(estimate.fits.ok, 1.0, 0.0)
    spans: list[list[Any]] = []
    seconds: list[list[Any]] = []
    for path, span, times in estimate.total.walk(times=fits):
        of_points = np.broadcast_to(times * span.seconds, block.grid.shape).ravel()
        if path and not np.any(of_points):
            continue
        leaf = [span.resource, span.eq] if isinstance(span, Leaf) else ["", ""]
        spans.append([path, type(span).__name__.lower(), *leaf])
        seconds.append([float(f"{value:.4g}") for value in of_points.tolist()])
    return {"spans": spans, "seconds": seconds}


def _sources(blocks: Sequence[Block]) -> list[str]:
    """Return a table of the numbers of every platform, folded."""
    numbers = {block.platform.label: platform_numbers(block.platform) for block in blocks}
    return [_folded(f"{name}: {len(rows)} numbers", rows) for name, rows in numbers.items()]


def _folded(summary: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table under a line that opens it."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in rows[0])
    body = ""
    for row in rows:
        cells = ["" if row.get(name) is None else str(row[name]) for name in rows[0]]
        body += f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    label = escape(summary)
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<details><summary>{label}</summary>{region}{table}</div></details>"
