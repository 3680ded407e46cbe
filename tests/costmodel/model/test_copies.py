"""A copy on each GPU: what copies share, what they have of their own, and what adds up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.systems import SYSTEMS, middle, model

from nearkv.costmodel.model.copies import OF_A_ROLE, number_of_copies
from nearkv.costmodel.model.metrics import Evaluated, energy, power
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.sweeps.validation.contracts import CONTRACTS, ContractCase

COMMON = load_platform("common").machine()
COPIED = ["flexgen-ssd", "flexgen-16ssd", "hilos", "inf2", "hillinfer", "h2o", "h2m2"]
"""Systems that know one GPU."""
FAMILIES = ["flexgen-ssd", "hilos", "inf2", "hillinfer", "l3", "h2m2", "gpu"]
WORK = Workload(8.0, 8192.0, 64.0)
STEPWISE = ("h2m2", "gpu")
"""Their knobs are whole numbers that a solver picks."""


def case(name: str, hw: Machine, work: Workload = WORK) -> ContractCase:
    system = SYSTEMS[name]
    knobs = {} if name in STEPWISE else middle(system)
    return ContractCase(system, hw, model("llama3.1-8b", hw), work, knobs)


def times(hw: Machine, number: float) -> Machine:
    """As many of all parts: hosts and drives, too."""
    changes = {
        f"{role}.{key}": number * part.values[key]
        for role, part in hw.roles.items()
        for key in OF_A_ROLE
        if key in part.values
    }
    return hw.with_values(changes)


@pytest.mark.parametrize("name", COPIED)
def test_four_machines_take_as_long_as_one_and_four_times_the_energy(name: str) -> None:
    """Four copies of all parts with four times the batch are four machines side by side."""
    one = case(name, COMMON).at()
    hw, work = times(COMMON, 4.0), replace(WORK, batch=4 * WORK.batch)
    four = case(name, hw, work).at()
    assert four.total.seconds == pytest.approx(one.total.seconds, rel=1e-12)
    assert four.batch_run == pytest.approx(4 * one.batch_run)
    assert np.all(four.fits.ok)
    for memory, (needed, there) in one.fits.tiers.items():
        assert four.fits.tiers[memory] == pytest.approx((4 * needed, 4 * there))
        assert sum(four.fits.contents[memory].values()) == pytest.approx(4 * needed)
    for key, amount in one.total.traffic().items():
        assert four.total.traffic()[key] == pytest.approx(4 * amount), key
    owns = SYSTEMS[name].owns
    watts = [
        power(Evaluated(answer, machine, owns)) for answer, machine in ((one, COMMON), (four, hw))
    ]
    assert watts[1] == pytest.approx(4 * watts[0])
    joules = [
        energy(Evaluated(answer, machine, owns)) for answer, machine in ((one, COMMON), (four, hw))
    ]
    assert joules[1] == pytest.approx(joules[0])


@pytest.mark.parametrize("name", COPIED)
def test_a_single_sequence_has_the_whole_host(name: str) -> None:
    alone = Workload(1.0, 8192.0, 64.0)
    eight = case(name, COMMON.with_values({"gpu.count": 8.0}), alone).at()
    assert eight.total.seconds == case(name, COMMON, alone).at().total.seconds


def test_part_of_a_sequence_has_a_whole_copy() -> None:
    hw = COMMON.with_values({"gpu.count": 4.0})
    copies = number_of_copies(hw, Workload(np.array([0.25, 1.0, 3.0, 8.0]), 8192.0, 64.0))
    assert np.ravel(copies).tolist() == [1, 1, 3, 4]


def test_copies_read_their_weights_each() -> None:
    """Weights in host memory cross the links once a copy: as many bytes as there are copies."""
    in_dram = {"weights": 3.0, "ssd_weights": 0.0, "gpu_batches": 1.0}
    weights = model("llama3.1-8b", COMMON).weight_bytes
    for number in (1.0, 2.0):
        trial = case("flexgen-ssd", COMMON.with_values({"gpu.count": number}))
        traffic = replace(trial, knobs=in_dram).at().step.traffic()
        assert traffic["gpu_link.in", "move"] == pytest.approx(number * weights, rel=0.2)


@pytest.mark.parametrize("count", [1.0, 4.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_contracts_hold_on_equal_ground(name: str, count: float) -> None:
    trial = case(name, COMMON.with_values({"gpu.count": count}))
    assert [sentence for contract in CONTRACTS for sentence in contract(trial)] == []
