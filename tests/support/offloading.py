"""OPT-30B on systems that stream its weights to one GPU, its bytes by hand."""

from __future__ import annotations

from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.span import Real, Span
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine

WORK = Workload(96.0, 512.0, 32.0).at_context(528.0)
"""96 prompts, the step at the mean context."""
WEIGHTS = 48 * 12 * 7168**2 * 2
"""Matrices of OPT-30B's layers, 12 h^2 each, 16 bits [B]."""
CACHE = 48 * 4 * 7168 * 96 * 528
"""K and V of 96 sequences of 528 tokens, 4 h bytes a layer and token [B]."""
ALL_IN_HOST: dict[str, dict[str, Real]] = {
    "zero-inference": {"ssd_weights": 0.0},
    "flexgen-percent": {"gpu_weights": 0.0, "ssd_weights": 0.0},
}
"""Knobs that leave all weights in host memory."""
IN_FILES = {"policy.weights_in_dram_up_to": 1e3}
"""The rule of HILOS sec. 6.1 with a limit below a small model's parameters."""


def bed(name: str, **widths: float) -> Machine:
    """A test bed whose weights or cache have so many bytes an element."""
    changes = {f"precision.{key}": value for key, value in widths.items()}
    return load_platform(name).machine().with_values(changes)


def layers(system: str, hw: Machine, work: Workload = WORK, **knobs: Real) -> Span:
    """The layers of a decode step, without the output head."""
    stated: dict[str, Real] = {**ALL_IN_HOST[system], **knobs}
    return SYSTEMS[system](hw, model("opt-30b", hw), work, stated).step.parts["layers"]


def short_step(system: str, **knobs: Real) -> float:
    """Seconds of the layers for one short sequence, which computes next to nothing."""
    work = Workload(1.0, 32.0, 32.0)
    return float(layers(system, bed("zero-a6000"), work, **knobs).seconds)


def storage_path(drives: str, lanes: str, amount: float, **more: float) -> dict[str, float]:
    """Bytes that come from drives through the file system."""
    path = {f"{drives}.flash read": amount, f"{lanes}.in move": amount}
    return {**path, "host.file move": amount, **more}
