"""Names for authors of systems: the words of the algebra, resources, shapes, registration.

>>> from nearkv.modelling import Estimate, fits, gpu, over_layers, overlap, system

Every name has an example in `docs/own.md`; `nearkv systems new NAME` writes a whole system.
"""

from nearkv.costmodel.algebra.span import (
    Leaf,
    Port,
    Span,
    overlap,
    pipeline,
    serial,
    stream,
)
from nearkv.costmodel.model.estimate import Estimate, Fits, fits, reduced_batch
from nearkv.costmodel.model.layers import over_layers, with_widths
from nearkv.costmodel.model.llm import LLM
from nearkv.costmodel.model.registry import Knob, Reversal, System, find_system, system
from nearkv.costmodel.model.resources import csd, drives, gpu, host, link
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.sweeps.study.own_systems import load_plugins
from nearkv.sweeps.validation.contracts import violations

__all__ = [
    "LLM",
    "Estimate",
    "Fits",
    "Knob",
    "Leaf",
    "Machine",
    "Port",
    "Reversal",
    "Span",
    "System",
    "Workload",
    "csd",
    "drives",
    "find_system",
    "fits",
    "gpu",
    "host",
    "link",
    "load_plugins",
    "over_layers",
    "overlap",
    "pipeline",
    "reduced_batch",
    "serial",
    "stream",
    "system",
    "violations",
    "with_widths",
]
