"""Which designs of a sweep are worth building: the frontier of two or three columns, within limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from nearkv.hardware.errors import InputError, unknown
from nearkv.solvers.frontier import frontier
from nearkv.sweeps.evaluation.evaluate import Columns, chunks, stack
from nearkv.sweeps.evaluation.targets import RATIOS, higher_is_better, parse_targets
from nearkv.sweeps.space.study import Study, blocks, comma_list


def pareto(study: Study, by: str, where: Sequence[str]) -> Columns:
    """Evaluate a study and keep the designs that no other beats in every column asked for.

    Args:
        study: what to evaluate; it may be larger than memory.
        by: two or three columns apart by commas; more is better of rates and endurance, less of the rest.
        where: limits on columns, as `step_ms<=200`; designs outside are left out first.

    Returns:
        The rows on the frontier, best in the first column first.

    Raises:
        InputError: the study, a column or a limit cannot be used, or nothing is left.
    """
    names = comma_list(by)
    limits = parse_targets(where, "--where") if where else ()
    if any(limit.quantity in RATIOS for limit in limits):
        raise InputError(
            f"--where: {' and '.join(RATIOS)} need `nearkv compare`; limit columns of a sweep"
        )
    if len(set(names)) != len(names) or not 2 <= len(names) <= 3:
        raise InputError(
            f"--by {by!r}: name two or three different columns, as in throughput_tok_s,cost_usd"
        )

    def best(piece: Columns) -> Columns:
        allowed = np.ones(len(piece["system"]), bool)
        for limit in limits:
            allowed &= limit.margin(piece[limit.quantity].astype(float)) >= 0
        return _take(_take(piece, allowed), frontier(_costs(_take(piece, allowed), names)))

    pieces: Iterable[Columns] = (best(piece) for piece in chunks(blocks(study)))
    found = reduce(lambda kept, piece: best(stack([kept, piece])), pieces)
    if not len(found["system"]):
        raise InputError(
            f"no design {'meets every --where and ' if limits else ''}has all of {by}; see `nearkv sweep`"
        )
    return _take(found, np.lexsort(_costs(found, names).T[::-1]))


def _costs(
    columns: Columns, names: Sequence[str]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    for name in names:
        if name not in columns or columns[name].dtype.kind not in "fiub":
            raise unknown(
                "column", name, [n for n, v in columns.items() if v.dtype.kind in "fiub"], "--by"
            )
    return np.column_stack(
        [columns[n].astype(float) * (-1 if higher_is_better(n) else 1) for n in names]
    )


def _take(columns: Columns, chosen: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Columns:
    return {name: values[chosen] for name, values in columns.items()}
