"""`nearkv solve beta`: how to split K and V between host DRAM and SmartSSD."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers, Real
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.hardware.errors import InputError
from nearkv.solvers.beta import (
    BALANCE,
    CAPACITY,
    HOST,
    LINK,
    NOT_SPLIT,
    BestBeta,
    best_beta,
)
from nearkv.solvers.objective import STEP
from nearkv.sweeps.evaluate.columns import columns, stack
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.explore.knob import (
    answer_columns,
    excess,
    knob_bands,
    of_whole_request,
    why_auto,
)
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.explore.rows import lacks_answer
from nearkv.sweeps.study.grid import Block, Slices
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns, Row


def find_beta(study: Study) -> Columns:
    """Split K and V between host DRAM and SmartSSD, at every design point.

    Args:
        study: what to evaluate.

    Returns:
        Columns with a row per point:

        - `value`: the beta that is optimal in eq. 2 under eq. 3, with the time of its two paths
          over a decode step and what binds;
        - `bound_ms`: a time that no split beats; `gap`: the relative distance to it;
        - `rule` (eq. 4 as printed) and `rule_sec54`, each with its loss once cut to what fits;
        - `step_ms`, and where K and V live at the optimum;
        - `auto_value` and `auto_total_s`, as of `find_best_knob`: eq. 2 has no write-back of
          promoted tokens and no queue for the drive; the value is blank where it leaves nothing
          on the drive;
        - with a band, `value_p05` and so on, how far beta moves, and `regret_p05` and so on, the
          loss of `value` in the draws.

        Where nothing is off the GPU there is no beta.

    Raises:
        InputError: a value for beta itself, another knob left to `auto`, or a study that cannot be
            evaluated.

    Source: HillInfer sec. 4.3, 5.4.
    """
    if "hot_share" in study.knobs:
        raise InputError("--knob hot_share cannot be set: it is what is being solved")
    study_blocks = searched(replace(study, systems=("hillinfer",)))
    warn_of_unread(study_blocks)
    return stack([_solved(block) for block in study_blocks])


def _over_draws(block: Block, hot_share: Numbers) -> Columns:
    """Ends of the best beta of each draw, and what the split as stated loses."""
    from nearkv.sweeps.uncertainty.sampled import ends, reduced, sampled

    band, box = block.band, block.grid.whole
    assert band is not None
    solved = block.given({"hot_share": "auto"})

    def of_tile(outer: Slices, _: Slices) -> dict[str, Numbers]:
        share = sampled(solved, outer, timed=STEP).column("hot_share")
        with np.errstate(divide="ignore"):
            return ends(band, "value", share / (1 - share))

    betas = reduced(solved, box, of_tile)
    stated = hot_share.reshape(block.grid.shape)
    losses = knob_bands(solved, box, "hot_share", stated, STEP)
    is_split = ~np.isnan(hot_share)
    return {
        name: np.where(is_split, column.ravel(), np.nan)
        for name, column in (betas | losses).items()
    }


def _solved(block: Block) -> Columns:
    hw, llm, work, settings = block.inputs(block.grid.whole)
    knobs: dict[str, Real] = {}
    for name, value in settings.items():
        if name in ("hot_share", "chunks"):
            continue
        rule = block.system.knobs[name].rules.get(str(value))
        number = rule(hw, llm, work, knobs) if rule else value
        if isinstance(number, str):
            raise InputError(
                f"--knob {name}={value}: give it a value; solve beta looks for beta alone"
            )
        knobs[name] = np.asarray(number, float)
    answer = best_beta(hw, llm, block.system.workload(work, knobs), knobs)
    chosen = block.given({"hot_share": answer.best.hot_share})
    evaluated = columns(chosen, block.grid.whole)
    table: Columns = {
        name: evaluated[name]
        for name in evaluated
        if name in ("step_ms", "total_s") or name not in COLUMNS
    }
    ok = (table["status"] == "ok").reshape(block.grid.shape)
    auto = block.given({"hot_share": "auto"}).resolved(block.grid.whole)
    seconds = table["total_s"].reshape(ok.shape)
    whole = of_whole_request(seconds, auto, {"auto_value": "hot_share"})
    if whole:
        # with nothing on the drive there is no beta
        share = np.where(np.equal(whole["auto_value"], 1), np.nan, whole["auto_value"])
        whole["auto_value"] = share / (1 - share)
    table |= answer_columns({**_answer_columns(answer), **whole}, ok)
    if block.band is not None:
        table |= _over_draws(block, table["hot_share"].astype(float))
    return table


def _answer_columns(answer: BestBeta) -> dict[str, Real | NDArray[np.str_]]:
    """Columns of an answer, numbers blank where nothing is split."""
    best, one = answer.best, np.where(answer.bound_by == NOT_SPLIT, np.nan, 1.0)
    columns: dict[str, Real | NDArray[np.str_]] = {
        "hot_share": one * best.hot_share,
        "value": one * best.beta,
        "t_cpu_ms": one * 1e3 * best.cpu,
        "t_csd_ms": one * 1e3 * best.csd,
        "bound_ms": one * 1e3 * answer.bound,
        "gap": excess(best.seconds, one * answer.bound),
        "bound_by": answer.bound_by,
    }
    for name, rule in (("rule", answer.eq4), ("rule_sec54", answer.sec54)):
        columns[name] = one * rule.beta
        columns[f"{name}_loss"] = excess(rule.at.seconds, one * best.seconds)
    return columns


MOVES_BETA = {
    BALANCE: "a faster CPU would raise it, a faster SmartSSD lower it",
    HOST: "more host.memory would raise it",
    CAPACITY: "a larger SmartSSD would lower it",
}
"""Say what would move beta, by what binds it."""


def why_beta(row: Row) -> str:
    """Say which path is the straggler, what binds the split, and what would move it."""
    model, bound_by = row["model"], row["bound_by"]
    cpu, csd = row["t_cpu_ms"], row["t_csd_ms"]
    if lacking := lacks_answer(row, model):
        return lacking
    if bound_by == NOT_SPLIT:
        return f"{model}: the KV cache fits the GPU, so there is nothing to split."
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
    times = f"T_CPU = {cpu:.4g} ms {sign} T_SmartSSD = {csd:.4g} ms: {straggler}"
    moves = MOVES_BETA.get(bound_by)
    reason = f"{optimum} {bound_by}; {times}{f'; {moves}' if moves else ''}."
    return f"{reason}{why_auto(row, blank='nothing on the drive')}"
