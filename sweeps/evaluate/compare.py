"""Systems side by side: ratios over the first, and what differs besides the system."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import unknown
from nearkv.sweeps.evaluate.evaluate import Columns, evaluate, stack
from nearkv.sweeps.evaluate.no_effect import checked_blocks
from nearkv.sweeps.evaluate.requested import BOTTLENECK
from nearkv.sweeps.study.study import Block, Study, blocks
from nearkv.sweeps.tables.table import three_digits

if TYPE_CHECKING:
    import pandas as pd

SPEEDUPS = {"speedup": "decode_tok_s", "total_speedup": "throughput_tok_s"}
"""Ratios that every comparison has, and the column of each."""
Choice = dict[str, str]
"""Name of a ratio -> the column that it compares."""


@dataclass(frozen=True)
class Verdict:
    """What a comparison may conclude.

    Attributes:
        column: of numbers, more is better.
        ratio: over the first system, of that column.
        of_one, of_equals: the predicate of the best system, and of several that are equal.
    """

    column: str
    ratio: str
    of_one: str
    of_equals: str


VERDICTS = (
    Verdict("decode_tok_s", "speedup", "decodes fastest", "are equal and decode fastest"),
    Verdict(
        "throughput_tok_s",
        "total_speedup",
        "has the highest throughput",
        "are equal and have the highest throughput",
    ),
)
"""The first whose column every answer has is what a comparison concludes."""
RIVALS = ("system", "platform")
"""What is compared: the first of these columns that differs."""
_ROUNDING = 1e-9
"""A relative difference of prices below this is rounding [1]."""
PRECISIONS = ("weight", "kv", "activation")


def compare(
    study: Study, ratios: Sequence[str] = (), extra: Collection[str] = ()
) -> Columns:
    """Evaluate a study and add ratios over the first row of each design point.

    The first row is that of the first system, its first platform, parts and knob values.

    Args:
        study: what to evaluate; models, workloads and hardware numbers are its design points.
        ratios: further columns to give ratios of.
        extra: of `cells.ON_REQUEST`: columns to add, besides the bottleneck.

    Returns:
        All columns, the bottleneck, `speedup` (of decode_tok_s), `total_speedup` (of
        throughput_tok_s) and `COLUMN_ratio`; NaN where either has no answer. `note` says where
        devices, precision, platforms or prices differ from those of the first row. With a band,
        that of every ratio at common draws, and `faster_share`, their share with a faster step.

    Raises:
        InputError: the study cannot be evaluated, or a ratio of something that is no number.
    """
    parts = checked_blocks(study)
    shown = evaluate(parts, (BOTTLENECK, *extra))
    for block, columns in zip(parts, shown, strict=True):
        if difference := difference_of(block, parts[0]):
            columns["note"] = _noted(columns, difference)
    table = stack(shown)
    numbers = [name for name, values in table.items() if values.dtype.kind == "f"]
    chosen = dict(SPEEDUPS)
    for name in ratios:
        if name not in numbers:
            raise unknown("column of numbers", name, numbers, "--ratio")
        chosen[f"{name}_ratio"] = name
    points = _points(parts[0], study)
    prices = _ratios(table, points, {"price": "cost_usd"})
    table["note"] = _with_prices(table["note"], prices["price"])
    compared = table | _ratios(table, points, chosen)
    return compared | _bands(parts, study, chosen) if study.band else compared


def _bands(parts: Sequence[Block], study: Study, chosen: Choice) -> Columns:
    """Bands of the ratios, and the chance that each row is faster than the first."""
    from nearkv.sweeps.uncertainty.ratios import ratio_bands

    bands: Columns = {}
    shared = study.workload_axes + len(study.sets)
    bands.update(ratio_bands(parts, chosen, shared))
    return bands


def conclusion(study: Study, table: Columns) -> list[str]:
    """Say which system or platform is best, and how many rows have no answer.

    Best is who decodes fastest; where an answer lacks that rate, as with a simulated queue, who
    has the highest throughput. The sentence says which of the two it compares.
    """
    import pandas as pd

    rivals = next((name for name in RIVALS if len(set(table[name])) > 1), "")
    if not rivals:
        return []
    first = str(table[rivals][0])
    points = _points(blocks(study)[0], study)
    columns = dict.fromkeys([*points, rivals, "status", *SPEEDUPS, *SPEEDUPS.values()])
    frame = pd.DataFrame({name: table[name] for name in columns})
    answered = frame[frame["status"] == "ok"]
    number = len(frame.drop_duplicates(points))
    sentences = []
    verdict = _shared_verdict(answered)
    if verdict and len(answered):
        best = _best(answered, points, rivals, verdict)
        for names, rows in best.groupby("best", sort=False):
            where = f" at {len(rows)} of {number} points" if number > 1 else ""
            predicate = (
                verdict.of_equals if len(rows["rivals"].iloc[0]) > 1 else verdict.of_one
            )
            reference = "its first row" if names == first else first
            sentences.append(
                f"{names} {predicate}{where}{_times(rows['ratio'], reference)}"
            )
    unanswered = len(frame) - len(answered)
    if unanswered:
        sentences.append(f"{unanswered} of {len(frame)} rows have no answer")
    return [f"{'; '.join(sentences)}."] if sentences else []


def _shared_verdict(answered: pd.DataFrame) -> Verdict | None:
    """The first verdict whose column every answer has, so that it leaves no system out."""
    for verdict in VERDICTS:
        if answered[verdict.column].notna().all():
            return verdict
    return None


def _best(
    answered: pd.DataFrame, points: list[str], rivals: str, verdict: Verdict
) -> pd.DataFrame:
    """Who is best at each design point, and the ratio there: several, where they are equal."""
    most = answered.groupby(points, dropna=False)[verdict.column].transform("max")
    leading = answered[answered[verdict.column] == most]
    by_point = leading.groupby(points, dropna=False, sort=False)
    best = by_point.agg(ratio=(verdict.ratio, "first"), rivals=(rivals, _distinct))
    best["best"] = [" and ".join(names) for names in best["rivals"]]
    return best


def _distinct(names: pd.Series[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _times(ratios: pd.Series[float], reference: str) -> str:
    """How many times the first row's rate the best system's is."""
    low = ratios.min()
    high = ratios.max()
    if not high > 1:
        return ""
    times = three_digits(low)
    if not np.isclose(low, high):
        times = f"{times} to {three_digits(high)}"
    return f", {times} times {reference}"


def _points(block: Block, study: Study) -> list[str]:
    """Columns that tell design points apart: the workload and the hardware numbers."""
    shared = study.workload_axes + len(study.sets)
    axes = block.display_grid.axes
    return [axis.name for axis in axes[:shared]]


def _ratios(table: Columns, points: list[str], chosen: Choice) -> Columns:
    """Each column over that of the first row with the same design point."""
    import pandas as pd

    columns = dict.fromkeys([*points, *chosen.values()])
    frame = pd.DataFrame({name: table[name] for name in columns})
    first = frame.drop_duplicates(points)
    joined = frame[points].merge(first, on=points, how="left")
    ratios: Columns = {}
    for ratio, column in chosen.items():
        ratios[ratio] = _over(frame[column], joined[column])
    return ratios


def _over(values: pd.Series[float], reference: pd.Series[float]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: NDArray[np.float64] = values.to_numpy(float) / reference.to_numpy(float)
    return ratio


def difference_of(block: Block, reference: Block) -> str:
    """What differs between two blocks besides the system, in words; empty where nothing does."""
    machine, other = block.platform, reference.platform
    if machine.name == other.name and machine.roles == other.roles:
        return ""
    differences = [_gpus(machine, other), _widths(machine, other)]
    if machine.label != other.label:
        differences.insert(0, f"on {machine.label} against {other.label}")
    return ", ".join(filter(None, differences))


def _gpus(machine: Platform, other: Platform) -> str:
    own = _number(machine, "gpu", "count")
    theirs = _number(other, "gpu", "count")
    if own is None or theirs is None or own == theirs:
        return ""
    return f"{own:g} GPUs against {theirs:g}"


def _widths(machine: Platform, other: Platform) -> str:
    """Precisions that differ, in bits."""
    differences = []
    for name in PRECISIONS:
        own = _number(machine, "precision", name)
        theirs = _number(other, "precision", name)
        if own is not None and theirs is not None and own != theirs:
            differences.append(f"{name} of {8 * own:g} bit against {8 * theirs:g}")
    return ", ".join(differences)


def _number(platform: Platform, role: str, key: str) -> float | None:
    if role not in platform.roles:
        return None
    number = platform.roles[role].numbers.get(key)
    return number.si if number else None


def _noted(columns: Columns, difference: str) -> NDArray[np.str_]:
    """Notes with one more sentence."""
    notes = columns["note"].astype(str)
    longer = np.strings.add(notes, f"; {difference}")
    return np.where(notes == "", difference, longer)


def _with_prices(
    notes: NDArray[np.generic], prices: NDArray[np.generic]
) -> NDArray[np.str_]:
    """Notes with one sentence more where a price differs from that of the first row.

    Args:
        notes: of each row.
        prices: cost_usd over that of the first row; NaN where either has none [1].
    """
    before = notes.astype(str)
    ratios = np.nan_to_num(prices.astype(float), nan=1.0)
    distinct, places = np.unique(ratios, return_inverse=True)
    sentences = [_price_sentence(price) for price in distinct]
    sentence = np.array(sentences)[places]
    is_longer = (before != "") & (sentence != "")
    joint = np.where(is_longer, "; ", "")
    beginning = np.strings.add(before, joint)
    return np.strings.add(beginning, sentence)


def _price_sentence(price: float) -> str:
    """What a price says; nothing where it is that of the first row."""
    differs = abs(price - 1) > _ROUNDING
    return f"costs {three_digits(price)} times as much" if differs else ""
