"""`nearkv solve beta`: how to split K and V between host DRAM and SmartSSD."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.metrics import COLUMNS
from nearkv.costmodel.span import Real
from nearkv.hardware.errors import InputError
from nearkv.solvers.beta import LINK, NOTHING, BestBeta, Rule
from nearkv.solvers.beta import best_beta as solve_beta
from nearkv.sweeps.evaluation.evaluate import Columns, columns, stack
from nearkv.sweeps.explore.knobs import excess
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.explore.rows import distinct, rows_of
from nearkv.sweeps.space.study import Block, Study


def best_beta(study: Study) -> Columns:
    """Split K and V between host DRAM and SmartSSD, at every design point.

    Source: HillInfer sec. 4.3, 5.4.

    Returns:
        `value`, the beta that is optimal in eq. 2 under eq. 3, with the time of its two paths over
        a decode step, `bound_ms` that no split beats, the relative `gap` to it and what binds;
        `rule` (eq. 4 as printed) and `rule_sec54`, each with its loss once cut to what fits;
        `step_ms` and where K and V live at the optimum. Where nothing is off the GPU there is no
        beta.

    Raises:
        InputError: a value for beta itself, another knob left to `auto`, or a study that cannot be
            evaluated.
    """
    if "hot_share" in study.knobs:
        raise InputError("--knob hot_share: is what is solved for; leave it out")
    laid = searched(replace(study, systems=("hillinfer",)))
    return stack([_beta_columns(block) for block in laid])


def _beta_columns(block: Block) -> Columns:
    hw, llm, work, requested = block.inputs(block.grid.whole)
    knobs: dict[str, Real] = {}
    for name, value in requested.items():
        if name in ("hot_share", "chunks"):
            continue
        if isinstance(value, str):
            raise InputError(
                f"--knob {name}={value}: give it a value; solve beta looks for beta alone"
            )
        knobs[name] = np.asarray(value, float)
    answer = solve_beta(hw, llm, work, knobs)
    chosen = replace(
        block, requested={**block.requested, "hot_share": answer.best.hot_share}
    )
    evaluated = columns(chosen, block.grid.whole)
    table = {
        name: evaluated[name]
        for name in evaluated
        if name == "step_ms" or name not in COLUMNS
    }
    ok = (table["status"] == "ok").reshape(block.grid.shape)
    for name, column in _answer_columns(answer).items():
        blank = "" if name == "bound_by" else np.nan
        shown = np.where(ok, column, blank)
        table[name] = np.broadcast_to(shown, block.grid.shape).ravel()
    return table


def _answer_columns(answer: BestBeta) -> dict[str, Real | NDArray[np.str_]]:
    best, is_split = answer.best, answer.bound_by != NOTHING
    return {
        "hot_share": np.where(is_split, best.hot_share, np.nan),
        "value": np.where(is_split, best.beta, np.nan),
        "t_cpu_ms": 1e3 * best.cpu,
        "t_csd_ms": 1e3 * best.csd,
        "bound_ms": 1e3 * answer.bound,
        "gap": excess(best.seconds, np.where(is_split, answer.bound, np.nan)),
        "bound_by": answer.bound_by,
        **_rule_columns("rule", answer.eq4, answer),
        **_rule_columns("rule_sec54", answer.sec54, answer),
    }


def _rule_columns(name: str, rule: Rule, answer: BestBeta) -> dict[str, Real]:
    is_split = answer.bound_by != NOTHING
    return {
        name: np.where(is_split, rule.beta, np.nan),
        f"{name}_loss": excess(
            rule.at.seconds, np.where(is_split, answer.best.seconds, np.nan)
        ),
    }


def why_beta(answer: Columns) -> list[str]:
    """Sentences that say what ends each beta and which path waits, one per design point."""
    return distinct(_why_beta(row) for row in rows_of(answer))


def _why_beta(row: dict[str, Any]) -> str:
    model, bound_by = row["model"], row["bound_by"]
    cpu, csd = row["t_cpu_ms"], row["t_csd_ms"]
    if row["status"] != "ok":
        return f"{model}: {row['status']}; {row['reason']}."
    if bound_by == NOTHING:
        return f"{model}: the whole KV cache fits the GPU, so there is nothing to split."
    optimum = f"{model}: beta = {row['value']:.4g}, bound by"
    if bound_by == LINK:
        return (
            f"{optimum} the GPU's link, which the tokens of both paths cross at any beta; "
            f"T_CPU = {cpu:.4g} ms and T_SmartSSD = {csd:.4g} ms queue there for "
            f"{row['bound_ms']:.4g} ms in all."
        )
    sign, straggler = ">", "the CPU is the straggler"
    if cpu < csd:
        sign, straggler = "<", "the SmartSSD is the straggler"
    if np.isclose(cpu, csd):
        sign, straggler = "=", "neither waits"
    times = f"T_CPU = {cpu:.4g} ms {sign} T_SmartSSD = {csd:.4g} ms"
    return f"{optimum} {bound_by}; {times}: {straggler}."
