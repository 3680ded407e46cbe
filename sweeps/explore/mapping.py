"""`nearkv solve mapping`: the best heads on HBM, and what the paper's policies lose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.mechanisms.hbm_lpddr.head_mapping import (
    ATTENDS,
    SUBLAYERS,
    decoder_bytes,
)
from nearkv.costmodel.mechanisms.hbm_lpddr.head_tables import HeadTables, head_tables
from nearkv.costmodel.model.metrics import COLUMNS
from nearkv.costmodel.model.models import require_alike
from nearkv.hardware.errors import check_known
from nearkv.solvers.mapping.checks import brute, milp
from nearkv.solvers.mapping.exact import exact
from nearkv.solvers.mapping.policies import MAPPING_POLICIES, greedy
from nearkv.solvers.mapping.tables import HeadMapping, bytes_used
from nearkv.sweeps.evaluate.columns import columns, stack
from nearkv.sweeps.evaluate.no_effect import warn_of_unread
from nearkv.sweeps.explore.knob import excess, of_whole_request, why_auto
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.explore.rows import lacks_answer
from nearkv.sweeps.study.grid import Block, Slices, shape_of
from nearkv.sweeps.study.study import Study
from nearkv.sweeps.tables.table import Columns, Row

SOLVERS: dict[str, Callable[[HeadTables], HeadMapping]] = {
    "exact": exact,
    "greedy": greedy,
    "milp": milp,
    "brute": brute,
}
AUTO_HEADS = {f"auto_n_{name}": f"n_{name}" for name in SUBLAYERS}
"""Columns of the heads with which a whole request is shortest, and their knobs."""
ONE_AT_A_TIME = ("milp", "brute")
"""Methods that solve one design point at a time."""
POLICY_COLUMNS = {
    "rule": "mapping-greedy",
    "a_major": "mapping-a-major",
    "q_major": "mapping-q-major",
    "f_major": "mapping-f-major",
}
"""Columns of the paper's policies; its rule is the greedy of Algorithm 1."""


def find_mapping(study: Study, method: str) -> Columns:
    """Map the heads of one decode step at every design point.

    The step is that of every system: it sees the mean context of the workload.

    Args:
        study: models, workloads and hardware numbers; it names no systems.
        method: a key of METHODS.

    Returns:
        Columns with a row per point, NaN where nothing fits:

        - the heads on HBM by `method`, bytes on both sides and `step_ms`;
        - `bound_ms`: a step that no mapping beats; `gap`: the relative distance to it;
        - of the paper's rule (Algorithm 1) and of its majors the `step_ms`, and the loss, how much
          longer their step takes than the bound;
        - of answers with more than one token `total_s` and, where another mapping makes that
          notably shorter, its `auto_total_s` and heads.

    Raises:
        InputError: unknown method, or a model with attention that it does not model.
    """
    check_known("method", [method], SOLVERS, "--method")
    study_blocks = searched(replace(study, systems=("asymmetric",)))
    warn_of_unread(study_blocks)
    pieces = []
    for block in study_blocks:
        boxes = block.grid.boxes(1 if method in ONE_AT_A_TIME else block.at_once)
        pieces += [_mapped(block, box, method) for box in boxes]
    return stack(pieces)


def _mapped(block: Block, box: Slices, method: str) -> Columns:
    hw, llm, work, _ = block.inputs(box)
    require_alike(llm, "--model", "head mapping", ATTENDS)
    tables = head_tables(hw, llm, work)
    best, optimum = SOLVERS[method](tables), exact(tables)
    units = {f"n_{name}": n for name, n in zip(SUBLAYERS, best.units, strict=True)}
    resolved = block.given(units).resolved(box)
    evaluated = columns(block, box, resolved=resolved)
    measured = COLUMNS.keys() | resolved.estimate.columns
    table = {name: evaluated[name] for name in evaluated if name not in measured}
    hbm, lpddr = bytes_used(tables, best)
    beside: dict[str, NDArray[np.generic]] = {
        "method": np.array(method),
        **{name: _where(best, heads) for name, heads in units.items()},
        "step_ms": _where(best, 1e3 * best.seconds),
        "bound_ms": _where(optimum, 1e3 * optimum.seconds),
        "gap": _where(best, excess(best.seconds, optimum.seconds)),
        "bound_by": np.where(best.ok, _what_binds(tables, best), ""),
        "hbm_used_bytes": _where(best, hbm),
        "lpddr_used_bytes": _where(best, lpddr),
        "footprint_bytes": np.asarray(decoder_bytes(llm, work.batch, work.context)),
    }
    total = resolved.estimate.total.seconds
    if np.any(np.greater(work.output, 1)):
        beside["total_s"] = _where(best, total)
        whole = of_whole_request(total, block.resolved(box), AUTO_HEADS)
        beside |= {name: _where(best, value) for name, value in whole.items()}
    for name, policy in POLICY_COLUMNS.items():
        mapping = MAPPING_POLICIES[policy].choose(tables)
        loss = excess(mapping.seconds, optimum.seconds)
        beside[f"{name}_step_ms"] = _where(mapping, 1e3 * mapping.seconds)
        beside[f"{name}_loss"] = _where(mapping, loss)
    shape = shape_of(box)
    for name, column in beside.items():
        table[name] = np.broadcast_to(column, shape).ravel()
    return table


def _what_binds(tables: HeadTables, best: HeadMapping) -> NDArray[np.str_]:
    """Name what ends a mapping: no further head fits HBM, or both sides balance."""
    used, _ = bytes_used(tables, best)
    headroom = np.subtract(tables.hbm_headroom, used)
    is_full = np.ones(np.shape(headroom), bool)
    for sizes, units in zip(tables.hbm, best.units, strict=True):
        fits = np.less_equal(sizes[..., 1], headroom)
        is_full &= ~(fits & np.less(units, tables.units))
    return np.where(is_full, "hbm.memory", "balance")


def _where(mapping: HeadMapping, value: object) -> NDArray[np.float64]:
    return np.where(mapping.ok, np.asarray(value, float), np.nan)


def why_mapping(row: Row) -> str:
    """Say which side of the memory ends a mapping, and what would move it."""
    if lacking := lacks_answer(row, row["model"]):
        return lacking
    attention, qkv, fc = (f"{row[f'n_{name}']:g}" for name in ("attention", "qkv", "fc"))
    heads = f"{attention} heads of attention, {qkv} of qkv and {fc} of fc"
    optimum = f"{row['model']}, {row['context_tok']:,.0f} tokens: HBM holds {heads}"
    reason = "the balance of both sides: the faster HBM is, the more it takes"
    if row["bound_by"] == "hbm.memory":
        reason = "hbm.memory: no further head fits; more of it would hold more"
    return f"{optimum}, bound by {reason}.{why_auto(row, list(AUTO_HEADS))}"
