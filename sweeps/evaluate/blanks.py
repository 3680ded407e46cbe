"""Systems that run and have no number to compare by, as no decode rate where prompts ride."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from nearkv.costmodel.model.metrics import COSTS
from nearkv.hardware.errors import warn
from nearkv.sweeps.evaluate.columns import columns
from nearkv.sweeps.evaluate.prices import no_prices
from nearkv.sweeps.study.grid import Axis, Block, Grid

_PER_AXIS = 3
"""Values of each axis at which blanks are looked for: its ends and its middle."""
_MOST = 1 << 14
"""Design points of one look; further axes are then looked at in one place."""


def warn_of_blanks(study_blocks: Sequence[Block], names: Collection[str]) -> None:
    """Warn of columns that rows are compared by and that running systems leave blank."""
    for name in names:
        if systems := running_without(study_blocks, name):
            blank = f"{' and '.join(systems)} run at design points without {name}"
            why = f"see `nearkv columns show {name}`"
            if name in COSTS and (unpriced := no_prices(study_blocks)):
                why = "; ".join(unpriced)
            warn(f"--by {name}: {blank} ({why}); those are left out")


def running_without(study_blocks: Sequence[Block], name: str) -> list[str]:
    """Systems that run at a corner or in the middle of a study and leave a column blank there."""
    systems = set()
    for block in study_blocks:
        if not block.is_closed_form:
            continue
        coarse = _coarse(block)
        table = columns(coarse, coarse.grid.whole, (name, "status"))
        runs = table["status"] == "ok"
        nothing = np.full(len(runs), np.nan)
        values = table.get(name, nothing)
        if values.dtype.kind != "f":
            continue
        blank = np.isnan(values.astype(float))
        if np.any(runs & blank):
            systems.add(block.system.name)
    return sorted(systems)


def _coarse(block: Block) -> Block:
    """The block at the ends and the middle of every axis."""
    points, axes = 1, []
    for axis in block.grid.axes:
        count = _PER_AXIS if points * _PER_AXIS <= _MOST else 1
        last = len(axis.values) - 1
        places = np.unique(np.linspace(0, last, count).astype(int))
        points *= len(places)
        axes.append(Axis(axis.name, axis.values[places], axis.labels))
    return replace(block, grid=Grid(tuple(axes)))
