"""Random studies with choices, solved shares, swept rates and traces: a grid is its points."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import numpy as np
import pytest
from support.studies import drawn_study

from nearkv.hardware.errors import InputError
from nearkv.sweeps.evaluate.columns import columns
from nearkv.sweeps.study.grid import Block, Slices
from nearkv.sweeps.study.study import Study, blocks
from nearkv.sweeps.tables.table import Columns

QUEUES = {"l3", "gpu", "hbm-pim", "rank-pim", "cpu-offload"}
POINTS = int(os.environ.get("NEARKV_CASES", "12"))


def studies(random: Random, with_traces: bool) -> Iterator[Study]:
    """Random studies, some of their systems on a machine that is not theirs."""
    while True:
        study = drawn_study(random, 300)
        if not with_traces:
            yield study
        elif QUEUES.issuperset(study.systems):
            traces = random.sample(("openr1", "longbench", "dolphin"), random.choice((1, 2)))
            yield Study(
                study.systems,
                study.models,
                platforms=study.platforms,
                sets=study.sets,
                knobs=study.knobs,
                traces=tuple(traces),
            )


def compared(block: Block, random: Random) -> int:
    """Compare the numbers of some points alone with those of the whole grid; how many."""
    whole = columns(block, block.grid.whole)
    for _ in range(3):
        place = tuple(random.randrange(extent) for extent in block.grid.shape)
        box: Slices = tuple(slice(at, at + 1) for at in place)
        row = int(np.ravel_multi_index(place, block.grid.shape))
        assert_same(columns(block, box), whole, row, f"{block.system.name} {place}")
    return 3


def assert_same(alone: Columns, whole: Columns, row: int, what: str) -> None:
    for name in set(alone) & set(whole):
        one, same = alone[name][0], whole[name][row]
        if alone[name].dtype.kind == "f":
            assert one == pytest.approx(same, rel=1e-7, nan_ok=True), f"{what} {name}"
        elif name != "note":  # a grid's notes are of all its points
            assert one == same, f"{what} {name}"


@pytest.mark.filterwarnings("ignore:--set")  # some systems do not read what is drawn
@pytest.mark.parametrize("with_traces", [False, True])
def test_a_point_alone_answers_as_in_its_grid(with_traces: bool) -> None:
    random, points = Random(7), 0
    for study in studies(random, with_traces):
        if points >= POINTS:
            break
        with suppress(InputError):
            points += sum(compared(block, random) for block in blocks(study))
