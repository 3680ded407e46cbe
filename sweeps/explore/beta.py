"""`nearkv solve beta`: how to split K and V between host DRAM and SmartSSD."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.solvers.beta import NOTHING, BestBeta, Rule
from nearkv.solvers.beta import best_beta as solve_beta
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.evaluate.evaluate import Columns, columns, stack
from nearkv.sweeps.explore.knobs import excess
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.study.study import Block, Study


def best_beta(study: Study, robust: float = 0.0) -> Columns:
    """Split K and V between host DRAM and SmartSSD, at every design point.

    Args:
        study: what to evaluate.
        robust: as of `best_knob`.

    Returns:
        `value`, the beta that is optimal in eq. 2 under eq. 3, with the time of its two paths over
        a decode step, `bound_ms` that no split beats, the relative `gap` to it and what binds;
        `rule` (eq. 4 as printed) and `rule_sec54`, each with its loss once cut to what fits;
        `step_ms` and where K and V live at the optimum. Eq. 2 has no write-back of promoted tokens
        and no queue for the drive: `fastest` is the beta whose whole step is shortest, and
        `fastest_ms` that step. Where nothing is off the GPU there is no
        beta. With a band, how far beta moves (`value_p05` and so on), what `value` loses in each
        draw (`regret_p05`), and with `robust` the share in host DRAM of the split that is best for
        bad draws, `robust`.

    Raises:
        InputError: a value for beta itself, another knob left to `auto`, or a study that cannot be
            evaluated.

    Source: HillInfer sec. 4.3, 5.4.
    """
    if robust and not study.band:
        raise InputError(
            "--robust is over the draws of a band; give --band, as in --band 90"
        )
    if "hot_share" in study.knobs:
        raise InputError("--knob hot_share: is what is solved for; leave it out")
    study_blocks = searched(replace(study, systems=("hillinfer",)))
    return stack([_with_draws(block, robust) for block in study_blocks])


def _with_draws(block: Block, robust: float) -> Columns:
    """The columns of a block, and with a band what becomes of its splits over the draws."""
    table = _beta_columns(block)
    if block.band is None:
        return table
    from nearkv.sweeps.explore.beta_bands import beta_bands

    ok = table["status"] == "ok"
    hot_share = table["hot_share"].astype(float)
    return table | beta_bands(block, np.where(ok, hot_share, np.nan), robust)


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
    for name, column in (_answer_columns(answer) | _fastest(block, answer)).items():
        blank = "" if name == "bound_by" else np.nan
        shown = np.where(ok, column, blank)
        table[name] = np.broadcast_to(shown, block.grid.shape).ravel()
    return table


def _fastest(block: Block, answer: BestBeta) -> dict[str, Real]:
    """The split whose whole step is shortest, and that step [ms]."""
    solved = replace(block, requested={**block.requested, "hot_share": "auto"})
    resolved = resolve_knobs(solved.system, *solved.inputs(block.grid.whole))
    is_split = answer.bound_by != NOTHING
    hot_share = np.where(is_split, resolved.knobs["hot_share"], np.nan)
    with np.errstate(divide="ignore"):
        beta = hot_share / (1 - hot_share)
    return {"fastest": beta, "fastest_ms": 1e3 * resolved.estimate.step.seconds}


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
