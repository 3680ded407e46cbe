"""What the author of a system may use: the words of the algebra, resources, shapes, registration.

>>> from nearkv.modelling import Estimate, fits, gpu, over_layers, overlap, system

Every name has an example in `docs/own.md`; `nearkv systems new NAME` writes a whole system.
"""

from nearkv.costmodel.capacity import Fits, fits, reduced_batch
from nearkv.costmodel.compose import overlap, pipeline, serial, stream
from nearkv.costmodel.estimate import Estimate
from nearkv.costmodel.layers import over_layers, with_widths
from nearkv.costmodel.llm import LLM
from nearkv.costmodel.registry import Knob, System, find_system, system
from nearkv.costmodel.resources import csd, drives, gpu, host, link
from nearkv.costmodel.span import Leaf, Port, Span
from nearkv.costmodel.workload import Workload
from nearkv.hardware.machine import Machine
from nearkv.sweeps.runtime.plugin_files import load_plugins
from nearkv.sweeps.validation.contracts import violations

__all__ = [
    "LLM",
    "Estimate",
    "Fits",
    "Knob",
    "Leaf",
    "Machine",
    "Port",
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
