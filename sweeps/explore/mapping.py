"""`nearkv solve mapping`: the best heads on HBM, and how far the paper's policies are from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.capacity import STATUSES
from nearkv.costmodel.mechanisms.head_mapping import SUBLAYERS, decoder_bytes
from nearkv.costmodel.mechanisms.head_tables import HeadTables, head_tables
from nearkv.hardware.errors import InputError, unknown
from nearkv.solvers.mapping.brute import brute
from nearkv.solvers.mapping.exact import Mapping, bytes_used, exact, greedy
from nearkv.solvers.mapping.milp import milp
from nearkv.solvers.mapping.policies import POLICIES
from nearkv.sweeps.evaluation.evaluate import Columns, stack
from nearkv.sweeps.space.grid import Box
from nearkv.sweeps.space.study import Block, Study, blocks

METHODS: dict[str, Callable[[HeadTables], Mapping]] = {
    "exact": exact,
    "greedy": greedy,
    "milp": milp,
    "brute": brute,
}
ONE_AT_A_TIME = ("milp", "brute")
BRIEF = (
    *(
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
    ),
    *("greedy_step_ms", "greedy_loss", "a_major_loss", "q_major_loss", "f_major_loss"),
)
"""Columns a terminal shows."""
COMPARED = ("greedy", "a-major", "q-major", "f-major")
"""Policies of the paper whose distance to the optimum is shown."""


def best_mapping(study: Study, method: str) -> Columns:
    """Map the heads of one decode step at every design point; the context is the step's.

    Args:
        study: models, workloads and hardware numbers; it names no systems.
        method: a key of METHODS.

    Returns:
        The mapping by `method`, `step_ms`, bytes on both sides, and for each policy of the paper its
        `step_ms` and its loss (how much longer its step takes than the optimum's). NaN where nothing fits.

    Raises:
        InputError: unknown method, or no design point fits both memories.
    """
    if method not in METHODS:
        raise unknown("method", method, METHODS, "--method")
    laid = blocks(replace(study, systems=("asymmetric",)))
    found = stack(
        [
            _mapped(b, box, method)
            for b in laid
            for box in b.grid.boxes(1 if method in ONE_AT_A_TIME else 1 << 16)
        ]
    )
    if not (found["status"] == "ok").any():
        raise InputError(_too_large(laid[0], found))
    return found


def _mapped(block: Block, box: Box, method: str) -> Columns:
    hw, llm, work, _ = block.inputs(box)
    tables = head_tables(hw, llm, work.at(work.prompt))
    best, optimum = METHODS[method](tables), exact(tables)
    hbm, lpddr = bytes_used(tables, best)
    shape = tuple(piece.stop - piece.start for piece in box)
    mesh = block.grid.mesh(box)
    columns: dict[str, NDArray[np.generic] | float] = {
        "model": np.array(block.grid.axes[0].labels)[mesh["model"].astype(int)],
        "platform": np.array(block.platform.name),
        **{name: mesh[name] for name in ("batch", "context_tok", *block.sets)},
        "method": np.array(method),
        "status": np.where(best.ok, *STATUSES[:2]),
        **{f"n_{name}": _where(best, n) for name, n in zip(SUBLAYERS, best.units, strict=True)},
        "step_ms": _where(best, 1e3 * best.seconds),
        "hbm_used_bytes": _where(best, hbm),
        "lpddr_used_bytes": _where(best, lpddr),
        "footprint_bytes": decoder_bytes(llm, work.batch, work.prompt),
    }
    for name in COMPARED:
        policy = POLICIES[f"mapping-{name}"].choose(tables)
        key = name.replace("-", "_")
        columns[f"{key}_step_ms"] = _where(policy, 1e3 * policy.seconds)
        columns[f"{key}_loss"] = _where(policy, policy.seconds / optimum.seconds - 1)
    return {name: np.broadcast_to(value, shape).ravel() for name, value in columns.items()}


def _where(mapping: Mapping, value: object) -> NDArray[np.float64]:
    return np.where(mapping.ok, np.asarray(value, float), np.nan)


def _too_large(block: Block, found: Columns) -> str:
    hw, _, _, _ = block.inputs(block.grid.whole)
    there = np.max(hw.hbm.count * hw.hbm.memory + hw.lpddr.count * hw.lpddr.memory)
    least = found["footprint_bytes"].astype(float).min()
    return (
        f"{found['model'][0]}: the decoder layers need {least / 1e9:,.1f} GB and HBM and LPDDR together hold "
        f"{there / 1e9:,.1f} GB; lower --batch or --context, or --set lpddr.memory higher"
    )
