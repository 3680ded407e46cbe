"""`nearkv solve`: the best value of a knob, a proven bound, and what the paper's rules pick."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Booleans, Numbers, Real
from nearkv.costmodel.model.registry import Knob, System, find_knob, find_system
from nearkv.hardware.errors import InputError
from nearkv.hardware.machine import MissingNumberError
from nearkv.solvers.knobs import KnobSetting, LackingError, Resolved, resolve_knobs
from nearkv.solvers.objective import STEP, TOTAL, Timed
from nearkv.sweeps.evaluate.columns import check_rows, columns, stack
from nearkv.sweeps.evaluate.no_effect import warn_of_no_effect
from nearkv.sweeps.explore.rows import lacks_answer
from nearkv.sweeps.study.grid import Block, Slices, shape_of
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Columns, Row, Rows

ROUNDING = 1e-12
"""A relative difference below this is rounding."""
STEP_KNOBS = ("alpha", "interval")
"""Knobs that papers choose for one decode step (HILOS sec. 4.2, 4.3)."""
NOTABLE = 0.005
"""Share of the whole request by which the best of a step takes longer, if that is told [1]."""
MEASURES: Mapping[Timed, tuple[str, str, float]] = {
    STEP: ("step_ms", "bound_ms", 1e3),
    TOTAL: ("total_s", "bound_s", 1.0),
}
"""Column of what is made short, column of its bound, and units a second."""
PAPER = "paper"
"""The rule that a paper prints first; its columns are named `rule` alone."""


@dataclass(frozen=True)
class BestMeasured:
    """The best value of a knob as a paper measured it.

    Attributes:
        value: of the knob [1].
        who: measured it, on which models, where.
        claim: id of the claim, as in docs/misses.md.
    """

    value: float
    who: str
    claim: str


NOTHING_MEASURED: Mapping[str, BestMeasured] = MappingProxyType({})


def find_best_knob(
    study: Study, knob: str, measured: Mapping[str, BestMeasured] = NOTHING_MEASURED
) -> Columns:
    """Solve one knob of a system at every design point: for the whole request, as `auto` does.

    Those of `STEP_KNOBS` are solved for one decode step, as their papers do.

    Args:
        study: what to evaluate; every system in it must have the knob.
        knob: its name.
        measured: system -> the best value that its paper measured.

    Returns:
        Columns with a row per point:

        - `value`: of the knob; `total_s` with it;
        - `bound_s`: a time that no value beats; `gap`: the relative distance to it;
        - `rule`: the value that a rule of the paper picks, for each rule whose numbers the machine
          has; `rule_total_s`, and `rule_loss`, how much longer that takes. Rules beyond the first
          carry their own name behind `rule`;
        - `measured`, `measured_total_s`, `measured_loss`: likewise of the value that the paper
          measured to be best;
        - `step_ms`, `bound_ms`, `rule_step_ms`: in place of seconds, where a step is solved;
          `auto_value` and `auto_total_s` where the value that `auto` takes makes the whole request
          shorter by more than `NOTABLE`;
        - `bound_by`: of a share, the resources that meet at the optimum; `x_over_kv`: bytes of X
          over bytes of K and V;
        - with a band, `value_p05` and so on, how far the value moves, and `regret_p05` and so on,
          the loss of `value` in the draws.

    Raises:
        InputError: a system has no such knob, or the study cannot be evaluated.
    """
    if knob in study.knobs:
        raise InputError(f"--knob {knob} cannot be set: it is what is being solved")
    for name in study.systems:
        _check_solvable(find_system(name), knob, study.band)
    solved = blocks(replace(study, knobs={**study.knobs, knob: ("auto",)}))
    check_rows(solved)
    warn_of_no_effect(study, solved)
    return stack(
        [
            _solved(block, box, knob, measured.get(block.system.name))
            for block in solved
            for box in block.grid.boxes(block.at_once)
        ]
    )


def _check_solvable(system: System, name: str, band: float) -> None:
    """Refuse a knob that another question solves, or whose values have no band.

    Raises:
        InputError: it is one.
    """
    knob = find_knob(system, name)
    where = f"{system.name}: {name}"
    if knob.sets:
        advice = f"ask `nearkv solve hardware --vary {knob.sets}`"
        raise InputError(f"{where} stands for a hardware number; {advice}")
    if knob.solver:
        advice = "ask `nearkv compare`, where auto solves all of them"
        raise InputError(f"{where} is chosen together with other knobs; {advice}")
    if knob.choices and band:
        advice = f"ask `nearkv compare --knob {name}={','.join(knob.choices)}` for theirs"
        raise InputError(f"--band: {where} has names for values, not a band; {advice}")


def _solved(block: Block, box: Slices, knob: str, measured: BestMeasured | None) -> Columns:
    """All columns of a box with the knob solved, its bound, what binds and the paper's rules."""
    inputs = block.inputs(box)
    system, timed = block.system, STEP if knob in STEP_KNOBS else TOTAL
    _, bound_name, unit = MEASURES[timed]
    resolved = resolve_knobs(system, *inputs, explained=True, timed=timed)
    table: Columns = {}
    for name, column in columns(block, box, resolved=resolved).items():
        is_of_knob = name == knob or name.startswith(f"{knob}_p")
        table[f"value{name.removeprefix(knob)}" if is_of_knob else name] = column
    least = unit * timed(resolved.estimate).seconds
    bound = unit * _bound(resolved, system.knobs[knob], timed)
    beside: dict[str, Real | NDArray[np.generic]] = {
        "value": table["value"].reshape(shape_of(box)),
        bound_name: bound,
        "gap": excess(least, bound),
    }
    if resolved.bound_by is not None and system.knobs[knob].is_continuous:
        beside["bound_by"] = resolved.bound_by
        if knob == "alpha":
            # a system may keep K and V in widths of its own
            _, llm, *_ = inputs
            beside["x_over_kv"] = resolved.estimate.columns.get("x_over_kv", llm.x_over_kv)
    others: dict[str, KnobSetting] = {
        _rule_column(rule): rule for rule in system.knobs[knob].rules
    }
    if measured:
        others["measured"] = measured.value
    for name, value in others.items():
        beside |= _compared(block.given({knob: value}), box, knob, name, least)
    if timed is STEP:
        total = resolved.estimate.total.seconds
        beside |= of_whole_request(total, block.resolved(box), {"auto_value": knob})
    ok = (table["status"] == "ok").reshape(shape_of(box))
    if resolved.tried:
        beside["tried"] = np.asarray(resolved.tried)
    table |= answer_columns(beside, ok)
    if block.band is not None:
        value = table["value"].astype(float).reshape(ok.shape)
        table |= knob_bands(block, box, knob, value, timed)
    return table


