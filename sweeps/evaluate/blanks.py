"""Systems that run and have no number to compare by, as no decode rate where prompts ride."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from nearkv.hardware.errors import warn
from nearkv.sweeps.evaluate.cells import Points, cells_at
from nearkv.sweeps.evaluate.notes import Names
from nearkv.sweeps.evaluate.requested import on_request
from nearkv.sweeps.study.study import Block

_LOOKED_AT = 3
"""Values of each axis at which blanks are looked for: its ends and its middle."""
_MOST = 1 << 14
"""Design points of one look; further axes are then looked at in one place."""


def running_without(study_blocks: Sequence[Block], name: str) -> list[str]:
    """Systems that run at a corner or in the middle of a study and leave a column blank there."""
    found = {block.system.name for block in study_blocks if _has_blank(block, name)}
    return sorted(found)


def warn_of_blanks(
    study_blocks: Sequence[Block], names: Collection[str], option: str
) -> None:
    """Warn of columns that rows are compared by and that running systems leave blank."""
    for name in names:
        if systems := running_without(study_blocks, name):
            blank = f"{' and '.join(systems)} run at design points without {name}"
            warn(
                f"{option} {name}: {blank} (see `nearkv columns show {name}`); "
                "those are left out"
            )


def _has_blank(block: Block, name: str) -> bool:
    """Whether a system runs at one of some design points and has no number in a column there."""
    if not block.is_closed_form:
        return False
    columns = cells_at(block, _corners(block), (name, "status"), on_request([name]))
    status, column = columns["status"], columns.get(name, np.nan)
    assert isinstance(status, Names)
    if isinstance(column, Names):
        return False
    runs = np.equal(status.places, status.names.index("ok"))
    blank = np.isnan(np.asarray(column, float))
    return bool(np.any(blank & runs))


def _corners(block: Block) -> Points:
    """The ends and the middle of every axis, each shaped to broadcast along its own dimension."""
    points, places = 1, []
    for length in block.grid.shape:
        looked_at = _LOOKED_AT if points * _LOOKED_AT <= _MOST else 1
        chosen = np.unique(np.linspace(0, length - 1, looked_at).astype(int))
        points *= len(chosen)
        places.append(chosen)
    meshes = []
    for grid in (block.grid, block.display_grid):
        whole = grid.mesh(grid.whole)
        axes = zip(whole.items(), places, strict=True)
        mesh = {
            axis: np.take(values, chosen, place)
            for place, ((axis, values), chosen) in enumerate(axes)
        }
        meshes.append(mesh)
    return Points(*meshes)
