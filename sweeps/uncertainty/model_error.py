"""The error of the models themselves: what measured runs leave beyond the ranges of the numbers.

The table `model_error.csv`, errors by source, is written by `make bands` from every published run,
those of strangers among them; nothing is computed here when a question is asked.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearkv.costmodel.algebra.span import Numbers, Real, first_longest
from nearkv.costmodel.model.estimate import Estimate
from nearkv.solvers.uncertainty.draws import ranks
from nearkv.solvers.uncertainty.spread import SourceError
from nearkv.sweeps.study.bands import MODEL_ERROR, RATIO_ERROR, Band
from nearkv.sweeps.study.grid import Block

ERROR_TABLE = Path(__file__).with_name("model_error.csv")
MECHANISMS = {
    "gpu": "GPU",
    "host": "CPU",
    "link": "links",
    "collective": "links",
    "drive": "flash",
    "csd": "flash",
    "dimm-pim": "PIM",
    "memory": "PIM",
    "accelerator": "PIM",
}
"""Type of a part -> mechanism; H2M2's memories compute beside their banks."""
BETWEEN_GPUS = ("nvlink", "fabric", "cluster_link")
"""Roles of links over which GPUs act as one: their time is that of GPUs, as that of kernels."""
VALUE, RATIO = "value", "ratio"
ALL = "all"
"""The pool of all mechanisms."""
_TIMES = ("_s", "_ms", "_j_tok")
_RATE_COLUMNS = ("tok_s", "tok_s_per_kusd")


@dataclass(frozen=True)
class ModelError:
    """The law of ln(predicted / measured) of a new source, beyond the ranges of hardware numbers.

    Attributes:
        mechanism: that of the resource that takes most of the time.
        of: `value`, or `ratio` of two systems.
        without: the paper or source whose rows are left out; empty for none.
        pool: of which rows it is the spread: of the mechanism, or of all where these are too few.
        rows, sources: how many are in the pool.
        inside: share of all rows of the pool's kind in their 90 % bands, each without its source.
        law: of the logarithm.
    """

    mechanism: str
    of: str
    without: str
    pool: str
    rows: int
    sources: int
    inside: float
    law: SourceError


@cache
def model_errors() -> dict[tuple[str, str, str], ModelError]:
    """The table, by mechanism, what is predicted and what is left out."""
    table = {}
    with ERROR_TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            mechanism, of, without, pool, rows, sources, inside, *law = row.values()
            table[mechanism, of, without] = ModelError(
                mechanism,
                of,
                without,
                pool,
                int(rows),
                int(sources),
                float(inside),
                SourceError(*map(float, law)),
            )
    return table


def find_error(mechanism: str, of: str, source: str) -> ModelError:
    """The model error of a mechanism, from rows of other sources than the one named."""
    table = model_errors()
    return table.get((mechanism, of, source)) or table[mechanism, of, ""]


def mechanism_of(block: Block, resource: str) -> str:
    """The mechanism of a resource, by the part that fills its role."""
    role = resource.partition(".")[0]
    if role in BETWEEN_GPUS:
        return MECHANISMS["gpu"]
    part = block.platform.roles.get(role)
    return MECHANISMS.get(part.type, ALL) if part else ALL


def drawn_error(
    block: Block, band: Band, estimate: Estimate, shape: tuple[int, ...], of: str
) -> Numbers:
    """Logarithm of the model error at each design point and draw (*shape, draws) [1].

    Args:
        block: whose points these are.
        band: how much is drawn, and with which seed.
        estimate: the answer at the stated numbers, whose slowest mechanism errs.
        shape: of the design points.
        of: `value` or `ratio`.
    """
    drawn = ranks(band.names, band.samples, band.seed)
    rank = drawn[MODEL_ERROR if of == VALUE else RATIO_ERROR]
    places, names = slowest(block, estimate, shape)
    cite = block.system.cite
    by_mechanism = [find_error(name, of, cite).law.quantile(rank) for name in names]
    errors: Numbers = np.stack(by_mechanism)[places]
    return errors


def slowest(
    block: Block, estimate: Estimate, shape: tuple[int, ...]
) -> tuple[NDArray[np.intp], list[str]]:
    """Kinds of mechanism, and the place among them of the one with most of the time."""
    seconds: dict[str, Real] = {}
    for resource, value in estimate.total.attribution().items():
        name = mechanism_of(block, resource)
        seconds[name] = seconds.get(name, 0.0) + value
    return np.broadcast_to(first_longest(seconds.values()), shape), list(seconds)


def error_power(column: str) -> int:
    """Sign by which a column answers to a time that is longer than predicted, 0 for not at all."""
    if column.endswith(_RATE_COLUMNS):
        return -1
    return 1 if column.endswith(_TIMES) else 0