def answer_columns(
    cells: Mapping[str, Real | NDArray[np.generic]], ok: Booleans
) -> Columns:
    """Columns of design points, blank where one has no answer.

    Args:
        cells: by column, each as large as the axes that it depends on.
        ok: where there is an answer, as large as all axes.
    """
    shown: Columns = {}
    for name, cell in cells.items():
        blank = "" if np.asarray(cell).dtype.kind == "U" else np.nan
        shown[name] = np.broadcast_to(np.where(ok, cell, blank), ok.shape).ravel()
    return shown


def knob_bands(
    block: Block, box: Slices, knob: str, value: Numbers, timed: Timed
) -> dict[str, Numbers]:
    """Extra time of a request or a step over the knob solved anew for each draw.

    Args:
        block: with a band, the knob solved.
        box: the design points.
        knob: its name.
        value: its best value at the stated numbers, as large as the box; NaN where the design does
            not fit.
        timed: what the knob makes short.

    Returns:
        `regret_p05` and so on, the ends of the loss over the draws, and `regret_mean` [1].
    """
    from nearkv.sweeps.uncertainty.sampled import ends, reduced, sampled

    band = block.band
    assert band is not None
    # a design that does not fit at the stated numbers may fit in some draws
    lowest = block.system.knobs[knob].low
    chosen = np.where(np.isnan(value), lowest, value)

    def of_tile(outer: Slices, inner: Slices) -> dict[str, Numbers]:
        best = sampled(block, outer, timed=timed).seconds(timed)
        seconds = sampled(block, outer, {knob: chosen[inner]}, timed).seconds(timed)
        loss = np.maximum(seconds / best - 1, 0.0)
        columns = ends(band, "regret", loss)
        total = np.nansum(loss, axis=-1)
        known = np.sum(~np.isnan(loss), axis=-1)
        with np.errstate(invalid="ignore"):
            columns["regret_mean"] = total / known
        return columns

    columns = reduced(block, box, of_tile)
    return {name: column.ravel() for name, column in columns.items()}


