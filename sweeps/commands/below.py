"""Sentences below a table, on what its columns leave out and a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np

from nearkv.costmodel.model.estimate import BEYOND_WINDOW
from nearkv.costmodel.model.metrics import COLUMNS, COSTS, is_of_costs
from nearkv.hardware.errors import warn
from nearkv.sweeps.commands.columns_shown import ends_of
from nearkv.sweeps.commands.options import View
from nearkv.sweeps.commands.papers import papers_settings
from nearkv.sweeps.evaluate.prices import price_sentences
from nearkv.sweeps.study.sizes import comma_list
from nearkv.sweeps.study.study import Study, blocks, models_and_labels, sizes_by_default
from nearkv.sweeps.tables.table import Display, Rows, counted, reach
from nearkv.sweeps.tables.unequal import unequal

A_MINUTE = {"ttft_s": 60.0, "tpot_ms": 60e3}
"""A minute to a first token, or to any other, in the unit of its column."""
SHORTAGE = {"reason", "short_of"}
"""Columns that say why a design does not fit."""
NO_POWER = (
    "a device that it owns states no idle_power, or no kernel_power_... of its kernel"
)
"""Reason why a row that runs has no power."""
NO_TERMS = (
    "the platform states no terms of ownership, as a machine of `design` does, "
    f"or {NO_POWER}"
)
"""Reason why a row with a price has none by the hour."""
NO_PRICE = "a part of it states no price; --prices gives it one"
"""Reason why a row has no price, where no sentence names the parts."""
WHY_BLANK = {
    "cost_usd": NO_PRICE,
    **dict.fromkeys(("power_w", "energy_j_tok", "decode_energy_j_tok"), NO_POWER),
    **dict.fromkeys(("usd_hour", "usd_mtok"), NO_TERMS),
}
"""Column -> reason why a row that runs has no number in it."""


def sentences_below(
    rows: Rows, shown: Display, view: View, study: Study | None, extra: Collection[str]
) -> list[str]:
    """Say what a table leaves out, what its bands and prices cover, and what papers set.

    Args:
        rows: with all columns.
        shown: what a reader sees of them.
        view, study, extra: as of `print_table`.
    """
    sentences = _left_out(rows, shown, view, study) if rows else []
    if study is None:
        return sentences
    sentences += sizes_by_default(study, {*rows[0]} if rows else (), shown.names)
    if study.band:
        sentences += _coverage(study, shown.names)
    if study.systems and is_of_costs([*comma_list(view.columns), *extra]):
        sentences += price_sentences(blocks(study))
    return [*sentences, *papers_settings(study)]


def _left_out(rows: Rows, shown: Display, view: View, study: Study | None) -> list[str]:
    """Machines that make rows unequal, and why rows have no answer."""
    sentences = []
    # a cell of a grid that no machine serves has no system
    named = [row for row in rows if row.get("system")]
    differ = len({row.get("platform") for row in rows}) > 1
    names_no_machine = bool(view.columns) and differ and "platform" not in shown.names
    if view.pivot or names_no_machine:
        sentences += unequal(named, shown.names)
    why = [*_unanswered(rows, shown.names), *_blanks(rows, shown.names, view, study)]
    why += _slow(rows, view)
    short = [row["system"] for row in named if row.get("status") == "infeasible"]
    if short:
        asked = f"nearkv estimate {short[0]} ... --footprint"
        why.append(
            f"{asked} lists what lies in each memory, and which number would do, if any."
        )
    return [*sentences, *dict.fromkeys(why)]


def _unanswered(rows: Rows, shown: Collection[str]) -> Iterator[str]:
    """Sentences on rows without an answer, where the columns that are shown do not say why."""
    for row in rows:
        name, status = row.get("system", "It"), row.get("status")
        reason, short_of = row.get("reason"), row.get("short_of")
        if status == "not-modelled" and reason and "reason" not in shown:
            yield f"n/m: {name}: {reason}."
        if status == "infeasible" and short_of and not SHORTAGE & {*shown}:
            yield f"OOM: {name} lacks memory in {short_of}."


def _blanks(
    rows: Rows, shown: Collection[str], view: View, study: Study | None
) -> Iterator[str]:
    """Sentences on systems that run and have no number in a column that was asked for.

    Of machines to buy, in a usual column, too.
    """
    usual = WHY_BLANK if "server" in rows[0] else ()
    for name in comma_list(view.columns) or [each for each in shown if each in usual]:
        if name not in COLUMNS:
            continue
        blank = [
            row for row in rows if row.get("status", "ok") == "ok" and row[name] is None
        ]
        advice = WHY_BLANK.get(name, f"`nearkv columns show {name}` says why")
        counts = Counter[tuple[str, str]]()
        for row in blank:
            lacks_price = name in COSTS and row.get("cost_usd") is None
            if lacks_price and study:  # sentences on prices name the parts
                continue
            counts[str(row.get("system")), NO_PRICE if lacks_price else advice] += 1
        for (system, why), count in counts.items():
            where = f"at {counted(count, 'design point')}"
            yield f"-: {system} runs {where} without {name}; {why}."


def _slow(rows: Rows, view: View) -> Iterator[str]:
    """Sentences on answers too slow to wait for, where machines to buy are compared."""
    if "server" not in rows[0] and not is_of_costs(comma_list(view.columns)):
        return
    for name, minute in A_MINUTE.items():
        values = [row.get(name) for row in rows if row.get("status", "ok") == "ok"]
        known = np.array(values, float)
        slow = known[known > minute]
        if len(slow):
            of = f"{len(slow)} of {counted(len(rows), 'row')}"
            yield f"slow: {name} {reach(slow)} in {of}, more than a minute."


def _coverage(study: Study, names: Collection[str]) -> list[str]:
    """Say how many measured runs lie in bands as those of the columns that are shown."""
    from nearkv.sweeps.uncertainty.made_of import coverage_told
    from nearkv.sweeps.uncertainty.model_error import RATIO, VALUE

    ends = {name for name in names if name.endswith(ends_of(study))}
    ratios = {name for name in ends if "speedup_" in name or "_ratio_" in name}
    kinds = {VALUE: ends - ratios, RATIO: ratios}
    shown = [kind for kind, columns in kinds.items() if columns]
    return [coverage_told(blocks(study), shown)] if shown else []


def counted_by(rows: Rows, column: str, noun: str) -> str:
    """Count the rows, and those of each value of a column, the most first."""
    counts = Counter(row[column] for row in rows)
    parts = ", ".join(f"{count} {value}" for value, count in counts.most_common())
    return f"{counted(len(rows), noun)}: {parts}."


def warn_beyond_windows(rows: Rows, study: Study) -> None:
    """Warn of each model that is asked for more tokens than it was made for.

    Where positions are learned, as OPT's, none exist beyond. As in the papers, the question is
    then of the model's shapes alone: no warning. A model with rotary positions runs, and errs.
    """
    for part, label in zip(*models_and_labels(study.models), strict=True):
        beyond = [
            row["context_tok"]
            for row in rows
            if row.get("model") == label and BEYOND_WINDOW in str(row.get("note"))
        ]
        if beyond and not part.si["positions"]:
            window = f"{label} was made for {part.si['longest']:,.0f} tokens"
            times = "times and memory are right, what it writes would not be"
            reach = f"is up to {max(beyond):,.0f}"
            if max(beyond) <= part.si["longest"]:
                reach = "with output_tokens exceeds it"
            warn(f"{window}, and context_tok {reach}: {times}")
