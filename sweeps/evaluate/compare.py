"""Systems side by side: ratios over the first, and what differs besides the system."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.errors import check_known
from nearkv.sweeps.evaluate.columns import BOTTLENECK, STEP_BOTTLENECK, evaluate, stack
from nearkv.sweeps.evaluate.ground import GROUND
from nearkv.sweeps.evaluate.no_effect import checked_blocks
from nearkv.sweeps.evaluate.slo import RATIOS
from nearkv.sweeps.study.bands import FASTER_SHARES
from nearkv.sweeps.study.grid import Block
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import CellArray, Columns, reach, three_digits

if TYPE_CHECKING:
    import pandas as pd

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
    prices = _ratios(table, points, {"price": "cost_usd"})
    table["note"] = _noted(table["note"], _price_sentences(prices["price"]))
    table |= _ratios(table, points, chosen)
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
    import pandas as pd

    differing = [name for name in RIVALS if len(set(table[name])) > 1]
    if not differing:
        return []
    rivals = differing[0]
    first = str(table[rivals][0])
    points = _points(blocks(study)[0], study)
    shares = [name for name in FASTER_SHARES.values() if name in table]
    columns = dict.fromkeys([*points, rivals, "status", *RATIOS, *RATIOS.values(), *shares])
    frame = pd.DataFrame({name: table[name] for name in columns})
    answered = frame[frame["status"] == "ok"]
    unanswered = len(frame) - len(answered)
    number = len(frame.drop_duplicates(points))
    # a rate that every answer has leaves no system out; all keep up with requests that arrive
    compared = () if study.rate else RATIOS
    sentences = []
    for ratio in compared:
        # a point has its winner by the first rate that all of its answers have
        known = answered[RATIOS[ratio]].notna()
        is_shared = known.groupby(
            [answered[name] for name in points], dropna=False
        ).transform("all")
        here, answered = answered[is_shared], answered[~is_shared]
        if here.empty:
            continue
        best = _best(here, points, rivals, ratio)
        best["sure"] = ~(best["share"] < study.band / 100)
        for (names, sure), rows in best.groupby(["best", "sure"], sort=False):
            where = f" at {len(rows)} of {number} points" if number > 1 else ""
            rate = f" ({RATIOS[ratio]} {reach(rows['rate'].to_numpy())})"
            reference = "its first row" if names == first else first
            are_equal = len(rows["rivals"].iloc[0]) > 1
            predicate, doubt = PREDICATES[ratio][are_equal], ""
            if not sure:
                share = reach(100 * rows["share"].to_numpy())
                doubt = f", but {predicate} in {share} % of the draws only"
                predicate = "leads"
            times = _times(rows["ratio"], reference)
            sentences.append(f"{names} {predicate}{where}{rate}{times}{doubt}")
    if unanswered:
        sentences.append(f"{unanswered} of {len(frame)} rows have no answer")
    return [f"{'; '.join(sentences)}."] if sentences else []


def _best(
    answered: pd.DataFrame, points: list[str], rivals: str, ratio: str
) -> pd.DataFrame:
    """The best at each design point, and its ratio, rate and share of the draws there.

    They are several where they are equal; the share is NaN without a band.
    """
    rate, share = RATIOS[ratio], FASTER_SHARES[ratio]
    places = [answered[name] for name in points]
    if share in answered:
        of_rival = answered.groupby([*places, answered[rivals]], dropna=False)[share]
        answered = answered.assign(share=of_rival.transform("sum"))
    else:
        answered = answered.assign(share=np.nan)
    highest = answered[rate].groupby(places, dropna=False).transform("max")
    leading = answered[answered[rate] >= highest * (1 - _ROUNDING)]
    leading = leading.drop_duplicates([*points, rivals])
    best = leading.groupby(points, dropna=False, sort=False).agg(
        ratio=(ratio, "first"),
        rate=(rate, "first"),
        share=("share", lambda shares: shares.sum(min_count=1)),
        rivals=(rivals, tuple),
    )
    best["best"] = [" and ".join(names) for names in best["rivals"]]
    return best


def _times(ratios: pd.Series[float], reference: str) -> str:
    """Rate of the best system over the first row's; in percent where near it."""
    if not ratios.max() > 1 + _ROUNDING:
        return ""
    if ratios.max() < _SAID_IN_PERCENT:
        return f", {reach(100 * (ratios.to_numpy() - 1))} % above {reference}"
    return f", {reach(ratios.to_numpy())} times {reference}"


def _points(block: Block, study: Study) -> list[str]:
    """Columns that tell design points apart: the workload and the hardware numbers."""
    shared = study.workload_axes + len(study.sets)
    axes = block.display_grid.axes
    return [axis.name for axis in axes[:shared]]


def _ratios(table: Columns, points: list[str], chosen: Mapping[str, str]) -> Columns:
    """Each column over that of the first row with the same design point.

    Args:
        table: with all columns.
        points: columns that tell design points apart.
        chosen: name of a ratio -> the column that it compares.
    """
    import pandas as pd

    columns = dict.fromkeys([*points, *chosen.values()])
    frame = pd.DataFrame({name: table[name] for name in columns})
    first = frame.drop_duplicates(points)
    joined = frame[points].merge(first, on=points, how="left")
    ratios: Columns = {}
    for ratio, column in chosen.items():
        values = frame[column].to_numpy(float)
        reference = joined[column].to_numpy(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios[ratio] = values / reference
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