def _compared(
    block: Block, box: Slices, knob: str, name: str, least: Real
) -> dict[str, Real]:
    """A rule or a value beside the best: what it is, what it takes, and what it loses.

    Args:
        block: with the rule or the value.
        box, knob: as of `_solved`.
        name: of the columns.
        least: what the best takes, in the unit of its column.

    Returns:
        Nothing of a rule whose numbers this machine does not have.
    """
    timed = STEP if knob in STEP_KNOBS else TOTAL
    measure, _, unit = MEASURES[timed]
    try:
        other = block.resolved(box)
    except (LackingError, MissingNumberError):
        return {}
    seconds = np.where(other.estimate.fits.ok, timed(other.estimate).seconds, np.nan)
    return {
        name: other.knobs[knob],
        f"{name}_{measure}": unit * seconds,
        f"{name}_loss": excess(unit * seconds, least),
    }


def _rule_column(rule: str) -> str:
    """Name of the column of a rule; the one that a paper prints first is `rule` alone."""
    suffix = rule.removeprefix(PAPER).removeprefix("-").replace("-", "_")
    return f"rule_{suffix}" if suffix else "rule"


def _bound(resolved: Resolved, knob: Knob, timed: Timed) -> Real:
    """Seconds that no value of a knob beats; NaN where not every value was tried [s].

    Of a count or a choice each value is tried, so that the best of them is its own bound.
    """
    if resolved.tried:
        return np.nan
    is_of_placement = knob.share or (knob.is_continuous and resolved.choice is None)
    if is_of_placement and resolved.placement is not None:
        return resolved.placement.bound
    if knob.is_continuous and resolved.choice is not None:
        return resolved.choice.bound
    return timed(resolved.estimate).seconds


def of_whole_request(
    seconds: Real, auto: Resolved, knobs: Mapping[str, str]
) -> dict[str, Real]:
    """Values and whole request of `auto`, where that is notably shorter; nothing elsewhere.

    Args:
        seconds: of the whole request, at the value that is best for a step [s].
        auto: at that which is best for the whole request.
        knobs: name of a column -> the knob whose value it holds.
    """
    total = auto.estimate.total.seconds
    is_notable = np.greater(seconds, (1 + NOTABLE) * total)
    if not np.any(is_notable):
        return {}
    values = {name: auto.knobs[knob] for name, knob in knobs.items()}
    shown = values | {"auto_total_s": total}
    return {name: np.where(is_notable, value, np.nan) for name, value in shown.items()}


def excess(value: Real, least: Real) -> NDArray[np.float64]:
    """Excess of a value over the least possible, relative to it; 0 within rounding [1]."""
    relative = np.divide(value, least) - 1
    is_rounding = np.abs(relative) < ROUNDING
    return np.where(is_rounding, 0.0, relative)


def why_knob(name: str) -> Callable[[Row], str]:
    """Sentences on rows: how an optimum is known to be one, why it lies there, and what binds."""
    tell = {"alpha": _why_alpha, "interval": _why_spill}.get(name, partial(_why, name))

    def sentence(row: Row) -> str:
        point = f"{row['system']}, {row['model']}"
        return lacks_answer(row, point) or f"{point}: {tell(row)}{why_auto(row)}"

    return sentence


