"""Systems side by side: ratios over the first, and what differs besides the system."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearkv.hardware.catalog import Platform
from nearkv.hardware.errors import unknown
from nearkv.sweeps.evaluation.evaluate import Columns, evaluate, stack
from nearkv.sweeps.evaluation.prices import with_prices
from nearkv.sweeps.evaluation.requested import BOTTLENECK
from nearkv.sweeps.evaluation.text_columns import three_digits
from nearkv.sweeps.evaluation.unread_sets import checked_blocks
from nearkv.sweeps.space.study import Block, Study, blocks

if TYPE_CHECKING:
    import pandas as pd

SPEEDUPS = {"speedup": "decode_tok_s", "total_speedup": "throughput_tok_s"}
"""Ratios that every comparison has, and the column of each."""
Choice = dict[str, str]
"""Name of a ratio -> the column that it compares."""
RIVALS = ("system", "platform")
"""What is compared: the first of these columns that differs."""
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
    table["note"] = with_prices(table["note"], prices["price"])
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
    """Say which system or platform decodes fastest, and how many rows have no answer."""
    import pandas as pd

    rivals = next((name for name in RIVALS if len(set(table[name])) > 1), "")
    if not rivals:
        return []
    names = list(dict.fromkeys(map(str, table[rivals])))
    points = _points(blocks(study)[0], study)
    columns = dict.fromkeys([*points, rivals, "status", *SPEEDUPS, *SPEEDUPS.values()])
    frame = pd.DataFrame({name: table[name] for name in columns})
    ordered = frame.sort_values("decode_tok_s", ascending=False, kind="stable")
    fastest = ordered.dropna(subset=["decode_tok_s"]).drop_duplicates(points)
    number = len(frame.drop_duplicates(points))
    sentences = []
    for rival, rows in fastest.groupby(rivals, sort=False):
        where = f" at {len(rows)} of {number} points" if number > 1 else ""
        times = _times(rows, names[0])
        sentences.append(f"{rival} decodes fastest{where}{times}")
    unanswered = int((frame["status"] != "ok").sum())
    if unanswered:
        sentences.append(f"{unanswered} of {len(frame)} rows have no answer")
    return [f"{'; '.join(sentences)}."]


def _times(rows: pd.DataFrame, first: str) -> str:
    """How many times the first system's rate the fastest system's is."""
    low = rows["speedup"].min()
    high = rows["speedup"].max()
    if not high > 1:
        return ""
    times = three_digits(low)
    if not np.isclose(low, high):
        times = f"{times} to {three_digits(high)}"
    return f", {times} times {first}"


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
