"""Systems side by side: ratios over the first, and what differs besides the system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Indices
from nearkv.hardware.errors import check_known
from nearkv.sweeps.evaluate.columns import BOTTLENECK, STEP_BOTTLENECK, evaluate, stack
from nearkv.sweeps.evaluate.ground import GROUND
from nearkv.sweeps.evaluate.no_effect import checked_blocks
from nearkv.sweeps.evaluate.slo import RATIOS
from nearkv.sweeps.study.bands import FASTER_SHARES
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import CellArray, Columns, reach, three_digits

PREDICATES = {
    "speedup": ("decodes fastest", "are equal and decode fastest"),
    "total_speedup": (
        "has the highest throughput",
        "are equal and have the highest throughput",
    ),
}
"""Ratio -> what a comparison concludes of the best system, and of several that are equal."""
RIVALS = ("system", "platform")
"""Columns that are compared: the first of these columns that differs."""
_ROUNDING = 1e-9
"""A relative difference below this is rounding [1]."""
_SAID_IN_PERCENT = 1.1
"""Ratios below this are said in percent: 1.004 times is hardly a number [1]."""
WIDTH_KEYS = ("weight", "kv", "activation")


def compare_systems(
    study: Study, ratios: Sequence[str] = (), extra: Collection[str] = ()
) -> Columns:
    """Evaluate a study and add ratios over the first row of each design point.

    The first row is that of the first system, its first platform, parts and knob values.

    Args:
        study: what to evaluate; models, workloads and hardware numbers are its design points.
        ratios: further columns to give ratios of.
        extra: of `columns.ON_REQUEST`: columns to add, besides the bottlenecks.

    Returns:
        All columns, the bottlenecks, `speedup` (of decode_tok_s), `total_speedup` (of
        throughput_tok_s) and `COLUMN_ratio`; NaN where either has no answer. `note` says where
        devices, precision, platforms or prices differ from those of the first row. With a band,
        that of every ratio at common draws, and `faster_share`, the share of them in which the row
        decodes fastest of its design point.

    Raises:
        InputError: the study cannot be evaluated, or a ratio of something that is no number.
    """
    parts = checked_blocks(study)
    shown = evaluate(parts, (BOTTLENECK, STEP_BOTTLENECK, *GROUND, *extra))
    for block, columns in zip(parts, shown, strict=True):
        if difference := difference_of(block, parts[0]):
            columns["note"] = _noted(columns["note"], np.array(difference))
    table = stack(shown)
    numbers = [name for name, values in table.items() if values.dtype.kind == "f"]
    chosen = dict(RATIOS)
    for name in ratios:
        check_known("column of numbers", [name], numbers, "--ratio")
        chosen[f"{name}_ratio"] = name
    points = _points(parts[0], study)
    places = _places(table, points)
    prices = _ratios(table, places, {"price": "cost_usd"})
    table["note"] = _noted(table["note"], _price_sentences(prices["price"]))
    table |= _ratios(table, places, chosen)
    if study.band:
        from nearkv.sweeps.uncertainty.ratios import ratio_bands

        table |= ratio_bands(parts, table, chosen, len(points))
    return table


def conclusion(study: Study, table: Columns) -> list[str]:
    """Say which system or platform is best, and how many rows have no answer.

    The best decodes fastest; where an answer of a point lacks that rate, as of a simulated queue,
    it has the highest throughput. The sentence says which of the two is compared, and its value.
    With a band, what is best in fewer draws than the band holds is said to lead in so many.
    """
    differing = [name for name in RIVALS if len(set(table[name])) > 1]
    if not differing:
        return []
    rivals = differing[0]
    first = str(table[rivals][0])
    points = _places(table, _points(blocks(study)[0], study))
    rows, number = len(points), len(set(points))
    is_open = table["status"] == "ok"
    unanswered = rows - np.count_nonzero(is_open)
    # a rate that every answer has leaves no system out; all keep up with requests that arrive
    compared = () if study.rate else RATIOS
    sentences = []
    for ratio in compared:
        # a point has its winner by the first rate that all of its answers have
        lacking = points[is_open & np.isnan(table[RATIOS[ratio]].astype(float))]
        here = is_open & ~np.isin(points, lacking)
        is_open = is_open & ~here
        leads = _leads(table, points, here, rivals, ratio, study.band or 0.0)
        for (names, is_unsure), shares in leads.items():
            led = [*shares]
            where = f" at {len(led)} of {number} points" if number > 1 else ""
            rate = f" ({RATIOS[ratio]} {reach(table[RATIOS[ratio]][led])})"
            reference = "its first row" if names == (first,) else first
            predicate, doubt = PREDICATES[ratio][len(names) > 1], ""
            if is_unsure:
                share = reach(100 * np.array([*shares.values()]))
                doubt = f", but {predicate} in {share} % of the draws only"
                predicate = "leads"
            times = _times(table[ratio][led].astype(float), reference)
            name = " and ".join(names)
            sentences.append(f"{name} {predicate}{where}{rate}{times}{doubt}")
    if unanswered:
        sentences.append(f"{unanswered} of {rows} rows have no answer")
    return [f"{'; '.join(sentences)}."] if sentences else []


def _leads(
    table: Columns,
    points: Indices,
    here: NDArray[np.bool_],
    rivals: str,
    ratio: str,
    band: float,
) -> dict[tuple[tuple[str, ...], bool], dict[int, float]]:
    """What leads at the design points, in the order in which it does first.

    Args:
        table: with all columns.
        points: design point of each row.
        here: rows that are compared.
        rivals, ratio: what is compared, and by which ratio.
        band: share of the draws in a band [%].

    Returns:
        Rivals that are equal and best, and True if they are so in less of the draws than a band
        holds -> the first row of theirs at each such point, and their share of the draws.
    """
    rates = table[RATIOS[ratio]].astype(float)
    shares: Counter[tuple[int, str]] = Counter()
    of_draws = table.get(FASTER_SHARES[ratio])
    if of_draws is not None:
        for row in np.flatnonzero(here & ~np.isnan(of_draws)).tolist():
            shares[int(points[row]), str(table[rivals][row])] += of_draws[row]
    highest = np.zeros(points.max() + 1)
    np.maximum.at(highest, points[here], rates[here])
    leading: dict[int, dict[str, int]] = {}
    is_highest = rates >= highest[points] * (1 - _ROUNDING)
    for row in np.flatnonzero(here & is_highest).tolist():
        leading.setdefault(int(points[row]), {}).setdefault(str(table[rivals][row]), row)
    leads: dict[tuple[tuple[str, ...], bool], dict[int, float]] = {}
    for point, row_of in leading.items():
        share = sum(shares[point, name] for name in row_of)
        is_unsure = of_draws is not None and share < band / 100
        first_row = next(iter(row_of.values()))
        leads.setdefault((tuple(row_of), is_unsure), {})[first_row] = share
    return leads


def _times(ratios: NDArray[np.float64], reference: str) -> str:
    """Rate of the best system over the first row's; in percent where near it."""
    most = np.fmax.reduce(ratios)
    if not most > 1 + _ROUNDING:
        return ""
    if most < _SAID_IN_PERCENT:
        return f", {reach(100 * (ratios - 1))} % above {reference}"
    return f", {reach(ratios)} times {reference}"


