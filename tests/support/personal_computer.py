"""The AI PC of HillInfer's paper, and its systems with knobs at their defaults."""

from __future__ import annotations

from support.systems import SYSTEMS, model

from nearkv.costmodel.algebra.span import Real
from nearkv.costmodel.model.workload import Workload
from nearkv.hardware.catalog import load_platform
from nearkv.hardware.machine import Machine
from nearkv.solvers.knobs import Resolved, resolve_knobs

WORK = Workload(8.0, 12288.0, 128.0)


def machine(**changes: Real) -> Machine:
    return (
        load_platform("aipc-4090")
        .machine()
        .with_values({k.replace("__", "."): v for k, v in changes.items()})
    )


def solved(system: str, hw: Machine, llm: str, work: Workload, **stated: Real | str) -> Resolved:
    spec = SYSTEMS[system]
    defaults: dict[str, Real | str] = {n: k.default for n, k in spec.knobs.items() if not k.sets}
    return resolve_knobs(spec, hw, model(llm), work, defaults | stated)
