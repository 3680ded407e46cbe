"""Parts of a machine are built once, and freed with it."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from nearkv.costmodel.model.resources import csd
from nearkv.hardware.catalog import load_platform
from nearkv.solvers.knobs import resolve_knobs
from nearkv.sweeps.study.study import Study, blocks


def test_parts_of_a_machine_are_built_once_for_the_same_arguments() -> None:
    hw = load_platform("hilos-a100").machine()
    group = np.array([1.0, 4.0])
    assert csd(hw, 1.0) is csd(hw, 1.0)
    assert csd(hw, group) is csd(hw, group)
    assert csd(hw, 1.0) is not csd(hw, 4.0)
    both = np.asarray(csd(hw, group).attend.rate)
    assert both[0] == csd(hw, 1.0).attend.rate
    assert csd(hw, 1.0, kv_width=1.0).kv_width == 1.0
    assert csd(hw, 1.0).kv_width == 2.0


def test_a_machine_with_other_numbers_builds_its_own_parts() -> None:
    hw = load_platform("hilos-a100").machine()
    fewer = hw.with_values({"csd.count": hw.csd.count / 2})
    assert fewer is not hw
    assert csd(hw, 1.0).read.rate == 2 * csd(fewer, 1.0).read.rate


def test_a_machine_is_freed_with_what_was_built_of_it() -> None:
    """A sweep builds one a box: waiting for the collector of cycles it would hold gigabytes."""
    (block,) = blocks(Study(("hilos",), ("opt-30b",), "1,2", "4k,8k"))
    gc.disable()
    try:
        hw, llm, work, requested = block.inputs(block.grid.whole)
        resolve_knobs(block.system, hw, llm, work, requested).estimate.total.attribution()
        machine = weakref.ref(hw)
        assert hw.built
        del hw
        assert machine() is None
    finally:
        gc.enable()