def _points(block: Block, study: Study) -> list[str]:
    """Columns that tell design points apart: the workload and the hardware numbers."""
    shared = study.workload_axes + len(study.sets)
    axes = block.display_grid.axes
    return [axis.name for axis in axes[:shared]]


def _places(table: Columns, points: Iterable[str]) -> Indices:
    """Design point of each row, as the place of the first row that has it.

    Args:
        table: with all columns.
        points: columns that tell design points apart.
    """
    places = np.zeros(len(table["status"]), int)
    for name in points:
        _, values = np.unique(table[name], return_inverse=True)
        _, first, inverse = np.unique(
            places * len(places) + values, return_index=True, return_inverse=True
        )
        places = first[inverse]
    return places


def _ratios(table: Columns, places: Indices, chosen: Mapping[str, str]) -> Columns:
    """Each column over that of the first row with the same design point.

    Args:
        table: with all columns.
        places: design point of each row, as of `_places`.
        chosen: name of a ratio -> the column that it compares.
    """
    ratios: Columns = {}
    for ratio, column in chosen.items():
        values = table[column].astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios[ratio] = values / values[places]
    return ratios


def difference_of(block: Block, reference: Block) -> str:
    """Differences between two blocks besides the system, in words; empty where nothing does."""
    machine, other = block.platform, reference.platform
    if machine.name == other.name and machine.roles == other.roles:
        return ""
    differences = []
    if machine.label != other.label:
        differences.append(f"on {machine.label} against {other.label}")

    def apart(address: str) -> list[float]:
        """A number of both machines [SI], where both state it and it is not the same."""
        stated = [each.numbers.get(address) for each in (machine, other)]
        values = [number.si for number in stated if number]
        return values if len({*values}) > 1 else []

    if counts := apart("gpu.count"):
        differences.append("{:g} GPUs against {:g}".format(*counts))
    for name in WIDTH_KEYS:
        if widths := apart(f"precision.{name}"):
            own, theirs = (8 * width for width in widths)
            differences.append(f"{name} of {own:g} bit against {theirs:g}")
    return ", ".join(differences)


def _noted(notes: CellArray, more: NDArray[np.str_]) -> NDArray[np.str_]:
    """Notes with one more sentence where there is one."""
    before = notes.astype(str)
    both = (before != "") & (more != "")
    beginning = np.strings.add(before, np.where(both, "; ", ""))
    return np.strings.add(beginning, more)


def _price_sentences(prices: CellArray) -> NDArray[np.str_]:
    """Sentences on each price over that of the first row; empty where both are the same."""
    ratios = np.nan_to_num(prices.astype(float), nan=1.0)
    distinct, places = np.unique(ratios, return_inverse=True)
    sentences = []
    for price in distinct:
        differs = abs(price - 1) > _ROUNDING
        costs = f"costs {three_digits(price)} times as much as the first"
        sentences.append(costs if differs else "")
    return np.array(sentences)[places]
