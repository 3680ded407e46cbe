"""`nearkv solve`: the best value of a knob, a proven bound, and what the paper's rules pick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.registry import find_knob, find_system
from nearkv.hardware.errors import InputError
from nearkv.solvers.knobs import Resolved, resolve_knobs
from nearkv.solvers.shares.binding import binding
from nearkv.sweeps.evaluate.evaluate import Columns, evaluate, stack
from nearkv.sweeps.evaluate.unread_sets import warn_of_no_effect
from nearkv.sweeps.explore.rows import Row, lacks_answer, rows_of, sentences
from nearkv.sweeps.study.study import Block, Study, blocks

ROUNDING = 1e-12
"""A relative difference below this is rounding."""
PAPER = "paper"
"""The rule that a paper prints first; its columns are named `rule` alone."""


def best_knob(study: Study, knob: str, robust: float = 0.0) -> Columns:
    """Solve one knob of a system for the fastest decode step, at every design point.

    Args:
        study: what to evaluate; every system in it must have the knob.
        knob: its name.
        robust: share of the draws of the study's band that the knob is also made best for; 1 for
            the worst machine within all ranges; 0 for none. See `robust_knob`.

    Returns:
        `value` of the knob, its `step_ms`, `bound_ms` that no value beats and `gap`, the relative
        distance between both. For each rule of the paper `rule`, the value it picks, its
        `rule_step_ms` and `rule_loss`, how much longer its step takes; rules beyond the first carry
        their own name behind `rule`. A share also comes with `bound_by`, the resources that meet at
        the optimum, and `x_over_kv`, bytes of X over bytes of K and V. With a band, how far the
        value moves (`value_p05` and so on) and what `value` loses in each draw (`regret_p05`).

    Raises:
        InputError: a system has no such knob, or the study cannot be evaluated.
    """
    if robust and not study.band:
        raise InputError(
            "--robust is over the draws of a band; give --band, as in --band 90"
        )
    if knob in study.knobs:
        raise InputError(f"--knob {knob}: is what is solved for; leave it out")
    for name in study.systems:
        find_knob(find_system(name), knob)
    asked = _asking(study, knob, "auto")
    solved = blocks(asked)
    warn_of_no_effect(asked, solved)
    answer = stack([_certified(block, knob) for block in solved])
    for rule in _rules(solved, knob):
        answer |= _ruled(replace(study, band=0.0), knob, rule, answer)
    if study.band:
        answer |= _over_draws(solved, knob, answer, robust)
    return _blank_without_answer(answer)


def _over_draws(solved: list[Block], knob: str, answer: Columns, robust: float) -> Columns:
    """What the solved value costs at every draw, and the value that is best for bad draws."""
    from nearkv.sweeps.explore.knob_bands import regrets
    from nearkv.sweeps.explore.robust import robust_knob

    ok = answer["status"] == "ok"
    value = np.where(ok, answer["value"].astype(float), np.nan)
    columns = regrets(solved, knob, value)
    if robust:
        columns |= robust_knob(solved, knob, value, robust)
    return columns


def _rules(solved: list[Block], knob: str) -> list[str]:
    """Rules of the papers for a knob, over all systems."""
    rules: dict[str, None] = {}
    for block in solved:
        own = find_knob(block.system, knob).rules
        rules |= dict.fromkeys(own)
    return list(rules)


def _asking(study: Study, knob: str, value: str) -> Study:
    """The study with a value of the knob, or what chooses it."""
    knobs = {**study.knobs, knob: value}
    return replace(study, knobs=knobs)


def _certified(block: Block, knob: str) -> Columns:
    """All columns of a block with the knob solved, its bound and what binds."""
    (table,) = evaluate([block])
    answer: Columns = {}
    for name, column in table.items():
        answer[_renamed(name, knob)] = column
    shape = block.grid.shape
    for name, certified in _certificate(block, knob).items():
        answer[name] = np.broadcast_to(certified, shape).ravel()
    return answer


def _renamed(name: str, knob: str) -> str:
    """Names of columns of the knob that is solved begin with `value`."""
    is_of_knob = name == knob or name.startswith(f"{knob}_p")
    return f"value{name.removeprefix(knob)}" if is_of_knob else name


def _certificate(block: Block, knob: str) -> dict[str, Real | NDArray[np.str_]]:
    hw, llm, work, requested = block.inputs(block.grid.whole)
    resolved = resolve_knobs(block.system, hw, llm, work, requested)
    seconds = resolved.estimate.step.seconds
    bound = seconds  # of a knob each value of which is tried
    if resolved.choice is not None:
        bound = resolved.choice.bound
    certificate: dict[str, Real | NDArray[np.str_]] = {
        "bound_ms": 1e3 * bound,
        "gap": excess(seconds, bound),
    }
    if block.system.knobs[knob].kind == "share":
        certificate["bound_by"] = _meeting(block, knob, resolved)
        x = llm.sum_over_layers(lambda kind: kind.x_bytes(1, 1))
        certificate["x_over_kv"] = x / llm.kv_cache_bytes(1, 1)
    return certificate


def excess(value: Real, least: Real) -> NDArray[np.float64]:
    """How much a value exceeds the least possible, relative to it; 0 within rounding [1]."""
    relative = np.divide(value, least) - 1
    rounded: NDArray[np.float64] = np.where(np.abs(relative) < ROUNDING, 0.0, relative)
    return rounded


def _meeting(block: Block, knob: str, resolved: Resolved) -> NDArray[np.str_]:
    """The resources that take equally long at the optimal share."""
    choice = resolved.choice
    assert choice is not None
    hw, llm, work, _ = block.inputs(block.grid.whole)
    others = {name: value for name, value in resolved.knobs.items() if name != knob}
    start = block.system(hw, llm, work, {**others, knob: choice.start})
    end = block.system(hw, llm, work, {**others, knob: choice.end})
    return binding(start.step, end.step, choice)


def _ruled(study: Study, knob: str, rule: str, answer: Columns) -> Columns:
    """What a rule of the paper picks at the same points, and what it loses.

    Blank for a system that does not have the rule.
    """
    value, steps = np.full((2, len(answer["system"])), np.nan)
    for name in study.systems:
        if rule not in find_knob(find_system(name), knob).rules:
            continue
        alone = replace(study, systems=(name,))
        asked = _asking(alone, knob, rule)
        table = stack(evaluate(blocks(asked)))
        rows = answer["system"] == name
        value[rows] = table[knob]
        steps[rows] = table["step_ms"]
    own = rule.removeprefix(PAPER).replace("-", "_")
    return {
        f"rule{own}": value,
        f"rule{own}_step_ms": steps,
        f"rule{own}_loss": excess(steps, answer["step_ms"].astype(float)),
    }


def _blank_without_answer(answer: Columns) -> Columns:
    """The same columns, NaN or empty where the system does not fit."""
    ok = answer["status"] == "ok"
    certified = ("value", "bound_ms", "gap", "bound_by", "x_over_kv")
    for name, column in answer.items():
        blank = "" if column.dtype.kind == "U" else np.nan
        if name in certified or name.startswith("rule"):
            answer[name] = np.where(ok, column, blank)
    return answer


def why_alpha(answer: Columns) -> list[str]:
    """Say why each optimum of alpha lies where it does."""
    return sentences(map(_why_alpha, rows_of(answer)))


def _why_alpha(row: Row) -> str:
    point = f"{row['system']}, {row['model']}"
    if lacking := lacks_answer(row, point):
        return lacking
    alpha, ratio, bound_by = row["value"], row["x_over_kv"], row["bound_by"]
    times = f"{ratio:g} times the bytes of K and V (KV/X = 2/g)"
    reason = f"X has {times}; more X would cost more than it saves{_balance(bound_by)}"
    if alpha == 0:
        reason = f"any X would only add to what {bound_by} must do"
    if alpha == 0 and ratio >= 1:
        reason = f"X has {times}, so keeping X only adds to what is read"
    if bound_by.startswith("memory"):
        reason = f"{reason}; more memory would raise it"
    return f"{point}: alpha = {alpha:.4g}, bound by {bound_by}; {reason}."


def _balance(bound_by: str) -> str:
    """What would move a balance: the resource that slows on either side of it."""
    below, equals, above = bound_by.removeprefix("memory, ").partition(" = ")
    return f"; a faster {above} would raise it, a faster {below} lower it" if equals else ""


def why_spill(answer: Columns) -> list[str]:
    """Say why each optimum of the spill interval lies where it does."""
    return sentences(map(_why_spill, rows_of(answer)))


def _why_spill(row: Row) -> str:
    point = f"{row['system']}, {row['model']}"
    if lacking := lacks_answer(row, point):
        return lacking
    optimum = f"{point}: c = {row['value']:g} of 1 to 256, each tried"
    trade = "rows buffered in host memory against rows that fill a page"
    rule = row.get("rule")
    if rule is None or np.isnan(rule):
        return f"{optimum}; it trades {trade}."
    loss = f"the paper's page over entry, {rule:g}, loses {row['rule_loss']:.2%}"
    return f"{optimum}; it trades {trade}; {loss}; a larger csd.page would raise both."