def against(measured: Mapping[str, BestMeasured], rows: Rows) -> Iterator[str]:
    """Say what papers measured to be best, and what it costs over the rows of each system."""
    for system, best in measured.items():
        of_system = [row.get("measured_loss") for row in rows if row["system"] == system]
        losses = [loss for loss in of_system if loss is not None]
        if not losses:
            continue
        ends = dict.fromkeys(f"{loss:.2%}" for loss in (min(losses), max(losses)))
        longer = f"takes {' to '.join(ends)} longer"
        if max(losses) < NOTABLE:
            longer = "is as fast"
        sentence = f"{best.who} measured {best.value:g} to be best, which {longer} here"
        yield f"{sentence} ({best.claim}, docs/misses.md)."


def why_auto(
    row: Row, values: Sequence[str] = ("auto_value",), blank: str = "nothing"
) -> str:
    """Say what `auto` takes instead, where the whole request is notably shorter with it.

    Args:
        row: of an answer.
        values: columns of what it takes.
        blank: words for a value that is blank.
    """
    if row.get("auto_total_s") is None:
        return ""
    taken = ", ".join(blank if row[name] is None else f"{row[name]:.4g}" for name in values)
    other = f"{row['auto_total_s']:.4g} s with {taken}, which auto takes"
    return f" The whole request takes {row['total_s']:.4g} s, and {other}."


def _why_alpha(row: Row) -> str:
    alpha, ratio, bound_by = row["value"], row["x_over_kv"], row["bound_by"]
    times = f"{ratio:g} times the bytes of K and V"
    reason = f"X has {times}; more X would cost more than it saves{_balance(bound_by)}"
    if alpha == 0:
        reason = f"any X would only add to what {bound_by} must do"
    if alpha == 0 and ratio >= 1:
        reason = f"X has {times}, so keeping X only adds to what is read"
    if alpha == 1:
        reason = f"X has {times}; all is X"
    elif bound_by.startswith("memory"):
        reason = f"{reason}; more memory would raise it"
    best = f"alpha = {alpha:.4g} makes a decode step shortest"
    return f"{best}, bound by {bound_by}; {reason}."


def _balance(bound_by: str) -> str:
    """Resources that would move a balance if they were faster: those on either side of it."""
    below, equals, above = bound_by.removeprefix("memory, ").partition(" = ")
    return f"; a faster {above} would raise it, a faster {below} lower it" if equals else ""


def _why(name: str, row: Row) -> str:
    value, share = row["value"], find_knob(find_system(row["system"]), name).share
    best = f"{name} = {value if isinstance(value, str) else format(value, '.4g')}"
    if share and row[share]:
        best = f"{best} at {share} = {row[share]:.4g}"
    if row.get("tried"):
        return f"{best}, the best of {row['tried']:,.0f} values that were tried; no bound is known."
    best = f"{best}, in {row['total_s']:.4g} s in all"
    if not row["bound_s"]:
        return f"{best}; no bound is known."
    if share:
        return f"{best}; no placement takes less."
    if bound_by := row.get("bound_by"):
        is_inside = value not in (0.0, 1.0)  # at an end nothing balances
        return f"{best}, bound by {bound_by}{_balance(bound_by) if is_inside else ''}."
    return f"{best}; the best of all its values, each tried."


def _why_spill(row: Row) -> str:
    interval = find_knob(find_system(row["system"]), "interval")
    optimum = f"c = {row['value']:g} of {interval.low:g} to {interval.high:g}, each tried"
    trade = "rows buffered in host memory against rows that fill a page"
    rule = row.get("rule")
    if rule is None:
        return f"{optimum}; it trades {trade}."
    loss = f"the paper's page over entry, {rule:g}, loses {row['rule_loss']:.2%}"
    return f"{optimum}; it trades {trade}; {loss}; a larger csd.page would raise both."
