"""Several GPUs for a system that knows one: a copy of the system on each, with its share of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nearkv.costmodel.algebra.span import Real, SideBySide
from nearkv.costmodel.model.estimate import Estimate
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine, SiValue

OF_A_ROLE = ("count", "array_read", "file_read")
"""Numbers that state all parts of a role together, which copies share."""
A_COPY_A_GPU = "a copy on each GPU, with as large a share of host, drives and requests"


def has_one_gpu(hw: Machine) -> bool:
    """True if a machine has no more than one GPU at any design point."""
    return "gpu" not in hw.roles or bool(np.all(hw.gpu.count == 1))


def number_of_copies(hw: Machine, work: Workload) -> Real:
    """GPUs that have a copy: all, or as many as there are sequences [1]."""
    return np.minimum(np.maximum(work.batch, 1.0), hw.gpu.count)


def of_one_copy(hw: Machine, work: Workload, copies: Real) -> tuple[Machine, Workload]:
    """The machine and the sequences of one copy.

    Args:
        hw, work: of all copies.
        copies: how many there are [1].
    """
    at_work = hw.with_values({"gpu.count": copies})
    shares: dict[str, SiValue] = {}
    for name, role in at_work.roles.items():
        for key in OF_A_ROLE:
            if key in role.values:
                shares[f"{name}.{key}"] = role.values[key] / copies
    return at_work.with_values(shares), replace(work, batch=work.batch / copies)


def of_all_copies(estimate: Estimate, work: Workload, copies: Real) -> Estimate:
    """The answer of all copies together: as long, with as many times the amounts.

    Args:
        estimate: of one copy.
        work: of all of them.
        copies: how many there are [1].
    """
    power = estimate.accelerator_power.items()
    several = copies > 1
    return replace(
        estimate,
        prefill=SideBySide(copies, estimate.prefill),
        step=SideBySide(copies, estimate.step),
        fits=estimate.fits.times(copies),
        work=work,
        batch_run=copies * estimate.batch_run,
        accelerator_power={name: copies * watts for name, watts in power},
        notes={**estimate.notes, A_COPY_A_GPU: np.asarray(several)},
    )
