"""`nearkv solve mapping`: the best heads on HBM, and what the paper's policies lose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.capacity import STATUSES
from nearkv.costmodel.mechanisms.head_mapping import SUBLAYERS, decoder_bytes
from nearkv.costmodel.mechanisms.head_tables import HeadTables, head_tables
from nearkv.costmodel.models import require_alike
from nearkv.hardware.errors import InputError, unknown
from nearkv.solvers.mapping.brute import brute
from nearkv.solvers.mapping.exact import Mapping, bytes_used, exact, greedy
from nearkv.solvers.mapping.milp import milp
from nearkv.solvers.mapping.policies import POLICIES
from nearkv.sweeps.evaluation.evaluate import Columns, stack
from nearkv.sweeps.explore.knobs import excess
from nearkv.sweeps.explore.lines import searched
from nearkv.sweeps.space.grid import Box
from nearkv.sweeps.space.study import Block, Study

METHODS: dict[str, Callable[[HeadTables], Mapping]] = {
    "exact": exact,
    "greedy": greedy,
    "milp": milp,
    "brute": brute,
}
ONE_AT_A_TIME = ("milp", "brute")
"""Methods that solve one design point at a time."""
AT_ONCE = 1 << 16
"""Design points that the other methods solve at once."""
BRIEF = (
    "model",
    "platform",
    "batch",
    "context_tok",
    "method",
    "status",
    "n_attention",
    "n_qkv",
    "n_fc",
    "step_ms",
    "bound_ms",
    "gap",
    "rule_loss",
    "a_major_loss",
    "q_major_loss",
    "f_major_loss",
)
"""Columns a terminal shows."""
POLICY_COLUMNS = {
    "rule": "mapping-greedy",
    "a_major": "mapping-a-major",
    "q_major": "mapping-q-major",
    "f_major": "mapping-f-major",
}
"""Columns of the paper's policies; its rule is the greedy of Algorithm 1."""


def best_mapping(study: Study, method: str) -> Columns:
    """Map the heads of one decode step at every design point.

    The step is that of every system: it sees the mean context of the workload.

    Args:
        study: models, workloads and hardware numbers; it names no systems.
        method: a key of METHODS.

    Returns:
        The mapping by `method`, its `step_ms`, `bound_ms` that no mapping beats and the relative
        `gap` to it, bytes on both sides, and of the paper's rule (Algorithm 1) and its majors the
        `step_ms` and the loss, how much longer their step takes than the bound. NaN where nothing
        fits.

    Raises:
        InputError: unknown method, or no design point fits both memories.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS, "--method")
    most = 1 if method in ONE_AT_A_TIME else AT_ONCE
    study_blocks = searched(replace(study, systems=("asymmetric",)))
    pieces = [
        _mapped(block, box, method)
        for block in study_blocks
        for box in block.grid.boxes(most)
    ]
    answer = stack(pieces)
    if not (answer["status"] == "ok").any():
        raise InputError(_too_large(study_blocks[0], answer))
    return answer


def _mapped(block: Block, box: Box, method: str) -> Columns:
    hw, llm, work, _ = block.inputs(box)
    require_alike(llm, "--model", "head mapping")
    tables = head_tables(hw, llm, work)
    best, optimum = METHODS[method](tables), exact(tables)
    hbm, lpddr = bytes_used(tables, best)
    columns: dict[str, NDArray[np.generic]] = {
        **_point(block, box),
        "method": np.array(method),
        "status": np.where(best.ok, *STATUSES[:2]),
    }
    for name, heads in zip(SUBLAYERS, best.units, strict=True):
        columns[f"n_{name}"] = _where(best, heads)
    columns |= {
        "step_ms": _where(best, 1e3 * best.seconds),
        "bound_ms": _where(optimum, 1e3 * optimum.seconds),
        "gap": _where(best, excess(best.seconds, optimum.seconds)),
        "hbm_used_bytes": _where(best, hbm),
        "lpddr_used_bytes": _where(best, lpddr),
        "footprint_bytes": np.asarray(decoder_bytes(llm, work.batch, work.context)),
    }
    for name, policy in POLICY_COLUMNS.items():
        mapping = POLICIES[policy].choose(tables)
        loss = excess(mapping.seconds, optimum.seconds)
        columns[f"{name}_step_ms"] = _where(mapping, 1e3 * mapping.seconds)
        columns[f"{name}_loss"] = _where(mapping, loss)
    shape = tuple(piece.stop - piece.start for piece in box)
    return {
        name: np.broadcast_to(column, shape).ravel() for name, column in columns.items()
    }


def _point(block: Block, box: Box) -> dict[str, NDArray[np.generic]]:
    """Columns of the axes that identify a design point."""
    mesh = block.grid.mesh(box)
    labels = np.array(block.grid.axes[0].labels)
    columns: dict[str, NDArray[np.generic]] = {
        "model": labels[mesh["model"].astype(int)],
        "platform": np.array(block.platform.name),
    }
    for name in ("batch", "context_tok", *block.sets):
        columns[name] = mesh[name]
    return columns


def _where(mapping: Mapping, value: object) -> NDArray[np.float64]:
    return np.where(mapping.ok, np.asarray(value, float), np.nan)


def _too_large(block: Block, answer: Columns) -> str:
    hw, _, _, _ = block.inputs(block.grid.whole)
    hbm = hw.hbm.count * hw.hbm.memory
    lpddr = hw.lpddr.count * hw.lpddr.memory
    capacity = np.max(hbm + lpddr)
    least = answer["footprint_bytes"].astype(float).min()
    return (
        f"{answer['model'][0]}: the decoder layers need {least / 1e9:,.1f} GB and HBM and LPDDR "
        f"together hold {capacity / 1e9:,.1f} GB; lower --batch or --context, or --set "
        "lpddr.memory higher"
    )
